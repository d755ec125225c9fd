"""Which model a row measured: pages say of figures of ours that are older than today's model.

A generation is a number that whoever changes what a model predicts raises by one; every row carries those of its day.
"""

from collections import Counter
from collections.abc import Iterable

from benchmarks.peers import PEERS, PEERS_OF_MORE, PEERS_OF_SHAPES

# Of `TreeFlowRegressor.paper()` and of all other models of ours; rows from before there were numbers have none.
GENERATIONS = {"paper": 1, "default": 2}

PAPER_METHODS = frozenset(
    {
        *("lr", "mlp", "full", "middle", "paper", "paper_eta01", "gamma0", "c0_05_gamma_1", "c0_1_gamma_1"),
        *("exhaustive", "rotated", "rotated_equal", "rotated_eta01", "regions4", "regions_hdbscan"),
        *("eta01_equal", "eta01_stacked", "eta01_product"),
    }
)
NOT_OURS = frozenset((*PEERS, *PEERS_OF_SHAPES, *PEERS_OF_MORE, "lightgbm"))


def is_old(row: dict) -> bool:
    """Whether a row measured a model of ours that has changed since."""
    if row["method"] in NOT_OURS:
        return False
    kind = "paper" if row["method"] in PAPER_METHODS else "default"
    return row.get("generation", {}).get(kind, 0) < GENERATIONS[kind]


def note_on_age(rows: Iterable[dict]) -> list[str]:
    """Lines that say how many figures of each method are older than today's model; none if all are of today."""
    old, total = Counter[str](), Counter[str]()
    for row in rows:
        total[row["method"]] += 1
        old[row["method"]] += is_old(row)
    told = [f"`{method}` {_so_many(old[method], total[method])}" for method in total if old[method]]
    if not told:
        return []
    return [f"**Measured with an older version of the model**, and to be measured again: {', '.join(told)}.", ""]


def _so_many(old: int, total: int) -> str:
    return f"(all {total} runs)" if old == total else f"({old} of {total} runs)"
