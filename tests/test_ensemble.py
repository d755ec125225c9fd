"""Mixtures of flows: rotations, weights, regions, the laws of the mixed density, and how members are trained."""

import io
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import ortho_group
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

import treecdf.ensemble
import treecdf.workers
from benchmarks.simulations import SIMULATIONS, sse
from treecdf import Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.base import Rotation, Student, Support
from treecdf.distribution import ConditionalDistribution
from treecdf.ensemble import validation_folds
from treecdf.flow import TreeFlow
from treecdf.mixture import Mixture
from treecdf.plan import rotation_matrices
from treecdf.regions import fit_regions
from treecdf.table import Standardizer
from treecdf.weights import equal_weights, likelihood_weights, stacked_weights

CENTERS = np.array([[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]])


def table(n, seed):
    """Covariates in three clouds with some noise around; two outcomes, a stick that x moves and turns."""
    rng = np.random.default_rng(seed)
    x = CENTERS[rng.integers(3, size=n)] + 0.2 * rng.normal(size=(n, 2))
    x[rng.random(n) < 0.05] *= 1.5
    along, across, angle = rng.normal(size=n), 0.3 * rng.normal(size=n), np.pi / 4 * (1 + x[:, 0])
    turned = np.column_stack(
        [along * np.cos(angle) - across * np.sin(angle), along * np.sin(angle) + across * np.cos(angle)]
    )
    return x, (turned + x[:, 1:]) * [1.0, 20.0] + [0.0, 100.0]


N = 400
X, Y = table(N, 0)
X_VAL, Y_VAL = table(150, 1)
X_NEW, Y_NEW = table(50, 2)
AT = np.vstack([CENTERS[[0, 2]], [[0.5, 0.3]]])  # where densities are looked at
FREE = [(None, None)] * 2


def small(**settings):
    model = {"stages": [Stage(Logistic(), 3)], "max_trees": 8, "c0": 0.3, "rotations": 3, "random_state": 0}
    return TreeFlowRegressor(**{"base": "box", **model, **settings})


def fit(**settings):
    return small(**settings).fit(X, Y)


def angle(radians):
    return np.array([[np.cos(radians), np.sin(radians)], [-np.sin(radians), np.cos(radians)]])


FITTED_CLUSTERER = KMeans(4, random_state=0, n_init=1).fit(X)
# Products of likelihoods leave all but one member without weight unless members are much alike.
LIKELIHOOD = {"weights": "likelihood", "max_trees": 3, "rotations": [angle(1.0), angle(1.002), angle(1.005)]}
MIXTURES = {
    "equal": {"weights": "equal"},
    "stacked by k-means": {"weights": "stacked", "regions": 3},
    "stacked by HDBSCAN": {"weights": "stacked", "regions": "hdbscan"},
    "stacked by a clusterer": {"weights": "stacked", "regions": KMeans(4, random_state=0, n_init=1)},
    "likelihood by k-means": {**LIKELIHOOD, "regions": 3},
    "likelihood by HDBSCAN": {**LIKELIHOOD, "regions": "hdbscan"},
    "likelihood by a fitted clusterer": {**LIKELIHOOD, "regions": FITTED_CLUSTERER},
    "equal, of Student t": {"weights": "equal", "base": "student"},
    "stacked by k-means, of Student t": {"weights": "stacked", "regions": 3, "base": "student"},
}
every_mixture = pytest.mark.parametrize("name", MIXTURES)


@cache
def mixture(name):
    """Trained on all of X, Y; stopped and stacked by X_VAL, Y_VAL."""
    return small(**MIXTURES[name]).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)


def log_prob_of_members(model, x, y):
    return np.column_stack([flow.forward_and_log_det(y[:, None], x)[1][:, 0] for flow in model.mixture_.members])


# Rotations


@pytest.mark.parametrize("j", [1, 2, 3, 7, np.int64(4)])
def test_a_number_means_equally_spaced_angles(j):
    matrices = rotation_matrices(j, 2)
    assert len(matrices) == j
    first_axis = np.array(matrices)[:, 0]
    np.testing.assert_allclose(np.arctan2(first_axis[:, 1], first_axis[:, 0]), np.arange(j) * np.pi / 2 / j, atol=1e-15)


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("j", [1, 2, 4])
def test_every_plane_is_turned_and_the_identity_is_taken_once(j, d):
    matrices = np.array(rotation_matrices(j, d))
    assert len(matrices) == d * (d - 1) // 2 * (j - 1) + 1
    np.testing.assert_allclose(
        matrices @ matrices.transpose(0, 2, 1), np.tile(np.eye(d), (len(matrices), 1, 1)), atol=1e-15
    )
    np.testing.assert_allclose(np.linalg.det(matrices), 1.0)
    distance = np.abs(matrices[:, None] - matrices[None]).max(axis=(2, 3))
    assert (distance[~np.eye(len(matrices), dtype=bool)] > 0.1).all()
    assert [np.array_equal(matrix, np.eye(d)) for matrix in matrices] == [True] + [False] * (len(matrices) - 1)
    moved = np.abs(matrices - np.eye(d)).max(axis=2) > 0  # a plane is two axes
    assert (moved[1:].sum(axis=1) == 2).all()


@pytest.mark.parametrize("off", [0, None, np.int64(0)])
def test_zero_and_none_are_off(off):
    assert rotation_matrices(off, 2) == [None]
    model = fit(rotations=off, max_trees=1)
    assert len(model.mixture_.members) == 1
    assert model.mixture_.members[0].base.rotation is None


def test_matrices_are_taken_as_they_are():
    given = [ortho_group.rvs(3, random_state=seed) for seed in range(4)]
    given += [np.diag([1.0, -1.0, 1.0]), np.eye(3, dtype=int)[[1, 0, 2]]]  # reflections too
    assert {round(np.linalg.det(matrix)) for matrix in given} == {-1, 1}
    for found in (rotation_matrices(given, 3), rotation_matrices(tuple(given), 3)):
        assert np.array_equal(found, np.array(given))
    members = small(rotations=[matrix[:2, :2] for matrix in given[4:]], max_trees=1).fit(X, Y).mixture_.members
    assert np.array_equal([flow.base.rotation.matrix for flow in members], [[[1, 0], [0, -1]], [[0, 1], [1, 0]]])


