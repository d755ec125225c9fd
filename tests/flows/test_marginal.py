"""Moments, marginals and cells of several outcomes against very many draws of the model."""

import numpy as np
import pytest

from treecdf import BoostedTrees, Stage, TreeFlowRegressor
from treecdf.bases.learners import BoostedMean, Polynomial
from treecdf.flows.chain import Chain
from treecdf.flows.curve import FINE
from treecdf.flows.marginal import Conditionals
from treecdf.flows.moments import moments_of_mixture

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 1))
FIRST = np.sin(X[:, 0]) + 0.5 * RNG.normal(size=N)
SECOND = 2 * np.abs(FIRST) + RNG.normal(size=N) * (0.3 + 0.2 * (X[:, 0] > 0))
THIRD = FIRST * SECOND / 4 + 0.2 * RNG.normal(size=N)
Y = np.column_stack([FIRST, SECOND, THIRD])
AT = np.array([[-1.0], [0.2], [1.3]])
N_DRAWS = 1_000_000


def fit(d, **settings):
    stages = [Stage(BoostedTrees(rounds=1, max_depth=2), 3)]
    base = [Polynomial(2), BoostedMean(3, rate=0.3, max_rounds=20)]
    chosen = {"stages": stages, "base": base, "structure": "chain", "effort": "fast", "max_trees": 5, **settings}
    return TreeFlowRegressor(random_state=0, n_jobs=1, **chosen).fit(X, Y[:, :d])


@pytest.fixture(scope="module")
def pair():
    model = fit(2)
    assert all(isinstance(member, Chain) for member in model.mixture_.members)
    d = model.predict_distribution(AT)
    return d, d.sample(N_DRAWS, random_state=0)


def test_moments_of_a_chain_are_those_of_many_more_nodes():
    """Draws do not tell: with heavy tails one of a million has percents of their variance."""
    model = fit(2)
    (chain,) = model.mixture_.members
    second = chain.order[1]
    nodes = Conditionals.of(chain, AT, second, 512)
    parts = (
        part.reshape(nodes.shares.shape) for part in nodes.link.curve(nodes.given, nodes.known, passes=FINE).moments()
    )
    mean, std = moments_of_mixture(nodes.shares, *parts)
    d = model.predict_distribution(AT)
    np.testing.assert_allclose(d.std()[:, second], std, rtol=0.01)
    assert (np.abs(d.mean()[:, second] - mean) < 0.01 * std).all()


def test_moments_of_a_chain_are_those_of_a_million_draws(pair):
    d, draws = pair
    # Single draws have percents of the variance here; the test before says that the integral is right.
    np.testing.assert_allclose(d.std(), draws.std(axis=1), rtol=0.05)
    assert (np.abs(d.mean() - draws.mean(axis=1)) < 0.01 * draws.std(axis=1)).all()


@pytest.mark.parametrize("j", [0, 1])
def test_marginals_of_a_chain_are_those_of_a_million_draws(pair, j):
    d, draws = pair
    marginal, own = d.marginal(j), draws[..., j]
    levels = np.array([1e-4, 5e-3, 0.1, 0.5, 0.9, 0.995, 1 - 1e-4])
    ends = np.quantile(own, levels, axis=1).T
    found = marginal.cdf(ends)
    np.testing.assert_allclose(np.minimum(found, 1 - found) / np.minimum(levels, 1 - levels), 1.0, atol=0.35)  # 3 sd
    np.testing.assert_allclose(found[:, 1:-1], np.tile(levels[1:-1], (3, 1)), rtol=0.05, atol=0.003)
    low, high = marginal.interval(0.99)
    np.testing.assert_allclose(high - low, ends[:, 5] - ends[:, 1], rtol=0.015)
    np.testing.assert_allclose(marginal.std(), own.std(axis=1), rtol=0.05)
    np.testing.assert_allclose(marginal.mean(), d.mean()[:, j], atol=0.01 * own.std())
    truth = np.array([0.0, 1.0, 2.0])
    ranks = 2 * np.arange(N_DRAWS) - N_DRAWS + 1
    gaps = 2 * (np.sort(own, axis=1) @ ranks) / N_DRAWS**2  # mean distance of two draws
    expected = np.abs(own - truth[:, None]).mean(axis=1) - gaps / 2
    np.testing.assert_allclose(marginal.crps(truth), expected, rtol=0.01)
    again = marginal.sample(200_000, random_state=1)
    np.testing.assert_allclose(np.median(again, axis=1), marginal.median(), atol=0.01)


def test_rows_have_errors_of_their_own_and_the_same_in_every_batch(pair):
    d, _ = pair
    np.testing.assert_allclose(d[1].mean(), d.mean()[1:2], rtol=1e-8)
    np.testing.assert_allclose(d[1:].std(), d.std()[1:], rtol=1e-8)


def test_three_outcomes():
    d = fit(3).predict_distribution(AT)
    draws = d.sample(100_000, random_state=0)
    np.testing.assert_allclose(d.std(), draws.std(axis=1), rtol=0.05)
    assert (np.abs(d.mean() - draws.mean(axis=1)) < 0.03 * draws.std(axis=1)).all()
    last = d.marginal(2)
    np.testing.assert_allclose(last.cdf(np.median(draws[..., 2], axis=1)), 0.5, atol=0.02)


@pytest.mark.parametrize("d", [2, 3])
def test_cells_of_a_chain_sum_to_one(d):
    step = 0.5 if d == 2 else 2.0
    y = step * np.round(Y[:, :d] / step)
    stages = [Stage(BoostedTrees(rounds=1, max_depth=2), 3)]
    settings = {"structure": "chain", "effort": "fast", "max_trees": 3, "stages": stages, "base": [Polynomial(2)]}
    model = TreeFlowRegressor(random_state=0, resolution=step, **settings).fit(X, y)
    ticks = np.arange(-20.0, 20.0 + step / 2, step)
    cells = np.stack(np.meshgrid(*[ticks] * d, indexing="ij"), axis=-1).reshape(1, -1, d)
    prob = model.predict_distribution(AT[:1]).pdf(cells) * step**d
    assert prob.sum() == pytest.approx(1.0, abs=1e-3)  # what is missing lies beyond 20
    draws = model.predict_distribution(AT[:1]).sample(200_000, random_state=0)[0]
    best = np.argsort(prob[0])[-5:]
    share = [(draws == cells[0, k]).all(axis=1).mean() for k in best]
    np.testing.assert_allclose(prob[0, best], share, atol=0.01)
    moments = model.predict_distribution(AT[:1])
    np.testing.assert_allclose(moments.mean()[0], draws.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(moments.std()[0], draws.std(axis=0), rtol=0.03)


def test_a_coarse_grid_with_heavy_tails_is_counted_cell_by_cell():
    """The far quantiles are hundreds of steps apart, and yet a few cells hold nearly all of the mass."""
    y = np.round(0.6 * RNG.standard_t(1.5, size=N))
    model = TreeFlowRegressor(base="student", stages=[Stage(BoostedTrees(rounds=1, max_depth=1), 2)], max_trees=2,
                              resolution=1.0, random_state=0).fit(X, y)  # fmt: skip
    d = model.predict_distribution(AT)
    assert (np.diff(d._latent.icdf([1e-4, 1 - 1e-4]), axis=1) > 30).all()
    edges = np.arange(-4000.0, 4001.0)
    cdf = d.cdf(np.tile(edges, (3, 1)))
    for truth in (0.0, 2.0):
        exact = ((cdf - (edges >= truth)) ** 2).sum(axis=1)
        np.testing.assert_allclose(d.crps(np.full(3, truth)), exact, rtol=0.01)
