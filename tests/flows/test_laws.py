"""The laws of `laws.py`, for every kind of transform."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from tests.helpers import laws
from treecdf import MLP, BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf.bases.box import Support
from treecdf.flows.tree import TreeSequence

Q = 3  # covariates
POINTS = {"one point a row": (300, 1), "seven points a row": (40, 7)}  # (n, m): the two paths of the kernel


@dataclass(frozen=True)
class Case:
    """A transform with the box it works in, and how far its data reach beyond the box, in lengths of the box."""

    transform: Any
    low: np.ndarray
    high: np.ndarray
    below: float = 0.0
    above: float = 0.0

    @property
    def width(self):
        return self.high - self.low

    def data(self, rng, n, m):
        """Points y (n, m, d), spread over the box and beyond it."""
        v = rng.uniform(-self.below, 1 + self.above, (n, m, len(self.low)))
        return self.low + self.width * v

    def edges(self, n_cells):
        """For each outcome, the ends of at least n_cells cells that fill the box, cut where the first tree cuts."""
        edges = list(np.linspace(self.low, self.high, n_cells + 1, axis=1))
        if isinstance(self.transform, TreeSequence):
            for node in self.transform[:1].nodes:
                edges[node["axis"]] = np.union1d(edges[node["axis"]], node["cut"])
        return edges


def trees(n_trees, d, kind, **options):
    rng = np.random.default_rng([n_trees, d, len(kind)])
    return Case(laws.random_trees(rng, n_trees, 5, d, Q, kind, **options), np.zeros(d), np.ones(d))


def support(bounds, below, above):
    y = np.random.default_rng(3).uniform([-3.0, 1000.0], [5.0, 1001.0], (80, 2))
    fitted = Support.fit(y, np.ones(80), bounds)
    return Case(laws.SupportTransform(fitted), fitted.low, fitted.high, below, above)


def regressor(d, **options):
    """A small fitted model; the outcomes' location, scale and skewness depend on x."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(250, Q))
    noise = rng.gamma(2.0, size=(250, d)) * np.exp(0.3 * x[:, :1])
    y = (x[:, :1] * np.arange(1, d + 1) + noise) * 10.0
    stages = [Stage(Logistic(), 4), Stage(MLP((4, 4)), 3)]
    return TreeFlowRegressor(
        **{"stages": stages, "base": "box", "max_trees": 15, "c0": 0.1, "random_state": 0, **options}
    ).fit(x, y)


def flow(d, below, above, **options):
    fitted = regressor(d, **options).mixture_.members[0]
    return Case(fitted, fitted.base.low, fitted.base.high, below, above)


FREE = (None, None)
TRANSFORMS = {
    **{
        f"100 {kind} trees, d = {d}": lambda d=d, kind=kind: trees(100, d, kind, steepness=0.5)
        for kind in laws.KINDS
        for d in (1, 2, 5)
    },
    **{
        f"4 trees of Python objects, d = {d}": lambda d=d: trees(4, d, "objects", c0=0.2, steepness=0.5) for d in (1, 2)
    },
    **{
        f"one tree at rate 0.9, d = {d}": lambda d=d: trees(1, d, "logistic", c0=0.9, gamma=0.0, steepness=20.0)
        for d in (1, 2)
    },
    "support with tails": lambda: support([FREE, FREE], 1.0, 1.0),
    "support with one hard bound": lambda: support([(-3.5, None), (None, 1001.0)], 0.0, 0.0),
    "support with two hard bounds": lambda: support([(-4.0, 7.0), (1000.0, 1002.0)], 0.0, 0.0),
    "flow, d = 1": lambda: flow(1, 0.2, 0.2),
    "flow, d = 2": lambda: flow(2, 0.2, 0.2),
    "flow of BoostedTrees, d = 1": lambda: flow(1, 0.2, 0.2, stages=[Stage(BoostedTrees(), 4)]),
    "flow of BoostedTrees, d = 2": lambda: flow(2, 0.2, 0.2, stages=[Stage(BoostedTrees(), 4)]),
    "flow of Logistic hinges, d = 2": lambda: flow(2, 0.2, 0.2, stages=[Stage(Logistic(basis="hinges"), 4)]),
    "flow with a hard lower bound, d = 1": lambda: flow(1, 0.0, 0.2, bounds=(-80.0, None)),
    "flow of scikit-learn classifiers, d = 1": lambda: flow(
        1, 0.2, 0.2, stages=[Stage(LogisticRegression(), 3)], max_trees=5
    ),
}


@cache
def case(name):
    return TRANSFORMS[name]()


every_transform = pytest.mark.parametrize("name", TRANSFORMS)
every_shape = pytest.mark.parametrize("shape", POINTS.values(), ids=POINTS)
one_outcome = pytest.mark.parametrize("name", [name for name in TRANSFORMS if "d = 1" in name])
few_outcomes = pytest.mark.parametrize("name", [name for name in TRANSFORMS if "d = 5" not in name])
only_trees = pytest.mark.parametrize("name", [name for name in TRANSFORMS if "tree" in name])


