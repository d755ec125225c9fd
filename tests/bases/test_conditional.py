"""The conditional base: its mixture, its transform, what left-out rows see of it, and whole models on it."""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import betainc, erfc, logsumexp
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from treecdf import BoostedTrees, Stage, TreeFlowRegressor
from treecdf._kernels.mixtures import mixture_forward, mixture_inverse, mixture_loss
from treecdf._kernels.outcomes import component_moments
from treecdf._kernels.tails import DEGREES, NORMAL
from treecdf._kernels.tails import T5 as TAIL5
from treecdf.bases.components import choose_tail
from treecdf.bases.conditional import Conditional, _broad_weight
from treecdf.bases.learners import BoostedMean, Polynomial, as_learner
from treecdf.bases.linear_scale import LinearScale
from treecdf.bases.mean import TrainingRows
from treecdf.bases.stacked import Stack
from treecdf.bases.tail_nodes import nodes_of_tail
from treecdf.bases.transform import OutcomeTransform
from treecdf.data.recording import recording_step
from treecdf.training.defaults import default_learners, default_scales

T5 = stats.t(5)
STANDARD = [*(stats.t(dof) for dof in DEGREES[:-1]), stats.norm()]  # by tail
every_tail = pytest.mark.parametrize("tail", range(len(STANDARD)))


# Mixtures of Student t


def random_mixture(seed, n, n_components, spread=4.0):
    """Locations, log scales and log weights (n, J) that differ much."""
    rng = np.random.default_rng(seed)
    location, log_scale = 3 * rng.normal(size=(n, n_components)), rng.uniform(-spread, spread / 2, (n, n_components))
    return location, log_scale, np.log(rng.dirichlet(np.ones(n_components), n))


def forward(y, location, log_scale, log_weight, tail=TAIL5):
    found = [np.full(y.shape, np.nan) for _ in range(3)]
    mixture_forward(y, location, log_scale, log_weight, np.full(location.shape[1], tail), *found)
    return found


def lower_tail(t, tail):
    """CDF at t <= 0, to full relative accuracy."""
    if tail == NORMAL:
        return erfc(-t / np.sqrt(2)) / 2
    dof = DEGREES[tail]
    return betainc(dof / 2, 0.5, dof / (dof + t * t)) / 2


def scaled(y, location, log_scale):
    return (y[:, :, None] - location[:, None]) * np.exp(-log_scale[:, None])


@pytest.mark.parametrize("n_components", [1, 2, 4])
@every_tail
def test_the_mixture_is_scipys(n_components, tail):
    standard = STANDARD[tail]
    location, log_scale, log_weight = random_mixture(n_components, 20, n_components)
    y = 10 * np.random.default_rng(0).standard_t(2, size=(20, 50))
    lower, upper, log_density = forward(y, location, log_scale, log_weight, tail)
    t = scaled(y, location, log_scale)
    np.testing.assert_allclose(
        lower, (np.exp(log_weight)[:, None] * standard.cdf(t)).sum(axis=2), rtol=1e-7, atol=1e-14
    )
    np.testing.assert_allclose(upper, (np.exp(log_weight)[:, None] * standard.sf(t)).sum(axis=2), rtol=1e-7, atol=1e-14)
    expected = logsumexp(log_weight[:, None] + standard.logpdf(t) - log_scale[:, None], axis=2)
    np.testing.assert_allclose(log_density, expected, rtol=1e-12, atol=1e-12)


@every_tail
def test_tails_keep_their_relative_accuracy(tail):
    """Also where they are 1e-200; the smaller tail is the one without rounding of 1."""
    t = -np.logspace(-3, 1.5 if tail == NORMAL else min(40, 200 / DEGREES[tail]), 2000)
    location, log_scale, log_weight = np.array([[2.0]]), np.array([[np.log(3.0)]]), np.zeros((1, 1))
    expected = lower_tail(t, tail)
    assert expected[-1] < 1e-39
    far = np.abs(t) > 1e3  # nearer the location takes digits
    lower, upper, _ = forward(2.0 + 3.0 * t[None], location, log_scale, log_weight, tail)
    np.testing.assert_allclose(lower[0, far], expected[far], rtol=1e-9)
    np.testing.assert_allclose(upper[0], 1.0 - lower[0], rtol=1e-15)
    standard = np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))
    lower, upper = forward(t[None], *standard, tail)[0], forward(-t[None], *standard, tail)[1]
    np.testing.assert_allclose(lower[0], expected, rtol=3e-11)
    np.testing.assert_allclose(upper[0], expected, rtol=3e-11)


def test_log_densities_of_far_points_are_those_of_a_power_law():
    location, log_scale, log_weight = random_mixture(0, 1, 2)
    y = np.array([[1e30, -1e30, 1e100, -1e200]])
    found = forward(y, location, log_scale, log_weight)[2]
    peak = stats.t.logpdf(0.0, 5) + 3 * np.log(5)
    parts = log_weight[:, None] + peak + 5 * log_scale[:, None] - 6 * np.log(np.abs(y))[..., None]
    np.testing.assert_allclose(found, logsumexp(parts, axis=2), rtol=1e-12)


