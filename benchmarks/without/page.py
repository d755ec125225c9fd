"""`python -m benchmarks without`: what is lost without a part of the default model, on the same rows."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.comparisons import Groups, figure_of, fit_seconds, markdown_table
from benchmarks.datasets import DATASETS
from benchmarks.honest.run import score_honest
from benchmarks.rows import Run, Store, latest, run_all
from benchmarks.scoring import score_simulation, score_table
from benchmarks.shapes.cases import CASES
from benchmarks.shapes.run import score_shapes
from benchmarks.simulations import SIMULATIONS
from benchmarks.without.parts import METHODS, PARTS

NAME = "without"  # of the file of rows and of the page
WHOLE = "treecdf"
# The sets of each kind: their rows are divided into splits (tables) or drawn anew for each seed (all others)
KINDS = {
    "tables, one outcome": ("yacht", "boston", "energy", "concrete", "kin8nm"),
    "an outcome of few values": ("wine", "counts_plain"),
    "tables, several outcomes": ("energy2", "skillcraft"),
    "simulations of two outcomes": ("squares", "elastic_ring"),
    "several modes": ("demo_3000", "jumps_3000", "moving_5_3000"),
    "bounded": ("bounded_3000",),
    "two outcomes on a curve": ("ring_3000", "moons_3000"),
    "one mode, known truth": ("linear_200", "scales_1000", "t3_1000", "wide_200"),
}
SETS = tuple(name for names in KINDS.values() for name in names)
SPLITS, SEEDS = 5, 1  # of tables, those that were looked at while the model was made; of all others
MISSED = 0.003  # nats a row: a part that is missed by less on every set may go


def without_runs(
    splits: int | None = None, methods: Sequence[str] | None = None, datasets: Sequence[str] | None = None
) -> list[Run]:
    """The runs, split by split."""
    return [
        Run(name, k, method, k)
        for k in range(splits or SPLITS)
        for name in datasets or SETS
        for method in methods or (WHOLE, *METHODS)
        if k < (SPLITS if name in DATASETS else SEEDS)
    ]


def score(run: Run) -> dict:
    """One method on one split of a table, or on one seed of a known density."""
    if run.dataset in DATASETS:
        return score_table(run)
    if run.dataset in SIMULATIONS:
        return score_simulation(run)
    return score_shapes(run) if run.dataset in CASES else score_honest(run)


def run_without(runs: Sequence[Run], again: bool, limit: float | None) -> None:
    """Make the runs that are not stored yet; `again` makes all of them."""
    done = {} if again else latest(Store(NAME).read())
    run_all([run for run in runs if run not in done], score, Store(NAME), limit=limit)


def without_page() -> list[str]:
    """Lines of the page, none without rows."""
    rows = [row for row in latest(Store(NAME).read()).values() if "error" not in row]
    groups: Groups = defaultdict(list)
    for row in rows:
        groups[row["dataset"], row["method"]].append(row)
    sets = [name for name in SETS if (name, WHOLE) in groups]
    parts = [part for part in PARTS if any((name, f"without_{part}") in groups for name in sets)]
    if not parts:
        return []
    tables = [line for kind, names in KINDS.items() for line in _table(kind, [n for n in names if n in sets], groups)]
    return [
        "# What is lost without a part",
        "",
        "Test log-likelihood of the default model without one part minus that of the whole model, in nats per row: "
        "mean ± standard error over common splits (the first splits of tables, one set of rows of known densities). A "
        "negative number is what is lost without the part; +0.000 is often exactly nothing, because the fit does not "
        "use the part on that set. In brackets: processor seconds of the fit without the part divided by those of the "
        "whole.",
        "",
        *tables,
        "## The largest loss without each part",
        "",
        *markdown_table(["without", "largest loss", "on"], [_most_missed(part, sets, groups) for part in parts]),
        "",
        f"A part whose largest loss is below {MISSED} nats adds nothing on these sets; it may on larger tables or on "
        "tables of another kind.",
        "",
        *_where_trees_pay(groups),
        f"Made by `python -m benchmarks {NAME}`: {len(rows)} runs, commit "
        f"{', '.join(dict.fromkeys(row['commit'] for row in rows))}. Every run is a row of "
        f"`benchmarks/rows/{NAME}.jsonl`.",
    ]


def _table(kind: str, sets: list[str], groups: Groups) -> list[str]:
    """The sets of one kind: what is lost on each without a part; empty if none was run."""
    lines = [[PARTS[part][0], *(_cell(one, part, groups) for one in sets)] for part in PARTS]
    lines = [line for line in lines if any(line[1:])]
    if not lines:
        return []
    seconds = [f"{fit_seconds(groups[one, WHOLE]):.1f}" for one in sets]
    runs = [str(len(groups[one, WHOLE])) for one in sets]
    foot = [["*seconds of the whole*", *seconds], ["*runs of the whole*", *runs]]
    return [f"## {kind[0].upper()}{kind[1:]}", "", *markdown_table(["without", *sets], [*lines, *foot]), ""]


def _cell(one: str, part: str, groups: Groups) -> str:
    """What is lost on a set without a part, and the ratio of the seconds; empty if it was not run."""
    lost, share = _paired(groups[one, WHOLE], groups.get((one, f"without_{part}"), []))
    if not len(lost):
        return ""
    mean, error = figure_of(lost)
    return f"{mean:+.3f}" + ("" if error is None else f" ± {error:.3f}") + f" ({share:.2f})"


def _most_missed(part: str, sets: list[str], groups: Groups) -> list[str]:
    """A part, the most nats it is missed by, and on which set."""
    lost = {one: _paired(groups[one, WHOLE], groups.get((one, f"without_{part}"), []))[0] for one in sets}
    means = {one: float(np.mean(values)) for one, values in lost.items() if len(values)}
    worst = min(means, key=means.__getitem__)
    return [PARTS[part][0], f"{max(0.0, -means[worst]):.3f}", worst if means[worst] < 0 else ""]


def _where_trees_pay(groups: Groups) -> list[str]:
    """What the trees after the base gain on each kind of set, and on how many sets there are any."""
    lines = []
    for kind, names in KINDS.items():
        gains, with_trees = [], 0
        for one in names:
            lost, _ = _paired(groups.get((one, WHOLE), []), groups.get((one, "without_flow_trees"), []))
            if len(lost):
                gains.append(f"{one} {float(np.mean(0 - lost)):+.3f}")
                with_trees += bool(lost.any())
        if gains:
            lines.append([kind, f"{with_trees} of {len(gains)}", ", ".join(gains)])
    if not lines:
        return []
    return [
        "## Where the trees after the base help",
        "",
        "Trees are kept only if left-out rows gain by them. The table has, for each kind of data, on how many sets any "
        "run kept trees, and the nats per row that they add:",
        "",
        *markdown_table(["kind of data", "sets with trees", "nats that trees add"], lines),
        "",
    ]


def _paired(whole: list[dict], rows: list[dict]) -> tuple[np.ndarray, float]:
    """Differences of log-likelihood (splits,) on common splits, and the ratio of the seconds of fits there."""
    by_split = {row["split"]: row for row in whole}
    pairs = [(row, by_split[row["split"]]) for row in rows if row["split"] in by_split]
    if not pairs:
        return np.empty(0), np.nan
    lost = [row["metrics"]["log_lik"] - other["metrics"]["log_lik"] for row, other in pairs]
    ours, others = zip(*pairs, strict=True)
    return np.array(lost), fit_seconds(ours) / fit_seconds(others)
