"""`python -m benchmarks quick`: a few minutes of fits against the committed baseline; what a change is judged by."""

from collections.abc import Iterable

import numpy as np

from benchmarks.rows import Run, Store, latest, run_all
from benchmarks.scoring import score_table

BASELINE = "quick_baseline"
DATASETS = ("yacht", "boston", "energy", "energy2")
METHODS = ("treecdf", "treecdf_fast", "paper")
SPLITS = 4
SLOWER = 2.0  # ratio of the processor seconds at which a method has become slow
NOTHING = 1e-3  # nats, which rounding may cost


def quick_runs() -> list[Run]:
    """The runs of the comparison."""
    return [Run(name, k, method, seed=k) for k in range(SPLITS) for name in DATASETS for method in METHODS]


def run_quick(store: Store, jobs: int = 2, limit: float | None = None) -> list[dict]:
    """Make all runs anew in `store`, which is emptied first."""
    store.path.unlink(missing_ok=True)
    run_all(quick_runs(), score_table, store, jobs, limit)
    return store.read()


def compare(now: Iterable[dict], baseline: Iterable[dict]) -> tuple[list[list[str]], list[str]]:
    """Lines of the table (a set and method each) and what has become worse, in words."""
    new, old = latest(now), latest(baseline)
    lines, worse = [], [f"{_name(run)} failed: {row['error']}" for run, row in new.items() if "error" in row]
    for method in dict.fromkeys(run.method for run in new):
        differences, ratios = [], []
        for dataset in dict.fromkeys(run.dataset for run in new):
            pairs = [
                (row, old[run])
                for run, row in new.items()
                if (run.method, run.dataset) == (method, dataset)
                and run in old
                and not {"error"} & (row.keys() | old[run].keys())
            ]
            if not pairs:
                continue
            values = np.array([[row["metrics"]["log_lik"] for row in pair] for pair in pairs])
            seconds = np.array([[row["seconds"]["fit_cpu"] for row in pair] for pair in pairs])
            differences.append(values[:, 0] - values[:, 1])
            ratios.append(float(np.exp(np.mean(np.log(seconds[:, 0] / seconds[:, 1])))))
            lines.append(_line(dataset, method, values, seconds, ratios[-1]))
        if differences:
            worse += _verdicts(method, differences, float(np.exp(np.mean(np.log(ratios)))))
    if not lines:
        worse.append("no run has a counterpart in the baseline")
    return lines, worse


def mean_and_error(differences: list[np.ndarray]) -> tuple[float, float]:
    """Mean over sets of the mean paired difference, and its standard error from the spread within sets."""
    errors = [np.var(one, ddof=1) / len(one) if len(one) > 1 else 0.0 for one in differences]
    mean = float(np.mean([np.mean(one) for one in differences]))
    return mean, float(np.sqrt(np.sum(errors))) / len(differences)


def _verdicts(method: str, differences: list[np.ndarray], ratio: float) -> list[str]:
    mean, error = mean_and_error(differences)
    found = []
    if mean < -max(2 * error, NOTHING):
        found.append(f"{method}: mean log-likelihood fell by {-mean:.4f}, {error:.4f} is its standard error")
    if ratio >= SLOWER:
        found.append(f"{method}: {ratio:.2f} times the processor seconds of the baseline")
    return found


def _line(dataset: str, method: str, values: np.ndarray, seconds: np.ndarray, ratio: float) -> list[str]:
    mean, error = mean_and_error([values[:, 0] - values[:, 1]])
    likelihood, times = values.mean(axis=0), seconds.mean(axis=0)
    return [
        dataset,
        method,
        f"{likelihood[1]:.3f}",
        f"{likelihood[0]:.3f}",
        f"{mean:+.4f} ± {error:.4f}",
        f"{times[1]:.2f}",
        f"{times[0]:.2f}",
        f"{ratio:.2f}",
    ]


HEADER = ["set", "method", "log-lik before", "now", "difference", "fit cpu s before", "now", "ratio"]


def table(lines: list[list[str]]) -> str:
    """The lines under their header, in columns."""
    cells = [HEADER, *lines]
    widths = [max(len(line[k]) for line in cells) for k in range(len(HEADER))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def _name(run: Run) -> str:
    return f"{run.dataset}, split {run.split}, {run.method}"