def test_components_without_weight_do_not_matter():
    location, log_scale, log_weight = random_mixture(1, 5, 2)
    y = np.random.default_rng(1).normal(size=(5, 7))
    with_none = [np.column_stack([part, np.zeros(5)]) for part in (location, log_scale)]
    with_none.append(np.column_stack([log_weight, np.full(5, -np.inf)]))
    for ours, theirs in zip(forward(y, location, log_scale, log_weight), forward(y, *with_none), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


LEVELS = np.concatenate([np.logspace(-12, -1, 12), [0.3, 0.5, 0.7], 1 - np.logspace(-1, -12, 12)])


@pytest.mark.parametrize("n_components", [1, 2, 4])
@pytest.mark.parametrize("spread", [1.0, 8.0])
@every_tail
def test_quantiles_come_back_to_their_levels(n_components, spread, tail):
    parameters = random_mixture(n_components, 40, n_components, spread)
    u = np.tile(LEVELS, (40, 1))
    y = np.empty(u.shape)
    mixture_inverse(u, np.argsort(u, axis=1), *parameters, np.full(n_components, tail), y)
    lower, upper, _ = forward(y, *parameters, tail)
    near = LEVELS <= 0.5
    np.testing.assert_allclose(lower[:, near], u[:, near], rtol=1e-8)
    np.testing.assert_allclose(upper[:, ~near], (1 - u)[:, ~near], rtol=1e-8)
    assert (np.diff(y, axis=1) > 0).all()


@every_tail
def test_quantiles_of_tiny_levels_are_far_out_on_the_right_side(tail):
    parameters = random_mixture(0, 10, 3)
    u = np.tile([1e-300, 1e-200, 1e-100, 1e-30], (10, 1))
    y = np.empty(u.shape)
    mixture_inverse(u, np.argsort(u, axis=1), *parameters, np.full(3, tail), y)
    np.testing.assert_allclose(forward(y, *parameters, tail)[0], u, rtol=1e-8)


def test_quantiles_do_not_depend_on_the_levels_beside_them():
    """Where root finding starts, from the level before, must not be where it ends."""
    parameters, u = random_mixture(1, 20, 3, 8.0), np.random.default_rng(1).random((20, 50))
    together, alone, tails = np.empty(u.shape), np.empty(u.shape), np.full(3, TAIL5)
    mixture_inverse(u, np.argsort(u, axis=1), *parameters, tails, together)
    for k in range(u.shape[1]):
        one, level = np.empty((20, 1)), np.ascontiguousarray(u[:, k : k + 1])
        mixture_inverse(level, np.zeros((20, 1), np.int64), *parameters, tails, one)
        alone[:, k] = one[:, 0]
    np.testing.assert_allclose(together, alone, rtol=1e-11, atol=1e-12)


def losses(y, location, scores, floor=-20.0, tail=TAIL5):
    value, gradient, curvature = np.empty(len(y)), np.empty(scores.shape), np.empty(scores.shape)
    mixture_loss(y, location, scores, tail, floor, value, gradient, curvature)
    return value, gradient, curvature


def free_losses(y, scores, tail):
    """Losses whose scores (n, 3 J) have the locations too."""
    return losses(y, np.ascontiguousarray(np.split(scores, 3, axis=1)[2]), scores, tail=tail)


def scores_problem(n_components, n=30):
    rng = np.random.default_rng(n_components)
    scores = np.hstack([rng.uniform(-2, 1, (n, n_components)), rng.normal(size=(n, n_components))])
    return 3 * rng.normal(size=n), rng.normal(size=(n, n_components)), scores


@every_tail
def test_losses_near_and_far_are_those_by_logarithms(tail):
    """Far out densities are 0, and logarithms take their place; a row's loss does not depend on the rows beside it."""
    y, location, scores = scores_problem(3, n=150)  # more than a tile of rows, and a part of one
    y[1::3] *= 10.0 ** np.arange(50)
    log_scale, logits = np.split(scores, 2, axis=1)
    log_weight = logits - logsumexp(logits, axis=1, keepdims=True)
    expected = -forward(y[:, None], location, log_scale, log_weight, tail)[2][:, 0]
    value, gradient, curvature = losses(y, location, scores, tail=tail)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for i in (0, 1, 61, 64, 148, 149):
        own = slice(i, i + 1)
        for found, alone in zip(
            (value, gradient, curvature), losses(y[own], location[own], scores[own], tail=tail), strict=True
        ):
            np.testing.assert_allclose(found[own], alone, rtol=1e-13)


@pytest.mark.parametrize("n_components", [1, 2, 4])
def test_the_loss_is_the_negative_log_likelihood_and_its_gradient_is_right(n_components):
    y, location, scores = scores_problem(n_components)
    log_scale, logits = np.split(scores, 2, axis=1)
    log_weight = logits - logsumexp(logits, axis=1, keepdims=True)
    value, gradient, curvature = losses(y, location, scores)
    np.testing.assert_allclose(value, -forward(y[:, None], location, log_scale, log_weight)[2][:, 0], rtol=1e-12)
    assert (curvature > 0).all()
    for k in range(scores.shape[1]):
        step = 1e-5 * np.eye(scores.shape[1])[k]
        ends = [losses(y, location, scores + sign * step)[0] for sign in (1, -1)]
        np.testing.assert_allclose(gradient[:, k], (ends[0] - ends[1]) / 2e-5, atol=1e-7)


@every_tail
def test_the_gradient_of_the_locations_is_right_too(tail):
    y, location, scores = scores_problem(3)
    scores = np.hstack([scores, location])
    _, gradient, curvature = free_losses(y, scores, tail)
    assert (curvature > 0).all()
    for k in range(scores.shape[1]):
        step = 1e-5 * np.eye(scores.shape[1])[k]
        ends = [free_losses(y, scores + sign * step, tail)[0] for sign in (1, -1)]
        np.testing.assert_allclose(gradient[:, k], (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-6)


@every_tail
def test_losses_of_far_outliers_are_finite(tail):
    y, location, scores = scores_problem(2)
    y[::2] = 1e200
    for part in losses(y, location, scores, tail=tail):
        assert np.isfinite(part).all()


@every_tail
def test_the_tail_of_the_noise_is_found(tail):
    """From scores of another tail, and scales that are off."""
    rng = np.random.default_rng(tail)
    log_scale = rng.normal(size=4000)
    y = np.exp(log_scale) * STANDARD[tail].rvs(4000, random_state=rng)
    scores = np.column_stack([log_scale - 0.7, np.zeros((4000, 2))])
    found, shift, loss = choose_tail(y, scores, np.ones(4000), -9.0, TAIL5)
    assert found == tail
    assert shift == pytest.approx(0.7, abs=0.06)
    assert loss == pytest.approx(-np.mean(STANDARD[tail].logpdf(y * np.exp(-log_scale)) - log_scale), abs=2e-3)


def test_some_rows_tell_the_tail_of_all():
    """The loss is that of all rows, with the tail and the shift that the others do not change."""
    rng = np.random.default_rng(3)
    y, weight = STANDARD[TAIL5].rvs(3000, random_state=rng), rng.uniform(0.5, 2, 3000)
    scores = np.column_stack([np.full(3000, -0.4), np.zeros((3000, 2))])
    found = choose_tail(y, scores, weight, -9.0, NORMAL, most=1000)
    y[1::3] *= 100
    again = choose_tail(y, scores, weight, -9.0, NORMAL, most=1000)
    assert found[:2] == again[:2] == choose_tail(y[::3], scores[::3], weight[::3], -9.0, NORMAL)[:2]
    scale = np.exp(-0.4 + found[1])
    expected = -np.average(STANDARD[found[0]].logpdf(y / scale) - np.log(scale), weights=weight)
    assert again[2] == pytest.approx(expected)


def test_a_linear_log_scale_is_found_and_noise_has_none():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    fold, weight = np.arange(300) % 5, np.ones(300)
    rows = TrainingRows(x, np.zeros(300), weight, fold)
    residuals = np.exp(0.6 * x[:, 0]) * rng.normal(size=300)
    trend, left_out = LinearScale.cross_fit(rows, residuals)
    np.testing.assert_allclose(trend.slopes, [0.6, 0, 0, 0], atol=0.2)
    np.testing.assert_allclose(trend(x), left_out, atol=0.5)
    assert np.abs(trend(100 * x)).max() <= np.abs(left_out).max()  # held beyond the rows
    assert not LinearScale.cross_fit(rows, rng.normal(size=300))[0].has_slopes


def test_scales_at_the_floor_stop_shrinking_but_may_grow():
    y, location, scores = scores_problem(2)
    location[::2] = y[::2, None]  # these rows would have no scale at all
    floor = 0.5
    scores[:, 0] = floor - 1.0
    value, gradient, _ = losses(y, location, scores, floor)
    held = scores.copy()
    held[:, 0] = floor
    at_floor, plain_gradient, _ = losses(y, location, held, floor)
    np.testing.assert_allclose(value, at_floor, rtol=1e-14)
    shrinks = plain_gradient[:, 0] > 0
    assert shrinks[::2].all()
    assert (~shrinks).any()
    assert (gradient[shrinks, 0] == 0).all()
    np.testing.assert_allclose(gradient[~shrinks, 0], plain_gradient[~shrinks, 0])
    np.testing.assert_allclose(gradient[:, 1:], plain_gradient[:, 1:])


# The transform of the outcome

every_power = pytest.mark.parametrize("power", [0.5, 0.75, 1.0, 1.25, 1.5])
FAR = np.array([1e-300, 1e-9, 1e3, 1e50, 1e190])


@every_power
def test_transforms_come_back(power):
    transform = OutcomeTransform(3.0, 20.0, power)
    y = np.concatenate([-FAR[::-1], np.linspace(-100, 100, 51), FAR])
    g, log_slope = transform.forward(y)
    assert np.isfinite(g).all()
    assert np.isfinite(log_slope).all()
    np.testing.assert_allclose(transform.inverse(g), y, rtol=1e-11, atol=1e-11)


@every_power
def test_transforms_increase_and_keep_sign_and_slope_one_at_the_center(power):
    transform = OutcomeTransform(3.0, 20.0, power)
    y = np.unique(np.concatenate([-FAR, np.linspace(-1000, 1000, 1001), FAR]))
    g, _ = transform.forward(y)
    assert (np.diff(g[np.abs(y) > 1e-6]) > 0).all()
    assert np.array_equal(np.sign(g[np.abs(y) > 1]), np.sign((y - 3.0)[np.abs(y) > 1]))
    assert transform.forward(np.array([3.0]))[0] == 0
    assert np.exp(transform.forward(np.array([3.0]))[1]) == pytest.approx(1 / 20)
    assert np.isfinite(transform.forward(np.array([-np.inf, np.inf]))[0]).all()


@every_power
def test_the_log_slope_is_that_of_finite_differences(power):
    transform = OutcomeTransform(3.0, 20.0, power)
    y = np.array([-300.0, -20.0, 0.0, 2.9, 3.1, 40.0, 1000.0])
    ends = [transform.forward(y + sign * 1e-4)[0] for sign in (1, -1)]
    np.testing.assert_allclose(np.log((ends[0] - ends[1]) / 2e-4), transform.forward(y)[1], atol=1e-7)


def test_powers_below_one_draw_in_the_upper_tail_and_stretch_the_lower():
    for power, is_drawn_in in ((0.5, True), (1.5, False)):
        up, down = np.abs(OutcomeTransform(0.0, 1.0, power).forward(np.array([50.0, -50.0]))[0])
        assert (up < 50 < down) == is_drawn_in


def test_beyond_the_range_of_the_transform_is_infinity():
    assert (OutcomeTransform(0.0, 1.0, 0.5).inverse(np.array([-np.inf, np.inf])) == [-np.inf, np.inf]).all()
    assert (OutcomeTransform(0.0, 1.0).inverse(np.array([-np.inf, np.inf])) == [-np.inf, np.inf]).all()


def test_center_and_scale_are_those_of_the_weighted_outcomes():
    rng = np.random.default_rng(0)
    y, weight = rng.gamma(2.0, size=200), rng.random(200)
    for factor in (1e-200, 1.0, 1e200, 1e305):
        found = OutcomeTransform.fit(factor * y, weight)
        mean = np.average(y, weights=weight)
        assert found.center / factor == pytest.approx(mean)
        assert found.scale / factor == pytest.approx(np.sqrt(np.average((y - mean) ** 2, weights=weight)))
    for value in (0.0, 7.0, -1e300):
        constant = OutcomeTransform.fit(np.full(5, value), np.ones(5))
        assert constant.scale > 0
        assert constant.forward(np.array([value]))[0] == 0


# The recording step

GRID = np.round(np.random.default_rng(0).normal(size=300), 1)
STEPS = {
    "tenths": (GRID, 0.1),
    "tenths with an offset": (GRID + 7.03, 0.1),
    "tenths far away": (GRID + 1e6, 0.1),
    "thirds": (GRID * 10 / 3, 1 / 3),
    "integers": (np.arange(50.0), 1.0),
    "even integers": (2.0 * np.random.default_rng(1).integers(0, 50, 200), 2.0),
    "tiny": (GRID * 1e-200, 1e-201),
    "huge": (GRID * 1e300, 1e299),
    "tenths, half of them with rounding noise": (np.concatenate([GRID[:150], (GRID[150:] + 5.3) - 5.3]), 0.1),
    "integers with rounding noise": (np.concatenate([np.arange(50.0), np.arange(50.0) * 0.1 / 0.1 * (1 + 2e-16)]), 1.0),
    "continuous": (np.random.default_rng(2).normal(size=300), 0.0),
    "a continuous one among integers": (np.append(np.arange(50.0), 0.123), 0.0),
    "a constant": (np.full(20, 3.0), 0.0),
    "two values": (np.array([0.0, 1.0, 1.0]), 0.0),
    "a far outlier": (np.append(GRID, 1e12), 0.0),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_recording_step_is_found(name):
    y, step = STEPS[name]
    assert recording_step(y) == pytest.approx(step, rel=1e-6)


# The base, cross-fitted

N = 150


def table(seed=0, n=N, q=2):
    """Covariates, and outcomes whose location and scale depend on them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    x[:, 0] = rng.uniform(-1.7, 1.7, n)
    return x, np.sin(2 * x[:, 0]) + 0.3 * np.exp(0.5 * x[:, -1]) * rng.normal(size=n)


X, Y = table()
X_NEW, Y_NEW = table(1, 60)
SMALL = [Polynomial(1), Polynomial(2), BoostedMean(3, rate=0.2, max_rounds=40)]
OUTCOMES = {
    "free": (Y, (None, None)),
    "skewed": (np.exp(2 * Y), (None, None)),
    "skewed downwards": (-np.exp(2 * Y), (None, None)),
    "bounded below": (np.abs(Y), (0.0, None)),
    "skewed and bounded below": (np.exp(2 * Y) - np.exp(2 * Y).min(), (0.0, None)),
    "bounded below and piled up there": (np.maximum(Y, 0.0), (0.0, None)),
    "bounded above": (-np.abs(Y), (None, 0.0)),
    "bounded on both sides": (np.clip(Y, -1.0, 1.0), (-1.0, 1.0)),
    "bounded far away": (Y, (-50.0, 90.0)),
    "huge": (Y * 1e250, (None, None)),
}
every_outcome = pytest.mark.parametrize("name", OUTCOMES)
bounded_outcome = pytest.mark.parametrize("name", [name for name in OUTCOMES if "bounded" in name])


def cross_fit(y, bound=(None, None), x=X, learners=SMALL, weight=None, seed=0):
    rng = np.random.default_rng(seed)
    fold, weight = rng.permutation(len(x)) % 5, np.ones(len(x)) if weight is None else weight
    stack = Stack(learners, default_scales(len(x)))
    return Conditional.cross_fit(stack, TrainingRows(x, y, weight, fold), bound, rng)


@cache
def base_of(name):
    return cross_fit(*OUTCOMES[name])


def components(parameters):
    """Locations, scales and weights (n, J) of the mixture at each row."""
    location, log_scale, log_weight = np.split(parameters, 3, axis=1)
    return location, np.exp(log_scale), np.exp(log_weight)


@every_outcome
def test_the_density_is_that_of_the_cut_mixture_on_the_transformed_scale(name):
    y, (low, high) = OUTCOMES[name]
    base, parameters = base_of(name)
    location, scale, weight = components(parameters)
    np.testing.assert_allclose(weight.sum(axis=1), 1.0)
    g, log_slope = base.transform.forward(y)

    def each(name, t):
        """A function of the components' distributions at t (n, J); the broad one is always a t."""
        parts = [getattr(STANDARD[base.tail], name)(t[:, :-1]), getattr(T5, name)(t[:, -1:])]
        return np.hstack(parts)

    density = (weight * each("pdf", (g[:, None] - location) / scale) / scale).sum(axis=1)
    below, above = (
        0.0 if end is None else each(side, (base.transform.forward(np.array([end]))[0] - location) / scale)
        for end, side in ((low, "cdf"), (high, "sf"))
    )
    mass = 1 - (weight * below).sum(axis=1) - (weight * above).sum(axis=1)
    v, log_det = base.to_box(y[:, None, None], parameters)
    np.testing.assert_allclose(log_det[:, 0], np.log(density / mass) + log_slope, atol=1e-8)
    cdf = (weight * (each("cdf", (g[:, None] - location) / scale) - below)).sum(axis=1) / mass
    np.testing.assert_allclose(v[:, 0, 0], cdf, atol=1e-9)


@every_outcome
def test_the_cdf_is_the_integral_of_the_density(name):
    """Between neighbouring quantiles, so that every piece of the density counts, and all of it is one."""
    base, _ = base_of(name)
    parameters = base.parameters(X_NEW[:6])
    levels = np.concatenate([[1e-4, 1e-3], np.linspace(0.005, 0.995, 100), [1 - 1e-3, 1 - 1e-4]])
    ends = base.from_box(np.tile(levels[:, None], (6, 1, 1)), parameters)[..., 0]
    nodes, weights = np.polynomial.legendre.leggauss(12)
    middle, half = (ends[:, 1:] / 2 + ends[:, :-1] / 2)[..., None], (ends[:, 1:] / 2 - ends[:, :-1] / 2)[..., None]
    y = middle + half * nodes
    log_density = base.to_box(y.reshape(6, -1, 1), parameters)[1].reshape(y.shape)
    mass = (np.exp(log_density + np.log(half)) * weights).sum(axis=2)
    # Where logarithms end and a line begins, the density has a corner, which costs the quadrature digits.
    np.testing.assert_allclose(mass, np.tile(np.diff(levels), (6, 1)), rtol=3e-3 if base.transform.unit > 0 else 1e-3)
    np.testing.assert_allclose(mass.sum(axis=1), 1 - 2e-4, rtol=1e-5)


@every_outcome
def test_the_base_comes_back(name):
    y, _ = OUTCOMES[name]
    base, parameters = base_of(name)
    v, _ = base.to_box(y[:, None, None], parameters)
    np.testing.assert_allclose(base.from_box(v, parameters)[:, 0, 0], y, rtol=1e-7, atol=1e-7 * base.transform.scale)
    levels = np.tile(np.array([1e-9, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-9])[:, None], (N, 1, 1))
    quantiles = base.from_box(levels, parameters)
    assert (np.diff(quantiles[..., 0], axis=1) > 0).all()
    np.testing.assert_allclose(base.to_box(quantiles, parameters)[0], levels, rtol=1e-5, atol=1e-13)


@every_outcome
def test_the_ends_of_the_cube_are_those_of_the_support(name):
    _, (low, high) = OUTCOMES[name]
    base, parameters = base_of(name)
    smallest, largest = base.from_box(np.tile([[0.0], [1.0]], (N, 1, 1)), parameters)[..., 0].T
    assert (smallest == (-np.inf if low is None else low)).all()
    assert (largest == (np.inf if high is None else high)).all()
    nearly = base.from_box(np.tile([[1e-300], [1e-200], [1e-100], [1e-10]], (N, 1, 1)), parameters)[..., 0]
    assert (np.diff(nearly, axis=1) >= 0).all()


@bounded_outcome
def test_all_mass_is_inside_the_bounds(name):
    y, (low, high) = OUTCOMES[name]
    base, parameters = base_of(name)
    for end, level, outwards in ((low, 0.0, -1), (high, 1.0, 1)):
        if end is None:
            continue
        at_end, beyond = np.full((N, 1, 1), end), np.full((N, 3, 1), end)
        beyond[..., 0] += outwards * np.array([1e-9, 1.0, 1e9])
        v, log_det = base.to_box(at_end, parameters)
        np.testing.assert_allclose(v, level, atol=1e-15)
        assert np.isfinite(log_det).all()
        v, log_det = base.to_box(beyond, parameters)
        assert (v == level).all()
        assert (log_det == -np.inf).all()
    u = np.random.default_rng(0).random((N, 200, 1))
    u[:, :4, 0] = [1e-18, 1e-12, 1 - 1e-12, 1 - 1e-16]
    draws = base.from_box(u, parameters)
    assert (draws >= (-np.inf if low is None else low)).all()
    assert (draws <= (np.inf if high is None else high)).all()
    assert np.isfinite(base.to_box(draws, parameters)[1]).all()
    assert np.isfinite(base.to_box(y[:, None, None], parameters)[1]).all()


def test_scales_are_not_finer_than_the_grid_of_the_outcomes():
    step = 0.5
    y = step * np.round((X[:, 0] + 0.2 * X[:, 1]) / step)  # without noise: any scale would do
    base, parameters = cross_fit(y)
    far = np.random.default_rng(0).normal(size=(500, 2)) * 3
    for found in (parameters, base.parameters(far)):
        scale = components(found)[1] * base.transform.scale
        assert scale.min() >= 0.4 * step * (1 - 1e-9)
    assert base.transform.power == 1
    finer, parameters = cross_fit(y + 1e-3 * np.random.default_rng(0).normal(size=N))
    assert components(parameters)[1].min() * finer.transform.scale < 0.4 * step


def test_a_perfect_relation_has_finite_densities():
    for y in (X[:, 0], 1e-200 * X[:, 0], np.full(N, 5.0), (X[:, 0] > 0) * 1.0):
        base, parameters = cross_fit(y)
        _, log_det = base.to_box(np.column_stack([y, y + 1])[..., None], parameters)
        assert np.isfinite(log_det).all()


@pytest.mark.parametrize("name", ["free", "skewed", "bounded below"])
def test_the_broad_component_keeps_outliers_possible(name):
    base, _ = base_of(name)
    parameters = base.parameters(X_NEW)
    center, scale = base.transform.center, base.transform.scale
    y = np.tile(center + scale * np.array([3.0, 10.0, 100.0, 1e6]), (len(X_NEW), 1))
    g, log_slope = base.transform.forward(y)
    middle = np.clip(0.0, *base.bound)
    least = base.log_broad + stats.t.logpdf(g, 5, middle, 1.0 if base.transform.unit > 0 else 2.0) + log_slope
    log_det = base.to_box(y[..., None], parameters)[1]
    assert (log_det >= least - 1e-9).all()
    np.testing.assert_allclose(components(parameters)[2][:, -1], np.exp(base.log_broad))
    assert np.log(1e-6) <= base.log_broad <= np.log(0.5)


def test_the_broad_component_weighs_what_outliers_there_are():
    rng = np.random.default_rng(0)
    with_outliers = np.where(rng.random(N) < 0.1, 3 * rng.normal(size=N), X[:, 0] + 0.01 * rng.normal(size=N))
    clean = X[:, 0] + 0.01 * rng.normal(size=N)
    learners = [Polynomial(1)]
    weights = [np.exp(cross_fit(y, learners=learners)[0].log_broad) for y in (clean, with_outliers)]
    assert weights[0] < 0.01
    assert weights[1] > 2 * weights[0]


def test_skewed_outcomes_are_straightened_and_others_left_alone():
    line = X[:, 0] + 0.3 * np.random.default_rng(0).normal(size=N)
    assert cross_fit(line, learners=SMALL[:1])[0].transform.name == "none"
    for y in (line**2, np.exp(2 * line), -np.exp(2 * line)):
        transform = cross_fit(y, learners=SMALL[:1])[0].transform
        assert transform.name != "none"
        assert np.abs(stats.skew(transform.forward(y)[0])) < 0.7 * np.abs(stats.skew(y))


def test_far_covariates_are_held():
    base, _ = base_of("free")
    far = np.array([[1e9, 0.0], [1e5, 0.0]])
    found = base.parameters(far)
    assert np.isfinite(found).all()
    assert np.array_equal(found[0], found[1])


def test_trees_see_the_mean_and_the_log_standard_deviation_of_the_mixture():
    base, parameters = base_of("free")
    location, scale, weight = components(parameters)
    mean = (weight * location).sum(axis=1)
    spread = np.append(np.full(scale.shape[1] - 1, STANDARD[base.tail].var()), T5.var())
    variance = (weight * (spread * scale**2 + (location - mean[:, None]) ** 2)).sum(axis=1)
    seen = base.seen(parameters)
    for found, expected in zip(seen.T, (mean, np.log(variance) / 2), strict=True):
        np.testing.assert_allclose(found, (expected - expected.mean()) / expected.std(), atol=1e-8)


# Nothing leaks


NOISES = {
    "normal": stats.norm(1.0, 2.0),
    "heavy": stats.t(3),
    "skewed": stats.gamma(2.0),
}
GREEDY = {  # the first are what is offered, the others know all rows they saw by heart
    "default": default_learners(300, 7, "fast"),
    "cubic": [Polynomial(3)],
    "by heart": [as_learner(DecisionTreeRegressor()), as_learner(KNeighborsRegressor(1))],
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("greed", GREEDY)
def test_pure_noise_is_not_predicted_better_than_it_can_be(name, greed):
    """Left-out log densities are no better than the true ones, and new rows are no worse off than left-out ones.

    Differences to the true log density row by row: what the model does is not lost in the noise of the outcomes.
    """
    noise, left_out, new = NOISES[name], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, x_new = rng.normal(size=(300, 7)), rng.normal(size=(2000, 7))
        y, y_new = noise.rvs(300, random_state=rng), noise.rvs(2000, random_state=rng)
        base, parameters = cross_fit(y, x=x, learners=GREEDY[greed], seed=seed)
        left_out.append(base.to_box(y[:, None, None], parameters)[1][:, 0] - noise.logpdf(y))
        log_det = base.to_box(y_new[:, None, None], base.parameters(x_new))[1][:, 0]
        new.append(log_det - noise.logpdf(y_new))
    for ours, theirs in zip(left_out, new, strict=True):
        error = np.hypot(ours.std() / np.sqrt(len(ours)), theirs.std() / np.sqrt(len(theirs)))
        assert theirs.mean() > ours.mean() - 4 * error - 0.02  # left-out rows also choose rounds and tails
    pooled = np.concatenate(left_out)
    assert pooled.mean() < 3 * pooled.std() / np.sqrt(len(pooled)) + 0.01
    assert pooled.mean() > -0.5


def test_left_out_log_densities_of_a_whole_model_are_honest():
    """Trees included: they and the base leave out the same rows."""
    left_out, new = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(300, 3)), rng.normal(size=300)
        x_new, y_new = rng.normal(size=(2000, 3)), rng.normal(size=2000)
        model = TreeFlowRegressor(base=SMALL, c0=0.2, random_state=seed).fit(x, y)
        left_out.append(model.families_[0].left_out - stats.norm.logpdf(y))
        new.append(model.log_prob(x_new, y_new) - stats.norm.logpdf(y_new))
    ours, theirs = np.concatenate(left_out), np.concatenate(new)
    assert ours.mean() < 3 * ours.std() / np.sqrt(len(ours))
    assert theirs.mean() > ours.mean() - 4 * np.hypot(ours.std() / 30, theirs.std() / np.sqrt(6000))


# Whole models


def gamma_table(seed, n):
    """One outcome, skewed: no Student t is enough."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, 10 * np.sin(x[:, 0]) + (2 + x[:, 1] ** 2) * (rng.gamma(1.0, size=n) - 1)


X_GAMMA, Y_GAMMA = gamma_table(0, 250)
X_TEST, Y_TEST = gamma_table(1, 40)
MODELS = {
    "conditional": {"base": "conditional", "effort": "fast"},
    "a regressor": {"base": Ridge(), "effort": "fast"},
    "regressors": {"base": [LinearRegression(), DecisionTreeRegressor(max_depth=3)]},
    "learners of ours": {"base": SMALL},
    "bounded": {"base": Ridge(), "bounds": (-60.0, 200.0)},
    "boosted mixture": {"base": "mixture", "effort": "fast"},
}
every_model = pytest.mark.parametrize("name", MODELS)


def small(**settings):
    stages = [Stage(BoostedTrees(rounds=1, max_depth=2), 4)]
    return TreeFlowRegressor(**{"stages": stages, "c0": 0.3, "max_trees": 20, "random_state": 0, **settings})


@cache
def model(name):
    fitted = small(**MODELS[name]).fit(X_GAMMA, Y_GAMMA)
    assert fitted.n_trees_ > 0
    assert len(fitted.mixture_.members) > 1
    return fitted


def test_the_base_is_made_of_the_regressors():
    def learners(name):
        return model(name).mixture_.members[0].base.components.mean.names

    assert learners("a regressor") == ("Ridge",)
    assert learners("regressors") == ("LinearRegression", "DecisionTreeRegressor")
    assert learners("learners of ours") == ("linear", "quadratic", "trees of depth 3")
    assert "Gaussian process" in learners("conditional")
    for name in ("conditional", "a regressor", "regressors", "learners of ours", "bounded"):
        weights = model(name).mixture_.members[0].base.components.mean.weights
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()


@every_model
def test_the_cdf_increases_and_quantiles_are_its_inverse(name):
    distribution = model(name).predict_distribution(X_TEST)
    levels = np.array([1e-12, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-6, 1 - 1e-9])
    quantiles = distribution.icdf(levels)
    assert (np.diff(quantiles, axis=1) > 0).all()
    np.testing.assert_allclose(distribution.cdf(quantiles), np.tile(levels, (40, 1)), rtol=1e-6, atol=1e-17)
    y = np.tile(np.linspace(-55, 150, 500), (40, 1))
    assert (np.diff(distribution.cdf(y), axis=1) >= 0).all()
    back = distribution.icdf(distribution.cdf(Y_TEST)[:, None])[:, 0]
    np.testing.assert_allclose(back, Y_TEST, rtol=1e-6, atol=1e-6)


@every_model
def test_the_density_is_the_slope_of_the_cdf(name):
    distribution = model(name).predict_distribution(X_TEST)
    y = distribution.icdf(np.linspace(0.02, 0.98, 25))
    ends = [distribution.cdf(y + sign * 1e-5) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / 2e-5
    crosses = np.abs(distribution.logpdf(y + 1e-5) - distribution.logpdf(y - 1e-5)) > 1e-3  # a cut of a tree
    assert crosses.mean() < 0.05
    np.testing.assert_allclose(distribution.pdf(y)[~crosses], slope[~crosses], rtol=1e-3)


@every_model
def test_the_model_is_the_mixture_of_its_members(name):
    fitted = model(name)
    weights = np.exp(fitted.mixture_.log_weights[-1])
    assert weights.sum() == pytest.approx(1.0)
    y = np.random.default_rng(0).normal(size=(40, 7)) * 10
    parts = [flow.forward_and_log_det(y[..., None], X_TEST) for flow in fitted.mixture_.members]
    distribution = fitted.predict_distribution(X_TEST)
    cdf = sum(weight * u[..., 0] for weight, (u, _) in zip(weights, parts, strict=True))
    density = sum(weight * np.exp(log_det) for weight, (_, log_det) in zip(weights, parts, strict=True))
    np.testing.assert_allclose(distribution.cdf(y), cdf, rtol=1e-12)
    np.testing.assert_allclose(distribution.pdf(y), density, rtol=1e-10)
    assert np.ptp([u for u, _ in parts], axis=0).max() > 1e-3


@every_model
def test_draws_moments_and_crps_agree_with_the_cdf(name):
    distribution = model(name).predict_distribution(X_TEST[:3])
    draws = distribution.sample(20_000, random_state=1)
    for row, levels in enumerate(distribution.cdf(draws)):
        assert stats.kstest(levels, "uniform").statistic < 0.018, row
    spread = draws.std(axis=1)
    assert (np.abs(distribution.mean() - draws.mean(axis=1)) < 5 * spread / np.sqrt(20_000)).all()
    np.testing.assert_allclose(distribution.std(), spread, rtol=0.1)
    y, half = Y_TEST[:3, None], 10_000
    each = np.abs(draws[:, :half] - y) - np.abs(draws[:, :half] - draws[:, half:]) / 2
    error = each.std(axis=1) / np.sqrt(half)
    assert (np.abs(distribution.crps(Y_TEST[:3]) - each.mean(axis=1)) < 5 * error + 0.005 * spread).all()


@every_model
def test_quantiles_of_zero_and_one_are_the_ends_of_the_support(name):
    distribution = model(name).predict_distribution(X_TEST)
    smallest, largest = distribution.icdf([0.0, 1.0]).T
    if name == "bounded":
        assert (smallest == -60).all()
        assert (largest == 200).all()
    else:
        assert (smallest == -np.inf).all()
        assert (largest == np.inf).all()


def test_left_out_log_densities_are_what_stopped_the_flows():
    fitted = model("regressors")
    kept = fitted.history_["kept"]
    assert kept.any()
    best = fitted.history_["validation"][kept][-1]
    assert fitted.families_[0].left_out.mean() == pytest.approx(best, rel=1e-10)
    assert best == fitted.history_["validation"].max()


@pytest.mark.parametrize("base", ["conditional", [LinearRegression(), DecisionTreeRegressor(max_depth=3)]])
def test_rows_of_no_weight_are_left_out(base):
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 250)
    y = np.where(weight == 0, 1e6, Y_GAMMA)
    settings = {"base": base, "effort": "fast", "max_trees": 5}
    with_zeros = small(**settings).fit(X_GAMMA, y, sample_weight=weight)
    kept = weight > 0
    without = small(**settings).fit(X_GAMMA[kept], Y_GAMMA[kept], sample_weight=weight[kept])
    assert np.array_equal(with_zeros.log_prob(X_TEST, Y_TEST), without.log_prob(X_TEST, Y_TEST))
    ones = small(**settings).fit(X_GAMMA[kept], Y_GAMMA[kept])
    assert not np.allclose(ones.log_prob(X_TEST, Y_TEST), without.log_prob(X_TEST, Y_TEST), atol=1e-3)


def test_validation_rows_stop_one_flow():
    x_val, y_val = gamma_table(2, 100)
    fitted = small(base=SMALL).fit(X_GAMMA, Y_GAMMA, X_val=x_val, y_val=y_val)
    assert len(fitted.mixture_.members) == 1
    np.testing.assert_allclose(fitted.families_[0].left_out, fitted.log_prob(x_val, y_val), atol=1e-9)
    kept = fitted.history_["kept"]
    assert kept.sum() == fitted.n_trees_ > 0
    assert fitted.score(x_val, y_val) == pytest.approx(fitted.history_["validation"][kept][-1], abs=1e-9)


def test_without_validation_one_flow_grows_all_trees():
    fitted = small(base=Ridge(), validation_fraction=0, max_trees=7).fit(X_GAMMA, Y_GAMMA)
    assert len(fitted.mixture_.members) == 1
    assert fitted.n_trees_ == 7
    assert np.isnan(fitted.families_[0].left_out).all()
    assert np.isnan(fitted.history_["validation"]).all()
    assert "unknown" in fitted.summary()
    assert np.isfinite(fitted.log_prob(X_TEST, Y_TEST)).all()


# The tuning of a process and sums of large numbers magnify rounding: powers of two are exact, other units nearly so.
UNITS = {"a power of two": (1024.0, 0.0, 1e-12), "another unit": (1000.0, 5.0, 1e-6)}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("base", ["conditional", "learners"])
def test_units_change_the_log_density_by_the_jacobian_only(name, base):
    factor, offset, tolerance = UNITS[name]
    settings = {"base": SMALL} if base == "learners" else {"base": base, "effort": "fast"}
    plain = small(**settings).fit(X_GAMMA, Y_GAMMA)
    expected = plain.log_prob(X_TEST, Y_TEST)
    scaled_y = small(**settings).fit(X_GAMMA, factor * Y_GAMMA + offset)
    found = scaled_y.log_prob(X_TEST, factor * Y_TEST + offset)
    np.testing.assert_allclose(found, expected - np.log(factor), atol=tolerance)
    scaled_x = small(**settings).fit(factor * X_GAMMA + offset, Y_GAMMA)
    np.testing.assert_allclose(scaled_x.log_prob(factor * X_TEST + offset, Y_TEST), expected, atol=tolerance)
    assert plain.n_trees_ == scaled_y.n_trees_ == scaled_x.n_trees_ > 0


@pytest.mark.parametrize("base", ["conditional", DecisionTreeRegressor(splitter="random", max_depth=3)])
def test_one_seed_gives_one_model(base):
    settings = {"base": base, "effort": "fast", "max_trees": 5}
    first, second, other = (
        small(**settings, random_state=seed).fit(X_GAMMA, Y_GAMMA).log_prob(X_TEST, Y_TEST) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("base", ["conditional", LinearRegression()])
def test_few_rows_have_finite_densities(n, base):
    fitted = small(base=base, max_trees=3).fit(X_GAMMA[:n], Y_GAMMA[:n])
    assert np.isfinite(fitted.log_prob(X_TEST, Y_TEST)).all()
    assert np.isfinite(fitted.sample(X_TEST[:3], 20, random_state=0)).all()
    assert np.isfinite(fitted.predict(X_TEST)).all()


# Logarithms


def lognormal(n=400, spread=2.0):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 2))
    log_y = spread * x[:, 0] + 0.5 * rng.normal(size=n)
    truth = -log_y - np.log(0.5) - np.log(2 * np.pi) / 2 - ((log_y - spread * x[:, 0]) / 0.5) ** 2 / 2
    return x, np.exp(log_y), truth


def test_logarithms_go_forth_and_back_and_straight_beyond_their_ends():
    _, y, _ = lognormal()
    transform = OutcomeTransform.fit_log(y, np.ones(len(y)), 0.0)
    points = np.r_[y, -1e9, -5.0, 0.0, 1e-9, 1e8, 1e12]
    z, log_slope = transform.forward(points)
    np.testing.assert_allclose(transform.inverse(z), points, rtol=1e-9, atol=1e-12)
    step = 1e-6 * np.abs(points) + 1e-9
    rise = (transform.forward(points + step)[0] - transform.forward(points - step)[0]) / (2 * step)
    np.testing.assert_allclose(np.log(rise), log_slope, atol=1e-5)
    far = transform.forward(np.array([1e8, 2e8, 3e8]))[0]
    assert far[1] - far[0] == pytest.approx(far[2] - far[1])
    assert OutcomeTransform.fit_log(np.linspace(10, 20, 50), np.ones(50), 0.0) is None
    assert OutcomeTransform.fit_log(np.zeros(50), np.ones(50), 0.0) is None


@pytest.mark.parametrize("power", [0.5, 0.75, 1.25, 1.5])
def test_powers_go_forth_and_back_and_straight_beyond_their_ends(power):
    _, y, _ = lognormal(spread=0.5)
    transform = OutcomeTransform.fit(y, np.ones(len(y)), power)
    points = np.r_[y, -1e9, -50.0, 1e4, 1e12]
    g, log_slope = transform.forward(points)
    np.testing.assert_allclose(transform.inverse(g), points, rtol=1e-9, atol=1e-12)
    assert transform.ends[0] < g[: len(y)].min() < g[: len(y)].max() < transform.ends[1]
    step = 1e-6 * np.abs(points) + 1e-9
    rise = (transform.forward(points + step)[0] - transform.forward(points - step)[0]) / (2 * step)
    np.testing.assert_allclose(np.log(rise), log_slope, atol=1e-5)
    for side in (-1e8, 1e8):
        far = transform.forward(side * np.arange(1, 4))[0]
        assert far[1] - far[0] == pytest.approx(far[2] - far[1])


def test_the_broad_component_has_the_weight_that_rows_ask_for_and_no_more():
    z = np.random.default_rng(0).normal(size=400)
    narrow, ones = stats.norm.logpdf(z), np.ones(400)
    alike = stats.norm.logpdf(z, scale=1.1)  # rows cannot tell it from the others
    assert np.exp(_broad_weight(narrow, alike, ones)) == pytest.approx(0.5 / 401)
    z[:40] *= 10
    narrow, broad = stats.norm.logpdf(z), stats.norm.logpdf(z, scale=10)
    assert 0.04 < np.exp(_broad_weight(narrow, broad, ones)) < 0.1
    twice = _broad_weight(np.repeat(narrow, 2), np.repeat(broad, 2), np.ones(800))
    assert twice == pytest.approx(_broad_weight(narrow, broad, 2 * ones))


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_moments_of_lognormal_outcomes_are_not_those_of_the_broad_component(noise):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 2))
    y = np.exp(0.7 * x[:, 0] + noise * rng.normal(size=500))
    distribution = TreeFlowRegressor(effort="fast", random_state=0).fit(x, y).predict_distribution(x)
    mean = np.exp(0.7 * x[:, 0] + noise**2 / 2)
    std = mean * np.sqrt(np.exp(noise**2) - 1)
    assert 0.9 < np.median(distribution.mean() / mean) < 1.1
    assert 0.8 < np.median(distribution.std() / std) < 1.3


@pytest.mark.parametrize("bounds", [None, (0, None)])
def test_outcomes_of_many_orders_of_magnitude_need_no_rescaling(bounds):
    x, y, truth = lognormal(800)
    model = TreeFlowRegressor(effort="fast", bounds=bounds, random_state=0).fit(x[:500], y[:500])
    assert "logarithm" in model.summary()
    assert model.score(x[500:], y[500:]) > truth[500:].mean() - 0.15
    if bounds is not None:
        assert (model.sample(x[:50], 50, random_state=0) > 0).all()
    assert np.isfinite(model.predict(x)).all()


def test_normal_outcomes_are_left_as_they_are():
    x, _, _ = lognormal()
    y = x[:, 0] + np.random.default_rng(0).normal(size=len(x))
    assert "transform of the outcome: none" in TreeFlowRegressor(effort="fast", random_state=0).fit(x, y).summary()


@pytest.mark.parametrize("tail", [2, 3, 4, 5])
def test_nodes_of_tails_have_their_moments(tail):
    nodes, masses = nodes_of_tail(tail)
    truth = stats.norm() if tail == 5 else stats.t([1, 2, 3, 5, 10][tail])
    assert abs(masses.sum() - 1) < 1e-12
    np.testing.assert_allclose(masses @ nodes**2, truth.var(), rtol=1e-5)
    np.testing.assert_allclose(masses @ np.logaddexp(0, nodes), truth.expect(lambda t: np.logaddexp(0, t)), rtol=1e-5)


@pytest.mark.parametrize("skew", [0.5, 2.0])
def test_moments_without_trees_are_those_of_the_exact_cdf(skew):
    """Closed forms and nodes against integrals of the CDF, with and without a transform."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    y = np.exp(skew * (x[:, 0] + 0.3 * rng.normal(size=300)))
    model = TreeFlowRegressor(base=[Polynomial(2)], max_trees=0, random_state=0, n_jobs=1).fit(x, y)
    (flow,), x = model.mixture_.tree_flows(), x[:40]
    mean, std = flow.base.moments(flow.condition(x, None)[1])
    by_curve = model.mixture_.curve(x, {}).moments()
    assert (np.abs(mean - by_curve[0]) < 5e-4 * std).all()
    np.testing.assert_allclose(std, by_curve[1], rtol=5e-3)


@pytest.mark.parametrize("how", [0.0, 0.5, 1.0, 1.5, 2.0, "logarithm"])
@pytest.mark.parametrize("tail", [TAIL5, NORMAL])
def test_moments_of_components_are_sums_over_nodes(how, tail):
    y, weight = np.exp(np.random.default_rng(0).normal(size=200) * 3), np.ones(200)
    transform = OutcomeTransform.fit_log(y, weight, 0.0) if how == "logarithm" else OutcomeTransform.fit(y, weight, how)
    location, log_scale = np.linspace(-3, 3, 13), np.linspace(-4, 1, 13)
    nodes, masses = nodes_of_tail(tail)
    outcomes = np.clip(transform.inverse(location[:, None] + np.exp(log_scale)[:, None] * nodes), -1e307, 1e307)
    mean = outcomes @ masses
    std = np.sqrt((outcomes - mean[:, None]) ** 2 @ masses)
    found = np.empty(13), np.empty(13)
    component_moments(location, log_scale, nodes, masses, *transform.numbers, *found)
    np.testing.assert_allclose(found[0], mean, rtol=1e-11, atol=1e-12 * std.max())
    np.testing.assert_allclose(found[1], std, rtol=1e-9)
