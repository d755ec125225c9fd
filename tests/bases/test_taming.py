"""Far-off outcomes do not draw the mean learners to themselves."""

import numpy as np
import pytest

from treecdf.bases.learners import Polynomial
from treecdf.bases.mean import Mean, TrainingRows
from treecdf.bases.taming import tame
from treecdf.bases.transform import OutcomeTransform

N = 1000
X = np.random.default_rng(0).normal(size=(N, 3))
FOLD = np.arange(N) % 5


def tamed(y, x=X):
    return tame(x, y, np.ones(len(y)), FOLD, np.random.default_rng(0))


def noise(kind, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "normal": rng.normal(size=N),
        "heteroscedastic": np.exp(0.6 * X[:, 0]) * rng.normal(size=N),
        "gamma": rng.gamma(2, size=N),
        "cauchy": rng.standard_cauchy(N),
        "outliers": np.where(rng.random(N) < 0.05, 10, 1) * rng.normal(size=N),
    }[kind]


@pytest.mark.parametrize("kind", ["normal", "heteroscedastic", "gamma"])
def test_usual_errors_are_left_alone(kind):
    y = X[:, 0] + noise(kind)
    assert np.array_equal(tamed(y), y)


@pytest.mark.parametrize("kind", ["cauchy", "outliers"])
def test_far_off_outcomes_are_held_and_the_others_are_not(kind):
    y = X[:, 0] + noise(kind)
    held = tamed(y) != y
    assert 0 < held.mean() < 0.25
    assert np.abs(y - X[:, 0])[held].min() > np.median(np.abs(y - X[:, 0]))


@pytest.mark.parametrize("kind", ["cauchy", "outliers"])
def test_the_mean_is_closer_to_the_truth(kind):
    y = X[:, 0] + noise(kind)
    plain, _ = Polynomial(1).cross_fit(X, y, np.ones(N), FOLD, np.random.default_rng(0))
    robust, _ = Mean.cross_fit([Polynomial(1)], TrainingRows(X, y, np.ones(N), FOLD), 0.0, np.random.default_rng(0))
    assert np.mean((robust(X)[:, 0] - X[:, 0]) ** 2) < 0.5 * np.mean((plain(X) - X[:, 0]) ** 2)


def test_it_follows_the_unit_of_the_outcome():
    y = X[:, 0] + noise("cauchy")
    assert 1e-6 * tamed(y) == pytest.approx(tamed(1e-6 * y), rel=1e-6)


def test_a_constant_outcome_is_left_alone():
    assert np.array_equal(tamed(np.full(N, 2.0)), np.full(N, 2.0))


def test_the_scale_of_a_cauchy_is_that_of_its_middle():
    y = noise("cauchy")
    transform = OutcomeTransform.fit(y, np.ones(N))
    low, high = np.quantile(y, [0.05, 0.95])
    assert transform.scale < 1.1 * (high - low)
    assert np.std(y) > 2 * (high - low)
    normal = noise("normal")
    assert OutcomeTransform.fit(normal, np.ones(N)).scale == pytest.approx(np.std(normal))
