"""Mixtures of normals that are linear in the covariates and cut off at bounds."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import kstest

from treecdf.bases.linear_mixture import N_COMPONENTS, _design, _penalties, _Rows, fit_linear_mixture

BOUND = (-4.0, 5.0)


def simulate(n, seed):
    """The second covariate predicts y; the first makes it noisier."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = x[:, 1] + rng.normal(size=n) * np.exp(0.3 * x[:, 0])
    return x, np.clip(y, -3.9, 4.9)


def test_the_gradient_is_the_derivative():
    rng = np.random.default_rng(0)
    x, y = simulate(30, 0)
    rows = _Rows(_design(x), y, np.minimum(y - 0.2, -1.0), 5.0, rng.uniform(0.5, 2, 30))
    start = np.zeros(9 * N_COMPONENTS)
    at = rng.normal(size=len(start)) * 0.3
    expected = approx_fprime(at, lambda slopes: rows.loss(slopes, start)[0], 1e-6)
    np.testing.assert_allclose(rows.loss(at, start)[1], expected, rtol=1e-3, atol=2e-3)
    assert (_penalties(3) > 0).all()


def test_rows_are_uniform_under_the_base_and_scales_follow_the_covariates():
    base = fit_linear_mixture(*simulate(2000, 0), np.ones(2000), BOUND)
    x, y = simulate(2000, 1)
    parameters = base.parameters(x)
    u, log_det = base.to_box(y[:, None, None], parameters)
    assert kstest(u.ravel(), "uniform").pvalue > 0.001
    np.testing.assert_allclose(base.from_box(u, parameters)[:, 0, 0], y, atol=1e-6)
    assert log_det.mean() == pytest.approx(-np.log(np.sqrt(2 * np.pi * np.e)), abs=0.05)
    spread = np.ptp(base.from_box(np.array([[[0.1], [0.9]]] * 2), base.parameters(np.array([[-1.5, 0], [1.5, 0]]))), 1)
    assert spread[1] > 1.5 * spread[0]


def test_likelihoods_are_of_what_is_left_above_the_floor():
    """Rows below a floor are never seen: without knowing that, the center would be found too high."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    y, x = y[y > 0], np.zeros((np.sum(y > 0), 2))
    told, not_told = (fit_linear_mixture(x, y, np.ones(len(y)), (-5.0, 5.0), low) for low in (np.zeros(len(y)), None))
    below = [base.to_box(np.zeros((1, 1, 1)), base.parameters(x[:1]))[0].item() for base in (told, not_told)]
    assert below[0] > 0.1
    assert below[1] < 0.05


def test_a_weight_of_two_is_the_row_twice_and_far_covariates_are_held():
    x, y = simulate(100, 2)
    twice = np.concatenate([np.arange(100), np.arange(50)])
    a = fit_linear_mixture(x, y, np.repeat([2.0, 1.0], 50), BOUND)
    b = fit_linear_mixture(x[twice], y[twice], np.ones(150), BOUND)
    np.testing.assert_allclose(a.parameters(x), b.parameters(x), atol=1e-3)
    far = np.array([[1e6, 0.0], [x[:, 0].max(), 0.0]])
    np.testing.assert_array_equal(*np.split(a.parameters(far), 2))
