"""Simple truths get simple models: what is less simple has to gain some nats on left-out rows."""

import numpy as np
import pytest

from treecdf import TreeFlowRegressor
from treecdf._common.steps import PLAIN_STEPS
from treecdf.bases.learners import GaussianProcess, Polynomial
from treecdf.bases.learners.process import _inverse
from treecdf.bases.mean import Mean, TrainingRows
from treecdf.bases.stacked import Stack
from treecdf.training import plan
from treecdf.training.defaults import default_learners, default_scales
from treecdf.training.ensemble import weigh_families

N = 300


def learn(location, seed, scale=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 4))
    y = location(x) + (scale(x) if callable(scale) else scale) * rng.normal(size=N)
    rows = TrainingRows(x, y, np.ones(N), np.arange(N) % 5)
    stack = Stack(default_learners(N, 4, "fast"), default_scales(N))
    return stack.cross_fit(rows, 0.0, -9.0, np.random.default_rng(seed), PLAIN_STEPS)


@pytest.mark.parametrize("seed", range(3))
def test_linear_normal_rows_need_one_learner_and_no_boosting(seed):
    learnt = learn(lambda x: x[:, 0] - 0.5 * x[:, 1], seed)
    assert learnt.model.mean.names == ("linear",)
    assert learnt.model.n_components == 1
    assert len(learnt.model.scores.leaf) == 0
    assert learnt.left_out.shape == (N, 3)
    new = np.random.default_rng(9).normal(size=(2, 4))
    np.testing.assert_allclose(learnt.model(new)[:, 2], learnt.model.mean(new)[:, 0])


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_do_not_depend_on_x_get_a_constant(seed):
    learnt = learn(lambda x: np.full(len(x), 2.0), seed)
    assert learnt.model.mean.names == ("constant",)
    location = learnt.model(np.random.default_rng(9).normal(size=(5, 4)))[:, 2]
    assert np.ptp(location) == 0
    assert location[0] == pytest.approx(2.0, abs=0.1)


def test_a_constant_is_the_weighted_mean_of_the_middle_half_and_left_out_rows_do_not_count():
    y = np.array([0.0, 1.0, 2.0, 1e9, 4.0, 5.0, 6.0, -1e9])
    rows = TrainingRows(np.zeros((8, 2)), y, np.ones(8), np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    mean, left_out = Mean.constant(rows)
    np.testing.assert_allclose(mean(np.ones((1, 2))), [[(1.0 + 2.0 + 4.0 + 5.0) / 4]])
    np.testing.assert_allclose(left_out[:, 0], [4.5] * 4 + [1.5] * 4)


def test_a_linear_log_scale_stays():
    learnt = learn(lambda x: x[:, 0], 0, scale=lambda x: np.exp(0.8 * x[:, 0]))
    assert learnt.model.trend.has_slopes


def test_what_is_not_linear_needs_more():
    learnt = learn(lambda x: np.sin(2 * x[:, 0]) + x[:, 1] ** 2, 0)
    assert len(learnt.model.mean.names) > 1


def test_several_outcomes_of_a_polynomial_are_those_of_one_each():
    rng = np.random.default_rng(0)
    x, fold, weight = rng.normal(size=(60, 3)), np.arange(60) % 4, rng.uniform(0.5, 2.0, 60)
    targets = [x[:, 0] + rng.normal(size=60), x[:, 1] * x[:, 2], rng.normal(size=60)]
    together = Polynomial(2).left_out(x, targets, weight, fold)
    for y, found in zip(targets, together, strict=True):
        np.testing.assert_allclose(found, Polynomial(2).cross_fit(x, y, weight, fold, rng)[1], rtol=1e-10, atol=1e-12)


def test_inverse_from_a_cholesky_factor():
    a = np.random.default_rng(0).normal(size=(6, 9))
    matrix = a @ a.T
    np.testing.assert_allclose(_inverse(np.linalg.cholesky(matrix)), np.linalg.inv(matrix), rtol=1e-9)


def test_a_process_is_the_same_as_with_a_plain_inverse(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y, fold = np.sin(x[:, 0]) + 0.1 * rng.normal(size=80), np.arange(80) % 4

    def left_out():
        return GaussianProcess().cross_fit(x, y, np.ones(80), fold, np.random.default_rng(0))[1]

    fast = left_out()
    monkeypatch.setattr(
        "treecdf.bases.learners.process._inverse", lambda root: np.linalg.inv(np.tril(root) @ np.tril(root).T)
    )
    np.testing.assert_allclose(fast, left_out(), atol=1e-4)


def test_trees_that_gain_too_little_are_left_out(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    y = x[:, 0] + np.where(rng.random(N) < 0.5, -2.0, 2.0) + 0.2 * rng.normal(size=N)

    def count():
        model = TreeFlowRegressor(effort="fast", base=[Polynomial(1)], random_state=0, n_jobs=1).fit(x, y)
        return sum(len(stage) for flow in model.mixture_.members for stage in flow.stages)

    assert count() > 0
    monkeypatch.setattr(plan, "WORTH_TREES", 1e9)
    assert count() == 0


def test_a_family_that_adds_less_than_five_nats_is_dropped():
    rng = np.random.default_rng(0)
    first = -1 + 0.1 * rng.normal(size=500)
    kept, weights = weigh_families(np.column_stack([first, first + 0.05 * rng.normal(size=500)]), np.ones(500))
    assert len(kept) == 1
    np.testing.assert_allclose(weights, 1.0)
    other = np.where(np.arange(500) % 2 == 0, first + 1, first - 1)
    assert len(weigh_families(np.column_stack([first, other]), np.ones(500))[0]) == 2


def test_of_two_families_the_simpler_one_stays_unless_the_other_is_surely_better():
    rng = np.random.default_rng(0)
    first = -1 + 0.1 * rng.normal(size=100)
    assert weigh_families(np.column_stack([first, first + 0.04]), np.ones(100))[0] == [0]
    assert weigh_families(np.column_stack([first, first + 0.2]), np.ones(100))[0] == [1]
    by_chance = first.copy()
    by_chance[:3] += 4.0  # twelve nats, all of three rows
    assert weigh_families(np.column_stack([first, by_chance]), np.ones(100))[0] == [0]
