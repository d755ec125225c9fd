"""Rows given twice, in another order and in groups."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.ensemble import BaggingRegressor

from treecdf import Logistic, Stage, TreeFlowRegressor

N = 150
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * RNG.normal(size=N)
NEW = RNG.normal(size=(200, 3))
SETTINGS = {
    "fast": {"effort": "fast"},
    "default": {"max_trees": 5},
    "paper": {"base": "box", "stages": [Stage(Logistic(), 3)], "max_trees": 10},
    "rotations": {"rotations": 2, "stages": [Stage(Logistic(), 2)], "max_trees": 3, "weights": "stacked"},
    "atoms": {"effort": "fast", "atoms": [0.0]},
    "grid": {"effort": "fast", "resolution": 0.5},
}


def log_prob(settings, x, y, **how):
    several = "rotations" in settings
    outcomes = np.column_stack([y, y + x[:, 0]]) if several else y
    y_new = np.zeros((len(NEW), 2)) if several else np.zeros(len(NEW))
    return TreeFlowRegressor(random_state=0, **settings).fit(x, outcomes, **how).log_prob(NEW, y_new)


def outcomes_of(name):
    return np.where(RNG.random(N) < 0.2, 0.0, Y) if name == "atoms" else np.round(2 * Y) / 2 if name == "grid" else Y


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_in_another_order_are_the_same_model(name):
    y, order = outcomes_of(name), RNG.permutation(N)
    found = [log_prob(SETTINGS[name], x, y) for x, y in ((X, y), (X[order], y[order]))]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_given_twice_equal_rows_of_weight_two(name):
    y = outcomes_of(name)
    twice = log_prob(SETTINGS[name], np.vstack([X, X]), np.append(y, y))
    weighed = log_prob(SETTINGS[name], X, y, sample_weight=np.full(N, 2.0))
    np.testing.assert_allclose(twice, weighed, atol=1e-8)


def test_validation_rows_in_another_order_and_given_twice():
    order = RNG.permutation(50)
    models = [
        TreeFlowRegressor(effort="fast", random_state=0).fit(X, Y, X_val=NEW[rows], y_val=NEW[rows, 0])
        for rows in (np.arange(50), order, np.repeat(order, 2))
    ]
    found = [model.log_prob(NEW, NEW[:, 0]) for model in models]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
    np.testing.assert_allclose(found[0], found[2], atol=1e-8)


def test_a_frame_of_names_in_another_order_is_the_same_model():
    frame = pd.DataFrame({"x": X[:, 0], "level": RNG.choice(list("abcdefghijklmnopqrstu"), N)})
    order = RNG.permutation(N)
    found = [
        TreeFlowRegressor(effort="fast", random_state=0).fit(frame.iloc[rows], Y[rows]).log_prob(frame, Y)
        for rows in (np.arange(N), order)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


def coverage(model, x, y):
    low, high = model.predict_distribution(x).interval(0.9)
    return np.mean((y >= low) & (y <= high))


def test_copies_do_not_make_a_model_too_sure():
    """A copy in another fold tells a row's outcome: 90 % intervals of 400 rows given twice covered .31."""
    rng = np.random.default_rng(1)
    x, fresh = rng.normal(size=(300, 2)), rng.normal(size=(2000, 2))
    y, y_fresh = x[:, 0] + rng.normal(size=300), fresh[:, 0] + rng.normal(size=2000)
    for rows in (np.tile(np.arange(300), 2), rng.integers(300, size=300)):
        model = TreeFlowRegressor(effort="fast", random_state=0).fit(x[rows], y[rows])
        assert 0.85 < coverage(model, fresh, y_fresh) < 0.95


def test_bagging_works():
    bags = BaggingRegressor(TreeFlowRegressor(effort="fast", max_trees=2), n_estimators=2, random_state=0).fit(X, Y)
    for model in bags.estimators_:
        assert coverage(model, NEW, NEW[:, 0] + 0.5 * NEW[:, 1] ** 2 + 0.5 * norm.rvs(size=200, random_state=0)) > 0.8


def grouped(n_groups, rows, seed):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rows)
    x = rng.normal(size=(n_groups, 2))[group]
    return x, x[:, 0] + rng.normal(size=n_groups)[group] + 0.3 * rng.normal(size=len(group)), group


def test_groups_are_left_out_together():
    """Ten rows a group that share their covariates: without groups the model knows them and not the noise of groups."""
    x, y, group = grouped(80, 10, 0)
    fresh, y_fresh, _ = grouped(2000, 1, 1)
    told, untold = (
        coverage(TreeFlowRegressor(effort="fast", random_state=0).fit(x, y, groups=part), fresh, y_fresh)
        for part in (group, None)
    )
    assert untold < 0.75
    assert 0.84 < told < 0.96


def test_names_of_groups_are_what_they_are_called():
    x, y, group = grouped(20, 5, 0)
    names = np.array([f"person {g}" for g in group], dtype=object)
    order = RNG.permutation(len(x))
    found = [
        TreeFlowRegressor(effort="fast", random_state=0).fit(x[rows], y[rows], groups=names[rows]).log_prob(x, y)
        for rows in (np.arange(len(x)), order)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


def fast(**settings):
    return TreeFlowRegressor(effort="fast", random_state=0, **settings)


def test_relative_weights_are_those_of_mean_one():
    weight = np.random.default_rng(5).uniform(0.5, 2.0, size=len(X))
    counts = fast().fit(X, Y, sample_weight=weight / weight.mean())
    relative = fast(weights_are="relative").fit(X, Y, sample_weight=0.05 * weight)
    assert relative.log_prob(X, Y) == pytest.approx(counts.log_prob(X, Y), abs=1e-7)
    with pytest.warns(UserWarning, match="weights_are='relative'"):
        few = fast(base="box", min_samples_node=30).fit(X, Y, sample_weight=np.full(len(X), 0.05))
    assert not np.allclose(few.log_prob(X, Y), counts.log_prob(X, Y))


def test_what_weights_are_is_checked():
    with pytest.raises(ValueError, match="weights_are to be 'counts' or 'relative'"):
        fast(weights_are="odds").fit(X, Y)
