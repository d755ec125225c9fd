"""All that is run: a truth with a number of rows is a case; the methods that are tried on each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.rows import Run
from benchmarks.shapes.truths import SHAPES, Shape

SEEDS = 3
N_ROWS = (1_000, 3_000, 10_000)
MANY_ROWS = 100_000
OF_MANY_ROWS = ("demo", "moving_20", "jumps_5")
OURS = ("treecdf", "treecdf_fast")
PEERS = (
    "mdn",
    "mdn_folds",
    "nsf",
    "lightgbmlss_mixture",
    "lightgbmlss_spline",
    "ngboost_early",
    "quantile_forest",
    "paper",  # ours too, and no more than a peer here
)
METHODS = (*OURS, *PEERS)
ONE_OUTCOME = ("lightgbmlss_mixture", "lightgbmlss_spline", "quantile_forest")


@dataclass(frozen=True)
class Case:
    """A truth with a number of rows."""

    truth: str
    n: int

    @property
    def shape(self) -> Shape:
        """The truth itself."""
        return SHAPES[self.truth]


CASES = {
    f"{name}_{n}": Case(name, n)
    for n in (*N_ROWS, MANY_ROWS)
    for name in SHAPES
    if n < MANY_ROWS or name in OF_MANY_ROWS
}


def shapes_runs(
    splits: int | None = None,
    methods: Sequence[str] | None = None,
    truths: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
) -> list[Run]:
    """The runs, seed by seed; a method of one outcome alone has none where there are two."""
    return [
        Run(name, seed, method, seed)
        for seed in range(splits or SEEDS)
        for name in _asked(truths or SHAPES, rows)
        for method in methods or METHODS
        if CASES[name].shape.d == 1 or method not in ONE_OUTCOME
    ]


def _asked(truths: Sequence[str], rows: Sequence[int] | None) -> Iterator[str]:
    """Names of the cases of those truths and numbers of rows."""
    return (name for name, case in CASES.items() if case.truth in truths and (rows is None or case.n in rows))
