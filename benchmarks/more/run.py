"""Runs on tables of many kinds: every method on the same rows; libraries that read numbers alone get numbers."""

import time
import warnings
from collections.abc import Sequence

import numpy as np

from benchmarks.generations import is_old
from benchmarks.machine import peak_memory_mib, provenance, reset_peak_memory
from benchmarks.methods import METHODS, settings
from benchmarks.metrics import intervals
from benchmarks.more.tables import N_SPLITS, SMALL, TASKS, as_numbers, load, split
from benchmarks.rows import Run, Store, latest, run_all
from benchmarks.scoring import Clock, warm_up

NAME = "more"  # of the file of rows and of the page
OURS = ("treecdf", "treecdf_fast")
LIBRARIES = ("ngboost_early", "quantile_forest", "lightgbm_quantiles")


def more_runs(
    splits: int | None = None, methods: Sequence[str] | None = None, tables: Sequence[str] | None = None
) -> list[Run]:
    """The runs, split by split; of tables that nobody names the small ones."""
    names = tables or [name for name, task in TASKS.items() if task.n <= SMALL]
    return [
        Run(name, k, method, k)
        for k in range(min(splits or N_SPLITS, N_SPLITS))
        for name in names
        for method in methods or (*OURS, *LIBRARIES)
    ]


def run_more(runs: Sequence[Run], jobs: int, again: bool, limit: float | None) -> None:
    """Make the runs that are not stored yet; `again` also those of a model of ours that has changed since."""
    done = {run for run, row in latest(Store(NAME).read()).items() if not (again and is_old(row))}
    run_all([run for run in runs if run not in done], score_more, Store(NAME), jobs, limit)


def score_more(run: Run) -> dict:
    """Fit one method on the training rows of a split and score it on the test rows."""
    x, y = load(run.dataset)
    train, test = split(len(y), run.split)
    rows = x.iloc[train], x.iloc[test]
    if run.method not in OURS:
        rows = as_numbers(*rows)
    warm_up(run.method, several=False)
    model = METHODS[run.method](run.seed, 1)
    reset_peak_memory()
    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # levels and gaps that training rows did not have
        model.fit(rows[0], y[train])
        seconds = clock.seconds()
        begin = time.process_time()
        distribution = model.predict_distribution(rows[1])
        metrics = {"crps": float(np.mean(distribution.crps(y[test]))), **intervals(distribution, y[test])}
        seconds["score_cpu"] = time.process_time() - begin
        if not TASKS[run.dataset].few and getattr(model, "has_density", True):
            metrics["log_lik"] = float(np.mean(model.log_prob(rows[1], y[test])))
    told = {"settings": settings(model), "peak_mib": peak_memory_mib(), "n_train": len(train)}
    return told | {"seconds": seconds, "metrics": metrics} | provenance()
