"""Boosted and network mixtures: modes that move, and all that a base must do."""

from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from treecdf import TreeFlowRegressor, load_model
from treecdf._common.steps import PLAIN_STEPS
from treecdf.bases.boosted_mixture import MixtureBoosting
from treecdf.bases.conditional import Conditional
from treecdf.bases.learners.boosting import BoostingSettings
from treecdf.bases.learners.network import Network
from treecdf.bases.looking import look_at_mixture
from treecdf.bases.mean import TrainingRows
from treecdf.bases.network_mixture import MixtureNetwork, _relevance
from treecdf.training import ensemble
from treecdf.training.defaults import default_network_mixture
from treecdf.training.ensemble import _Trainer, weigh_families

LEARNERS = {
    "mixture": MixtureBoosting((2, 4), BoostingSettings(3, 0.2, 60, min_rows=10)),
    "network": MixtureNetwork(3, (Network((16,), n_epochs=10**6, max_steps=300, batch=64, rate=2e-2),)),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


def branches(n, seed=0):
    """One covariate that matters, and two modes that cross."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, (n, 2))
    return x, np.where(rng.random(n) < 0.4, 2 * x[:, 0], -2 * x[:, 0]) + 0.2 * rng.normal(size=n)


def log_density(x, y):
    parts = [np.log(share) + stats.norm.logpdf(y, sign * 2 * x[:, 0], 0.2) for share, sign in ((0.4, 1), (0.6, -1))]
    return logsumexp(parts, axis=0)


X, Y = branches(400)
X_NEW, Y_NEW = branches(2000, 1)


@cache
def base_of(name, step=0.0):
    y = np.round(Y / step) * step if step else Y
    rows = TrainingRows(X, y, np.ones(len(y)), np.arange(len(y)) % 5)
    return Conditional.cross_fit(LEARNERS[name], rows, (None, None), np.random.default_rng(0))


@every_learner
def test_modes_that_cross_are_found(name):
    base, parameters = base_of(name)
    truth = log_density(X_NEW, Y_NEW).mean()
    found = base.to_box(Y_NEW[:, None, None], base.parameters(X_NEW))[1].mean()
    normal = stats.norm.logpdf(Y_NEW, 0, Y_NEW.std()).mean()
    assert truth - 0.35 < found < truth + 0.02
    assert found > normal + 0.5
    left_out = base.to_box(Y[:, None, None], parameters)[1].mean()
    assert left_out < log_density(X, Y).mean() + 0.02


@every_learner
def test_densities_integrate_to_one_and_quantiles_come_back(name):
    base, _ = base_of(name)
    parameters = base.parameters(X_NEW[:5])
    grid = np.linspace(-40, 40, 80_001)
    density = np.exp(base.to_box(np.tile(grid[:, None], (5, 1, 1)), parameters)[1])
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=1), 1.0, atol=1e-4)
    levels = np.tile(np.array([1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9])[:, None], (5, 1, 1))
    np.testing.assert_allclose(base.to_box(base.from_box(levels, parameters), parameters)[0], levels, rtol=1e-6)


@every_learner
def test_no_component_collapses_on_repeated_values(name):
    base, parameters = base_of(name, step=0.5)
    for found in (parameters, base.parameters(X_NEW)):
        scale = np.exp(np.split(found, 3, axis=1)[1]) * base.transform.scale
        assert scale.min() >= 0.4 * 0.5 * (1 - 1e-9)


def test_a_network_mixture_is_the_mean_of_its_networks():
    base, _ = base_of("network")
    scores = base.components.networks.outputs(X_NEW[:20])
    densities = []
    for log_scale, logits, location in (np.split(part, 3, axis=1) for part in scores):
        weights = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
        scale = np.exp(np.maximum(log_scale + base.components.shift, base.floor))
        g = base.transform.forward(Y_NEW[:20])[0]
        standard = stats.norm if base.tail == 5 else stats.t([1, 2, 3, 5, 10][base.tail])
        densities.append((weights * standard.pdf((g[:, None] - location) / scale) / scale).sum(axis=1))
    found = base.to_box(Y_NEW[:20, None, None], base.parameters(X_NEW[:20]))[1][:, 0]
    g, log_slope = base.transform.forward(Y_NEW[:20])
    share = np.exp(base.log_broad)
    broad = stats.t(5).pdf(g / 2) / 2
    np.testing.assert_allclose(np.exp(found - log_slope), (1 - share) * np.mean(densities, axis=0) + share * broad)


@pytest.mark.parametrize("name", ["mixture", "network"])
@pytest.mark.parametrize("n_jobs", [2])
def test_models_do_not_depend_on_the_threads_and_come_back_from_files(name, n_jobs, tmp_path):
    x = pd.DataFrame(
        {"a": X[:, 0], "gaps": np.where(X[:, 1] > 1, np.nan, X[:, 1]), "c": np.where(X[:, 1] > 0, "u", "v")}
    )
    settings = {"base": name, "effort": "fast", "max_trees": 3, "bounds": (-6, None), "random_state": 0}
    weight = np.random.default_rng(0).uniform(1, 2, len(Y))
    model = TreeFlowRegressor(**settings).fit(x, Y, sample_weight=weight)
    other = TreeFlowRegressor(**settings, n_jobs=n_jobs).fit(x, Y, sample_weight=weight)
    expected = model.log_prob(x, Y)
    assert np.array_equal(other.log_prob(x, Y), expected)
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").log_prob(x, Y), expected)
    assert (model.sample(x, 20, random_state=0) >= -6).all()
    assert f"{'boosted' if name == 'mixture' else 'network'} mixture: " in model.summary()


def test_a_mixture_joins_where_it_helps_and_is_given_up_elsewhere():
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(X, Y)
    assert "flow" not in [family.name for family in model.families_]
    line = X[:, 0] + 0.3 * np.random.default_rng(0).normal(size=len(X))
    plain = TreeFlowRegressor(effort="fast", random_state=0).fit(X, line)
    assert [family.name for family in plain.families_] == ["flow"]


@pytest.mark.parametrize(("n", "looked_at"), [(900, []), (1000, [MixtureNetwork])])
def test_networks_are_looked_at_on_many_rows_though_the_boosted_mixture_is_far_behind(n, looked_at, monkeypatch):
    found, usual = [], ensemble.look_at_mixture

    def look(learner, table, fold):
        found.append(type(learner))
        decided, value, seen = usual(learner, table, fold)
        return decided, value - (9.0 if isinstance(learner, MixtureBoosting) else 0.0), seen

    monkeypatch.setattr(ensemble, "look_at_mixture", look)
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(n, 5))
    y = np.sin(4 * x[:, 0] * x[:, 1]) + np.cos(3 * x[:, 2] + 2 * x[:, 3] * x[:, 4]) + 0.05 * rng.normal(size=n)
    TreeFlowRegressor(effort="fast", random_state=0).fit(x, y)
    assert found == [MixtureBoosting, *looked_at]


def test_a_fast_look_is_shorter_than_the_training():
    learner = default_network_mixture(1000, 1, "fast")
    steps = []

    class Watched(Network):
        def train(self, *args):
            steps.append(self.max_steps)
            return super().train(*args)

    watched = Watched(**{field.name: getattr(learner.networks[0], field.name) for field in fields(Network)})
    rows = TrainingRows(X, Y, np.ones(len(Y)), np.arange(len(Y)) % 3)
    replace(learner, networks=(watched,)).look(rows, -7.0, np.random.default_rng(0))
    assert steps == [learner.networks[0].max_steps // 3]
    assert learner.networks[0].max_steps < default_network_mixture(1000, 1, "default").networks[0].max_steps


@every_learner
def test_the_look_is_in_the_unit_of_the_outcome(name):
    class Rows:
        cells = None
        x, y, weight = X, Y[:, None], np.ones(len(Y))

    class Huge(Rows):
        y = 1000 * Y[:, None]

    fold = np.arange(len(Y)) % 5
    (_, small, seen), (_, huge, _) = (look_at_mixture(LEARNERS[name], rows, fold) for rows in (Rows, Huge))
    assert small == pytest.approx(huge + np.log(1000), abs=1e-3)
    truth = log_density(X, Y)[seen].mean()
    assert truth - 0.8 < small < truth + 0.1


def test_a_look_decides_the_number_of_components_and_its_learner_looks_no_more(monkeypatch):
    rows = TrainingRows(X, Y, np.ones(len(Y)), np.arange(len(Y)) % 5)
    decided, _, _ = LEARNERS["mixture"].look(rows, -7.0, np.random.default_rng(0))
    monkeypatch.delattr(MixtureBoosting, "look")
    learnt = decided.cross_fit(rows, 0.0, -7.0, np.random.default_rng(0), PLAIN_STEPS)
    assert (learnt.model.n_components,) == decided.counts
    with pytest.raises(AttributeError):
        LEARNERS["mixture"].cross_fit(rows, 0.0, -7.0, np.random.default_rng(0), PLAIN_STEPS)


def test_left_out_rows_choose_how_networks_are_trained():
    """Curves that wind need networks that begin with sharp bends; the other way of training is not kept for them."""
    sharp = Network((32,), n_epochs=10**6, max_steps=400, batch=64, rate=2e-2, decay=0.0, sharpness=4.0)
    dull = replace(sharp, max_steps=1)
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (400, 1))
    y = np.sin(8 * x[:, 0]) + 0.1 * rng.normal(size=400)
    rows = TrainingRows(x, y, np.ones(400), np.arange(400) % 3)
    for ways in ((dull, sharp), (sharp, dull)):
        learnt = MixtureNetwork(2, ways).cross_fit(rows, 0.0, -7.0, np.random.default_rng(0), PLAIN_STEPS)
        log_scale, _, location = np.split(learnt.left_out, 3, axis=1)
        assert np.abs(location - y[:, None]).min(axis=1).mean() < 0.3  # trained for one step: 0.37
        assert log_scale.min(axis=1).mean() < -1.5  # -1.25


def test_a_look_at_networks_leaves_out_whole_folds():
    rows = TrainingRows(X, Y, np.ones(len(Y)), np.arange(len(Y)) % 5)
    _, _, seen = LEARNERS["network"].look(rows, -7.0, np.random.default_rng(0))
    assert np.array_equal(seen, np.flatnonzero(rows.fold < 2))


def test_networks_find_the_one_covariate_of_many_that_matters():
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=(len(X), 12)), X[:, 0]])
    rows = TrainingRows(x, Y, np.ones(len(Y)), np.arange(len(Y)) % 5)
    relevance = _relevance(rows, -7.0, np.random.default_rng(0))
    assert relevance.shape == (5, 13)
    assert (relevance[:, 12] == 1).all()
    assert relevance[:, :12].max() < 0.3
    assert relevance.min() > 0


@pytest.mark.parametrize(
    ("learner", "flow", "mixture", "is_worth"),
    [
        ("mixture", 0.0, None, True),
        ("mixture", 2.0, None, False),  # far behind the flow
        ("network", 0.0, 0.1, True),
        ("network", 0.0, -0.1, True),  # trees may see less than networks do
        ("network", 0.0, -0.3, False),  # not worth a look
        ("network", 2.0, 2.1, False),  # the look is far behind
        ("network", 0.0, None, False),  # the boosted mixture was given up, or is not there
    ],
)
def test_which_mixtures_are_worth_training(learner, flow, mixture, is_worth):
    """Levels are log densities of left-out rows above those of a normal distribution of the outcomes."""
    level = stats.norm.logpdf(Y, Y.mean(), Y.std())
    parts = {
        name: SimpleNamespace(left_out=level + value)
        for name, value in (("flow", flow), ("mixture", mixture))
        if value is not None
    }
    table = SimpleNamespace(x=X, y=Y[:, None], weight=np.ones(len(Y)), cells=None)
    trainer = _Trainer(None, table, None, None, None)
    found = trainer._worth_training(LEARNERS[learner], table, np.arange(len(Y)) % 5, parts)
    assert (found is not None) == is_worth


@pytest.mark.parametrize(("cells", "behind", "is_worth"), [(None, 0.02, True), (1, 0.02, False), (1, -0.01, True)])
def test_networks_of_few_values_must_not_be_behind_at_the_look(cells, behind, is_worth, monkeypatch):
    seen = np.arange(len(Y))
    monkeypatch.setattr(ensemble, "look_at_mixture", lambda learner, *_: (learner, 1.0 - behind, seen))
    parts = {"flow": SimpleNamespace(left_out=np.ones(len(Y)))}
    table = SimpleNamespace(x=X, y=Y[:, None], weight=np.ones(len(Y)), cells=cells)
    trainer = _Trainer(None, table, None, None, None)
    parts["mixture"] = parts["flow"]
    found = trainer._worth_training(LEARNERS["network"], table, np.arange(len(Y)) % 5, parts)
    assert (found is not None) == is_worth


def test_links_of_a_chain_have_the_bases_that_suit_them():
    y = np.column_stack([Y, 0.5 * Y + 0.1 * np.random.default_rng(2).normal(size=len(Y))])
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(X, y)
    chain = model.families_[0].members[0]
    kinds = [{type(flow.base.components).__name__ for flow in link.tree_flows()} for link in chain.links]
    assert kinds[0] & {"BoostedMixture", "NetworkMixture"}  # modes that cross
    assert "Stacked" in kinds[1]  # one mode, given the other outcome
    assert np.isfinite(model.log_prob(X, y)).all()


def test_families_of_no_use_are_dropped():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=500), np.ones(500)
    good, poor, unknown = stats.norm.logpdf(y), stats.norm.logpdf(y, 3), np.full(500, np.nan)
    kept, weights = weigh_families(np.column_stack([poor, good]), weight)
    assert (kept, weights.tolist()) == ([1], [1.0])
    kept, weights = weigh_families(np.column_stack([good, good]), weight)
    assert (kept, weights.tolist()) == ([0], [1.0])  # of two that say the same, the first
    kept, _ = weigh_families(np.column_stack([good, good + 0.004]), weight)
    assert kept == [0]  # the first is simpler, and the other adds two nats to all rows together
    assert weigh_families(np.column_stack([good, good + 0.02]), weight)[0] == [1]
    assert weigh_families(np.column_stack([unknown, unknown]), weight)[0] == [0, 1]
    two = np.where(y > 0, 1.0, -5.0)
    kept, weights = weigh_families(np.column_stack([two, -two, good - 9]), weight)
    assert kept == [0, 1]
    assert weights.sum() == pytest.approx(1.0)
