"""The likelihood of outcomes that are known by their cells."""

import numpy as np
import pytest
from scipy import stats

from treecdf._kernels.mixtures import cell_loss, mixture_loss
from treecdf._kernels.tails import DEGREES

N, J = 40, 3
every_tail = pytest.mark.parametrize("tail", range(6))


def losses(kernel, observed, scores, tail, floor=-20.0):
    value, gradient, curvature = np.empty(len(scores)), np.empty(scores.shape), np.empty(scores.shape)
    kernel(observed, np.ascontiguousarray(scores[:, -J:]), scores, tail, floor, value, gradient, curvature)
    return value, gradient, curvature


def problem(width):
    rng = np.random.default_rng(0)
    scores = np.hstack([rng.uniform(-2, 1, (N, J)), rng.normal(size=(N, 2 * J))])
    lower = 2 * rng.normal(size=N)
    return np.column_stack([lower, lower + width * rng.exponential(size=N)]), scores


@every_tail
def test_the_loss_is_minus_the_log_probability_of_the_cell_and_its_gradient_is_right(tail):
    ends, scores = problem(1.0)
    ends[:5, 0], ends[5:10, 1] = -np.inf, np.inf
    log_scale, logits, location = np.split(scores, 3, axis=1)
    one = stats.norm if tail == 5 else stats.t(DEGREES[tail])
    low, high = ((end - location) / np.exp(log_scale) for end in (ends[:, :1], ends[:, 1:]))
    is_above = low > 0  # from the nearer tail
    mass = np.where(is_above, one.sf(low) - one.sf(high), one.cdf(high) - one.cdf(low))
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    value, gradient, curvature = losses(cell_loss, ends, scores, tail)
    np.testing.assert_allclose(value, -np.log((share * mass).sum(axis=1)), rtol=1e-6)
    assert (curvature > 0).all()
    for k in range(3 * J):
        shift = 1e-5 * (np.arange(3 * J) == k)
        slope = (
            losses(cell_loss, ends, scores + shift, tail)[0] - losses(cell_loss, ends, scores - shift, tail)[0]
        ) / 2e-5
        np.testing.assert_allclose(gradient[:, k], slope, atol=1e-6)


@every_tail
@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-12])
def test_narrow_cells_are_outcomes(tail, width):
    ends, scores = problem(width)
    ends[:, 1] = ends[:, 0] + width
    by_cell = losses(cell_loss, ends, scores, tail)
    exact = losses(mixture_loss, ends.mean(axis=1), scores, tail)
    np.testing.assert_allclose(by_cell[0] + np.log(width), exact[0], atol=2e-3)
    np.testing.assert_allclose(by_cell[1], exact[1], rtol=1e-2, atol=1e-2)


@every_tail
def test_far_cells_have_finite_losses(tail):
    ends, scores = problem(1.0)
    for far in (1e3, 1e8, -1e8):
        value, gradient, _ = losses(cell_loss, ends + far, scores, tail)
        assert np.isfinite(value).all()
        assert np.isfinite(gradient).all()