NO_ROTATIONS = {
    "too large": np.eye(3),
    "not square": np.eye(2)[:1],
    "flat": np.array([1.0, 0.0]),
    "a number": 1.0,
    "a shear": [[1.0, 0.1], [0.0, 1.0]],
    "stretched": 1.001 * np.eye(2),
    "zero": np.zeros((2, 2)),
    "NaN": [[np.nan, 0.0], [0.0, 1.0]],
    "infinite": [[np.inf, 0.0], [0.0, 1.0]],
    "huge": [[1e200, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("name", NO_ROTATIONS)
def test_what_is_no_rotation_is_refused(name):
    with pytest.raises(ValueError, match=r"rotations to be orthogonal matrices of shape \(2, 2\); got"):
        fit(rotations=[np.eye(2), NO_ROTATIONS[name]])


def test_words_are_no_rotations():
    with pytest.raises(ValueError):
        fit(rotations=[np.eye(2), "quarter"])


@pytest.mark.parametrize("empty", [[], ()])
def test_no_matrices_are_refused(empty):
    with pytest.raises(ValueError, match="Expected rotations to be None, an integer"):
        fit(rotations=empty)


# The rotation of the outcomes

TURN = rotation_matrices(3, 2)[1]
Z = np.random.default_rng(5).normal(size=(200, 2))
OUTCOMES = {
    "plain": Z,
    "scales far apart": Z * [1e-12, 1e12],
    "a large offset": 1e6 + Z,
    "one constant": np.column_stack([Z[:, 0], np.full(200, 7.0)]),
    "one zero": np.column_stack([np.zeros(200), Z[:, 1]]),
    "both constant": np.full((200, 2), -3.0),
    "one a copy of the other": np.column_stack([Z[:, 0], 2 * Z[:, 0] + 3]),
    "huge": Z * 1e300,
    "one huge": Z * [1e300, 1.0],
    "at the edge of float64": np.where(Z > 0, 1e307, -1e307),
    "tiny": Z * 1e-300,
}
every_outcome = pytest.mark.parametrize("name", OUTCOMES)


def rotation(y, matrix=TURN):
    return Rotation.fit(y, np.ones(len(y)), np.asarray(matrix))


@every_outcome
@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [1.0, 0.0]]], ids=["rotation", "reflection"])
def test_turning_back_undoes_turning(name, matrix):
    y = OUTCOMES[name]
    turn = rotation(y, matrix)
    assert (turn.scale > 0).all()
    np.testing.assert_allclose(turn.turn_back(turn.turn(y)), y, rtol=1e-12, atol=1e-14 * turn.scale.max(axis=None))
    r = np.random.default_rng(6).normal(size=(4, 5, 2))
    rounding = 1e-15 * np.abs(turn.center / turn.scale).max()
    np.testing.assert_allclose(turn.turn(turn.turn_back(r)), r, rtol=1e-10, atol=1e-12 + rounding)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_turned_outcomes_are_standardised_first(d):
    rng = np.random.default_rng(d)
    y, weight = rng.gamma(2.0, size=(300, d)) * 10.0 ** np.arange(d), rng.random(300)
    matrix = ortho_group.rvs(d, random_state=d)
    turn = Rotation.fit(y, weight, matrix)
    assert turn.scale == pytest.approx(np.sqrt(np.cov(y.T, aweights=weight, ddof=0).diagonal()), rel=1e-12)
    mean = np.average(y, axis=0, weights=weight)
    spread = np.cov(turn.turn(y).T, aweights=weight, ddof=0)
    correlation = np.cov(((y - mean) / turn.scale).T, aweights=weight, ddof=0)
    np.testing.assert_allclose(spread, matrix.T @ correlation @ matrix, atol=1e-10)


@pytest.mark.parametrize("name", ["plain", "scales far apart", "one constant", "one huge", "huge", "tiny"])
@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [1.0, 0.0]]], ids=["rotation", "reflection"])
def test_log_det_is_that_of_the_jacobian(name, matrix):
    turn = rotation(OUTCOMES[name], matrix)
    jacobian = np.empty((2, 2))
    for k in range(2):
        step = 0.25 * turn.scale[k] * np.eye(2)[k]
        change = turn.turn(turn.center + step) - turn.turn(turn.center - step)
        jacobian[:, k] = change / 0.5  # per scale, which no float64 can overflow
    assert turn.log_det == pytest.approx(np.linalg.slogdet(jacobian)[1] - np.log(turn.scale).sum(), abs=1e-10)


@every_outcome
def test_far_outcomes_have_a_finite_image_and_log_density(name):
    y, ones = OUTCOMES[name], np.ones(200)
    far = np.array([[1e300, 0.0], [1.7e308, 1.7e308], [-1.7e308, 1.7e308], [5e-324, -1e300]])
    assert np.isfinite(rotation(y).turn(far)).all()
    for base in (Support.fit(y, ones, FREE, TURN), Student.fit(y, ones, TURN)):
        place, log_det = base.to_box(far)
        assert np.isfinite(place).all()
        assert np.isfinite(log_det).all()


@pytest.mark.parametrize("name", ["plain", "scales far apart", "a large offset"])
def test_the_box_is_that_of_the_turned_outcomes(name):
    y = OUTCOMES[name]
    support = Support.fit(y, np.ones(200), FREE, TURN)
    r = ((y - y.min(axis=0) / 2 - y.max(axis=0) / 2) / y.std(axis=0)) @ TURN
    margin = 0.1 * np.ptp(r, axis=0)
    np.testing.assert_allclose(support.low, r.min(axis=0) - margin, atol=1e-8)
    np.testing.assert_allclose(support.high, r.max(axis=0) + margin, atol=1e-8)
    assert support.inside(support.to_box(y)[0]).all()


@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
def test_a_member_is_the_flow_of_outcomes_turned_by_hand(matrix):
    model = small(rotations=[np.array(matrix)]).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    center, scale = Y.min(axis=0) / 2 + Y.max(axis=0) / 2, Y.std(axis=0)
    by_hand = [((y - center) / scale) @ matrix for y in (Y, Y_VAL, Y_NEW)]
    plain = small(rotations=None).fit(X, by_hand[0], X_val=X_VAL, y_val=by_hand[1])
    expected = plain.log_prob(X_NEW, by_hand[2]) - np.log(scale).sum()
    assert model.n_trees_ == plain.n_trees_ > 3
    assert model.log_prob(X_NEW, Y_NEW) == pytest.approx(expected, abs=1e-8)


def test_one_angle_is_the_model_without_rotations():
    assert fit(rotations=1).log_prob(X, Y) == pytest.approx(fit(rotations=None).log_prob(X, Y), abs=1e-8)


# The mixed density


def axis_with_tails(low, high, n, n_tail):
    """Midpoints and weights: n even steps from low to high, n_tail growing ones on each side, 20 lengths out."""
    growing = np.expm1(np.linspace(0, np.log(21), n_tail + 1))[1:]
    edges = low + (high - low) * np.concatenate([-growing[::-1], np.linspace(0, 1, n + 1), 1 + growing])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def grid_of(first, second):
    return np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)


@every_mixture
def test_density_integrates_to_one(name):
    """The grid is turned, so that no member's cuts lie along it, where the midpoint rule would be poor."""
    nodes, steps = axis_with_tails(-5.0, 5.0, 190, 25)
    y = Y.mean(axis=0) + Y.std(axis=0) * (grid_of(nodes, nodes) @ angle(0.2))
    weight = np.outer(steps, steps).ravel() * np.prod(Y.std(axis=0))
    density = mixture(name).predict_distribution(AT).pdf(np.tile(y, (len(AT), 1, 1)))
    assert np.ptp(density, axis=0).max() > 0, "a density without x would prove less"
    assert density @ weight == pytest.approx(1.0, abs=3e-3)


@every_mixture
def test_weights_are_probabilities_of_the_members(name):
    model = mixture(name)
    for x in (X, X_NEW, 1e6 + X_NEW, np.full((1, 2), -1e300)):
        weights = model.predict_distribution(x).weights
        assert weights.shape == (len(x), 3)
        assert (weights >= 0).all()
        assert weights.sum(axis=1) == pytest.approx(1.0, abs=1e-12)


@every_mixture
def test_weights_are_those_of_the_rule_in_each_region(name):
    """The rules once more, in their most naive form."""
    model, settings = mixture(name), MIXTURES[name]
    rule, regions = settings["weights"], settings.get("regions")
    if rule == "equal":
        expected = np.full((50, 3), 1 / 3)
    else:
        train, rows, new = (naive_regions(model, regions, x) for x in (X, X_VAL, X_NEW))
        assert len(np.unique(train)) > 2
        expected = np.empty((50, 3))
        for region in np.unique(new):
            if rule == "likelihood":
                log_prob = log_prob_of_members(model, X, Y)[train == region].sum(axis=0)
                weights = np.exp(log_softmax(log_prob))
            else:
                log_prob = log_prob_of_members(model, X_VAL, Y_VAL)
                overall = naive_stack(log_prob, np.ones(3))
                weights = naive_stack(log_prob[rows == region], 20 * overall)
            expected[new == region] = weights
        assert np.unique(expected.round(3), axis=0).shape[0] > 1, "regions without weights of their own prove nothing"
        assert (expected.max(axis=1) < 0.99).any()
    assert model.predict_distribution(X_NEW).weights == pytest.approx(expected, abs=1e-5)
    mixed = logsumexp(log_prob_of_members(model, X_NEW, Y_NEW) + np.log(expected), axis=1)
    assert model.log_prob(X_NEW, Y_NEW) == pytest.approx(mixed, abs=1e-4)


