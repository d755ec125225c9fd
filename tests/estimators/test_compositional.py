"""Compositions: sums, zeros, density, dependence."""

import pickle
from itertools import product

import numpy as np
import pytest
from joblib import parallel_config
from scipy.special import expit
from sklearn.base import clone

from treecdf import CompositionalFlow, TreeFlowRegressor
from treecdf._common.numerics import counted_quantiles
from treecdf.data.units import draw_folds, units_of_groups
from treecdf.flows.composition.presence import EffectsWithTrend, Presence, logistic
from treecdf.flows.composition.ratios import Ratios, order_of_chain


def simulate(n, seed, n_taxa=5):
    """Presence of taxa 1 to 3 depends on x, taxon 3 comes with taxon 2 only, abundances of 0 and 1 move together."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    shared = rng.normal(size=n)
    raw = np.exp(rng.normal(size=(n, n_taxa)) * 0.3 + np.linspace(1, -1, n_taxa))
    raw[:, :2] *= np.exp(np.outer(shared, [1.0, 1.0]))
    present = np.ones((n, n_taxa), bool)
    present[:, 1] = rng.random(n) < expit(1 + 2 * x[:, 0])
    present[:, 2] = rng.random(n) < expit(-2 * x[:, 0])
    present[:, 3] = present[:, 2] & (rng.random(n) < 0.9)
    y = np.where(present, raw, 0.0)
    return x, y / y.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def data():
    return simulate(400, 0)


@pytest.fixture(scope="module")
def model(data):
    return CompositionalFlow(random_state=0).fit(*data)


def test_draws_sum_to_one_and_have_exact_zeros(data, model):
    x, _ = data
    drawn = model.sample(x[:50], 20, random_state=1)
    assert drawn.shape == (50, 20, 5)
    np.testing.assert_allclose(drawn.sum(axis=-1), 1, rtol=0, atol=1e-14)
    assert (drawn >= 0).all()
    assert 0.2 < (drawn == 0).mean() < 0.4
    assert model.sample(x[:3], 0).shape == (3, 0, 5)


def test_zero_rates_follow_the_covariates(model):
    x = np.array([[-0.8, 0.0], [0.0, 0.0], [0.8, 0.0]])
    truth = np.column_stack(
        [np.zeros(3), 1 - expit(1 + 2 * x[:, 0]), 1 - expit(-2 * x[:, 0]), 1 - 0.9 * expit(-2 * x[:, 0]), np.zeros(3)]
    )
    np.testing.assert_allclose(model.zero_prob(x), truth, rtol=0, atol=0.12)
    drawn = model.sample(x, 4000, random_state=0)
    np.testing.assert_allclose((drawn == 0).mean(axis=1), model.zero_prob(x, 4000), rtol=0, atol=0.03)


def test_dependence_is_kept(data, model):
    x, y = data
    drawn = model.sample(x, 5, random_state=0).reshape(-1, 5)
    present = drawn > 0
    assert present[~present[:, 2], 3].mean() < 0.05  # taxon 3 never comes without taxon 2
    assert present[present[:, 2], 3].mean() > 0.8

    def correlation(y):
        y = y[(y[:, [0, 1, 4]] > 0).all(axis=1)]
        return np.corrcoef(np.log(y[:, 0] / y[:, 4]), np.log(y[:, 1] / y[:, 4]))[0, 1]

    assert correlation(y) > 0.8
    assert correlation(drawn) == pytest.approx(correlation(y), abs=0.08)


def test_density_integrates_to_one_over_patterns_and_simplices():
    x, y = simulate(150, 1, n_taxa=5)
    three = y[:, [1, 2, 4]]
    model = CompositionalFlow(normalize=True, random_state=0).fit(x, three)
    at = np.array([[0.3, -0.2]])
    total = sum(_mass(model, at, np.array(pattern, bool)) for pattern in product([0, 1], repeat=3) if any(pattern))
    assert total == pytest.approx(1, abs=2e-3)


def _mass(model, at, pattern):
    """Integral of the density over compositions of the taxa of a pattern, by breaking a stick."""
    taxa = np.flatnonzero(pattern)
    edges = np.linspace(-14, 14, 20_001 if len(taxa) == 2 else 401)  # densities of tree flows have steps
    t = (edges[1:] + edges[:-1]) / 2
    grids = np.meshgrid(*[t] * (len(taxa) - 1), indexing="ij")
    odds = np.column_stack([grid.ravel() for grid in grids]) if grids else np.zeros((1, 0))
    rest, volume, y = np.ones(len(odds)), np.ones(len(odds)), np.zeros((len(odds), len(pattern)))
    for k, taxon in enumerate(taxa[:-1]):
        share = expit(odds[:, k])
        y[:, taxon] = rest * share
        volume *= rest * share * (1 - share) * (edges[1] - edges[0])
        rest = rest * (1 - share)
    y[:, taxa[-1]] = rest
    return np.exp(model.log_prob(np.repeat(at, len(y), axis=0), y)) @ volume


def test_density_and_draws_agree(model):
    """A calibrated model finds new rows as likely as its own draws, and nonsense much less likely."""
    x, y = simulate(2000, 7)
    own, real = model.score(x, model.sample(x, 1, random_state=2)[:, 0]), model.score(x, y)
    assert own == pytest.approx(real, abs=0.3)
    assert model.score(x, y[:, [4, 1, 2, 3, 0]]) < real - 5


def test_log_ratios_and_back():
    y = np.array([[0.2, 0.3, 0.5], [0.0, 0.4, 0.6], [0.0, 1.0, 0.0]])
    ratios = Ratios.of(y)
    assert ratios.follows.tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    np.testing.assert_allclose(ratios.log_ratio(1)[0], np.log(0.3 / 0.2))
    np.testing.assert_allclose(ratios.log_ratio(2)[:2], np.log([0.5 / 0.5, 0.6 / 0.4]))
    drawn = Ratios.unknown(y > 0)
    for k in range(3):
        rows = np.flatnonzero(drawn.follows[:, k])
        np.testing.assert_allclose(drawn.features(k)[rows], ratios.features(k)[rows], atol=1e-14)
        drawn.put(k, rows, ratios.log_ratio(k)[rows])
    np.testing.assert_allclose(drawn.abundances(), y, atol=1e-15)
    far = Ratios.unknown(np.ones((1, 2), bool))
    far.put(0, np.empty(0, int), np.empty(0))
    far.put(1, np.array([0]), np.array([-1e5]))
    assert (far.abundances() > 0).all()  # what is present stays so


def test_same_seed_same_model_whatever_the_jobs(data, model):
    x, y = data
    with parallel_config(backend="threading"):  # processes would start for seconds
        again = CompositionalFlow(random_state=0, n_jobs=2).fit(x, y)
    np.testing.assert_array_equal(again.log_prob(x, y), model.log_prob(x, y))
    np.testing.assert_array_equal(again.sample(x, 2, random_state=3), model.sample(x, 2, random_state=3))
    assert (model.sample(x, 1, random_state=3) != model.sample(x, 1, random_state=4)).any()


def test_clone_and_pickle(data, model):
    x, y = data
    copy = clone(CompositionalFlow(flow=TreeFlowRegressor(max_trees=3), normalize=True))
    assert copy.get_params()["flow__max_trees"] == 3
    assert copy.set_params(flow__max_trees=4).flow.max_trees == 4
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).log_prob(x, y), model.log_prob(x, y))


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize": "no"},
        {"n_jobs": 0},
        {"flow": "box"},
        {"flow": TreeFlowRegressor(c0=7)},
        {"flow": TreeFlowRegressor(categorical_features=[0])},
    ],
)
def test_settings_are_checked(data, settings):
    with pytest.raises(ValueError, match=r"Expected (normalize|n_jobs|flow|c0)"):
        CompositionalFlow(**settings).fit(*data)


def test_certain_taxa_and_single_taxa():
    x, y = simulate(80, 2)
    y = np.hstack([y, np.zeros((80, 1))])
    y[:6] = [[1, 0, 0, 0, 0, 0]] * 6  # rows of a single taxon
    model = CompositionalFlow(random_state=0).fit(x, y)
    assert model.order_.tolist() == [0, 1, 2, 3, 4] or 5 not in model.order_
    assert np.isfinite(model.log_prob(x, y)).all()
    drawn = model.sample(x, 20, random_state=0)
    assert (drawn[..., 5] == 0).all()
    assert (drawn[..., 0] > 0).mean() > 0.95  # it always was present
    np.testing.assert_allclose(model.zero_prob(x[:2])[:, [0, 5]], [[1 / 82, 1], [1 / 82, 1]], rtol=0.2)
    without = y[:1] * [[0, 1, 1, 1, 1, 0]] + [[0, 0.5, 0, 0.5, 0, 0]]
    assert np.isfinite(model.log_prob(x[:1], without / without.sum())).all()
    impossible = np.full((2, 6), 1 / 6)
    assert np.isneginf(model.log_prob(x[:2], impossible)).all()


@pytest.mark.parametrize("n", [2, 5, 40])
def test_few_rows(n):
    x, y = simulate(n, 3)
    model = CompositionalFlow(random_state=0).fit(x, y)
    assert np.isfinite(model.log_prob(x, y)).all()
    np.testing.assert_allclose(model.sample(x, 3, random_state=0).sum(axis=-1), 1)


def test_one_taxon_a_row():
    """Compositions that are all corners: the pattern is all there is."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = np.eye(2)[(rng.random(200) < expit(3 * x[:, 0])).astype(int)]
    model = CompositionalFlow(random_state=0).fit(x, y)
    at = np.array([[-1.0], [1.0]])
    corners = [np.exp(model.log_prob(at, np.tile(corner, (2, 1)))) for corner in np.eye(2)]
    inner = 1 - np.sum(corners, axis=0)
    assert (np.abs(inner) < 0.05).all()
    np.testing.assert_allclose(corners[1], expit(3 * at[:, 0]), atol=0.1)


