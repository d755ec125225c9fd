"""Random tables and settings: whatever is legal gives finite, consistent answers and no warning.

Outcomes that repeat may be warned about: their density grows without bound.

    python -m tests.properties --count 20000 --jobs 2

draws cases in batches of 100, each with a seed of its own, and tells every case that fails; `--seed K --count 100`
draws batch K again. A case can be pasted into Python: `check(Case(...))`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.bases.box import Support
from treecdf.bases.conditional import Conditional
from treecdf.bases.learners import Polynomial

BATCH = 100  # cases with one seed
LEVELS = np.array([0.0, 1e-9, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1 - 1e-4, 1.0])
LIVELY = np.array([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])  # levels where the slope of the CDF is the density
STRIDE = 1e-5  # of its finite differences, in widths between the outer two
ASKED = 6  # rows

COLUMNS = ("normal", "skewed", "ties", "constant", "copy", "collinear", "one-hot", "outlier", "few values", "offset")
OUTCOMES = ("normal", "skewed", "ties", "constant", "copy", "collinear", "two values", "outlier", "branches", "offset")
STAGES = {
    "constant": Constant(),
    "logistic": Logistic(),
    "hinges": Logistic(basis="hinges"),
    "cubic": Logistic(basis="cubic"),
    "trees": BoostedTrees(rounds=2, max_depth=2),
    "mlp": MLP((3, 2), max_iter=20),
}


@dataclass(frozen=True)
class Case:
    """A table and a model, in words; the numbers follow from the seed."""

    seed: int
    n: int
    columns: tuple[tuple[str, int], ...]  # kind and power of ten of its scale
    outcomes: tuple[tuple[str, int], ...]
    weights: str = "none"
    bounds: str = "none"
    recorded: str = "none"
    validation: bool = False
    stages: tuple[tuple[str, int], ...] = ()  # kind and depth; none for what the model chooses
    settings: dict = field(default_factory=dict)


# Tables


def _column(kind, rng, n, others):
    """Numbers (n,) of one kind, about 1 in size."""
    z = rng.normal(size=n)
    if kind == "skewed":
        return np.exp(1.5 * z)
    if kind == "ties":
        return np.round(2 * z) / 2
    if kind == "constant":
        return np.full(n, z[0])
    if kind == "copy" and others:
        return others[rng.integers(len(others))].copy()
    if kind == "collinear" and others:
        return rng.normal() + sum(rng.integers(-2, 3) * other for other in others)
    if kind == "one-hot":
        return (rng.integers(0, 4, n) == 0).astype(float)
    if kind in ("few values", "two values"):
        return rng.integers(0, 2 if kind == "two values" else 3, n).astype(float)
    if kind == "outlier":
        z[rng.integers(n)] *= 10.0 ** rng.integers(2, 13)
    if kind == "branches":
        return z + rng.choice([-5, 5], n)
    return z + 1e6 if kind == "offset" else z


def table(case, n, rng):
    """Covariates (n, q) and outcomes (n, d) of a case; outcomes depend on the first covariate."""
    x, y = [], []
    for kind, _ in case.columns:
        x.append(_column(kind, rng, n, x))
    for kind, _ in case.outcomes:
        own = _column(kind, rng, n, y)
        depends = kind in ("normal", "skewed", "branches", "outlier") and np.abs(x[0]).max() < 100
        y.append(own + x[0] if depends else own)
    scale = [10.0 ** np.array([power for _, power in part]) for part in (case.columns, case.outcomes)]
    return np.column_stack(x) * scale[0], np.column_stack(y) * scale[1]


def row_weights(case, rng):
    """Weights (n,) or None; the mean weight of rows that count is at least one, as rows are counted."""
    if case.weights == "none":
        return None
    weight = rng.integers(1, 4, case.n).astype(float)
    if case.weights == "fractions":
        weight = rng.random(case.n) + 0.5
        weight /= min(weight.mean(), 1.0)
    if case.weights == "zeros":
        weight[rng.random(case.n) < 0.4] = 0.0
    return weight


def ends(case, y):
    """Bounds of the outcomes y (n, d): at the outermost training rows or beyond them."""
    pairs = []
    for (_, power), column in zip(case.outcomes, y.T, strict=True):
        low, high = column.min(), column.max()
        room = 0.0 if case.bounds == "tight" and low < high else 10.0**power + 1e-3 * max(abs(low), abs(high))
        pairs.append((low - room, None) if case.bounds == "low" else (low - room, high + room))
    return pairs


def inside(bounds, y):
    """Which rows of outcomes y (n, d) are inside the bounds."""
    kept = np.ones(len(y), bool)
    for column, (low, high) in zip(y.T, bounds or [(None, None)] * y.shape[1], strict=True):
        kept &= (column >= (-np.inf if low is None else low)) & (column <= (np.inf if high is None else high))
    return kept


def recording(case, y):
    """Settings of atoms and grids; the atom is the first row's outcome."""
    step = 10.0 ** case.outcomes[0][1] / 4
    return {
        "none": {},
        "atoms": {"atoms": "auto"},
        "an atom": {"atoms": [float(y[0, 0])]},
        "grid": {"resolution": "auto"},
        "a grid": {"resolution": [10.0**power / 4 for _, power in case.outcomes]},
        "both": {"atoms": [float(y[0, 0])], "resolution": step},
    }[case.recorded]