def naive_regions(model, how, x):
    if isinstance(how, KMeans):
        return model.mixture_.regions.clusterer.predict(x)
    z, z_train = ((values - X.mean(axis=0)) / X.std(axis=0) for values in (x, X))
    if how == "hdbscan":
        labels = HDBSCAN(min_cluster_size=10, copy=True).fit(z_train).labels_
        points, labels = z_train[labels >= 0], labels[labels >= 0]
    else:
        points = model.mixture_.regions.points
        labels = np.arange(len(points))
    return labels[((z[:, None] - points) ** 2).sum(axis=2).argmin(axis=1)]


def naive_stack(log_prob, prior):
    """Maximum of the log-likelihood of mixture weights plus sum of prior * log weights."""

    def loss(theta):
        log_weights = log_softmax(np.r_[theta, 0.0])
        return -(logsumexp(log_prob + log_weights, axis=1).sum() + prior @ log_weights)

    found = minimize(loss, np.zeros(len(prior) - 1), tol=1e-12, options={"gtol": 1e-7})
    return np.exp(log_softmax(np.r_[found.x, 0.0]))


def cell_masses(one, low, high):
    """Probabilities of 6 x 6 cells by midpoint quadrature of the density of a distribution of one row."""
    axes = np.linspace(low + (high - low) / 360, high - (high - low) / 360, 180, axis=1)
    density = one.pdf(grid_of(*axes)[None]).reshape(6, 30, 6, 30)
    return density.sum(axis=(1, 3)).ravel() * np.prod((high - low) / 180)


def p_value(counts, mass):
    """Chi-square test of counts of cells, all the rest being one cell more."""
    n = 4000
    often = mass * n > 5
    observed = np.r_[counts[often], n - counts[often].sum()]
    expected = n * np.r_[mass[often], 1 - mass[often].sum()]
    return stats.chisquare(observed, expected).pvalue


@every_mixture
def test_samples_fall_into_cells_as_often_as_the_density_says(name):
    """The density is integrated without the sampler's help; the density of another x would be found out."""
    model = mixture(name)
    distribution = model.predict_distribution(AT)
    draws = distribution.sample(4000, random_state=1)
    low, high = Y.min(axis=0), Y.max(axis=0)
    masses = [cell_masses(distribution[row], low, high) for row in range(len(AT))]
    for row, points in enumerate(draws):
        counts = np.histogram2d(*points.T, bins=[np.linspace(*ends, 7) for ends in zip(low, high, strict=True)])[0]
        assert p_value(counts.ravel(), masses[row]) > 1e-4
        assert p_value(counts.ravel(), masses[row - 1]) < 1e-9


@every_mixture
def test_moments_and_marginals_are_those_of_the_samples(name):
    distribution = mixture(name).predict_distribution(AT)
    draws = distribution.sample(20_000, random_state=0)
    std = draws.std(axis=1)
    assert (np.abs(distribution.mean() - draws.mean(axis=1)) < 0.03 * std).all()
    assert distribution.std() == pytest.approx(std, rel=0.1)
    for j in (0, 1):
        for level in (0.1, 0.5, 0.8):
            y = np.quantile(draws[..., j], level, axis=1)
            assert distribution.marginal(j).cdf(y) == pytest.approx(level, abs=0.02)


@every_mixture
def test_far_outcomes_have_a_finite_log_density_and_infinite_ones_none(name):
    distribution = mixture(name).predict_distribution(AT)
    far = Y.mean(axis=0) + 1e6 * Y.std(axis=0) * np.array([[1, 0], [0, -1], [1, 1], [-1, 1]])
    far = np.vstack([far, [[1e300, -1e300], [1.7e308, 1.7e308]]])
    assert np.isfinite(distribution.logpdf(np.tile(far, (len(AT), 1, 1)))).all()
    for y in ([np.inf, 0.0], [0.0, -np.inf], [np.inf, -np.inf]):
        assert (distribution.logpdf(np.tile(y, (len(AT), 1))) == -np.inf).all()
        assert (distribution.pdf(np.tile(y, (len(AT), 1))) == 0).all()


@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_another_unit_of_the_outcomes_changes_the_density_by_the_jacobian_only(name):
    unit = np.array([1e6, 1e-3])
    model = small(**MIXTURES[name])
    own, other = model.fit(X, Y).log_prob(X_NEW, Y_NEW), model.fit(X, unit * Y).log_prob(X_NEW, unit * Y_NEW)
    assert other == pytest.approx(own - np.log(unit).sum(), abs=1e-6)


@pytest.mark.parametrize("base", ["box", "student"])
@pytest.mark.parametrize("rotations", [None, 3])
@every_outcome
def test_strange_outcomes(name, rotations, base):
    y = OUTCOMES[name]
    model = small(rotations=rotations, base=base, max_trees=2).fit(X[:200], y)
    distribution = model.predict_distribution(X[:20])
    assert np.isfinite(model.log_prob(X[:200], y)).all()
    draws = distribution.sample(10, random_state=0)
    assert np.isfinite(draws).all()
    assert np.isfinite(distribution.logpdf(draws)).all()
    assert np.isfinite(distribution.marginal(0).cdf(y[:20, 0])).all()


@pytest.mark.parametrize("rotations", [None, 3])
@every_outcome
def test_moments_of_strange_outcomes(name, rotations):
    """Sums and squares of outcomes may leave float64 where mean and standard deviation do not."""
    model = small(rotations=rotations, max_trees=2).fit(X[:200], OUTCOMES[name])
    distribution = model.predict_distribution(X[:20])
    assert np.isfinite(distribution.mean()).all()
    assert np.isfinite(distribution.std()).all()
    assert (distribution.std() > 0).all()


# A mixture by hand


@dataclass(frozen=True)
class Halves:
    """Two regions, by the sign of x; beyond 10 is a region that fit did not see."""

    n_regions: int = 2

    def __call__(self, x):
        return np.where(np.abs(x[:, 0]) > 10, 2, (x[:, 0] > 0).astype(int))


def box_at(place):
    """A flow without trees whose box is (place, place + 1) in both outcomes."""
    y = place + np.array([[0.0, 0.0], [1.0, 1.0]])
    x = np.array([[-1.0], [1.0]])
    return TreeFlow(Standardizer.fit(x, np.ones(2)), Support.fit(y, np.full(2, 1e6), FREE), ())


def by_hand(weights):
    with np.errstate(divide="ignore"):
        return Mixture((box_at(0.0), box_at(1000.0), box_at(-500.0)), np.log(weights), Halves())


WEIGHTS = np.array([[0.2, 0.5, 0.3], [0.0, 0.75, 0.25], [1.0, 0.0, 0.0]])
AT_HALVES = np.array([[-1.0], [1.0], [99.0], [-2.0]])  # regions 0, 1, 2, 0


def shares(y):
    """Share of the draws (n, m, 2) near each member's box, (n, members)."""
    return np.stack([(np.abs(y[..., 0] - place) < 100).mean(axis=1) for place in (0, 1000, -500)], axis=1)