def test_normalize():
    x, y = simulate(60, 4)
    counts = np.round(1e5 * y)
    with pytest.raises(ValueError, match=r"Row 0 of Y sums to .* normalize=True"):
        CompositionalFlow().fit(x, counts)
    by_counts = CompositionalFlow(normalize=True, random_state=0).fit(x, counts)
    by_shares = CompositionalFlow(random_state=0).fit(x, counts / counts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(by_counts.log_prob(x, counts), by_shares.log_prob(x, counts / counts.sum(1)[:, None]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: y - 0.3, "must not be negative"),
        (lambda y: y * 0, "Row 0 of Y is all zero"),
        (lambda y: y[:-1], "X has 60 rows and y has 59"),
        (lambda y: y[:, :1] * 0 + 1, "at least 2 taxa"),
        (lambda y: y * np.nan, "NaN"),
        (lambda y: y * 2, "sums to 2, not to 1"),
    ],
)
def test_bad_compositions(change, message):
    x, y = simulate(60, 5)
    with pytest.raises(ValueError, match=message):
        CompositionalFlow().fit(x, change(y))


def test_bad_calls(data, model):
    x, y = data
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(x, -1)
    with pytest.raises(ValueError, match="5 outcome"):
        model.log_prob(x, y[:, :4])
    with pytest.raises(ValueError, match="normalize"):
        CompositionalFlow(normalize="yes").fit(x, y)
    with pytest.raises(ValueError, match="groups of shape"):
        CompositionalFlow().fit(x, y, groups=[1, 2])


