"""Nearness: what near rows of other folds say, what is made of it, and what a model remembers of its rows."""

from functools import cache

import numpy as np
import pytest

from treecdf import TreeFlowRegressor, load_model
from treecdf.bases.learners import GaussianProcess, Neighbours, Polynomial
from treecdf.bases.learners.grouping import means_of_rows
from treecdf.bases.mean import TrainingRows
from treecdf.bases.nearness import N_NEAR, Nearness

N, Q = 90, 3
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, Q)), RNG.normal(size=N)
METRIC = np.array([1.0, 0.5, 0.1])
ROWS = TrainingRows(X, Y, np.ones(N), np.arange(N) % 3)


def plain(at, x, y):
    """Log distances to the nearest and the fifth row, the nearest outcome and the log spread of five."""
    distance = np.sqrt((((x - at) * METRIC) ** 2).sum(axis=1))
    order = np.argsort(distance)[:N_NEAR]
    return [*np.log(distance[order[[0, -1]]]), y[order[0]], np.log(y[order].std())]


def told(nearby):
    return np.column_stack([nearby.log_distance, nearby.value, nearby.log_spread])


def test_training_rows_see_the_nearest_rows_of_other_folds_only():
    near, nearby = Nearness.cross_fit(ROWS, METRIC, N)
    others = [ROWS.fold != f for f in ROWS.fold]
    np.testing.assert_allclose(told(nearby), [plain(X[i], X[o], Y[o]) for i, o in enumerate(others)])
    new = RNG.normal(size=(20, Q))
    expected = np.array([plain(at, X, Y) for at in new])
    expected[:, :2] = np.maximum(expected[:, :2], nearby.log_distance.min(axis=0))
    np.testing.assert_allclose(told(near(new)), expected)


def test_some_training_rows_may_be_asked_only():
    asked = np.array([2, 3, 50, 71])
    near, nearby = Nearness.cross_fit(ROWS, METRIC, N, asked)
    np.testing.assert_array_equal(told(nearby), told(Nearness.cross_fit(ROWS, METRIC, N)[1])[asked])
    assert len(near.points) == N


def test_a_copy_of_a_training_row_is_as_near_as_the_nearest_that_was_seen():
    near, nearby = Nearness.cross_fit(ROWS, METRIC, N)
    again = near(X)
    np.testing.assert_array_equal(again.log_distance[:, 0], nearby.log_distance[:, 0].min())
    assert (again.log_distance[:, 1] >= nearby.log_distance[:, 1].min()).all()
    np.testing.assert_array_equal(again.value, Y)


def test_rows_at_one_place_are_no_infinitely_near_ones():
    rows = TrainingRows(np.zeros((N, Q)), np.zeros(N), np.ones(N), ROWS.fold)
    near, nearby = Nearness.cross_fit(rows, METRIC, N)
    assert np.isfinite(told(nearby)).all()
    assert np.isfinite(told(near(np.ones((2, Q))))).all()


def test_only_so_many_rows_are_remembered():
    near, nearby = Nearness.cross_fit(ROWS, METRIC, 20)
    assert len(near.points) == len(near.values) == 20
    assert len(nearby.value) == N
    few, _ = Nearness.cross_fit(ROWS, METRIC, 2)  # fewer than are looked at
    assert np.isfinite(told(few(X))).all()


def test_columns_for_scales_are_relative_to_the_stack():
    nearby = Nearness.cross_fit(ROWS, METRIC, N)[1]
    stack = np.linspace(0, 1, N)
    columns = nearby.features(stack)
    np.testing.assert_allclose(columns[:, 2], nearby.value - stack)
    assert columns.shape == (N, 4)


# Whole models