@pytest.fixture
def rng():
    return np.random.default_rng(17)


@every_shape
@every_transform
def test_inverse_undoes_forward(name, shape, rng):
    c = case(name)
    laws.inverse_undoes_forward(c.transform, c.data(rng, *shape), rng.normal(size=(shape[0], Q)), c.width)


@every_shape
@every_transform
def test_forward_undoes_inverse(name, shape, rng):
    c = case(name)
    laws.forward_undoes_inverse(c.transform, rng.random((*shape, len(c.low))), rng.normal(size=(shape[0], Q)))


@every_shape
@every_transform
def test_log_det_is_that_of_the_jacobian(name, shape, rng):
    c = case(name)
    y = c.low + c.width * (0.01 + 0.98 * (c.data(rng, *shape) - c.low) / c.width)  # not across a hard bound
    laws.log_det_is_that_of_the_jacobian(c.transform, y, rng.normal(size=(shape[0], Q)), c.width)


@every_shape
@only_trees
def test_trees_stay_in_the_cube_from_its_corners_and_cuts_too(name, shape, rng):
    c = case(name)
    special = np.concatenate([[1e-300, np.nextafter(1.0, 0.0), 1.0], c.transform.nodes["cut"]])
    u = rng.choice(special, (*shape, len(c.low)))
    laws.stays_in_the_cube(c.transform, u, 10 * rng.normal(size=(shape[0], Q)))


@few_outcomes
def test_density_integrates_to_one(name, rng):
    c = case(name)
    n_cells = 20_000 if len(c.low) == 1 else 400
    n_tail = 0 if isinstance(c.transform, TreeSequence) else n_cells // 10
    laws.integrates_to_one(c.transform, rng.normal(size=(1, Q)), c.edges(n_cells), n_tail)


@one_outcome
def test_one_outcome_increases(name, rng):
    c = case(name)
    v = np.linspace(-c.below, 1 + c.above, 1000)[1:, None]
    laws.increases(c.transform, np.tile(c.low + c.width * v, (5, 1, 1)), rng.normal(size=(5, Q)))


@pytest.mark.parametrize("kind", laws.KINDS)
def test_a_hundred_single_trees_at_rate_0_9_are_undone_by_their_inverse(kind, rng):
    for d in [1, 2, 5] * 33 + [1]:
        tree = laws.random_trees(rng, 1, 5, d, Q, kind, c0=0.9, gamma=0.0, steepness=5.0)
        x = rng.normal(size=(20, Q))
        laws.inverse_undoes_forward(tree, rng.random((20, 7, d)), x)
        laws.forward_undoes_inverse(tree, rng.random((20, 7, d)), x)


def test_one_outcome_is_undone_even_on_the_cuts(rng):
    c = case("100 logistic trees, d = 1")
    cuts = np.unique(c.transform.nodes["cut"])
    laws.inverse_undoes_forward(c.transform, np.tile(cuts[:, None], (3, 1, 1)), rng.normal(size=(3, Q)))