def test_members_are_picked_in_proportion_to_their_weights():
    mixed = by_hand(WEIGHTS)
    u = np.full((4, 1000, 2), 0.5)
    u[..., 0] = (np.arange(1000) + 0.5) / 1000  # the first coordinate picks the member
    picked = mixed.draw(u, AT_HALVES)
    assert shares(picked) == pytest.approx(WEIGHTS[[0, 1, 2, 0]], abs=1e-12)
    draws = ConditionalDistribution(mixed, AT_HALVES).sample(20_000, random_state=0)
    for row, region in enumerate([0, 1, 2, 0]):
        seen = WEIGHTS[region] > 0
        found = shares(draws)[row]
        assert (found[~seen] == 0).all()
        if seen.sum() > 1:
            assert stats.chisquare(20_000 * found[seen], 20_000 * WEIGHTS[region][seen]).pvalue > 1e-4


def test_a_draw_needs_a_member_even_if_the_weights_fall_short_of_one():
    mixed = by_hand(WEIGHTS * (1 - 1e-9))
    u = np.full((4, 1, 2), 0.5)
    u[..., 0] = np.nextafter(1.0, 0.0)
    picked = mixed.draw(u, AT_HALVES)
    assert np.isfinite(picked).all()


def test_density_by_hand():
    mixed = by_hand(WEIGHTS)
    y = np.tile([[0.5, 0.5], [1000.5, 1000.5], [-499.5, -499.5]], (4, 1, 1))
    # A box is 1.2 wide, and almost all of its member's mass is inside.
    np.testing.assert_allclose(np.exp(mixed.log_prob(y, AT_HALVES)), WEIGHTS[[0, 1, 2, 0]] / 1.44, atol=1e-5)
    distribution = ConditionalDistribution(mixed, AT_HALVES)
    assert np.array_equal(distribution.weights, np.exp(np.log(np.maximum(WEIGHTS, 1e-323)))[[0, 1, 2, 0]].round(15))
    expected = WEIGHTS[[0, 1, 2, 0]] @ [0.5, 1000.5, -499.5]
    assert distribution.mean() == pytest.approx(np.column_stack([expected, expected]), abs=3.0)


def test_equal_weights():
    assert np.exp(equal_weights(4)) == pytest.approx(np.full((1, 4), 0.25))


# Rules of weights

RULES = pytest.mark.parametrize("rule", [likelihood_weights, stacked_weights])


def test_likelihood_weights_are_the_normalised_products_of_likelihoods():
    rng = np.random.default_rng(0)
    density, weight, region = rng.uniform(0.5, 1.5, (30, 3)), rng.integers(1, 3, 30), rng.integers(0, 4, 30)
    found = np.exp(likelihood_weights(np.log(density), weight.astype(float), region, 4))
    for k in range(5):
        rows = region == k if k < 4 else np.ones(30, bool)
        product = np.prod(density[rows] ** weight[rows, None], axis=0)
        assert found[k] == pytest.approx(product / product.sum(), rel=1e-10)


@RULES
@pytest.mark.parametrize("shift", [-1e5, -500.0, 700.0, 1e5])
def test_weights_do_not_overflow(rule, shift):
    """A common factor of the likelihoods, however large, says nothing about the members."""
    rng = np.random.default_rng(0)
    log_prob, region = rng.normal(size=(100_000, 2)), rng.integers(0, 3, 100_000)
    log_prob[:, 1] = log_prob[:, 0] + 1e-5 * rng.normal(size=100_000)
    plain, shifted = (rule(log_prob + by, np.ones(100_000), region, 3) for by in (0.0, shift))
    assert np.isfinite(shifted).all()
    assert shifted == pytest.approx(plain, abs=1e-3)
    assert np.exp(shifted).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.exp(shifted).min() > 0.01


@RULES
def test_regions_without_rows_get_the_overall_weights(rule):
    rng = np.random.default_rng(0)
    log_prob, region = 0.2 * rng.normal(size=(40, 3)), rng.choice([0, 2, 5], 40)
    found = rule(log_prob, np.ones(40), region, 6)
    assert found.shape == (7, 3)
    overall = rule(log_prob, np.ones(40), np.zeros(40, np.int64), 1)[-1]
    for k in (1, 3, 4, 6):
        assert found[k] == pytest.approx(overall, abs=1e-12)
    for k in (0, 2, 5):
        assert np.abs(np.exp(found[k]) - np.exp(overall)).max() > 1e-3


@RULES
def test_rows_of_a_region_that_fit_did_not_see_count_overall_only(rule):
    rng = np.random.default_rng(0)
    log_prob, region = 0.2 * rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    found = rule(log_prob, np.ones(60), region, 2)
    np.testing.assert_allclose(found[-1], rule(log_prob, np.ones(60), np.zeros(60, np.int64), 1)[-1], atol=1e-12)
    assert np.abs(np.exp(found[0]) - np.exp(found[-1])).max() > 1e-3


@RULES
def test_a_row_of_weight_two_is_the_row_twice(rule):
    rng = np.random.default_rng(0)
    log_prob, region, times = rng.normal(size=(50, 3)), rng.integers(0, 3, 50), rng.integers(1, 5, 50)
    weighted = rule(log_prob, times.astype(float), region, 3)
    repeated = rule(np.repeat(log_prob, times, 0), np.ones(times.sum()), np.repeat(region, times), 3)
    np.testing.assert_allclose(weighted, repeated, atol=1e-9)
    assert np.abs(weighted - rule(log_prob, np.ones(50), region, 3)).max() > 1e-2


def normal_members(y, *means):
    return np.column_stack([stats.norm(mean).logpdf(y) for mean in means])


def draw_normals(rng, n, share):
    return np.where(rng.random(n) < share, -1.0, 1.0) + rng.normal(size=n)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.85])
def test_stacked_weights_recover_the_shares_of_a_mixture(share):
    y = draw_normals(np.random.default_rng(0), 20_000, share)
    log_prob = normal_members(y, -1.0, 1.0, 6.0)
    found = np.exp(stacked_weights(log_prob, np.ones(20_000), np.zeros(20_000, np.int64), 1))
    assert found == pytest.approx(np.tile([share, 1 - share, 0.0], (2, 1)), abs=0.02)


def test_small_regions_are_drawn_towards_the_overall_weights():
    rng = np.random.default_rng(0)
    rows = {0: 5000, 1: 5000, 2: 1, 3: 10}
    share = {0: 0.5, 1: 0.9, 2: 1.0, 3: 1.0}
    y = np.concatenate([draw_normals(rng, n, share[k]) for k, n in rows.items()])
    region = np.repeat(list(rows), list(rows.values()))
    found = np.exp(stacked_weights(normal_members(y, -1.0, 1.0), np.ones(len(y)), region, 4))[:, 0]
    overall = found[-1]
    assert overall == pytest.approx(0.7, abs=0.02)
    assert found[0] == pytest.approx(0.5, abs=0.03)
    assert found[1] == pytest.approx(0.9, abs=0.03)
    assert found[2] == pytest.approx(overall, abs=0.03)
    assert found[2] != overall
    assert overall + 0.02 < found[3] < 0.95


def test_a_member_that_all_rows_deny_gets_almost_no_weight():
    rng = np.random.default_rng(0)
    log_prob = np.column_stack([rng.normal(size=1000), rng.normal(size=1000), np.full(1000, -1e5)])
    region = np.repeat([0, 1], 500)
    for rule in (stacked_weights, likelihood_weights):
        found = np.exp(rule(log_prob, np.ones(1000), region, 2))
        assert (found[:, 2] < 2e-3).all()
        assert found.sum(axis=1) == pytest.approx(1.0, abs=1e-9)