# What is drawn


@st.composite
def cases(draw):
    """A case that is legal, mostly small."""
    kind = draw(
        st.sampled_from([*["box"] * 5, *["student"] * 3, *["rotated"] * 2, *["conditional"] * 2, *["auto"] * 2])
    )
    most = draw(st.sampled_from([12, 25, 60, 150, 500] if kind == "box" else [12, 12, 25, 25, 45, 90]))
    n = draw(st.integers(1, most))
    if kind == "auto" and draw(st.booleans()):
        n = draw(st.integers(40, 70))  # enough for everything the model chooses from
    q = draw(st.sampled_from([1, 1, 2, 2, 3, 5, 10, 30] if most < 100 else [1, 2, 3]))
    d = draw(st.integers(2, 5) if kind == "rotated" else st.sampled_from([1, 1, 1, 2, 2, 3, 5]))
    if kind in ("conditional", "auto"):
        q, d = min(q, 5), min(d, 2)
    power = st.sampled_from([0, 0, 0, -12, 12]) | st.integers(-12, 12)
    bounds = (
        draw(st.sampled_from(["none", "none", "low", "both", "tight"])) if kind in ("box", "conditional") else "none"
    )
    how = {
        "max_trees": draw(st.sampled_from([0, 1, 1, 2, 2, 3, 5, 20])),
        "early_stopping_window": draw(st.integers(1, 3)),
        "min_samples_node": draw(st.sampled_from([1, 3, 10])),
        "c0": draw(st.sampled_from([0.05, 0.5, 0.99])),
        "grid_size": draw(st.sampled_from([20, 20, 1, 7])),
        "validation_fraction": draw(st.sampled_from([0.1, 0.1, 0.5, 0])),
        "subsample": draw(st.sampled_from([None, None, 0.5])),
        "split_search": draw(st.sampled_from(["score"] * 6 + ["middle", "exhaustive"])),
    }
    how |= draw(_bases(kind, d))
    stages = ()
    if kind != "auto" and draw(st.integers(0, 9)):
        stages = tuple(draw(st.lists(st.tuples(st.sampled_from(sorted(STAGES)), st.integers(1, 6)), max_size=2)))
        stages = stages or (("logistic", 6),)
    if how["split_search"] == "exhaustive":
        stages, how["grid_size"] = (("logistic", 2),), min(how["grid_size"], 7)
    return Case(
        seed=draw(st.integers(0, 2**32 - 1)),
        n=n,
        columns=tuple(draw(st.lists(st.tuples(st.sampled_from(COLUMNS), power), min_size=q, max_size=q))),
        outcomes=tuple(draw(st.lists(st.tuples(st.sampled_from(OUTCOMES), power), min_size=d, max_size=d))),
        weights=draw(st.sampled_from(["none", "none", "zeros", "counts", "fractions"])),
        bounds=bounds,
        recorded=draw(_recorded(kind, d)),
        validation=draw(st.integers(0, 4)) == 0,
        stages=stages,
        settings=how,
    )


def _recorded(kind, d):
    if kind == "rotated":
        return st.just("none")
    grids = ["none"] * 12 + ["grid", "a grid"]
    return st.sampled_from([*grids, "atoms", "an atom", "both"] if d == 1 else grids)


