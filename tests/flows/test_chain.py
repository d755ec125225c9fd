"""Chains of one-outcome flows, mixtures of one outcome, and the families that are weighed against one another."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.linear_model import LinearRegression, Ridge

import treecdf.training.ensemble
from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf.bases.learners import Polynomial
from treecdf.data.table import Table
from treecdf.flows.chain import Chain
from treecdf.flows.mixture import Mixture
from treecdf.training.ensemble import fit_ensemble
from treecdf.training.jobs import Workers
from treecdf.training.parameters import read_settings
from treecdf.training.plan import make_plan

LEARNERS = [Polynomial(1), Polynomial(2)]


def table(seed, n, d):
    """One covariate; every outcome leans on x and on those before it, each in its own way."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    first = np.sin(x[:, 0]) + 0.5 * rng.normal(size=n)
    second = 100 + 20 * first + 5 * x[:, 0] + (rng.gamma(1.0, size=n) - 1) * 4
    third = -3 * first + 0.05 * (second - 100) + 0.2 * rng.normal(size=n)
    return x, np.column_stack([first, second, third])[:, :d]


N = 250
TABLES = {d: table(0, N, d) for d in (2, 3)}
NEW = {d: table(1, 60, d) for d in (2, 3)}
ORDERS = [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)]
every_order = pytest.mark.parametrize("order", ORDERS, ids=str)


def small(**settings):
    stages = [Stage(BoostedTrees(rounds=1, max_depth=2), 3)]
    model = {"stages": stages, "c0": 0.3, "max_trees": 10, "effort": "fast", "random_state": 0, "base": LEARNERS}
    return TreeFlowRegressor(**{**model, **settings})


@cache
def chain_of(order):
    """The family of one order."""
    d = len(order)
    x, y = TABLES[d]
    plan = replace(make_plan(read_settings(small().get_params(deep=False)), N, 1, [(None, None)] * d), orders=[order])
    rows = Table(x, y, np.ones(N), np.arange(N), np.arange(N, dtype=np.uint64))
    ensemble = fit_ensemble(plan, rows, None, np.random.default_rng(0), Workers())
    (family,) = ensemble.families
    (chain,) = family.members
    assert isinstance(chain, Chain)
    return chain, family


def by_hand(chain, x, y, is_sorted=True):
    """Conditional CDFs (n, d) and log densities (n,), link by link; links were given outcomes in column order."""
    u, total = np.empty_like(y), np.zeros(len(x))
    for k, (outcome, link) in enumerate(zip(chain.order, chain.links, strict=True)):
        given = sorted(chain.order[:k], reverse=not is_sorted)
        covariates = np.column_stack([x, *(y[:, j] for j in given)])
        parts = [flow.forward_and_log_det(y[:, None, [outcome]], covariates) for flow in link.members]
        u[:, outcome] = np.mean([cdf[:, 0, 0] for cdf, _ in parts], axis=0)
        total += logsumexp([log_det[:, 0] for _, log_det in parts], axis=0) - np.log(len(parts))
    return u, total


@every_order
def test_the_log_density_is_the_sum_over_the_links(order):
    chain, _ = chain_of(order)
    x, y = NEW[len(order)]
    u, log_det = chain.forward_and_log_det(y[:, None], x)
    expected_u, expected = by_hand(chain, x, y)
    np.testing.assert_allclose(log_det[:, 0], expected, rtol=1e-9)
    np.testing.assert_allclose(u[:, 0], expected_u, rtol=1e-9)
    if len(order) == 3:  # the order of the given outcomes matters
        assert np.abs(by_hand(chain, x, y, is_sorted=False)[1] - expected).max() > 1


@every_order
def test_links_are_trained_and_served_with_the_same_covariates(order):
    """A mix-up would leave new rows far behind the rows left out of training."""
    chain, family = chain_of(order)
    x, y = table(2, 1000, len(order))
    new = chain.forward_and_log_det(y[:, None], x)[1][:, 0]
    seen = family.left_out
    error = np.hypot(new.std() / np.sqrt(len(new)), seen.std() / np.sqrt(len(seen)))
    assert abs(new.mean() - seen.mean()) < 4 * error
    assert family.name == "chain " + " ".join(map(str, order))


