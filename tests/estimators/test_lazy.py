"""Distributions at the rows of Dask collections are those of rows in memory, and have the same methods."""

import inspect

import numpy as np
import pandas as pd
import pytest

from treecdf import ConditionalDistribution, TreeFlowRegressor

pytest.importorskip("distributed")
import cloudpickle
import dask.array as da
import dask.dataframe as dd

from treecdf.estimators.lazy import LazyDistribution

RNG = np.random.default_rng(1)
N = 300
X = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["a", "b"])
Y = pd.Series(np.sin(2 * X["a"]) + np.exp(0.5 * X["b"]) * RNG.normal(size=N), name="y")
TWO = np.column_stack([np.round(2 * Y), X["a"] + RNG.normal(size=N)])
LEVELS = np.array([0.1, 0.5, 0.9])


def fit(y, **settings):
    return TreeFlowRegressor(effort="fast", max_trees=3, random_state=0, **settings).fit(X, y)


def arrays(values, chunks=(100, 120, 80)):
    values = np.asarray(values)
    return da.from_array(values, chunks=(chunks, *values.shape[1:]))


@pytest.fixture(scope="module")
def model():
    return fit(Y)


@pytest.fixture(scope="module")
def model_of_two():
    return TreeFlowRegressor(effort="fast", max_trees=3, random_state=0, resolution=[1.0, None]).fit(X.to_numpy(), TWO)


@pytest.fixture(scope="module")
def on_arrays():
    """A model and the distributions of rows in a Dask Array, whose lengths are known."""
    fitted = TreeFlowRegressor(effort="fast", max_trees=3, random_state=0).fit(X.to_numpy(), Y)
    return fitted, fitted.predict_distribution(arrays(X))


def frames(npartitions=3):
    table = dd.from_pandas(X.assign(y=Y), npartitions=npartitions, sort=False)
    return table[["a", "b"]], table["y"]


def same(lazy_answer, answer):
    assert isinstance(lazy_answer, da.Array)
    np.testing.assert_allclose(lazy_answer.compute(), answer, rtol=1e-12)
    assert lazy_answer.shape[1:] == answer.shape[1:]


def test_it_has_the_methods_of_its_twin():
    for name, method in vars(ConditionalDistribution).items():
        if name.startswith("_") and name not in ("__len__", "__getitem__", "__repr__"):
            continue
        own = getattr(LazyDistribution, name)
        if inspect.isfunction(method):
            assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters), name


def test_frames_answer_as_rows_in_memory(model):
    x, y = frames()
    ours, lazy = model.predict_distribution(X), model.predict_distribution(x)
    assert repr(lazy) == "LazyDistribution(3 partitions, 1 outcome(s))"
    for name in ("logpdf", "pdf", "cdf", "pit", "crps"):
        same(getattr(lazy, name)(y), getattr(ours, name)(Y))
    for name in ("mean", "std", "var", "median"):
        same(getattr(lazy, name)(), getattr(ours, name)())
    for p in (0.3, LEVELS):
        same(lazy.icdf(p), ours.icdf(p))
        same(lazy.ppf(p), ours.ppf(p))
    for end, other in zip(lazy.interval(0.8), ours.interval(0.8), strict=True):
        same(end, other)
    assert lazy.marginal(0) is lazy
    same(model.log_prob(x, y), model.log_prob(X, Y))
    same(model.log_prob(x, y.to_frame()), model.log_prob(X, Y))
    same(model.predict(x), model.predict(X))
    assert model.score(x, y) == pytest.approx(model.score(X, Y), rel=1e-12)


def test_draws_are_of_the_same_distributions(model):
    x, _ = frames()
    draws = model.sample(x, 400, random_state=0).compute()
    assert draws.shape == (N, 400)
    np.testing.assert_array_equal(draws, model.sample(x, 400, random_state=0).compute())
    assert abs(model.predict_distribution(X).cdf(draws).mean() - 0.5) < 0.005  # standard error 0.001
    assert model.sample(x, 0).compute().shape == (N, 0)
    with pytest.raises(ValueError, match="Expected n_samples to be an integer of at least 0; got -1"):
        model.sample(x, -1)


def test_several_outcomes_and_their_marginals(model_of_two):
    x, y = arrays(X), da.from_array(TWO, chunks=((100, 120, 80), 1))
    ours, lazy = model_of_two.predict_distribution(X.to_numpy()), model_of_two.predict_distribution(x)
    same(lazy.logpdf(y), ours.logpdf(TWO))
    same(lazy.pit(y), ours.pit(TWO))
    points = np.stack([TWO, TWO + 1], axis=1)
    same(lazy.logpdf(arrays(points)), ours.logpdf(points))
    for name in ("mean", "std", "var"):
        same(getattr(lazy, name)(), getattr(ours, name)())
    assert lazy.sample(3, random_state=0).shape == (N, 3, 2)
    assert (lazy.n_outcomes, lazy.marginal(0).n_outcomes) == (2, 1)
    same(lazy.marginal(0).icdf(LEVELS), ours.marginal(0).icdf(LEVELS))
    same(lazy.marginal(-1).crps(y[:, 1]), ours.marginal(1).crps(TWO[:, 1]))
    draws = lazy.marginal(0).sample(5, random_state=0).compute()
    assert np.array_equal(draws, np.round(draws))
    for ask in (lazy.median, lazy.interval, lambda: lazy.icdf(0.5), lambda: lazy.cdf(y), lambda: lazy.crps(y)):
        with pytest.raises(ValueError, match="is for one outcome; this distribution has 2: see marginal"):
            ask()
    with pytest.raises(IndexError, match="Expected an outcome below 2; got 2"):
        lazy.marginal(2)
    with pytest.raises(ValueError, match=r"Expected y of shape \(n, 2\) or \(n, m, 2\)"):
        lazy.logpdf(y[:, 0])