def test_stacked_weights_are_the_most_likely_ones():
    rng = np.random.default_rng(1)
    log_prob, region = 2 * rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    found = np.exp(stacked_weights(log_prob, np.ones(300), region, 3))
    overall = naive_stack(log_prob, np.ones(4))
    assert found[-1] == pytest.approx(overall, abs=1e-5)
    for k in range(3):
        assert found[k] == pytest.approx(naive_stack(log_prob[region == k], 20 * overall), abs=1e-5)


# Regions

BLOBS, BLOB_OF = make_blobs(
    [150, 150, 100], centers=[[0, 0], [50, 0], [0, 8]], cluster_std=[1.0, 2.0, 0.3], random_state=0
)


def regions(how, x, weight=None):
    return fit_regions(how, x, np.ones(len(x)) if weight is None else weight, np.random.default_rng(0))


def same_partition(first, second):
    return len(set(zip(first, second, strict=True))) == len(set(first)) == len(set(second))


@pytest.mark.parametrize("how", [3, np.int64(3), "hdbscan", KMeans(3, random_state=0, n_init=3)])
def test_regions_are_the_blobs(how):
    found = regions(how, BLOBS)
    assert found.n_regions == 3
    assert same_partition(found(BLOBS), BLOB_OF)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_k_means_regions_are_those_of_the_nearest_mean(k):
    x = X * [1.0, 1e6]  # the unit of a covariate does not count
    found, z = regions(k, x), (X - X.mean(axis=0)) / X.std(axis=0)
    assert found.n_regions == len(found.points) == k
    own = found(x)
    for region in range(k):
        assert found.points[region] == pytest.approx(z[own == region].mean(axis=0), abs=0.05)
    z_new = (X_NEW - X.mean(axis=0)) / X.std(axis=0)
    nearest = ((z_new[:, None] - found.points) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(found(X_NEW * [1.0, 1e6]), nearest)


def test_k_means_regions_count_the_weights():
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    weight = np.array([9.0, 1.0, 1.0, 3.0])
    found = regions(2, x, weight)
    mean = np.average(x, weights=weight, axis=0)
    sd = np.sqrt(np.average((x - mean) ** 2, weights=weight, axis=0))
    assert np.sort(found.points[:, 0] * sd + mean) == pytest.approx([0.1, 10.75])


@pytest.mark.parametrize(("x", "n_regions"), [(np.repeat(CENTERS, 10, 0), 3), (np.ones((30, 2)), 1), (CENTERS[:2], 2)])
def test_more_regions_than_distinct_rows(x, n_regions):
    found = regions(8, x)
    assert found.n_regions == n_regions
    assert sorted(set(found(x))) == list(range(n_regions))
    assert same_partition(found(x), [tuple(row) for row in x])


@pytest.mark.parametrize("how", [5, "hdbscan"])
def test_constant_covariates_are_one_region(how):
    found = regions(how, np.full((50, 3), 7.0))
    assert found.n_regions == 1
    assert np.array_equal(found([[7.0] * 3, [0.0] * 3, [1e300] * 3]), [0, 0, 0])


def test_noise_goes_to_the_nearest_cluster():
    x = np.vstack([BLOBS, [[25.0, 30.0], [70.0, -30.0], [-5.0, 25.0]]])
    z = StandardScaler().fit_transform(x)
    labels = HDBSCAN(min_cluster_size=10, copy=True).fit(z).labels_
    noise = labels < 0
    assert noise[-3:].all()
    found = regions("hdbscan", x)
    assert found.n_regions == labels.max() + 1
    assert np.array_equal(found(x)[~noise], labels[~noise])
    nearest = np.linalg.norm(z[noise][:, None] - z[~noise], axis=2).argmin(axis=1)
    assert np.array_equal(found(x)[noise], labels[~noise][nearest])


@pytest.mark.parametrize("n", [2, 4, 30])
def test_nothing_but_noise_is_one_region(n):
    x = np.linspace(0, 1, n)[:, None] ** 2
    found = regions("hdbscan", x)
    assert found.n_regions == 1
    assert not found(x).any()
    assert not found([[-1e300], [1e300]]).any()


def test_hdbscan_is_shown_some_rows_of_a_large_table(monkeypatch):
    monkeypatch.setattr("treecdf.regions._LARGEST_HDBSCAN", 120)
    found = regions("hdbscan", BLOBS)
    assert len(found.points) <= 120
    assert same_partition(found(BLOBS), BLOB_OF)


@pytest.mark.parametrize("how", [3, "hdbscan"])
def test_rows_far_away_belong_to_some_region(how):
    found = regions(how, BLOBS)
    far = np.array([[1e300, 0.0], [-1.7e308, 1.7e308], [0.0, 1e300]])
    assert np.isin(found(far), np.arange(3)).all()
    assert found([[1e300, 0.0]]) == found([[60.0, 0.0]])  # the far right is the right blob's


def test_a_fitted_clusterer_is_used_as_it_is():
    clusterer = KMeans(3, random_state=0, n_init=3).fit(BLOBS + 1000.0)
    centers = clusterer.cluster_centers_.copy()
    found = regions(clusterer, BLOBS + 1000.0)
    assert found.clusterer is clusterer
    assert np.array_equal(clusterer.cluster_centers_, centers)
    assert np.array_equal(found(BLOBS + 1000.0), clusterer.labels_)


def test_a_clusterer_is_cloned_before_it_is_fitted():
    clusterer = KMeans(3, random_state=0, n_init=3)
    model = small(weights="stacked", regions=clusterer, max_trees=1).fit(X, Y)
    assert not hasattr(clusterer, "cluster_centers_")
    assert np.array_equal(model.mixture_.regions.clusterer.labels_, clone(clusterer).fit(X).labels_)


def test_any_pipeline_with_predict_is_a_clusterer():
    clusterer = make_pipeline(StandardScaler(), KMeans(3, random_state=0, n_init=3))
    x = BLOBS * [1.0, 1e-6]
    assert same_partition(regions(clusterer, x)(x), BLOB_OF)


def test_a_clusterer_gets_its_seed_from_the_model():
    """As scikit-learn's classifiers do: one random_state, one model."""
    model = small(weights="likelihood", regions=KMeans(7, n_init=1), max_trees=1)
    inertias = {model.fit(X, Y).mixture_.regions.clusterer.inertia_ for _ in range(4)}
    assert len(inertias) == 1


def test_a_clusterer_fitted_to_a_frame_serves_frames():
    frame = pd.DataFrame(X, columns=["a", "b"])
    clusterer = KMeans(3, random_state=0, n_init=1).fit(frame)
    model = small(weights="stacked", regions=clusterer, max_trees=1).fit(frame, Y)
    assert model.predict_distribution(frame).weights.shape == (N, 3)


class Steps(ClusterMixin, BaseEstimator):
    """Labels a row by its first covariate, rounded: 10 times a whole number."""

    def __init__(self, word=False):
        self.word = word

    def fit(self, x, y=None):
        self.fitted_ = True
        return self

    def predict(self, x):
        label = (10 * np.round(x[:, 0])).astype(int)
        return np.array([f"region {value}" for value in label]) if self.word else label


@pytest.mark.parametrize("word", [False, True], ids=["numbers", "words"])
@pytest.mark.parametrize("weights", ["stacked", "likelihood"])
def test_a_label_that_fit_did_not_see_gets_the_overall_weights(weights, word):
    model = small(weights=weights, regions=Steps(word), rotations=LIKELIHOOD["rotations"]).fit(
        X, Y, X_val=X_VAL, y_val=Y_VAL
    )
    seen = np.unique(np.round(X[:, 0]))
    assert model.mixture_.regions.n_regions == len(seen) >= 3
    unseen = np.array([[99.0, 0.0], [-99.0, 0.0], [seen.max() + 1, 0.0], [seen.min() - 1, 0.0]])
    found = model.predict_distribution(unseen).weights
    rows = (X, Y) if weights == "likelihood" else (X_VAL, Y_VAL)
    rule = likelihood_weights if weights == "likelihood" else stacked_weights
    log_prob = log_prob_of_members(model, *rows)
    overall = np.exp(rule(log_prob, np.ones(len(log_prob)), np.zeros(len(log_prob), np.int64), 1)[-1])
    assert found == pytest.approx(np.tile(overall, (4, 1)), abs=1e-6)
    assert np.abs(model.predict_distribution(X).weights - overall).max() > 1e-3


def test_regions_of_a_single_member_are_not_needed():
    model = small(rotations=1, weights="stacked", regions="hdbscan").fit(X, Y)
    assert model.mixture_.regions is None
    assert np.array_equal(model.predict_distribution(X).weights, np.ones((N, 1)))


# Rows set aside


@pytest.mark.parametrize(("n", "fraction", "n_members"), [(100, 0.1, 4), (100, 0.1, 10), (100, 0.3, 7), (7, 0.5, 9)])
def test_members_set_aside_other_rows_while_they_last(n, fraction, n_members):
    folds = validation_folds(n, fraction, n_members, np.random.default_rng(0))
    size = round(fraction * n)
    assert [len(set(fold)) for fold in folds] == [size] * n_members
    times = np.bincount(np.concatenate(folds), minlength=n)
    assert len(times) == n
    assert np.ptp(times) <= 1
    first = folds[: n // size]
    assert len(set(np.concatenate(first))) == size * len(first)


@pytest.mark.parametrize(
    ("n", "fraction", "size"), [(2, 0.1, 1), (2, 0.9, 1), (10, 0.01, 1), (10, 0.99, 9), (3, 0.9, 2)]
)
def test_a_row_at_least_is_set_aside_and_a_row_is_left(n, fraction, size):
    for fold in validation_folds(n, fraction, 3, np.random.default_rng(0)):
        assert len(set(fold)) == size


def rows_set_aside(model):
    """Rows of X, Y that each member did not see: those that moved far away leave its box and scales alone."""
    found = [set() for _ in range(3)]
    plain = model.fit(X[:20], Y[:20]).mixture_.members
    for row in range(20):
        y = Y[:20].copy()
        y[row] = 1e5
        for number, (flow, before) in enumerate(zip(model.fit(X[:20], y).mixture_.members, plain, strict=True)):
            if np.array_equal(flow.base.rotation.scale, before.base.rotation.scale):
                found[number].add(row)
    return found


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_members_share_validation_rows_unless_the_weights_are_equal(weights):
    aside = rows_set_aside(small(stages=[], weights=weights, regions=1, validation_fraction=0.2))
    assert [len(rows) for rows in aside] == [4, 4, 4]
    assert len(set.union(*aside)) == (12 if weights == "equal" else 4)


@pytest.mark.parametrize("weights", ["stacked", "likelihood"])
def test_stacking_looks_at_rows_set_aside_and_likelihood_at_the_others(weights):
    model = fit(stages=[], weights=weights, regions=1, rotations=LIKELIHOOD["rotations"])
    aside = np.zeros(N, bool)
    aside[validation_folds(N, 0.1, 1, np.random.default_rng(0))[0]] = True
    for flow in model.mixture_.members:
        assert flow.standardize.mean * flow.standardize.unit == pytest.approx(X[~aside].mean(axis=0), rel=1e-9)
    log_prob = log_prob_of_members(model, X, Y)
    if weights == "stacked":
        overall = naive_stack(log_prob[aside], np.ones(3))
        expected = naive_stack(log_prob[aside], 20 * overall)
    else:
        expected = np.exp(log_softmax(log_prob[~aside].sum(axis=0)))
    assert expected.max() < 0.999
    assert model.predict_distribution(X_NEW).weights == pytest.approx(np.tile(expected, (50, 1)), abs=1e-5)


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_validation_rows_of_the_user_serve_all_members(weights):
    model = small(weights=weights).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    for flow in model.mixture_.members:
        assert flow.standardize.mean == pytest.approx((X / np.abs(X).max(axis=0)).mean(axis=0))
    check_history(model)


def check_history(model):
    """Log-likelihoods of the history against those of each member."""
    history = model.history_
    assert set(history) == {"member", "stage", "train", "validation", "kept"}
    assert {len(values) for values in history.values()} == {len(history["member"])}
    assert np.array_equal(np.unique(history["member"]), np.arange(3))
    assert (np.diff(history["member"]) >= 0).all()
    assert model.n_trees_ == history["kept"].sum()
    train, validation = log_prob_of_members(model, X, Y), log_prob_of_members(model, X_VAL, Y_VAL)
    for number, flow in enumerate(model.mixture_.members):
        kept = (history["member"] == number) & history["kept"]
        assert sum(len(block) for block in flow.blocks) == kept.sum() > 0
        last = np.flatnonzero(kept)[-1]
        assert history["train"][last] == pytest.approx(train[:, number].mean(), rel=1e-9)
        assert history["validation"][last] == pytest.approx(validation[:, number].mean(), rel=1e-9)


def test_every_member_stops_on_its_own():
    model = small(c0=0.6, max_trees=40, early_stopping_window=3).fit(X[:100], Y[:100])
    grown = np.bincount(model.history_["member"])
    assert len(set(grown)) > 1
    assert model.n_trees_ == model.history_["kept"].sum() < grown.sum()
    trees = [sum(len(block) for block in flow.blocks) for flow in model.mixture_.members]
    assert trees == [model.history_["kept"][model.history_["member"] == number].sum() for number in range(3)]


@pytest.mark.parametrize("max_trees", [0, 3])
def test_columns_of_the_history_keep_their_kinds(max_trees):
    """Also where a member grew no tree: here the heavy row is all that lets a node be split."""
    weight = np.ones(20)
    weight[0] = 100.0
    model = small(max_trees=max_trees, min_samples_node=50, rotations=4, validation_fraction=0.25)
    model.fit(X[:20], Y[:20], weight)
    if max_trees:
        assert 0 < len(np.unique(model.history_["member"])) < 4
    kinds = {name: values.dtype.kind for name, values in model.history_.items()}
    assert kinds == {"member": "i", "stage": "i", "train": "f", "validation": "f", "kept": "b"}


def test_stacking_needs_validation_rows():
    with pytest.raises(ValueError, match="weights='stacked' needs validation rows"):
        fit(weights="stacked", validation_fraction=0)
    model = small(weights="stacked", validation_fraction=0).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert np.isfinite(model.score(X, Y))


@pytest.mark.parametrize("weights", ["equal", "likelihood"])
def test_without_validation_rows_every_tree_of_every_member_is_grown(weights):
    model = fit(weights=weights, validation_fraction=0, early_stopping_window=1)
    assert model.n_trees_ == 3 * 8
    assert np.isnan(model.history_["validation"]).all()


@pytest.mark.parametrize("rotations", [1, 4, [np.eye(2)]])
def test_one_outcome_has_nothing_to_rotate(rotations):
    with pytest.warns(UserWarning, match="rotations are for several outcomes"):
        model = small(rotations=rotations, weights="stacked").fit(X, Y[:, 0])
    plain = small(rotations=None).fit(X, Y[:, 0])
    assert len(model.mixture_.members) == 1
    assert np.array_equal(model.log_prob(X, Y[:, 0]), plain.log_prob(X, Y[:, 0]))
    assert np.array_equal(model.predict_distribution(X).icdf(0.3), plain.predict_distribution(X).icdf(0.3))


@pytest.mark.parametrize("bounds", [(-1e3, 1e3), [None, (0, None)], [(None, 1e3), None]])
def test_rotations_cannot_keep_bounds(bounds):
    with pytest.raises(ValueError, match="expected rotations or bounds, got both"):
        fit(bounds=bounds)


@pytest.mark.parametrize("bounds", [None, (None, None), (-np.inf, np.inf)])
def test_no_bounds_are_no_trouble(bounds):
    assert np.isfinite(fit(bounds=bounds, max_trees=1).score(X, Y))


# Sample weights


@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_rows_of_weight_zero_are_left_out(name):
    counted = np.random.default_rng(1).random(N) < 0.7
    x, y = X.copy(), Y.copy()
    x[~counted], y[~counted] = 1e6, -1e6
    model = small(**MIXTURES[name])
    weighted = model.fit(x, y, counted.astype(float)).log_prob(X_NEW, Y_NEW)
    assert np.array_equal(weighted, model.fit(X[counted], Y[counted]).log_prob(X_NEW, Y_NEW))


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_a_row_of_weight_two_equals_the_row_twice(weights):
    """With the user's own validation rows and regions, which no draw decides."""
    rng = np.random.default_rng(0)
    times, times_val = rng.integers(0, 4, N), rng.integers(0, 3, 150)
    rows, rows_val = np.repeat(np.arange(N), times), np.repeat(np.arange(150), times_val)
    model = small(weights=weights, regions=FITTED_CLUSTERER, max_trees=3, c0=0.1)
    plain = model.fit(X, Y, X_val=X_VAL, y_val=Y_VAL).predict_distribution(X_NEW)
    weighted = model.fit(
        X, Y, sample_weight=times, X_val=X_VAL, y_val=Y_VAL, sample_weight_val=times_val
    ).predict_distribution(X_NEW)
    repeated = model.fit(X[rows], Y[rows], X_val=X_VAL[rows_val], y_val=Y_VAL[rows_val]).predict_distribution(X_NEW)
    assert weighted.weights == pytest.approx(repeated.weights, abs=1e-6)
    assert weighted.logpdf(Y_NEW) == pytest.approx(repeated.logpdf(Y_NEW), abs=1e-6)
    assert np.abs(weighted.logpdf(Y_NEW) - plain.logpdf(Y_NEW)).max() > 1e-2


# Importances, progress, questions


def test_importances_add_up_to_one():
    model = mixture("equal")
    found = model.feature_importances_
    assert found.shape == (2,)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("verbose", [0, 1])
def test_progress_counts_the_members(verbose, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("treecdf.progress.time", SimpleNamespace(monotonic=count(1).__next__))
    model = fit(verbose=verbose)
    shown = terminal.getvalue()
    for number in (1, 2, 3):
        assert (f"{number} of 3 flows" in shown) == bool(verbose)
    if verbose:
        assert shown.endswith("\n")
        last = shown.split("\r")[-1]
        assert f"{model.n_trees_} trees" in last
        of_last = model.history_["validation"][model.history_["member"] == 2]
        assert f"validation log-likelihood {of_last.max():.4f}" in last
        assert "[########................]" in shown


def test_progress_of_one_member_counts_its_trees(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("treecdf.progress.time", SimpleNamespace(monotonic=count(1).__next__))
    fit(verbose=1, rotations=None)
    assert "stage 1 [########################] 8 trees" in terminal.getvalue()
    assert "member" not in terminal.getvalue()


def test_a_mixture_has_no_pit():
    with pytest.raises(ValueError, match=r"mixture of 3.*marginal"):
        mixture("equal").predict_distribution(X_NEW).pit(Y_NEW)
    assert fit(rotations=1).predict_distribution(X_NEW).pit(Y_NEW).shape == (50, 2)


@pytest.mark.parametrize("rows", [slice(3, 9), [0, 4, 4], np.arange(50) % 2 == 0, slice(None, None, -1)])
@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by a fitted clusterer"])
def test_slices_keep_their_weights(name, rows):
    distribution = mixture(name).predict_distribution(X_NEW)
    assert np.array_equal(distribution[rows].weights, distribution.weights[rows])
    assert distribution[rows].logpdf(Y_NEW[rows]) == pytest.approx(distribution.logpdf(Y_NEW)[rows], rel=1e-12)
    assert distribution[rows].mean() == pytest.approx(distribution.mean()[rows], rel=1e-9)
    assert distribution[7].weights.shape == (1, 3)


def test_shapes_of_answers():
    model = mixture("stacked by k-means")
    distribution = model.predict_distribution(X_NEW)
    assert distribution.logpdf(np.tile(Y_NEW[:7], (50, 1, 1))).shape == (50, 7)
    assert distribution.sample(4).shape == (50, 4, 2)
    assert model.predict(X_NEW).shape == (50, 2)
    assert distribution.logpdf(np.tile(Y_NEW[:7], (50, 1, 1)))[:, 3] == pytest.approx(
        distribution.logpdf(np.tile(Y_NEW[3], (50, 1))), rel=1e-9
    )


def test_three_outcomes():
    y, y_new = np.column_stack([Y, X[:, 0] + Y[:, 0]]), np.column_stack([Y_NEW, X_NEW[:, 0] + Y_NEW[:, 0]])
    model = small(rotations=2, max_trees=3, weights="stacked").fit(X, y)
    assert len(model.mixture_.members) == 4
    distribution = model.predict_distribution(X_NEW)
    mixed = logsumexp(log_prob_of_members(model, X_NEW, y_new) + np.log(distribution.weights), axis=1)
    assert distribution.logpdf(y_new) == pytest.approx(mixed, rel=1e-12)
    assert distribution.sample(5, random_state=0).shape == (50, 5, 3)


# scikit-learn's rules


@every_mixture
def test_pickle_keeps_the_mixture(name):
    model = mixture(name)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.log_prob(X_NEW, Y_NEW), model.log_prob(X_NEW, Y_NEW))
    assert np.array_equal(copy.sample(X_NEW, 3, random_state=0), model.sample(X_NEW, 3, random_state=0))


@pytest.mark.parametrize("rotations", [2, [np.eye(2), TURN]])
@pytest.mark.parametrize("how", [3, "hdbscan", KMeans(3, random_state=0, n_init=1)])
def test_a_clone_fits_to_the_same_mixture(how, rotations):
    model = small(rotations=rotations, weights="stacked", regions=how, max_trees=2).fit(X, Y)
    copy = clone(model)
    assert not hasattr(copy, "mixture_")
    assert copy.get_params()["weights"] == "stacked"
    assert np.array_equal(copy.get_params()["rotations"], rotations)
    assert np.array_equal(copy.fit(X, Y).log_prob(X_NEW, Y_NEW), model.log_prob(X_NEW, Y_NEW))


def test_a_clone_keeps_a_frozen_clusterer():
    frozen = FrozenEstimator(KMeans(3, random_state=0, n_init=1).fit(X_NEW))
    model = clone(small(weights="stacked", regions=frozen, max_trees=1)).fit(X, Y)
    assert np.array_equal(model.mixture_.regions(X), frozen.predict(X))


def test_settings_of_a_clusterer_can_be_searched():
    model = small(weights="stacked", regions=KMeans(3))
    assert model.set_params(regions__n_clusters=5).regions.n_clusters == 5


def test_grid_search_over_rotations_maximises_the_likelihood():
    folds = KFold(2)
    search = GridSearchCV(small(max_trees=4), {"rotations": [None, 2]}, cv=folds).fit(X, Y)
    by_hand = [
        np.mean([small(max_trees=4, rotations=r).fit(X[a], Y[a]).score(X[b], Y[b]) for a, b in folds.split(X)])
        for r in (None, 2)
    ]
    assert search.cv_results_["mean_test_score"] == pytest.approx(by_hand, rel=1e-12)
    assert search.best_params_["rotations"] == [None, 2][np.argmax(by_hand)]
    assert len(search.best_estimator_.mixture_.members) == (search.best_params_["rotations"] or 1)


# Seeds, processes and threads


def bits(model):
    """Everything that was learnt."""
    arrays = [*model.history_.values(), model.feature_importances_]
    arrays.append(model.mixture_.log_weights)
    for flow in model.mixture_.members:
        for part in (flow.standardize, flow.base, flow.base.rotation):
            arrays += [value for value in vars(part).values() if isinstance(value, np.ndarray)]
        for block in flow.blocks:
            arrays += [block.nodes, block.theta, block.roots, block.kind]
    return [array.tobytes() for array in arrays]


# All arrays reach the processes as read-only memory maps, as large ones do.
JOBS = {"processes": {"backend": "loky", "max_nbytes": 100}, "threads": {"backend": "threading"}}


@pytest.fixture
def blas_threads():
    """Puts the threads of the linear algebra back, should a test disturb them."""
    with threadpool_limits(None):
        yield


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_the_mixture_does_not_depend_on_the_jobs(name, jobs):
    settings = {**MIXTURES[name], "subsample": 0.7}  # which makes every member draw
    one = fit(**settings, n_jobs=1)
    with joblib.parallel_config(**JOBS[jobs]):
        two = fit(**settings, n_jobs=2)
    assert bits(one) == bits(two)
    assert np.array_equal(one.log_prob(X_NEW, Y_NEW), two.log_prob(X_NEW, Y_NEW))
    assert np.array_equal(one.sample(X_NEW, 5, random_state=0), two.sample(X_NEW, 5, random_state=0))


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("jobs", JOBS)
def test_validation_rows_and_weights_reach_the_jobs(jobs):
    rows = {"sample_weight": np.linspace(0, 2, N), "X_val": X_VAL, "y_val": Y_VAL}
    one = small(weights="stacked", n_jobs=1).fit(X, Y, **rows)
    with joblib.parallel_config(**JOBS[jobs]):
        assert bits(small(weights="stacked", n_jobs=2).fit(X, Y, **rows)) == bits(one)


@pytest.mark.usefixtures("blas_threads")
def test_the_joblib_backend_is_used(monkeypatch):
    known = joblib.Parallel
    made = []

    def parallel(*args, **options):
        made.append(known(*args, **options))
        return made[-1]

    monkeypatch.setattr(treecdf.workers, "Parallel", parallel)
    with joblib.parallel_config(backend="threading"):
        fit(n_jobs=2, max_trees=1)
    assert made[0].n_jobs == 2
    assert type(made[0]._backend).__name__ == "ThreadingBackend"


def fit_members_in_threads():
    with joblib.parallel_config(backend="threading"):
        fit(rotations=2, max_trees=1, n_jobs=2)


def fit_two_models_in_threads():
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(fit, rotations=None, max_trees=1) for _ in range(2)]:
            job.result()


def threads_of_linear_algebra():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("fit_two", [fit_members_in_threads, fit_two_models_in_threads], ids=["members", "models"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_linear_algebra_has_one_thread_while_flows_are_trained_and_all_of_them_later(fit_two, again, monkeypatch):
    """A flow that begins while another is trained, and ends after it, must not put back the other's limit."""
    first_is_in, second_is_in, first_is_done = (threading.Event() for _ in range(3))
    order, split, fit_flow = count(), treecdf.ensemble.split, treecdf.ensemble.fit_flow
    seen = []

    def begin(*args):
        if next(order) == 1:
            first_is_in.wait(20)
        return split(*args)

    def train(*args):
        is_first = not first_is_in.is_set()
        first_is_in.set()
        seen.extend(threads_of_linear_algebra())
        trained = fit_flow(*args)
        if is_first:
            second_is_in.wait(20)
            first_is_done.set()
        else:
            second_is_in.set()
            first_is_done.wait(20)
            time.sleep(0.3)
            seen.extend(threads_of_linear_algebra())
        return trained

    before = threads_of_linear_algebra()
    if again:
        fit(max_trees=1)
    monkeypatch.setattr(treecdf.ensemble, "split", begin)
    monkeypatch.setattr(treecdf.ensemble, "fit_flow", train)
    fit_two()
    assert set(seen) == {1}
    assert threads_of_linear_algebra() == before


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_predictions_do_not_depend_on_the_threads(n_jobs, monkeypatch):
    monkeypatch.setattr("treecdf.flow._CHUNK_POINTS", 30)
    monkeypatch.setattr("treecdf.flow._SMALLEST_CHUNK", 10)
    model = fit(**MIXTURES["stacked by k-means"])

    def answers(n):
        distribution = model.set_params(n_jobs=n).predict_distribution(X)
        found = [model.log_prob(X, Y), distribution.sample(3, 0), distribution[:5].mean()]
        return [array.tobytes() for array in found]

    assert answers(1) == answers(n_jobs)


@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_one_seed_is_one_mixture(name):
    one, same, other = (fit(**{**MIXTURES[name], "random_state": seed}) for seed in (0, 0, 1))
    assert bits(one) == bits(same)
    assert not np.array_equal(one.log_prob(X_NEW, Y_NEW), other.log_prob(X_NEW, Y_NEW))


@pytest.mark.parametrize("seed", [np.random.RandomState, np.random.default_rng])
def test_every_kind_of_seed_is_accepted(seed):
    settings = {"weights": "stacked", "max_trees": 2}
    assert bits(fit(**settings, random_state=seed(3))) == bits(fit(**settings, random_state=seed(3)))
    assert np.isfinite(fit(**settings, random_state=None).score(X, Y))


def test_members_have_seeds_of_their_own():
    """Twice the same rotation and the same rows: what differs is the draws of each member."""
    model = small(rotations=[np.eye(2)] * 2, subsample=0.5).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    first, second = log_prob_of_members(model, X_NEW, Y_NEW).T
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize(
    "classifier", [LogisticRegression(), DecisionTreeClassifier(max_depth=2, splitter="random")], ids=["linear", "tree"]
)
def test_scikit_learn_classifiers_in_other_processes(classifier):
    settings = {"stages": [Stage(Constant(), 2), Stage(classifier, 2)], "max_trees": 3, "weights": "stacked"}
    with joblib.parallel_config(**JOBS["processes"]):
        one, two = (fit(**settings, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert two.score(X, Y) > fit(max_trees=0).score(X, Y)
    assert np.array_equal(one.log_prob(X_NEW, Y_NEW), two.log_prob(X_NEW, Y_NEW))


# What it is good for


@pytest.mark.parametrize("seed", [0, 1])
def test_rotations_lower_the_error_of_a_density_that_turns(seed):
    x, y = SIMULATIONS["half_gaussian"].sample(1000, np.random.default_rng(seed))
    errors = [
        sse(small(stages=[Stage(Logistic(), 4)], max_trees=30, c0=0.5, rotations=r).fit(x, y).log_prob, "half_gaussian")
        for r in (4, None)
    ]
    assert errors[0] < 0.97 * errors[1]


def test_stacking_finds_the_rotation_of_each_region():
    """A square on its side where x > 0: there the member of 45 degrees is worth most, elsewhere the plain one."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (1500, 1)) + 0.01 * rng.normal(size=(1500, 1))
    y, tilt = rng.uniform(-1, 1, (1500, 2)), np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    y[x[:, 0] > 0] = y[x[:, 0] > 0] @ tilt
    model = small(rotations=2, weights="stacked", regions=2, max_trees=15, validation_fraction=0.3).fit(x, y)
    straight, tilted = model.predict_distribution([[-1.0], [1.0]]).weights
    assert straight[0] > 0.7
    assert tilted[1] > 0.7