@every_order
def test_chains_come_back(order):
    chain, _ = chain_of(order)
    d = len(order)
    x, y = NEW[d]
    points = np.stack([y, y + 0.3 * y.std(axis=0), y - y.std(axis=0)], axis=1)
    u, _ = chain.forward_and_log_det(points, x)
    assert ((u > 0) & (u < 1)).all()
    np.testing.assert_allclose(chain.inverse(u, x), points, rtol=1e-7, atol=1e-7)
    levels = np.random.default_rng(0).random((60, 4, d))
    np.testing.assert_allclose(chain.forward_and_log_det(chain.inverse(levels, x), x)[0], levels, rtol=1e-7)


@every_order
def test_points_of_a_row_do_not_touch_one_another(order):
    chain, _ = chain_of(order)
    x, y = NEW[len(order)]
    together = chain.forward_and_log_det(np.tile(y[:5], (60, 1, 1)), x)
    for k in range(5):
        alone = chain.forward_and_log_det(np.tile(y[k], (60, 1, 1)), x)
        np.testing.assert_allclose(together[0][:, [k]], alone[0], rtol=1e-10)
        np.testing.assert_allclose(together[1][:, [k]], alone[1], rtol=1e-10)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_the_density_of_two_outcomes_integrates_to_one(order):
    chain, _ = chain_of(order)
    x = np.array([[0.3], [-1.0]])
    _, y = TABLES[2]
    center, half = np.median(y, axis=0), 8 * y.std(axis=0)
    nodes = (np.arange(240) + 0.5) / 120 - 1
    warped = nodes**3  # dense in the middle
    grid = np.stack(np.meshgrid(*(center[j] + half[j] * warped for j in (0, 1)), indexing="ij"), axis=-1)
    weight = np.outer(*(half[j] * 3 * nodes**2 / 120 for j in (0, 1))).ravel()
    density = np.exp(chain.forward_and_log_det(np.tile(grid.reshape(-1, 2), (2, 1, 1)), x)[1])
    np.testing.assert_allclose(density @ weight, 1.0, atol=0.02)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 1, 0), (1, 2, 0)], ids=str)
def test_draws_agree_with_the_density(order):
    """Their images in the cube are independent uniforms."""
    chain, _ = chain_of(order)
    d, m = len(order), 2000
    x = NEW[d][0][:3]
    draws = chain.draw(np.random.default_rng(1).random((3, m, d)), x)
    images = chain.forward_and_log_det(draws, x)[0]
    for row in images:
        for column in row.T:
            assert stats.kstest(column, "uniform").pvalue > 1e-5
        counts = np.histogramdd(row, bins=[4] * d, range=[(0, 1)] * d)[0]
        assert stats.chisquare(counts.ravel()).pvalue > 1e-5
    assert max(len(link.members) for link in chain.links) > 1  # else draws are the inverse


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 1, 0), (1, 2, 0)], ids=str)
def test_draws_of_a_row_are_those_that_each_point_gives_alone(order):
    """They are made in the order of the first outcome, side by side; nothing of that is seen."""
    chain, _ = chain_of(order)
    d, m = len(order), 70
    x = NEW[d][0][:5].copy()
    x[1] = np.nan
    u = np.random.default_rng(1).random((5, m, d))
    alone = np.stack([chain.draw(u[:, [k]], x)[:, 0] for k in range(m)], axis=1)
    np.testing.assert_allclose(chain.draw(u, x), alone, rtol=1e-9, atol=1e-9)


def test_far_and_infinite_outcomes_are_harmless():
    chain, _ = chain_of((2, 1, 0))
    x = NEW[3][0][:1]
    y = np.array([[[1e300, -1e300, 1e300], [np.inf, 0.0, 0.0], [0.0, -np.inf, 0.0], [0.0, 0.0, np.inf]]])
    u, log_det = chain.forward_and_log_det(y, x)
    assert np.isfinite(log_det[0, 0])
    assert (log_det[0, 1:] == -np.inf).all()
    assert ((u >= 0) & (u <= 1)).all()


