"""`python -m benchmarks without`: what is lost without a part of the default model, on the same rows."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.comparisons import Groups, figure_of, fit_seconds, markdown_table
from benchmarks.rows import Run, Store, latest, run_all
from benchmarks.scoring import score_table
from benchmarks.shapes.cases import CASES
from benchmarks.shapes.run import score_shapes
from benchmarks.without.parts import METHODS, PARTS

NAME = "without"  # of the file of rows and of the page
WHOLE = "treecdf"
TABLES = ("yacht", "boston", "energy", "concrete", "energy2")
SHAPES = ("demo_3000", "jumps_3000", "moving_5_3000", "moons_3000")
SETS = (*TABLES, *SHAPES)
SPLITS, SEEDS = 5, 1  # of tables, those that were looked at while the model was made; of shapes
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
        if k < (SEEDS if name in CASES else SPLITS)
    ]


def score(run: Run) -> dict:
    """One method on one split of a table, or on one seed of a shape."""
    return score_shapes(run) if run.dataset in CASES else score_table(run)


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
    lines = [_line(part, sets, groups) for part in PARTS]
    lines = [line for line in lines if any(line[1:-1])]
    if not lines:
        return []
    seconds = [f"{fit_seconds(groups[one, WHOLE]):.1f}" for one in sets]
    runs = [str(len(groups[one, WHOLE])) for one in sets]
    return [
        "# What is lost without a part",
        "",
        "The default model with one part taken out, less the whole one: nats a row of test log-likelihood, mean ± "
        "standard error over the splits both have (of tables the first ones, of shapes one set of rows). A negative "
        "number is what the part is worth. In brackets: processor seconds of the fit without it over those with it.",
        "",
        *markdown_table(
            ["without", *sets, "most missed"],
            [*lines, ["*seconds of the whole*", *seconds, ""], ["*runs of the whole*", *runs, ""]],
        ),
        "",
        f"A part that is missed by less than {MISSED} nats on every set adds nothing here; it may on tables that are "
        "larger or of another kind.",
        "",
        f"Made by `python -m benchmarks {NAME}`: {len(rows)} runs, commit "
        f"{', '.join(dict.fromkeys(row['commit'] for row in rows))}. Every run is a row of "
        f"`benchmarks/rows/{NAME}.jsonl`.",
    ]


def _line(part: str, sets: list[str], groups: Groups) -> list[str]:
    """What is lost on each set without a part, and the most of it."""
    cells, worst = [], 0.0
    for one in sets:
        whole, rows = groups[one, WHOLE], groups.get((one, f"without_{part}"), [])
        lost, share = _paired(whole, rows)
        if not len(lost):
            cells.append("")
            continue
        mean, error = figure_of(lost)
        worst = min(worst, mean)
        cells.append(f"{mean:+.3f}" + ("" if error is None else f" ± {error:.3f}") + f" ({share:.2f})")
    return [PARTS[part][0], *cells, f"{abs(worst):.3f}"]


def _paired(whole: list[dict], rows: list[dict]) -> tuple[np.ndarray, float]:
    """Differences of log-likelihood (splits,) on common splits, and the ratio of the seconds of fits there."""
    by_split = {row["split"]: row for row in whole}
    pairs = [(row, by_split[row["split"]]) for row in rows if row["split"] in by_split]
    if not pairs:
        return np.empty(0), np.nan
    lost = [row["metrics"]["log_lik"] - other["metrics"]["log_lik"] for row, other in pairs]
    ours, others = zip(*pairs, strict=True)
    return np.array(lost), fit_seconds(ours) / fit_seconds(others)
