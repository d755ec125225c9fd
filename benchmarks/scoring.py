"""What one run does: fit a method on the rows of a split, score it on test rows, and report both."""

import time
from copy import copy
from functools import cache, lru_cache

import numpy as np

from benchmarks.datasets import cell, prepared
from benchmarks.machine import peak_memory_mib, provenance, reset_peak_memory
from benchmarks.methods import METHODS, settings
from benchmarks.metrics import evaluate
from benchmarks.rows import Run
from benchmarks.simulations import SIMULATIONS, sse

N_SIMULATED, N_FRESH = 2000, 10_000  # rows of a simulated set: to fit, to score
VALIDATION_FRACTION = 0.1


def score_table(run: Run) -> dict:
    """Fit one method on one split of a UCI set and score it on the test rows."""
    x_train, y_train, x_test, y_test = prepared(run.dataset, run.split)
    model, report = fitted(run, x_train, y_train)
    report["metrics"], seconds = evaluate(model, x_test, y_test, cell(run.dataset, run.split))
    report["seconds"] |= seconds
    return report


def score_simulation(run: Run) -> dict:
    """Fit one method on a simulated set whose rows the split number seeds; the score is the SSE."""
    sample = SIMULATIONS[run.dataset].sample
    model, report = fitted(run, *sample(N_SIMULATED, np.random.default_rng(run.split)))
    x_fresh, y_fresh = sample(N_FRESH, np.random.default_rng([run.split, N_FRESH]))
    report["metrics"] = {
        "log_lik": float(model.log_prob(x_fresh, y_fresh).mean()),
        "sse": sse(model.log_prob, run.dataset),
        "sse_exact": sse(model.log_prob, run.dataset, exact=True),
        "trees": int(np.sum(model.n_trees_)),
    }
    return report


def score_regions(run: Run) -> dict:
    """Weigh rotated flows by the rule and in the regions of a method; all methods share the flows of a split."""
    from treecdf.flows.mixture import Mixture
    from treecdf.flows.regions import fit_regions
    from treecdf.flows.weights import TRAINING_RULES, equal_weights, stacked_weights

    x_train, y_train, x_test, y_test = prepared(run.dataset, run.split)
    flows, report, log_prob, aside = _rotated_flows(run.dataset, run.split, run.seed)
    wanted = METHODS[run.method](run.seed, y_train.shape[1])
    clock = Clock()
    regions, log_weights = None, equal_weights(log_prob.shape[1])
    if wanted.weights != "equal":
        regions = fit_regions(wanted.regions, x_train, np.ones(len(x_train)), np.random.default_rng(run.seed))
        rule, rows = stacked_weights, aside
        if wanted.weights != "stacked":
            rule, rows = TRAINING_RULES[wanted.weights], ~aside
        log_weights = rule(log_prob[rows], np.ones(rows.sum()), regions(x_train[rows]), regions.n_regions)
    fitting = clock.seconds(after=report["seconds"])
    model = copy(flows)
    model.mixture_ = Mixture(flows.mixture_.members, log_weights, regions)
    metrics, scoring = evaluate(model, x_test, y_test)
    return report | {"settings": settings(wanted), "seconds": fitting | scoring, "metrics": metrics}


@lru_cache(maxsize=1)
def _rotated_flows(dataset: str, split: int, seed: int):
    """The fit with equal weights, its report, log densities (n, flows) of all rows and which were left for weighing."""
    x, y, _, _ = prepared(dataset, split)
    aside = np.random.default_rng(seed).permutation(len(x)) < VALIDATION_FRACTION * len(x)
    validation = {"X_val": x[aside], "y_val": y[aside]}
    model, report = fitted(Run(dataset, split, "rotated_eta01", seed), x[~aside], y[~aside], **validation)
    clock = Clock()
    log_prob = [member.forward_and_log_det(y[:, None], x)[1] for member in model.mixture_.members]
    report |= {"n_train": len(x), "seconds": clock.seconds(after=report["seconds"])}
    return model, report, np.column_stack(log_prob), aside


class Clock:
    """Seconds of a fit since it was made, by the wall and of the processor."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def seconds(self, after: dict | None = None) -> dict:
        """So many, and those `after` which they come."""
        fit, fit_cpu = time.perf_counter() - self._start[0], time.process_time() - self._start[1]
        before = after or {"fit": 0.0, "fit_cpu": 0.0}
        return {"fit": before["fit"] + fit, "fit_cpu": before["fit_cpu"] + fit_cpu}


def fitted(run: Run, x: np.ndarray, y: np.ndarray, **validation: np.ndarray):
    """The model of a run, fitted to rows, and the report of it: settings, seconds, memory, rows, version, commit."""
    warm_up(run.method, several=y.ndim == 2)
    model = METHODS[run.method](run.seed, 1 if y.ndim == 1 else y.shape[1])
    reset_peak_memory()
    clock = Clock()
    model.fit(x, y, **validation)
    report = {
        "settings": settings(model),
        "seconds": clock.seconds(),
        "peak_mib": peak_memory_mib(),
        "n_train": len(x),
    }
    return model, report | provenance()


@cache
def warm_up(method: str, several: bool) -> None:
    """Compile or load every kernel of a method once a process, so that no run is charged for it."""
    x, noise = np.random.default_rng(0).normal(size=(2, 60, 2))
    d, y = (2, x + noise) if several else (1, x[:, 0] + noise[:, 0])
    evaluate(METHODS[method](0, d).fit(x, y), x, y, np.ones(d))