# Whole models


@cache
def chain_model():
    return small(structure="chain").fit(*TABLES[2])


def test_the_image_of_a_single_chain_is_its_pit():
    model = chain_model()
    x, y = NEW[2]
    expected, log_density = by_hand(model.mixture_.members[0], x, y)
    distribution = model.predict_distribution(x)
    np.testing.assert_allclose(distribution.pit(y), expected, rtol=1e-9)
    np.testing.assert_allclose(model.log_prob(x, y), log_density, rtol=1e-9)


def test_draws_and_moments_of_a_model_are_those_of_its_chain():
    model = chain_model()
    distribution = model.predict_distribution(NEW[2][0][:4])
    draws = distribution.sample(4000, random_state=0)
    assert draws.shape == (4, 4000, 2)
    spread = draws.std(axis=1)
    assert (np.abs(distribution.mean() - draws.mean(axis=1)) < 6 * spread / np.sqrt(4000) + 0.03 * spread).all()
    np.testing.assert_allclose(distribution.std(), spread, rtol=0.25)
    marginal = distribution.marginal(0)
    first = Mixture(model.mixture_.members[0].links[0].members, model.mixture_.members[0].links[0].log_weights)
    levels = first.forward_and_log_det(marginal.median()[:, None, None], NEW[2][0][:4])[0]
    np.testing.assert_allclose(levels[:, 0, 0], 0.5, atol=0.02)


@cache
def best_model(d):
    with pytest.MonkeyPatch.context() as patch:  # so few rows would not pay for several families
        patch.setattr(treecdf.training.ensemble, "_WORTH_A_FAMILY_IN_ALL", 0.0)
        patch.setattr(treecdf.training.ensemble, "_SURE", 0.0)
        return small(structure="chain", effort="best", max_trees=4, base=LEARNERS).fit(*TABLES[d])


@pytest.mark.parametrize("d", [2, 3])
def test_families_of_several_orders_are_one_mixture(d):
    model = best_model(d)
    names = [family.name for family in model.families_]
    assert len(set(names)) == len(names) > 1
    assert {"chain 0 1", "chain 1 0"} >= set(names) if d == 2 else all(len(name) == 11 for name in names)
    assert model.family_weights_.sum() == pytest.approx(1.0)
    assert (model.family_weights_ >= 1e-3).all()
    x, y = NEW[d]
    parts = [by_hand(family.members[0], x, y)[1] for family in model.families_]
    expected = logsumexp(np.array(parts) + np.log(model.family_weights_)[:, None], axis=0)
    np.testing.assert_allclose(model.log_prob(x, y), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="pit is for a single flow"):
        model.predict_distribution(x).pit(y)


@pytest.mark.parametrize("d", [2, 3])
def test_weights_of_families_are_the_most_likely_of_left_out_rows(d):
    model = best_model(d)
    left_out = np.column_stack([family.left_out for family in model.families_])

    def likelihood(weights):
        return logsumexp(left_out, b=weights, axis=1).sum()

    best = likelihood(model.family_weights_)
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = rng.dirichlet(np.ones(len(model.families_)))
        assert likelihood(other) < best + 3  # a weak prior counts as a row of each family
    assert np.isfinite(left_out).all()


def test_orders_share_the_links_they_have_in_common():
    model = best_model(3)
    links = {
        (outcome, tuple(sorted(family.members[0].order[:k])), id(link.members[0]))
        for family in model.families_
        for k, (outcome, link) in enumerate(zip(family.members[0].order, family.members[0].links, strict=True))
    }
    assert len(links) == len({key[:2] for key in links})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "chain", "base": "box"}, "structure='chain' has a conditional base"),
        ({"structure": "chain", "base": "student"}, "structure='chain' has a conditional base"),
        ({"structure": "chain", "rotations": 2}, "structure='chain' has a conditional base and no rotations"),
        ({"structure": "joint", "base": Ridge()}, "structure='joint' has no conditional base"),
        ({"structure": "joint", "base": [Ridge()]}, "structure='joint' has no conditional base"),
        ({"structure": "joint", "base": "conditional"}, "structure='joint' has no conditional base"),
        ({"rotations": 2, "base": Ridge()}, "rotations are for joint flows, a regressor is for one outcome"),
        ({"structure": "tree"}, "structure"),
        ({"base": Ridge}, "base"),
        ({"base": []}, "base"),
        ({"base": "cube"}, "base"),
        ({"effort": "most"}, "effort"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**{"base": "auto", **settings}).fit(*TABLES[2])


