"""Our figures against those the paper published: a line for every set and method, and how many are better or worse."""

from collections import Counter

import numpy as np

from benchmarks.comparisons import Groups, compared, figure_of, fit_seconds, label, mean_se, metric, published
from benchmarks.paper_tables import Figure, Table
from benchmarks.tables import Experiment

SCORES = {"log_lik": "test log-likelihood", "sse": "SSE"}

EXTRA_COLUMNS = {
    "cell_log_lik": "cell score",
    "sse_exact": "SSE, sampler's law",
    "crps": "CRPS",
    "energy_score": "energy score",
    "coverage_50": "50 % covers",
    "coverage_90": "90 % covers",
    "pit_ks": "PIT-KS",
    "trees": "trees",
}

VERDICT_NOTE = (
    "The verdict compares our mean with the paper's: better or worse if they differ by more than one standard error of "
    "the difference (the root of the sum of both squared standard errors), else within. A single run of ours has no "
    "standard error; then the paper's is used alone."
)


def table_of_runs(experiment: Experiment, groups: Groups) -> tuple[list[str], list[list[str]]]:
    """One line for every set and method: ours, the paper's and the verdict if it has one, times and calibration."""
    details = [key for key in EXTRA_COLUMNS if any(key in row["metrics"] for rows in groups.values() for row in rows)]
    beside = ["paper", "difference", "verdict"] if experiment.reference else []
    header = ["set", "method", "runs", "ours" if beside else SCORES[experiment.metric], *beside, "fit cpu s"]
    lines = []
    for (dataset, method), rows in groups.items():
        values = metric(rows, experiment.metric)
        line = [dataset, method, str(len(rows)), mean_se(values) if len(values) else ""]
        if beside:
            line += _beside(experiment, values, _reference(experiment, dataset, method))
        line.append(f"{fit_seconds(rows):.2f}")
        lines.append(line + [_mean_or_blank(metric(rows, key)) for key in details])
    return header + [EXTRA_COLUMNS[key] for key in details], lines


def count_of_verdicts(experiment: Experiment, groups: Groups) -> list[str]:
    """How many sets are better, within and worse, a line for each method that has a column of the paper."""
    found: dict[str, Counter] = {}
    for (dataset, method), rows in groups.items():
        values, theirs = metric(rows, experiment.metric), _reference(experiment, dataset, method)
        if len(values) and theirs:
            verdict = compared(figure_of(values), theirs, experiment.higher_is_better)
            found.setdefault(method, Counter())[verdict] += 1
    lines = [
        f'- `{method}` against "{experiment.reference[method]}": {count["better"]} better, {count["within"]} within, '
        f"{count['worse']} worse of {count.total()} cells"
        for method, count in found.items()
    ]
    return ["Against the paper:", "", *lines, ""] if lines else []


def figures_in_dots(groups: Groups, experiment: Experiment) -> Table:
    """Figures of our methods `in_dots`, then of the paper's, by their names in tables; sets in the order of ours."""
    found: Table = {}
    for (dataset, method), rows in groups.items():
        if method in experiment.in_dots and len(values := metric(rows, experiment.metric)):
            found.setdefault(label(method), {})[dataset] = figure_of(values)
    return found | {f"paper: {name}": row for name, row in experiment.paper.items()}


def _reference(experiment: Experiment, dataset: str, method: str) -> Figure | None:
    """The paper's figure that one of ours stands beside."""
    return experiment.paper.get(experiment.reference.get(method), {}).get(dataset)


def _beside(experiment: Experiment, values: np.ndarray, theirs: Figure | None) -> list[str]:
    """The paper's figure, our difference from it, and the verdict."""
    if theirs is None or not len(values):
        return ["", "", ""]
    ours = figure_of(values)
    return [published(theirs), f"{ours[0] - theirs[0]:+.3f}", compared(ours, theirs, experiment.higher_is_better)]


def _mean_or_blank(values: np.ndarray) -> str:
    return f"{np.mean(values):.3g}" if len(values) else ""