@st.composite
def _bases(draw, kind, d):
    """Settings of the base and the structure."""
    if kind == "auto":
        return {"effort": draw(st.sampled_from(["fast", "fast", "default"]))}
    if kind == "conditional":
        base = draw(st.sampled_from(["polynomial", "polynomial", "polynomial", "conditional"]))
        return {"base": base, "structure": "chain", "effort": "fast"}
    if kind == "rotated":
        weights = draw(st.sampled_from(["equal", "stacked", "likelihood"]))
        fraction = {"validation_fraction": 0.2} if weights == "stacked" else {}
        regions = draw(st.sampled_from([1, 3, "hdbscan"]))
        base = draw(st.sampled_from(["box", "student"]))
        return {"base": base, "rotations": 2 if d < 4 else 1, "weights": weights, "regions": regions, **fraction}
    return {"base": kind, "structure": "joint" if d > 1 else "auto"}


def model_of(case, y):
    """The model of a case with outcomes y (n, d)."""
    how = dict(case.settings)
    if how.get("base") == "polynomial":
        how["base"] = [Polynomial(1)]
    if case.stages:
        how["stages"] = [Stage(STAGES[kind], depth) for kind, depth in case.stages]
    if case.bounds != "none":
        how["bounds"] = ends(case, y)
    return TreeFlowRegressor(random_state=case.seed, **how, **recording(case, y))


# Laws