def test_with_one_outcome_structures_do_not_matter():
    x, y = TABLES[2]
    found = [small(structure=how).fit(x, y[:, 0]).log_prob(x, y[:, 0]) for how in ("chain", "joint", "auto")]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("n", [30, 100])
def test_a_chain_is_a_chain_however_few_rows_there_are(n):
    x, y = TABLES[2]
    model = small(structure="chain", base="auto").fit(x[:n], y[:n])
    assert [family.name for family in model.families_] == ["chain 0 1"]


def test_validation_rows_stop_and_weigh_the_links():
    x_val, y_val = table(3, 80, 2)
    model = small(effort="best", structure="chain", max_trees=4).fit(*TABLES[2], X_val=x_val, y_val=y_val)
    for family in model.families_:
        assert all(len(link.members) == 1 for link in family.members[0].links)
        np.testing.assert_allclose(family.left_out, by_hand(family.members[0], x_val, y_val)[1], rtol=1e-8)


def test_bounds_of_an_outcome_are_kept_in_its_link():
    x, y = TABLES[2]
    y = np.column_stack([y[:, 0], np.maximum(y[:, 1], 80.0)])
    with pytest.warns(UserWarning, match="stage 0 of the family 'chain 0 1' ended"):  # many outcomes are 80 exactly
        model = small(structure="chain", bounds=[(None, None), (80.0, None)]).fit(x, y)
    assert (model.sample(x[:20], 200, random_state=0)[..., 1] >= 80).all()
    outside = np.column_stack([y[:20, 0], np.full(20, 79.9)])
    assert (model.log_prob(x[:20], outside) == -np.inf).all()
    assert np.isfinite(model.log_prob(x, y)).all()


def test_the_number_of_jobs_does_not_change_the_model():
    x, y = TABLES[3]
    first, second = (
        small(structure="chain", n_jobs=n_jobs, base=LinearRegression()).fit(x, y).log_prob(*NEW[3])
        for n_jobs in (1, 2)
    )
    assert np.array_equal(first, second)


# Mixtures of one outcome


class Unaware:
    knows_rows = False

    def learn_conditions(self, x, known):
        """There is nothing to learn."""

    def novelty(self, x):
        return None


@dataclass(frozen=True)
class NormalFlow(Unaware):
    """Normals, the first outcome moved by the first covariate."""

    mean: float
    scale: float
    n_outcomes: int = 1

    def _law(self, x):
        return stats.norm(self.mean + x[:, :1, None] * (np.arange(self.n_outcomes) == 0), self.scale)

    def forward_and_log_det(self, y, x, known=None):
        law = self._law(x)
        return law.cdf(y), law.logpdf(y).sum(axis=-1)

    def inverse(self, u, x, known=None):
        return self._law(x).ppf(u)

    draw = inverse


@dataclass(frozen=True)
class Halves(Unaware):
    """Two regions: where the first covariate is negative, and where it is not."""

    n_regions: int = 2

    def __call__(self, x):
        return (x[:, 0] >= 0).astype(int)


AT = np.array([[-0.5], [0.0], [0.7]])
SHARES = np.array([0.2, 0.5, 0.3])


@pytest.mark.parametrize("d", [1, 2])
def test_the_first_uniform_picks_the_member_and_is_used_up_to_its_end(d):
    members = tuple(NormalFlow(mean, 1.0, d) for mean in (0.0, 100.0, 200.0))
    mixture = Mixture(members, np.log(SHARES)[None])
    u = np.random.default_rng(0).random((3, 500, d))
    u[:, :4, 0] = [0.0, 0.2 - 1e-15, 0.2 + 1e-15, 1 - 1e-16]
    y = mixture.draw(u, AT)
    begin = np.array([0.0, 0.2, 0.7])
    number = (u[..., 0] > 0.2).astype(int) + (u[..., 0] > 0.7)
    for j in range(3):
        own = u.copy()
        own[..., 0] = (u[..., 0] - begin[j]) / SHARES[j]
        here = number == j
        here[:, :4] = False  # at the very ends every digit of u counts
        expected = members[j].inverse(np.clip(own, 0.0, 1.0), AT)
        np.testing.assert_allclose(y[here], expected[here], rtol=1e-9)
    assert (np.round(y[:, 1:3, 0] / 100) == [0, 1]).all()