def test_groups_are_left_out_together():
    groups = np.repeat(np.arange(7), 5)
    fold = draw_folds(units_of_groups(groups, 35), 5, np.random.default_rng(0))
    assert len(np.unique(fold)) == 5
    assert all(len(np.unique(fold[groups == g])) == 1 for g in range(7))


def test_logistic_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 4))
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    label = rng.random(300) < expit(z[:, 0] - 0.5)
    _, slopes = logistic(z, label, np.full(4, 2.0), np.ones(300))
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(z, label)
    np.testing.assert_allclose(slopes, theirs.coef_[0], atol=1e-3)


def test_presence_is_a_distribution():
    rng = np.random.default_rng(0)
    effects = rng.normal(size=(100, 2))
    present = rng.random((100, 3)) < 0.6
    present[~present.any(axis=1), 0] = True
    chain = Presence.fit(effects, np.ones(2), present, np.arange(100) % 5, np.ones(100))
    patterns = np.array(list(product([False, True], repeat=3)))
    chance = np.exp(chain.log_prob(np.zeros((8, 2)), patterns))
    assert chance[0] == 0
    assert chance.sum() == pytest.approx(1)


def test_a_row_of_weight_two_is_the_row_twice():
    x, y = simulate(120, 6)
    weight = np.where(np.arange(120) < 40, 2.0, 1.0)
    twice = np.repeat(np.arange(120), weight.astype(int))
    weighted = CompositionalFlow(random_state=0).fit(x, y, sample_weight=weight)
    copies = CompositionalFlow(random_state=0).fit(x[twice], y[twice])
    np.testing.assert_allclose(copies.log_prob(x, y), weighted.log_prob(x, y), atol=1e-5)  # a search ends here or there