def check(case):
    """Fail if the case breaks a law; say whether it was fitted or rightly refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return _check(case)


def _check(case):
    rng = np.random.default_rng(case.seed)
    x, y = table(case, case.n, rng)
    weight = row_weights(case, rng)
    model = model_of(case, y)
    validation = {}
    if case.validation:
        x_val, y_val = table(case, 7, rng)
        kept = inside(model.bounds, y_val)
        validation = {"X_val": x_val[kept], "y_val": y_val[kept]} if kept.any() else {}
    complaint = ""
    if has_repeats(y):
        warnings.filterwarnings("ignore", message="Training was cut short")
    try:
        model.fit(x, y, sample_weight=weight, **validation)
    except ValueError as error:
        complaint = str(error)
    assert bool(complaint) == is_refused(model, x, y, np.ones(len(y)) if weight is None else weight), complaint
    if complaint:
        assert "at least 2 are required" in complaint or "All sample weights are zero" in complaint
        return "refused"
    far = x[:2] * 1e3 + 1.0
    asked = np.vstack([x[: ASKED - 2], far])
    check_answers(model, case, x, y, asked)
    return "fitted"


def has_repeats(y):
    """Whether some outcome has the same value twice."""
    return any(len(np.unique(column)) < len(column) for column in y.T)


def is_refused(model, x, y, weight):
    """Whether there are too few rows to learn from: fewer than two, where one of weight 2 is the row twice."""
    counted = weight > 0
    rows, weight = np.hstack([x, y])[counted], weight[counted]
    if len(np.unique(rows, axis=0)) == 1 and weight.sum() >= 2:
        rows = rows.repeat(2, axis=0)[:2]
    else:
        rows = np.unique(rows, axis=0)
    if isinstance(model.atoms, list) and len(rows) > 1:
        left = rows[~np.isin(rows[:, x.shape[1]], model.atoms)]
        return len(left) == 1  # of none the outcome is discrete
    return len(rows) < 2


def check_answers(model, case, x, y, asked):
    """Finite and consistent answers at some rows."""
    assert np.isfinite(model.log_prob(x, y)).all(), "log density of training rows"
    draws = model.sample(asked, 3, random_state=0)
    assert np.isfinite(draws).all(), "draws"
    d = y.shape[1]
    distribution = model.predict_distribution(asked)
    possible = inside(model.bounds, draws.reshape(-1, d)).reshape(draws.shape[:2])
    assert possible.all() or model.grid_ is not None, "draws in support"  # cells may reach beyond a bound
    assert np.isfinite(distribution.logpdf(draws)[possible]).all(), "log density of draws"
    assert np.isfinite(distribution[:2].mean()).all(), "mean"
    assert (distribution[:2].std() >= 0).all(), "standard deviation"
    if d == 1:
        check_one_outcome(distribution, model, y[: len(asked), 0])


def check_one_outcome(distribution, model, y):
    """CDF and quantiles: ascending, in the support, each other's inverse, and the density is the CDF's slope."""
    quantiles = distribution.icdf(LEVELS)
    inner = quantiles[:, 1:-1]
    assert np.isfinite(inner).all(), "quantiles"
    if model.atoms_ is None and model.grid_ is None:
        (low, high) = (model.bounds or [(None, None)])[0]
        assert (quantiles[:, 0] == (-np.inf if low is None else low)).all(), "lower end of the support"
        assert (quantiles[:, -1] == (np.inf if high is None else high)).all(), "upper end of the support"
    assert (np.diff(quantiles, axis=1) >= 0).all(), "quantiles ascend"
    cdf = distribution.cdf(quantiles)
    assert ((cdf >= 0) & (cdf <= 1)).all(), "CDF in range"
    assert (np.diff(cdf, axis=1) >= 0).all(), "CDF ascends"
    if len(y) == len(distribution):
        assert np.isfinite(distribution.crps(y)).all(), "CRPS"
    assert (cdf[:, -1] >= 1 - 1e-9).all(), "upper end"
    rounding = rounding_of(inner, distribution, model)  # the CDF may jump from one number to the next
    assert (distribution.cdf(inner + rounding) >= LEVELS[1:-1] - 1e-9).all(), "CDF of quantiles is at least the level"
    if model.atoms_ is None and model.grid_ is None:
        assert (cdf[:, 0] <= 1e-9).all(), "lower end"
        assert (distribution.cdf(inner - rounding) <= LEVELS[1:-1] + 1e-9).all(), "CDF of quantiles is the level"
        check_slope(distribution)


def rounding_of(y, distribution, model):
    """What float64 resolves of outcomes y (n, m): their own digits, those of what is added to them, and of the cube."""
    x = getattr(distribution, "_latent", distribution)._x
    rounding = np.zeros(y.shape)
    for flow in model.mixture_.tree_flows():
        base = flow.base
        if isinstance(base, Support):
            added = (np.abs(base.low) + np.abs(base.high)).max()
        else:
            added = abs(base.transform.center) if isinstance(base, Conditional) else np.abs(base.location).max()
        _, log_density = base.to_box(y[..., None], base.parameters(flow.standardize(x)))
        cube = 2e-15 * np.exp(-log_density)
        rounding = np.maximum(rounding, np.maximum(4e-15 * np.maximum(np.abs(y), added), cube))
    return rounding


def check_slope(distribution):
    """The density is the slope of the CDF, where no cut is near and float64 has the digits."""
    y = distribution.icdf(LIVELY)
    stride = STRIDE * (y[:, -1:] - y[:, :1])
    stride = np.broadcast_to(stride, y.shape)
    above, below = y + stride, y - stride
    log_density = np.stack([distribution.logpdf(points) for points in (below, y, above)])
    rise = distribution.cdf(above) - distribution.cdf(below)
    is_clear = (np.ptp(log_density, axis=0) < 1e-3) & (stride > 1e5 * np.spacing(np.abs(y))) & (rise > 1e-9)
    slope = np.log(rise[is_clear] / (above - below)[is_clear])
    assert (np.abs(slope - log_density[1][is_clear]) < 2e-3).all(), "density is the slope of the CDF"


# Many of them


def run_batch(number, count=BATCH):
    """Outcomes of the cases with one seed, and the last case of each error."""
    outcomes, failures = Counter(), {}

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def every(case):
        try:
            outcomes[check(case)] += 1
        except Exception as error:
            outcomes["failed"] += 1
            failures[f"{type(error).__name__}: {error}"] = case

    every()
    return number, outcomes, failures


def main():
    """Draw from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first batch")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    begin, totals = time.perf_counter(), Counter()
    batches = range(options.seed, options.seed + -(-options.count // BATCH))
    with get_context("spawn").Pool(options.jobs) as pool:
        for done, (number, outcomes, failures) in enumerate(pool.imap(run_batch, batches), 1):
            totals += outcomes
            for error, case in failures.items():
                say(f"batch {number}: {error}\n    {case!r}")
            if done % 10 == 0 or done == len(batches):
                say(f"{sum(totals.values())} cases in {time.perf_counter() - begin:.0f} s: {dict(totals)}")
    return int(totals["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