def test_members_are_drawn_by_their_weights_in_the_region_of_the_row():
    members = tuple(NormalFlow(mean, 0.1) for mean in (0.0, 10.0))
    weights = np.array([[0.1, 0.9], [0.6, 0.4], [0.5, 0.5]])
    mixture = Mixture(members, np.log(weights), Halves())
    y = mixture.draw(np.random.default_rng(0).random((3, 20_000, 1)), AT)[..., 0]
    np.testing.assert_allclose((y > 5).mean(axis=1), [0.9, 0.4, 0.4], atol=0.015)
    assert stats.kstest(y[2][y[2] < 5], stats.norm(0.7, 0.1).cdf).pvalue > 1e-4
    u = mixture.forward_and_log_det(y[..., None], AT)[0]
    for row in u[..., 0]:
        assert stats.kstest(row, "uniform").pvalue > 1e-4


def test_a_member_without_weight_is_never_drawn():
    with np.errstate(divide="ignore"):
        mixture = Mixture((NormalFlow(0.0, 1.0), NormalFlow(1e6, 1.0)), np.log([[1.0, 0.0]]))
    u = np.linspace(0.001, 0.999, 200)[None, :, None].repeat(3, axis=0)
    assert (mixture.draw(u, AT) < 100).all()
    np.testing.assert_allclose(mixture.inverse(u, AT), NormalFlow(0.0, 1.0).inverse(u, AT), atol=1e-12)


PAIRS = {
    "far apart": (NormalFlow(-50.0, 0.1), NormalFlow(50.0, 0.1)),
    "very far apart": (NormalFlow(0.0, 1e-6), NormalFlow(1e9, 1.0)),
    "of different scales": (NormalFlow(0.0, 1e-4), NormalFlow(0.0, 1e4)),
    "alike": (NormalFlow(1.0, 2.0), NormalFlow(1.1, 2.0)),
    "equal": (NormalFlow(1.0, 2.0), NormalFlow(1.0, 2.0)),
}
LEVELS = np.array([1e-12, 1e-6, 1e-3, 0.1, 0.2999, 0.3001, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-12])


