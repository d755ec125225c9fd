"""`python -m benchmarks use`: what a fitted model costs in use, one thread, warm, beside LightGBM and NGBoost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.comparisons import markdown_table
from benchmarks.datasets import DATASETS, prepared
from benchmarks.machine import seconds_of

SETS = ("power", "kin8nm", "concrete", "protein", "energy2")
N_ROWS = 10_000  # of one outcome
N_ROWS_OF_SEVERAL = 500
LEVELS = (0.05, 0.5, 0.95)
N_SINGLE = 30  # rows that are asked one at a time
MOST_FIT_ROWS = 6000  # training rows at most: what is measured is not the fit
N_TREES = 500  # of LightGBM and NGBoost
MOST = {"mean": 2.0, "crps": 3.0, "100 samples": 6.0}  # log densities that an answer may cost
MOST_OF_SEVERAL = {"mean": 10.0, "100 samples": 20.0}
MOST_MILLISECONDS = {"one interval": 3.0, "one predict": 2.0}


@dataclass(frozen=True)
class Cost:
    """Processor seconds of one row, and the most it may cost in log densities, or in seconds."""

    what: str
    seconds: float
    log_densities: float
    most: str
    met: bool | None


def run_use(names: Sequence[str] = SETS, n_rows: int = N_ROWS) -> list[list[str]]:
    """Fit a default model to each set and print the costs of its answers; returns the lines of the table."""
    lines = []
    for name in names:
        for cost in costs_of(name, n_rows):
            met = "" if cost.met is None else "yes" if cost.met else "no"
            lines.append([name, cost.what, f"{1e6 * cost.seconds:.0f}", f"{cost.log_densities:.1f}", cost.most, met])
    header = ["set", "answer", "us a row", "log densities", "at most", "met"]
    print("\n".join(markdown_table(header, lines)))
    for library in ("lightgbm", "ngboost"):
        if not _has(library):
            print(f"\n{library} is not installed, so its times are not in the table.")
    return lines


def costs_of(name: str, n_rows: int) -> list[Cost]:
    """The costs of a default model of a set, and of the other libraries that are there."""
    from treecdf import TreeFlowRegressor

    x, y, x_test, y_test = prepared(name, 0)
    chosen = np.random.default_rng(0).permutation(len(x))[:MOST_FIT_ROWS]
    x, y = x[chosen], y[chosen]
    model = TreeFlowRegressor(n_jobs=1, random_state=0).fit(x, y)
    n = n_rows if DATASETS[name].d == 1 else min(n_rows, N_ROWS_OF_SEVERAL)
    rows = np.random.default_rng(0).integers(len(x_test), size=n)
    x_new, y_new = x_test[rows], y_test[rows]
    unit = _seconds(lambda k: model.log_prob(x_new[:k], y_new[:k]), n)
    found = [Cost("log density", unit, 1.0, "", None)]
    limits = MOST if DATASETS[name].d == 1 else MOST_OF_SEVERAL
    for what, ask in _answers(model, x_new, y_new).items():
        seconds, most = _seconds(ask, n), limits.get(what)
        target = "" if most is None else f"{most:g} log densities"
        found.append(Cost(what, seconds, seconds / unit, target, None if most is None else seconds <= most * unit))
    for what, most in MOST_MILLISECONDS.items():
        seconds = _single(model, x_new, what)
        if seconds is not None:
            found.append(Cost(what, seconds, seconds / unit, f"{most:g} ms", seconds <= most / 1000))
    return found + (_of_libraries(x, y, x_new, y_new, unit) if DATASETS[name].d == 1 else [])


def _answers(model, x, y) -> dict[str, Callable[[int], object]]:
    """What is asked of a model, as functions of the number of rows."""

    def of(k):
        return model.predict_distribution(x[:k])

    several = {"mean": lambda k: of(k).mean(), "100 samples": lambda k: of(k).sample(100, 0)}
    if y.ndim > 1:
        return several
    return several | {
        "crps": lambda k: of(k).crps(y[:k]),
        "three quantiles": lambda k: of(k).icdf(LEVELS),
        "20 quantiles": lambda k: of(k).icdf(np.linspace(0.025, 0.975, 20)),
    }


def _seconds(ask: Callable[[int], object], n: int) -> float:
    """Processor seconds of one of n rows, after a few rows to warm up."""
    ask(min(n, 20))
    return seconds_of(lambda: ask(n), clock=time.process_time) / n


def _single(model, x, what: str) -> float | None:
    """Median processor seconds of one row asked alone; None if the question is for one outcome and there are more."""
    if what == "one interval" and model.n_outcomes_ > 1:
        return None
    times = []
    for i in range(min(N_SINGLE, len(x))):
        row = x[i : i + 1]
        ask = model.predict if what == "one predict" else lambda r: model.predict_distribution(r).interval(0.9)
        times.append(seconds_of(lambda ask=ask, row=row: ask(row), clock=time.process_time))
    return float(np.median(times))


def _of_libraries(x, y, x_new, y_new, unit: float) -> list[Cost]:
    """Three quantile models of LightGBM and the log density of NGBoost, if they are installed."""
    found = []
    if _has("lightgbm"):
        from lightgbm import LGBMRegressor

        settings = {"n_estimators": N_TREES, "n_jobs": 1, "verbose": -1}
        models = [LGBMRegressor(objective="quantile", alpha=level, **settings).fit(x, y) for level in LEVELS]
        seconds = _seconds(lambda k: [model.predict(x_new[:k]) for model in models], len(x_new))
        found.append(Cost("LightGBM, three quantiles", seconds, seconds / unit, "", None))
    if _has("ngboost"):
        from ngboost import NGBRegressor

        model = NGBRegressor(n_estimators=N_TREES, verbose=False).fit(x, y)
        seconds = _seconds(lambda k: model.pred_dist(x_new[:k]).logpdf(y_new[:k]), len(x_new))
        found.append(Cost("NGBoost, log density", seconds, seconds / unit, "", None))
    return found


def _has(library: str) -> bool:
    """Whether a library can be imported."""
    from importlib.util import find_spec

    return find_spec(library) is not None