def test_arrays_of_outcomes_are_divided_as_x_is(on_arrays):
    model, lazy = on_arrays
    ours = model.predict_distribution(X.to_numpy())
    grid = np.tile(np.linspace(-2, 2, 4), (N, 1))
    same(lazy.logpdf(Y), ours.logpdf(Y))
    same(lazy.cdf(grid), ours.cdf(grid))
    same(lazy.cdf(Y.to_numpy()[:, None]), ours.cdf(Y))  # a column counts as flat
    same(model.log_prob(arrays(X), Y.to_numpy()), ours.logpdf(Y))
    levels = np.linspace(0.1, 0.9, 2 * N).reshape(N, 2)
    same(lazy.icdf(levels), ours.icdf(levels))
    same(lazy.icdf(arrays(levels)), ours.icdf(levels))
    same(lazy.icdf(levels[:, :1]), ours.icdf(levels[:, :1]))
    with pytest.raises(ValueError, match=r"Expected y with 300 rows, as X has; got shape \(299,\)"):
        lazy.logpdf(Y[:-1])


def test_what_is_divided_otherwise_is_refused(model, on_arrays):
    x, _ = frames()
    lazy = model.predict_distribution(x)
    with pytest.raises(TypeError, match="Expected y to be a Dask collection divided as X is"):
        lazy.logpdf(Y.to_numpy())
    with pytest.raises(ValueError, match="X has 3 partitions and y has 2"):
        lazy.crps(frames(2)[1])
    with pytest.raises(ValueError, match="Partition 1 of X has 120 rows and that of y has 100"):
        on_arrays[1].logpdf(arrays(Y, (100, 100, 100)))


def test_levels_are_checked_before_anything_is_read(on_arrays):
    _, lazy = on_arrays
    with pytest.raises(ValueError, match="Expected levels between 0 and 1"):
        lazy.icdf([0.5, 1.5])
    for level in (-0.5, 0, 1):
        with pytest.raises(ValueError, match="Expected a level between 0 and 1"):
            lazy.interval(level)
    with pytest.raises(NotImplementedError, match="quadrature is for rows in memory"):
        lazy.quadrature()
    with pytest.raises(NotImplementedError, match="hdr is for rows in memory"):
        lazy.hdr()
    with pytest.raises(NotImplementedError, match="modes is for rows in memory"):
        lazy.modes()


def test_rows_of_arrays(on_arrays):
    model, lazy = on_arrays
    ours = model.predict_distribution(X.to_numpy())
    assert len(lazy) == N
    mask = np.arange(N) % 3 == 0
    for rows in (slice(50, 250), mask, [3, 7, 290], slice(None, None, -1)):
        same(lazy[rows].median(), ours[rows].median())
        assert len(lazy[rows]) == len(ours[rows])
    same(lazy[-1].mean(), ours[-1].mean())
    assert len(lazy[:0]) == 0
    assert lazy[:0].mean().compute().shape == (0,)
    assert lazy[:0].sample(3).compute().shape == (0, 3)
    with pytest.raises(IndexError, match="Expected a row below 300; got 300"):
        lazy[N]


def test_rows_of_frames(model):
    x, _ = frames()
    lazy = model.predict_distribution(x)
    same(lazy[x["a"] > 0].mean(), model.predict_distribution(X[X["a"] > 0]).mean())
    for rows in (slice(3), 0, [1, 2], np.ones(N, bool)):
        with pytest.raises(TypeError, match="Rows of a Dask DataFrame have no positions"):
            lazy[rows]
    with pytest.raises(TypeError, match="known only after reading them"):
        len(lazy)


def test_partitions_may_be_empty(model):
    x, y = frames()
    none = x["a"] > 100
    lazy = model.predict_distribution(x[none])
    assert lazy.logpdf(y[none]).compute().shape == (0,)
    assert lazy.icdf(LEVELS).compute().shape == (0, 3)
    assert lazy.sample(3).compute().shape == (0, 3)


def test_answers_travel_to_workers(model):
    x, y = frames()
    lazy = model.predict_distribution(x)
    for answer in (lazy.crps(y), lazy.sample(2, random_state=0), lazy.icdf(LEVELS)):
        again = cloudpickle.loads(cloudpickle.dumps(answer))
        np.testing.assert_array_equal(again.compute(), answer.compute())