@pytest.mark.parametrize("name", PAIRS)
def test_the_inverse_of_a_mixture_is_exact(name):
    """To rounding: of the level, or of the outcome."""
    mixture = Mixture(PAIRS[name], np.log([[0.3, 0.7]]))
    u = np.tile(LEVELS[:, None], (3, 1, 1))
    y = mixture.inverse(u, AT)
    found, log_density = mixture.forward_and_log_det(y, AT)
    rounding = 4e-16 + 4 * np.exp(log_density)[..., None] * np.spacing(np.abs(y))
    assert (np.abs(found - u) <= rounding).all()
    assert (np.diff(y, axis=1) > 0).all()
    if name == "equal":
        np.testing.assert_allclose(y, PAIRS[name][0].inverse(u, AT), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", PAIRS)
def test_levels_zero_and_one_are_the_ends(name):
    mixture = Mixture(PAIRS[name], np.log([[0.3, 0.7]]))
    y = mixture.inverse(np.tile([[0.0], [1.0]], (3, 1, 1)), AT)[..., 0]
    assert (y == [-np.inf, np.inf]).all()


def test_levels_of_one_are_met_where_rounded_weights_fall_short_of_one():
    members = PAIRS["far apart"] * 5
    mixture = Mixture(members, np.full((1, len(members)), -np.log(len(members))))
    assert np.exp(mixture.log_weights).cumsum()[-1] < 1
    y = mixture.inverse(np.tile([[0.0], [0.4], [1.0]], (3, 1, 1)), AT)[..., 0]
    assert (y[:, [0, 2]] == [-np.inf, np.inf]).all()
    assert np.isfinite(y[:, 1]).all()


def test_a_level_between_the_modes_lands_between_them():
    mixture = Mixture(PAIRS["far apart"], np.log([[0.3, 0.7]]))
    y = mixture.inverse(np.full((3, 1, 1), 0.3), AT)[..., 0]
    assert ((y > -50) & (y < 50)).all()


# What "auto" finds


def two_modes(seed, n):
    """One outcome on one of two branches; no mean describes it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    return x, rng.choice([-1.0, 1.0], n) * (1.5 + x[:, 0]) + 0.2 * rng.normal(size=n)


@cache
def bimodal(**settings):
    return TreeFlowRegressor(random_state=0, c0=0.2, **settings).fit(*two_modes(0, 400))


def test_two_modes_give_weight_to_families_that_see_shapes():
    model = bimodal()
    weights = dict(zip([family.name for family in model.families_], model.family_weights_, strict=True))
    assert sum(weights[name] for name in weights.keys() & {"mixture", "network"}) > 0.5
    assert sum(weights.values()) == pytest.approx(1.0)
    x, y = two_modes(1, 500)
    alone = TreeFlowRegressor(base="conditional", c0=0.2, random_state=0).fit(*two_modes(0, 400))
    assert model.score(x, y) > alone.score(x, y) + 0.03
    middle = model.predict_distribution([[0.0]]).pdf([[-1.5, 0.0, 1.5]])[0]
    assert middle[1] < 0.3 * min(middle[0], middle[2])


@pytest.mark.parametrize("weights", ["stacked", "likelihood"])
def test_families_mix_whatever_the_weights_inside_them(weights):
    """Members of joint flows are then weighed region by region, those on a conditional base are not."""
    model = bimodal(weights=weights, max_trees=20)
    assert np.isfinite(model.score(*two_modes(1, 100)))
    distribution = model.predict_distribution(two_modes(1, 100)[0])
    np.testing.assert_allclose(distribution.weights.sum(axis=1), 1.0)


def test_joint_and_chained_flows_are_weighed_together(monkeypatch):
    """A ring of points that come twice: neither outcome has a mean worth knowing."""
    monkeypatch.setattr(treecdf.training.ensemble, "_WORTH_A_FAMILY_IN_ALL", 0.0)
    monkeypatch.setattr(treecdf.training.ensemble, "_SURE", 0.0)
    monkeypatch.setattr(treecdf.training.ensemble, "_HOPELESS", np.inf)
    rng = np.random.default_rng(0)
    x, angle = rng.uniform(-1, 1, (200, 1)), rng.uniform(0, 2 * np.pi, 200)
    y = np.column_stack([np.cos(angle), np.sin(angle)]) * (2 + x) + 0.1 * rng.normal(size=(200, 2))
    y = np.repeat(y[::2], 2, axis=0)
    model = TreeFlowRegressor(random_state=0, c0=0.3, max_trees=15).fit(x, y)
    assert model.family_weights_.sum() == pytest.approx(1.0)
    names = {family.name for family in model.families_}
    assert names <= {"chain 0 1", "repeats"}
    assert "repeats" in names
    flat = [member.forward_and_log_det(y[:, None], x)[1][:, 0] for member in model.mixture_.members]
    expected = logsumexp(np.array(flat) + model.mixture_.log_weights[-1][:, None], axis=0)
    np.testing.assert_allclose(model.log_prob(x, y), expected, rtol=1e-9)


def joint_families(settings):
    """The joint families of two outcomes that come in the same combinations."""
    read = read_settings(TreeFlowRegressor(**settings).get_params(deep=False))
    return make_plan(read, N, 1, [(None, None)] * 2, has_repeats=True).joint


def test_own_stages_or_a_named_structure_leave_joint_families_out():
    for settings in ({"stages": [Stage(Logistic(), 2)]}, {"structure": "chain"}, {"effort": "fast"}):
        assert not joint_families(settings)
    assert joint_families({})
