"""Which bases a contest on few rows finds worth training."""

import numpy as np
import pytest

import treecdf.training.ensemble as ensemble
from treecdf import TreeFlowRegressor
from treecdf.bases import conditional
from treecdf.estimators.fitting import fit_table
from treecdf.persist.checkpoint import NoCheckpoint
from treecdf.training.contest import Contest, chosen
from treecdf.training.parameters import read_settings
from treecdf.training.plan import OfLargeTable


@pytest.mark.parametrize(
    ("flow", "mixture", "network", "all_of_use", "best"),
    [
        (0.0, -1.0, -1.0, ["flow"], ["flow"]),
        (0.0, -0.02, -0.01, ["flow", "network", "mixture"], ["network"]),
        (0.0, 0.004, -0.1, ["flow", "mixture"], ["mixture"]),
        (0.0, 0.006, -0.02, ["mixture", "network"], ["mixture"]),
        (0.0, 0.1, 0.2, ["network"], ["network"]),
        (0.0, 0.16, 0.2, ["network", "mixture"], ["network"]),
    ],
)
def test_kinds_that_are_about_as_good_as_the_best_are_trained(flow, mixture, network, all_of_use, best):
    scores = {"flow": flow, "mixture": mixture, "network": network}
    assert chosen(scores, only_best=False) == all_of_use
    assert chosen(scores, only_best=True) == best


def fit_sample(x, y, groups=None):
    """A fast model of rows that are a sample of a large table."""
    model = TreeFlowRegressor(effort="fast", random_state=0)
    known = OfLargeTable(near_rows_tell=False)
    given = read_settings(model.get_params(deep=False))
    state = fit_table(given, (x, y, None, groups), None, NoCheckpoint(), sample=known)
    vars(model).update(state.attributes)
    return model


def two_modes(n):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    return x, np.where(rng.random(n) < 0.5, 2.0, -2.0) + 0.3 * x[:, 0] + 0.2 * rng.normal(size=n)


def test_two_modes_are_left_to_a_mixture():
    x, y = two_modes(1500)
    model = fit_sample(x, y)
    (family,) = model.families_
    assert "stack of regressors" not in model.summary()
    assert model.score(*two_modes(300)) > -1.1  # a normal around the mean would have -2.1
    assert family.left_out.shape == (1500,)


@pytest.mark.parametrize("winners", [["flow"], ["network"], ["mixture", "network"], ["flow", "mixture"]])
def test_what_wins_is_trained_and_nothing_else(monkeypatch, winners):
    trained = []

    def fit(recipe, learner, *args):
        trained.append(type(learner).__name__)
        return original(recipe, learner, *args)

    original = ensemble.fit_conditional_flows
    monkeypatch.setattr(ensemble, "fit_conditional_flows", fit)
    monkeypatch.setattr(Contest, "winners", lambda *_: winners)
    fit_sample(*two_modes(600))
    names = {"flow": "Stack", "mixture": "MixtureBoosting", "network": "MixtureNetwork"}
    assert sorted(trained) == sorted(names[name] for name in winners)


def test_groups_that_are_too_large_for_a_contest_have_all_kinds_trained(monkeypatch):
    monkeypatch.setattr("treecdf.training.contest.chosen", None)  # nobody asks
    x, y = two_modes(400)
    model = fit_sample(x, y, np.repeat([0, 1], [390, 10]))
    assert np.isfinite(model.log_prob(x, y)).all()


def test_the_transform_of_the_outcome_is_chosen_once(monkeypatch):
    asked, choose = [], conditional.choose_transform
    monkeypatch.setattr(conditional, "choose_transform", lambda *args: asked.append(args) or choose(*args))
    fit_sample(*two_modes(600))
    assert len(asked) == 2  # for the contest, and for the base that won it
