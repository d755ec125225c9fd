"""Fits and root finding that end at their limit say so; ordinary ones do not reach it."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from treecdf.bases.student import Student
from treecdf.data.scaling import Standardizer
from treecdf.flows import mixture, weights
from treecdf.flows.composition import presence
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Mixture
from treecdf.flows.weights import equal_weights, maximise

X = np.zeros((4, 1))
LEVELS = np.tile([0.05, 0.3, 0.6], (4, 1))[..., None]


def two_students():
    """A mixture of one outcome of two Student t, far apart and of different scales."""
    standardize = Standardizer(np.ones(1), np.zeros(1), np.ones(1))
    bases = [
        Student(np.array([place]), np.array([scale]), np.array([5.0])) for place, scale in ((0.0, 1.0), (9.0, 0.2))
    ]
    return Mixture(tuple(TreeFlow(standardize, base, ()) for base in bases), equal_weights(2))


def test_quantiles_that_are_not_found_are_a_warning_that_says_how_far_off_they_are(monkeypatch):
    mixed = two_students()
    exact = mixed.inverse(LEVELS, X)
    assert mixed.forward_and_log_det(exact, X)[0] == pytest.approx(LEVELS, rel=1e-12)
    monkeypatch.setattr(mixture, "_N_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match=r"Root finding ended after 1 steps: \d+ of 12 quantiles"):
        mixed.inverse(LEVELS, X)


def test_weights_that_are_far_from_the_maximum_are_a_warning(monkeypatch):
    rng = np.random.default_rng(0)
    log_prob = np.column_stack([rng.normal(size=400), rng.normal(size=400) - 3])
    best = maximise(log_prob, np.ones(400), np.ones(2))
    monkeypatch.setattr(weights, "_N_STEPS", 2)
    with pytest.warns(ConvergenceWarning, match="Weights of a mixture did not converge in 2 steps") as caught:
        found = maximise(log_prob, np.ones(400), np.ones(2))

    def value(share):
        return np.log(np.exp(log_prob) @ share).mean() + np.log(share).sum() / 400

    told = float(str(caught[0].message).split("may be ")[1].split(" a row")[0])
    assert 0 < value(best) - value(found) <= 1.1 * told  # one digit is shown


def test_weights_that_are_as_good_as_the_maximum_are_no_warning(monkeypatch):
    """Members that are nearly the same have weights that take for ever to settle, and do not matter."""
    rng = np.random.default_rng(0)
    log_prob = rng.normal(size=(400, 1)) + 1e-6 * rng.normal(size=(400, 2))
    monkeypatch.setattr(weights, "_N_STEPS", 2)
    monkeypatch.setattr(weights, "_CONVERGED", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert maximise(log_prob, np.ones(400), np.ones(2)) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("separation", [0.5, 50.0])
def test_a_logistic_regression_converges_and_warns_if_it_may_not(separation, monkeypatch):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 3))
    label = separation * features[:, 0] + rng.normal(size=80) > 0
    presence.logistic(features, label, np.ones(3), np.ones(80))
    monkeypatch.setattr(presence, "_NEWTON_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 steps"):
        presence.logistic(features, label, np.ones(3), np.ones(80))