@every_shape
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", laws.KINDS)
def test_python_objects_give_the_numbers_of_the_compiled_kernel(kind, d, shape, rng):
    compiled = laws.random_trees(rng, 5, 5, d, Q, kind, c0=0.5)
    objects = laws.as_objects(compiled)
    u, x = rng.random((*shape, d)), rng.normal(size=(shape[0], Q))
    for row, node in zip(u, compiled[:1].nodes, strict=False):
        row[0, node["axis"]] = node["cut"]  # which is left of the cut
    for ours, theirs in zip(compiled.forward_and_log_det(u, x), objects.forward_and_log_det(u, x), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_allclose(compiled.inverse(u, x), objects.inverse(u, x), atol=1e-12)


@pytest.mark.parametrize("m", [2, 7, 300])
@pytest.mark.parametrize("kind", laws.KINDS)
def test_many_points_at_a_row_are_the_row_many_times(kind, m, rng):
    """300 points are more than a tile of the kernel holds."""
    few = laws.random_trees(rng, 10, 4, 2, Q, kind)
    u, x = rng.random((9, m, 2)), rng.normal(size=(9, Q))
    flat, x_flat = u.reshape(-1, 1, 2), np.repeat(x, m, axis=0)
    for shared, apart in zip(few.forward_and_log_det(u, x), few.forward_and_log_det(flat, x_flat), strict=True):
        np.testing.assert_allclose(shared.ravel(), apart.ravel(), atol=1e-13)
    np.testing.assert_allclose(few.inverse(u, x).ravel(), few.inverse(flat, x_flat).ravel(), atol=1e-13)


@pytest.mark.parametrize("kind", [*laws.KINDS, "objects"])
def test_a_sequence_is_its_parts_one_after_the_other(kind, rng):
    whole = laws.random_trees(rng, 6, 4, 2, Q, kind)
    u, x = rng.random((50, 1, 2)), rng.normal(size=(50, Q))
    moved, log_det = u, np.zeros((50, 1))
    for part in (whole[:2], whole[2:5], whole[5:]):
        moved, step = part.forward_and_log_det(moved, x)
        log_det += step
    expected, expected_log_det = whole.forward_and_log_det(u, x)
    np.testing.assert_allclose(moved, expected, atol=1e-14)
    np.testing.assert_allclose(log_det, expected_log_det, atol=1e-12)


# Supports and whole models


@pytest.mark.parametrize("y", [[-4.0001, 1001.0], [7.1, 1001.0], [0.0, 1e300]])
def test_density_is_zero_beyond_a_hard_bound(y):
    c = case("support with two hard bounds")
    u, log_det = c.transform.forward_and_log_det(np.array([[y]]), None)
    assert log_det == -np.inf
    assert ((u >= 0) & (u <= 1)).all()


@pytest.mark.parametrize("y", [-1e300, -1e9, 1e9, 1e300])
def test_every_finite_outcome_has_a_finite_log_density(y):
    c = case("flow, d = 1")
    _, log_det = c.transform.forward_and_log_det(np.array([[[y]]]), np.zeros((1, Q)))
    assert np.isfinite(log_det).all()


def test_tail_masses_are_those_of_one_row_more():
    c = case("support with tails")
    edges = np.stack([c.low, c.high])[None]
    u, _ = c.transform.forward_and_log_det(edges, None)
    np.testing.assert_allclose(u[0], [[0.5 / 81] * 2, [1 - 0.5 / 81] * 2])


@pytest.mark.parametrize("location", [-50.0, 0.0, 50.0])
def test_levels_zero_and_one_are_the_ends_of_the_support(location):
    """Also where both ends of the box have the same sign, where a sum of infinities would be NaN."""
    y = location + np.linspace(0.0, 1.0, 30)[:, None]
    levels = np.array([[[0.0], [1.0]]])
    free = laws.SupportTransform(Support.fit(y, np.ones(30), [FREE]))
    np.testing.assert_array_equal(free.inverse(levels, None).ravel(), [-np.inf, np.inf])
    hard = laws.SupportTransform(Support.fit(y, np.ones(30), [(location - 1, location + 2)]))
    np.testing.assert_array_equal(hard.inverse(levels, None).ravel(), [location - 1, location + 2])


@cache
def distribution(d):
    return regressor(d).predict_distribution(np.array([[-1.0, 0.0, 0.0], [1.5, 1.0, -1.0]]))


@pytest.mark.parametrize("row", [0, 1])
def test_samples_follow_the_own_cdf(row):
    draws = distribution(1).sample(2000, random_state=1)[row]
    own, other = distribution(1)[row], distribution(1)[1 - row]
    assert stats.kstest(draws, lambda y: own.cdf(y[None])[0]).pvalue > 1e-3
    assert stats.kstest(draws, lambda y: other.cdf(y[None])[0]).pvalue < 1e-9


def test_cdf_is_the_integral_of_the_density():
    support_, one = distribution(1)._mixture.members[0].base, distribution(1)[0]
    edges = np.linspace(support_.low[0], support_.high[0], 20_001)
    middles = (edges[1:] + edges[:-1]) / 2
    integral = support_.low_tail[0] + np.cumsum(one.pdf(middles[None])[0]) * (edges[1] - edges[0])
    np.testing.assert_allclose(one.cdf(edges[None, 1:])[0], integral, atol=1e-3)


@pytest.mark.parametrize("row", [0, 1])
def test_samples_of_two_outcomes_follow_the_own_flow(row):
    draws = distribution(2).sample(2000, random_state=1)[row]
    own, other = distribution(2)[row].pit(draws[None])[0], distribution(2)[1 - row].pit(draws[None])[0]
    for axis in (0, 1):
        assert stats.kstest(own[:, axis], "uniform").pvalue > 1e-3
        assert stats.kstest(other[:, axis], "uniform").pvalue < 1e-9
    assert stats.spearmanr(own).pvalue > 1e-3


@pytest.mark.parametrize("row", [0, 1])
def test_samples_of_two_outcomes_fall_into_boxes_as_often_as_the_density_says(row):
    """The density is integrated without the sampler's help."""
    one, box = distribution(2)[row], distribution(2)._mixture.members[0].base
    draws = (one.sample(20_000, random_state=2)[0] - box.low) / box.width
    middles = (np.arange(400) + 0.5) / 400
    grid = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(1, -1, 2)
    mass = one.pdf(box.low + box.width * grid).reshape(4, 100, 4, 100).sum(axis=(1, 3)) * np.prod(box.width / 400)
    counts, _, _ = np.histogram2d(*draws.T, bins=np.linspace(0, 1, 5))
    np.testing.assert_allclose(counts / 20_000, mass, atol=4 * np.sqrt(0.25 / 20_000))
