"""Rules of the weights of a mixture's members."""

import numpy as np
import pytest
from scipy import stats

from tests.helpers.sticks import naive_stack
from treecdf.flows.weights import likelihood_weights, mean_likelihood_weights, stacked_weights

RULES = pytest.mark.parametrize("rule", [likelihood_weights, mean_likelihood_weights, stacked_weights])


def test_likelihood_weights_are_the_normalised_products_of_likelihoods():
    rng = np.random.default_rng(0)
    density, weight, region = rng.uniform(0.5, 1.5, (30, 3)), rng.integers(1, 3, 30), rng.integers(0, 4, 30)
    found = np.exp(likelihood_weights(np.log(density), weight.astype(float), region, 4))
    for k in range(5):
        rows = region == k if k < 4 else np.ones(30, bool)
        product = np.prod(density[rows] ** weight[rows, None], axis=0)
        assert found[k] == pytest.approx(product / product.sum(), rel=1e-10)


def test_mean_likelihood_weights_are_the_normalised_geometric_means():
    rng = np.random.default_rng(0)
    density, weight, region = rng.uniform(0.5, 1.5, (30, 3)), rng.integers(1, 3, 30), rng.integers(0, 4, 30)
    found = np.exp(mean_likelihood_weights(np.log(density), weight.astype(float), region, 4))
    for k in range(5):
        rows = region == k if k < 4 else np.ones(30, bool)
        mean = np.prod(density[rows] ** (weight[rows, None] / weight[rows].sum()), axis=0)
        assert found[k] == pytest.approx(mean / mean.sum(), rel=1e-10)


def test_a_region_of_rows_without_weight_has_the_overall_weights():
    log_prob, weight = np.random.default_rng(0).normal(size=(6, 2)), np.array([1.0, 1, 1, 1, 0, 0])
    for rule in (likelihood_weights, mean_likelihood_weights):
        found = rule(log_prob, weight, np.array([0, 0, 0, 0, 1, 1]), 2)
        assert found[1] == pytest.approx(found[-1], abs=1e-12)


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
