"""Covariates with long tails get a scale that suits smooth learners, if it helps."""

import numpy as np
import pytest

from treecdf import TreeFlowRegressor
from treecdf.bases.straightening import OnNewScale, Straightener, choose_scale

N = 500
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(N, 3))
Y = Z @ [1.0, -0.5, 0.25] + 0.5 * RNG.normal(size=N)


def long_tailed(z):
    return np.column_stack([np.exp(z[:, 0]), z[:, 1:]])


def chosen(x, y=Y):
    return choose_scale(x, y, np.ones(len(x)), np.arange(len(x)) % 5, np.random.default_rng(0))


def test_long_tails_are_drawn_in_where_it_helps():
    scale = chosen(long_tailed(Z))
    assert scale.columns.tolist() == [0]
    assert np.corrcoef(scale(long_tailed(Z))[:, 0], Z[:, 0])[0, 1] > 0.99


def test_other_columns_and_other_relations_are_left_alone():
    assert chosen(Z) is None
    x = long_tailed(Z)
    assert chosen(x, 0.1 * x[:, 0] + Z[:, 1]) is None
    few_values = np.column_stack([np.random.default_rng(1).random(N) < 0.02, Z])
    assert chosen(few_values.astype(float)) is None


def test_the_new_scale_rises_and_is_held_at_the_ends():
    x = long_tailed(Z)
    scale = Straightener.fit(x, np.array([0]))
    grid = np.zeros((200, 3))
    grid[:, 0] = np.geomspace(1e-6, 1e6, 200)
    score = scale(grid)[:, 0]
    assert (np.diff(score) >= 0).all()
    assert score[[0, -1]] == pytest.approx(scale.scores[[0, -1]])
    assert not scale(grid)[:, 1:].any()


def test_a_scale_that_is_a_convention_costs_little():
    rng = np.random.default_rng(3)
    z = rng.normal(size=(4000, 3))
    y = z @ [1.0, -0.5, 0.25] + 0.5 * rng.normal(size=4000)
    settings = {"effort": "fast", "random_state": 0}
    plain = TreeFlowRegressor(**settings).fit(Z, Y)
    other = TreeFlowRegressor(**settings).fit(long_tailed(Z), Y)
    assert any(isinstance(part, OnNewScale) for part in other.mixture_.members[0].base.components.mean.predictors)
    assert other.log_prob(long_tailed(z), y).mean() > plain.log_prob(z, y).mean() - 0.02