def test_knots_are_quantiles_of_rows_as_often_as_they_count():
    rng = np.random.default_rng(0)
    z, weight = rng.normal(size=50), rng.integers(1, 4, 50).astype(float)
    levels = (0.0, 0.1, 0.33, 0.5, 0.9, 1.0)
    np.testing.assert_allclose(counted_quantiles(z, levels, np.ones(50)), np.quantile(z, levels))
    np.testing.assert_allclose(
        counted_quantiles(z, levels, weight), np.quantile(np.repeat(z, weight.astype(int)), levels)
    )


def test_rows_without_weight_do_not_count():
    x, y = simulate(90, 7)
    other = np.where(np.arange(90)[:, None] < 60, y, y[:, ::-1])
    weight = np.where(np.arange(90) < 60, 1.0, 0.0)
    subject = np.arange(90) // 3
    fitted = [
        CompositionalFlow(random_state=0).fit(x, part, sample_weight=weight, subject=subject) for part in (y, other)
    ]
    np.testing.assert_array_equal(fitted[0].log_prob(x, y), fitted[1].log_prob(x, y))
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        CompositionalFlow().fit(x, y, sample_weight=-weight)


def test_logistic_with_weights_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    z, weight = rng.normal(size=(300, 3)), rng.uniform(0.2, 3, 300)
    mean = weight @ z / weight.sum()
    z = (z - mean) / np.sqrt(weight @ (z - mean) ** 2 / weight.sum())
    label = rng.random(300) < expit(z[:, 0] - 0.5)
    _, slopes = logistic(z, label, np.full(3, 2.0), weight)
    theirs = LogisticRegression(C=0.5, tol=1e-10).fit(z, label, sample_weight=weight)
    np.testing.assert_allclose(slopes, theirs.coef_[0], atol=1e-3)


def test_steady_taxa_come_first():
    rng = np.random.default_rng(0)
    steady, scarce = np.full(400, 1.0), np.full(400, 0.1)
    bloom = np.where(rng.random(400) < 0.2, 30.0, 0.01)
    y = np.column_stack([np.zeros(400), scarce, bloom, steady])
    y /= y.sum(axis=1, keepdims=True)
    assert y[:, 2].mean() > y[:, 1].mean()
    assert order_of_chain(y, np.ones(400)).tolist() == [3, 1, 2]
    weight = np.where(bloom > 1, 1.0, 0.0)  # rows that do not count are as if they were not there
    assert order_of_chain(y, weight).tolist() == [2, 3, 1]


def test_the_trend_of_richness_bends_where_all_taxa_do():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (400, 2))
    chance = 0.2 + 0.6 * np.maximum(x[:, :1], 0.0)
    present = rng.random((400, 60)) < chance
    effects = EffectsWithTrend.fit(x, np.ones(400), present)
    assert effects(x).shape == (400, effects.width) == (400, len(effects.ridge))
    assert np.corrcoef(effects(x)[:, -1], chance[:, 0])[0, 1] > 0.99
    np.testing.assert_array_equal(effects([[5.0, 0.0]]), effects([[x[:, 0].max(), 0.0]]))  # held beyond the range
    same = EffectsWithTrend.fit(x, np.ones(400), np.ones((400, 60), bool))
    assert (same.trend == 0).all()
