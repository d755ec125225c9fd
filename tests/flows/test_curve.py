"""The CDF on a grid: integrals and quantiles of it against brute force, at the accuracies that the docs state."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy import optimize, stats

from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf._kernels.curves import mix_ascending, mix_points, unmix_points
from treecdf._kernels.levels import BLOCK, solve_levels
from treecdf.bases.learners import Polynomial
from treecdf.flows.curve import Curve

RNG = np.random.default_rng(0)
N, M = 400, 5
X = RNG.uniform(-1, 1, (N, 2))
Y = np.sin(3 * X[:, 0]) + (0.05 + 0.3 * X[:, 1] ** 2) * RNG.standard_t(4, size=N)
TRUTH = np.linspace(-2.0, 2.0, M)
STAGES = [Stage(BoostedTrees(rounds=2, max_depth=2), 5)]
MODELS = {
    "box": {"base": "box", "stages": STAGES},
    "student": {"base": "student", "stages": [Stage(Logistic(), 4)]},
    "conditional": {"base": [Polynomial(1), Polynomial(3)], "stages": STAGES},
    "bounded": {"base": [Polynomial(2)], "stages": STAGES, "bounds": (-20.0, None)},
    "skewed": {"base": [Polynomial(1)], "stages": STAGES},
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    y = np.exp(2 * Y) if request.param == "skewed" else Y
    settings = {"max_trees": 20, "c0": 0.2, "effort": "fast", "random_state": 0, "n_jobs": 1}
    return TreeFlowRegressor(**settings, **MODELS[request.param]).fit(X, y)


def fine_grid(distribution):
    """Many points with their exact CDF: quantiles of 4001 levels, and of levels that run to 1e-11 at both ends."""
    levels = np.r_[(np.arange(4001) + 0.5) / 4001, np.geomspace(1e-11, 1e-3, 400), 1 - np.geomspace(1e-11, 1e-3, 400)]
    y = np.sort(np.column_stack([distribution.icdf(levels), TRUTH]), axis=1)
    return y, distribution.cdf(y)


def test_moments_and_crps_are_those_of_the_exact_cdf(model):
    d = model.predict_distribution(X[:M])
    y, cdf = fine_grid(d)
    length, middle, half = np.diff(y, axis=1), (y[:, 1:] + y[:, :-1]) / 2, (cdf[:, 1:] + cdf[:, :-1]) / 2
    center = d.median()[:, None]
    below = middle <= center
    mass = np.where(below, half, 1 - half) * length
    mean = center[:, 0] + (np.where(below, -1, 1) * mass).sum(axis=1)
    variance = (2 * np.abs(middle - center) * mass).sum(axis=1) - (mean - center[:, 0]) ** 2
    std = np.sqrt(variance)
    assert (np.abs(d.mean() - mean) < 2e-4 * std).all()
    np.testing.assert_allclose(d.std(), std, rtol=2e-3)
    ends = [(part - (at >= TRUTH[:, None])) ** 2 for part, at in ((cdf[:, :-1], y[:, :-1]), (cdf[:, 1:], y[:, :-1]))]
    crps = ((ends[0] + ends[1]) / 2 * length).sum(axis=1)
    assert (np.abs(d.crps(TRUTH) - crps) < 2e-4 * std).all()


def test_many_quantiles_are_those_of_one_level_at_a_time(model):
    d = model.predict_distribution(X[:M])
    levels = np.r_[1e-9, 1e-8, np.linspace(0.001, 0.999, 40), 1 - 1e-9]
    together = d.icdf(levels)
    for k in (0, 1, 2, 10, 41, 42):
        rtol = 1e-6 if k == 42 else 1e-7  # float64 has few digits between the last level and one
        np.testing.assert_allclose(together[:, k], d.icdf(levels[k]), rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(d.cdf(together), np.tile(levels, (M, 1)), rtol=1e-7)


def test_integrals_do_not_depend_on_threads_or_on_other_rows(model):
    d = model.predict_distribution(X)
    model.set_params(n_jobs=2)
    other = model.predict_distribution(X)
    model.set_params(n_jobs=1)
    for one, two in zip((d.mean(), d.std(), d.crps(Y)), (other.mean(), other.std(), other.crps(Y)), strict=True):
        assert np.array_equal(one, two)
    np.testing.assert_allclose(d[:3].mean(), d.mean()[:3], rtol=1e-10)
    np.testing.assert_allclose(d[:3].crps(Y[:3]), d.crps(Y)[:3], rtol=1e-9)


def test_mixtures_at_rows_are_those_that_serve_log_densities(model):
    """Leaves with their lines against the kernel that walks down each tree, which has its own twin."""
    mixture, known = model.mixture_, {}
    at = mixture.at(X[:M], known)
    y = np.sort(np.column_stack([RNG.normal(size=(M, 200)), np.full(M, -50.0), np.full(M, 50.0)]), axis=1)
    u, log_density = mixture._forward(y[..., None], X[:M], known)
    for is_ascending in (True, False):
        cdf, density = at.cdf_and_density(y, is_ascending)
        np.testing.assert_allclose(cdf, u[..., 0], rtol=1e-11)
        np.testing.assert_allclose(density, np.exp(log_density), rtol=1e-11)
    few = np.array([3, 0])
    np.testing.assert_array_equal(at.take(few).cdf_and_density(y[few])[0], at.cdf_and_density(y)[0][few])


def test_many_draws_at_a_row_are_those_of_a_few_at_a_time(model):
    """Draws by the lines of the leaves against those by the kernel that walks down each tree, members apart."""
    mixture = model.mixture_
    u = np.random.default_rng(3).random((M, 60, 1))
    u[:, :4, 0] = 1e-12, 1e-4, 1 - 1e-4, 1 - 1e-12
    together = mixture.draw(u, X[:M])
    apart = np.concatenate([mixture.draw(u[:, k : k + 3], X[:M]) for k in range(0, 60, 3)], axis=1)
    inner = np.r_[1:3, 4:60]  # at the ends of the cube float64 has few digits between a level and one
    np.testing.assert_allclose(together[:, inner], apart[:, inner], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(together, apart, rtol=1e-3)


FIRST, ENDS = np.array([0, 2, 3, 6]), np.array([0, 2, 3])  # two sequences: of two trees, one a leaf, and of one
LOW = np.array([0.0, 0.3, 0.0, 0.0, 0.5, 0.7])
HIGH = np.array([0.3, 1.0, 1.0, 0.5, 0.7, 1.0])


def random_lines(rng, n):
    """Lines (n, leaves, 2) of the trees above, with random masses."""
    lines = np.empty((n, 6, 2))
    for i in range(n):
        for begin, end in pairwise(FIRST):
            mass = rng.dirichlet(np.ones(end - begin))
            lines[i, begin:end, 1] = mass / (HIGH - LOW)[begin:end]
            lines[i, begin:end, 0] = np.cumsum(mass) - mass - LOW[begin:end] * lines[i, begin:end, 1]
    return lines


def image(v, lines, sequence):
    """Where a point goes in a sequence of trees, in NumPy."""
    for tree in range(ENDS[sequence], ENDS[sequence + 1]):
        leaves = slice(FIRST[tree], FIRST[tree + 1])
        v = np.interp(v, np.append(LOW[leaves], 1.0), np.append(lines[leaves, 0] + LOW[leaves] * lines[leaves, 1], 1.0))
    return v


def gap_of_mixture(v, lines, shares, level):
    """What the mean image of a point over both sequences is above a level."""
    return sum(share * image(v, lines, j) for j, share in enumerate(shares)) - level


def test_levels_of_a_block_of_rows_are_those_that_brute_force_finds():
    rng = np.random.default_rng(6)
    for n in (1, BLOCK - 1, BLOCK):
        lines, shares = random_lines(rng, n), rng.dirichlet(np.ones(2), size=n)
        shares[0] = 1.0, 0.0
        levels = rng.random((3, BLOCK))
        levels[:, 0] = 0.0, 1e-9, 1.0
        given, slopes = np.zeros((2, BLOCK)), np.ones((6, BLOCK))
        given[:, :n], slopes[:, :n] = shares.T, lines[..., 1].T
        found = levels.copy()
        solve_levels(FIRST, LOW, HIGH, ENDS, slopes, given, n, found)
        for i, k in np.ndindex(n, 3):
            level = levels[k, i]
            ask = partial(gap_of_mixture, lines=lines[i], shares=shares[i], level=level)
            root = optimize.brentq(ask, 0.0, 1.0, xtol=1e-16, rtol=1e-15) if 0 < level < 1 else level
            assert found[k, i] == pytest.approx(root, rel=1e-12)


def test_points_that_ascend_go_through_lines_as_by_the_naive_twin():
    rng = np.random.default_rng(7)
    n, m = 3, 75
    lines, shares, rows = random_lines(rng, n), rng.dirichlet(np.ones(2), size=n), np.array([2, 0, 1])
    u = np.sort(rng.uniform(-0.1, 1.1, (n, m)), axis=1)
    mixed, slopes = np.empty((2, 2, n, m))
    mix_ascending(FIRST, LOW, ENDS, lines, rows, shares, u, mixed[0], slopes[0])
    mix_points(FIRST, LOW, HIGH, ENDS, lines, rows, shares, u, mixed[1], slopes[1])
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-12)
    for i in range(n):
        expected = sum(shares[i, j] * image(u[i], lines[rows[i]], j) for j in range(2))
        expected = np.where((u[i] >= 0) & (u[i] <= 1), expected, u[i])
        for found in mixed[:, i]:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_points_go_back_through_lines_as_by_the_naive_twin():
    rng = np.random.default_rng(5)
    first, ends, low = FIRST, ENDS, LOW
    n, m = 4, 50
    lines = random_lines(rng, n)
    u, numbers = rng.random((n, m)), rng.integers(2, size=(n, m))
    u[:, :3] = -0.5, 1.5, 1.0
    found = u.copy()
    unmix_points(first, low, ends, lines, numbers, found)
    for i in range(n):
        for k in range(m):
            v = u[i, k]
            for tree in reversed(range(ends[numbers[i, k]], ends[numbers[i, k] + 1])):
                leaves = slice(first[tree], first[tree + 1])
                images = np.append(lines[i, leaves, 0] + low[leaves] * lines[i, leaves, 1], 1.0)
                v = v if not 0 <= v <= 1 else np.interp(v, images, np.append(low[leaves], 1.0))
            assert found[i, k] == pytest.approx(v, rel=1e-12)


def test_integrals_are_those_of_the_formulas():
    """The kernels against the same sums in NumPy, points that repeat and infinite densities included."""
    rng = np.random.default_rng(1)
    away = np.sort(rng.standard_t(2, size=(6, 40)), axis=1)
    away[:, 7] = away[:, 8]
    cdf = np.sort(rng.random((6, 40)), axis=1)
    cdf[:, 7] = cdf[:, 8]
    density = rng.random((6, 40))
    density[2, 5] = np.inf
    curve = Curve(away, cdf, density)
    middle = np.minimum((cdf < 0.5).sum(axis=1), 39)
    center = away[np.arange(6), middle]
    for truth in (center, away[:, 11]):
        scaled = np.abs(away - truth[:, None])
        unit = np.where((cdf > 0.2) & (cdf < 0.8), scaled, 0.0).max(axis=1)
        z = (away - truth[:, None]) / unit[:, None]
        length = np.diff(z, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(length > 0, 3 * np.diff(cdf, axis=1) / length, 0.0)
        below = z[:, 1:] <= 0
        sign = np.where(below, 1.0, -1.0)
        mass = [np.where(below, part, 1 - part) for part in (cdf[:, :-1], cdf[:, 1:])]
        slope = [sign * np.fmin(part * unit[:, None], most) for part in (density[:, :-1], density[:, 1:])]
        crps = unit * _sums(z, [m**2 for m in mass], [2 * m * s for m, s in zip(mass, slope, strict=True)])
        np.testing.assert_allclose(curve.crps(truth), crps, rtol=1e-10)
        if truth is center:
            first = _sums(z, mass, slope, -sign)
            ends = np.abs(z[:, :-1]), np.abs(z[:, 1:])
            moment = [2 * end * m for end, m in zip(ends, mass, strict=True)]
            change = [2 * (end * s - sign * m) for end, s, m in zip(ends, slope, mass, strict=True)]
            np.testing.assert_allclose(curve.moments()[0], center + unit * first, rtol=1e-10)
            std = unit * np.sqrt(np.maximum(_sums(z, moment, change) - first**2, 0.0))
            np.testing.assert_allclose(curve.moments()[1], std, rtol=1e-10)


def _sums(z, value, slope, sign=1.0):
    """Sums of integrals of functions with these ends and slopes, cubics in the inverse sinh of z."""
    length, rise = np.diff(np.arcsinh(z), axis=1), np.hypot(1.0, z)
    left = slope[0] * rise[:, :-1] ** 2 + value[0] * z[:, :-1]
    right = slope[1] * rise[:, 1:] ** 2 + value[1] * z[:, 1:]
    area = length / 2 * (value[0] * rise[:, :-1] + value[1] * rise[:, 1:]) + length**2 / 12 * (left - right)
    return (sign * np.where(length > 0, area, 0.0)).sum(axis=1)


def test_moments_without_trees_have_a_closed_form():
    model = TreeFlowRegressor(base=[Polynomial(1), Polynomial(2)], max_trees=0, random_state=0, n_jobs=1)
    mixture = model.fit(X, Y).mixture_
    mean, std = mixture.moments(X[:50], {})
    by_curve = mixture.curve(X[:50], {}).moments()
    assert mixture.at(X[:50], {}).parts[0].bundle.flow.base.moments(mixture.tree_flows()[0].condition(X[:50], None)[1])
    assert (np.abs(mean - by_curve[0]) < 1e-4 * std).all()
    np.testing.assert_allclose(std, by_curve[1], rtol=2e-3)


@pytest.mark.parametrize("dof", [3.0, 5.0, 50.0])
def test_curves_of_known_distributions(dof):
    t = stats.t(dof, loc=2.0, scale=0.5)
    levels = 1 / (1 + np.exp(-np.pi * np.sinh(np.linspace(-2.85, 2.85, 65))))
    curve = Curve.trace(lambda y, rows: (t.cdf(y), t.pdf(y)), np.tile(t.ppf(levels), (2, 1)))
    mean, std = curve.moments()
    np.testing.assert_allclose(mean, 2.0, atol=1e-4)
    np.testing.assert_allclose(std, t.std(), rtol=2e-3)
    some = np.array([[1e-6, 0.01, 0.3, 0.9, 0.9999]] * 2)
    np.testing.assert_allclose(t.cdf(curve.quantiles(some)), some, rtol=0.05)
    np.testing.assert_allclose(curve.at(t.ppf(some))[0], some, rtol=0.05)
    assert (np.diff(curve.at(np.tile(np.linspace(-5, 9, 999), (2, 1)))[0], axis=1) >= 0).all()
