"""What one run does, and which runs there are."""

import warnings
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from benchmarks.honest.cases import CASES, METHODS
from benchmarks.honest.fitter import Fitter
from benchmarks.machine import peak_memory_mib, provenance, reset_peak_memory
from benchmarks.rows import Run, Store, latest, run_all

NAME = "honest"  # of the file of rows and of the page
SEEDS = 5
TEXTS = 5  # notes and warnings that a row keeps


def score_honest(run: Run) -> dict:
    """Try one method on one case; the seed is that of its rows and of the fit."""
    case = CASES[run.dataset]
    rng = np.random.default_rng([run.seed, crc32(run.dataset.encode())])
    reset_peak_memory()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fit = Fitter(run, heard)
        metrics = case.work(fit, rng, n=case.n)
    return {
        "settings": fit.settings,
        "seconds": fit.seconds,
        "peak_mib": peak_memory_mib(),
        "n_train": case.n,
        "metrics": metrics | {"fit_cpu": fit.seconds["fit_cpu"]},
        "told": fit.told[:TEXTS],
    } | provenance()


def honest_runs(
    splits: int | None = None, methods: Sequence[str] | None = None, truths: Sequence[str] | None = None
) -> list[Run]:
    """The runs, seed by seed, so that a stopped benchmark has something of every case."""
    return [
        Run(case, seed, method, seed)
        for seed in range(splits or SEEDS)
        for case in truths or CASES
        for method in methods or METHODS
    ]


def run_honest(runs: Sequence[Run], jobs: int, retry: bool, again: bool, limit: float | None) -> None:
    """Make the runs that are not stored yet; `retry` makes failed ones again, `again` makes all of them."""
    done = {run for run, row in latest(Store(NAME).read()).items() if not (again or (retry and "error" in row))}
    run_all([run for run in runs if run not in done], score_honest, Store(NAME), jobs, limit)
