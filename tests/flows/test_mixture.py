"""The mixed density: its laws, its draws, mixtures by hand."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp
from sklearn.cluster import HDBSCAN, KMeans

from tests.helpers.sticks import (
    AT,
    FREE,
    MIXTURES,
    OUTCOMES,
    X_NEW,
    X_VAL,
    Y_NEW,
    Y_VAL,
    X,
    Y,
    angle,
    every_mixture,
    every_outcome,
    log_prob_of_members,
    mixture,
    naive_stack,
    small,
)
from treecdf.bases.box import Support
from treecdf.data.scaling import Standardizer
from treecdf.flows.continuous import FlowDistribution
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Mixture
from treecdf.flows.weights import equal_weights

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
    draws = FlowDistribution(mixed, AT_HALVES).sample(20_000, random_state=0)
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
    distribution = FlowDistribution(mixed, AT_HALVES)
    assert np.array_equal(distribution.weights, np.exp(np.log(np.maximum(WEIGHTS, 1e-323)))[[0, 1, 2, 0]].round(15))
    expected = WEIGHTS[[0, 1, 2, 0]] @ [0.5, 1000.5, -499.5]
    assert distribution.mean() == pytest.approx(np.column_stack([expected, expected]), abs=3.0)


def test_equal_weights():
    assert np.exp(equal_weights(4)) == pytest.approx(np.full((1, 4), 0.25))