def twins(n, seed=0, noise=0.02):
    """Rows in pairs that are near, with an outcome that nothing but the other row of the pair tells; then groups."""
    rng = np.random.default_rng(seed)
    pair = np.repeat(np.arange(n // 2), 2)
    x = rng.normal(size=(n // 2, 4))[pair] + 0.01 * rng.normal(size=(n, 4))
    return x, rng.normal(size=n // 2)[pair] + noise * rng.normal(size=n), pair


@cache
def fitted(remember_rows=True, effort="fast"):
    x, y, _ = twins(300)
    return TreeFlowRegressor(effort=effort, random_state=0, remember_rows=remember_rows).fit(x, y)


def base_of(model):
    return model.mixture_.members[0].base


def test_near_rows_make_sure():
    x, y, _ = twins(300)
    rng = np.random.default_rng(1)
    new = x[::2] + 0.01 * rng.normal(size=(150, 4))
    asked = y[::2] + 0.02 * rng.normal(size=150)
    known, unknown = (model.log_prob(new, asked).mean() for model in (fitted(), fitted(False)))
    assert known > unknown + 1.0
    far = fitted().predict_distribution(rng.normal(size=(150, 4)))
    outcomes = rng.normal(size=150)
    low, high = far.interval(0.9)
    assert 0.8 < np.mean((low <= outcomes) & (outcomes <= high)) <= 1.0


def test_near_rows_of_a_group_do_not_make_sure_of_other_groups():
    x, y, pair = twins(300)
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(x, y, groups=pair)
    x, y, _ = twins(2000, seed=5)
    low, high = model.predict_distribution(x).interval(0.9)
    assert 0.84 < np.mean((low <= y) & (y <= high)) < 0.96
    assert model.log_prob(x, y).mean() > -1.5  # 1.42 is the entropy of the outcomes


@pytest.mark.parametrize(("n", "q"), [(200, 5), (200, 30)])
def test_where_nearness_tells_nothing_it_is_left_out(n, q):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, q))
    model = TreeFlowRegressor(base="conditional", effort="fast", max_trees=0, random_state=0)
    model.fit(x, x[:, 0] + rng.normal(size=n))
    assert base_of(model).components.near is None


def test_irrelevant_covariates_do_not_count_in_distances():
    rng = np.random.default_rng(3)
    pair = np.repeat(np.arange(200), 2)
    x = rng.normal(size=(200, 2))[pair] + 0.002 * rng.normal(size=(400, 2))
    y = 3 * x[:, 0] + 2 * x[:, 1] + rng.normal(size=200)[pair] + 0.02 * rng.normal(size=400)
    x = np.column_stack([x, rng.normal(size=(400, 6))])  # in which the rows of a pair differ
    model = TreeFlowRegressor(base="conditional", effort="fast", max_trees=0, random_state=0).fit(x, y)
    metric = base_of(model).components.near.metric
    assert metric[0] == 1.0
    assert metric[1] > 0.4
    assert (metric[2:] < 0.1).all()


# Memory


def held_rows(model, x):
    """How many training rows x (n, q) occur, standardised or times the metric, among the arrays of a model."""
    flow = model.mixture_.tree_flows()[0]
    z = flow.standardize(x)
    found, left, seen = 0, [model.mixture_], set()
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, tuple):
            left += part
        elif isinstance(part, np.ndarray):
            if part.ndim == 2 and part.shape[1] == z.shape[1] and part.dtype == np.float64:
                metrics = [1.0] if (near := getattr(flow.base.components, "near", None)) is None else [1.0, near.metric]
                for metric in metrics:
                    gap = np.abs(part[None] - (z * metric)[:, None]).max(axis=2)
                    found += int((gap.min(axis=1) < 1e-12).sum())
        elif hasattr(part, "__dict__"):
            left += vars(part).values()
    return found


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_without_leave_no_row_is_in_the_model(effort, tmp_path):
    x, _, _ = twins(300)
    assert held_rows(fitted(), x) >= 300
    model = fitted(False, effort)
    assert held_rows(model, x) == 0
    model.save(tmp_path / "model.tcdf")
    loaded = load_model(tmp_path / "model.tcdf")
    assert loaded.remember_rows is False
    assert held_rows(loaded, x) == 0
    assert np.isfinite(loaded.novelty(10 * x)).all()


def test_a_summary_says_how_many_rows_are_remembered():
    assert "scales and weights see how near the nearest of 300 training rows are" in fitted().summary()
    assert "training rows that the model remembers: 300 with their outcomes" in fitted().summary()
    assert "training rows that the model remembers: none" in fitted(False).summary()
    x, y, _ = twins(60)
    box = TreeFlowRegressor(base="box", max_trees=1, random_state=0).fit(x, y)
    assert "training rows that the model remembers: none" in box.summary()


@pytest.mark.parametrize("base", [Neighbours(), GaussianProcess(), [Polynomial(1), Neighbours()]])
def test_learners_that_hold_rows_are_refused_without_leave(base):
    with pytest.raises(ValueError, match="hold rows: expected remember_rows=True"):
        TreeFlowRegressor(base=base, remember_rows=False).fit(X, Y)
    with pytest.raises(ValueError, match="regions='hdbscan' hold rows"):
        TreeFlowRegressor(rotations=2, weights="stacked", regions="hdbscan", remember_rows=False).fit(X, X[:, :2])
    with pytest.raises((ValueError, TypeError), match="remember_rows"):
        TreeFlowRegressor(remember_rows="no").fit(X, Y)


def test_means_are_of_five_rows_or_more():
    for n, most in ((4, 100), (23, 100), (1000, 100), (1000, 3)):
        x = np.random.default_rng(n).normal(size=(n, 2))
        means = means_of_rows(x, most)
        assert 1 <= len(means) <= min(most, max(1, n // 5))
        assert (means.std(axis=0) <= x.std(axis=0)).all()
    np.testing.assert_allclose(means_of_rows(X[:8], 9), X[:8].mean(axis=0, keepdims=True))


def test_a_process_through_means_is_nearly_as_good():
    x = np.linspace(-3, 3, 200)[:, None]
    y, fold = np.sin(2 * x[:, 0]), np.arange(200) % 5
    process, left_out = GaussianProcess(max_iter=20, holds_rows=False).cross_fit(
        x, y, np.ones(200), fold, np.random.default_rng(0)
    )
    assert len(process.inducing) <= 40
    assert np.abs(left_out - y).max() < 0.05
