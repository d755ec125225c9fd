"""Outcomes of two values: a classifier is wanted, but what is asked for works."""

import numpy as np
import pytest

from treecdf import TreeFlowRegressor, load_model

RNG = np.random.default_rng(0)
N = 300
X = RNG.normal(size=(N, 2))
CHANCE = 1 / (1 + np.exp(-2 * X[:, 0]))
Y = (RNG.random(N) < CHANCE).astype(float)


def fit(**settings):
    return TreeFlowRegressor(effort="fast", random_state=0, **settings).fit(X, Y)


@pytest.fixture(scope="module", params=["auto", [0, 1]])
def model(request):
    return fit(atoms=request.param)


def test_both_values_are_atoms_and_nothing_else_is_possible(model):
    d = model.predict_distribution(X[:50])
    assert np.isin(d.sample(200, random_state=0), [0, 1]).all()
    assert np.isin(d.icdf(np.linspace(0, 1, 101)), [0, 1]).all()
    assert d.atom_probs.sum(axis=1) == pytest.approx(1)
    assert d.logpdf(np.full(50, 0.5)).max() < -1000


def test_moments_and_scores_are_those_of_a_coin(model):
    d = model.predict_distribution(X)
    p = d.mean()
    assert np.corrcoef(p, CHANCE)[0, 1] > 0.9
    assert d.std() == pytest.approx(np.sqrt(p * (1 - p)))
    assert d.crps(Y) == pytest.approx((p - Y) ** 2)
    assert model.log_prob(X, Y) == pytest.approx(np.log(np.where(Y == 1, p, 1 - p)))


def test_files_keep_it(model, tmp_path):
    model.save(tmp_path / "model.tcdf")
    assert np.array_equal(load_model(tmp_path / "model.tcdf").log_prob(X, Y), model.log_prob(X, Y))


def test_a_grid_of_two_values_is_found():
    model = fit(resolution="auto")
    assert model.grid_.step.tolist() == [1.0]
    draws = model.sample(X[:20], 100, random_state=0)
    assert np.array_equal(draws, np.round(draws))


def test_by_default_draws_are_one_of_the_two_and_probabilities_are_good():
    d = fit().predict_distribution(X)
    assert np.isin(d.sample(50, random_state=0), [0, 1]).all()
    assert d.pdf(np.zeros(N)) + d.pdf(np.ones(N)) == pytest.approx(1)
    assert d.mean() == pytest.approx(d.pdf(np.ones(N)))
    assert np.corrcoef(d.mean(), CHANCE)[0, 1] > 0.97


def test_the_note_names_the_way_out():
    assert fit().summary().count("a classifier is what is wanted; each has its probability here; resolution=None") == 1
    assert fit(resolution=None).summary().count("a classifier is what is wanted") == 1
    assert "all outcomes are atoms" in fit(atoms="auto").summary()


def test_two_rows_of_two_values_are_no_coin():
    model = TreeFlowRegressor(atoms="auto", resolution="auto", random_state=0).fit(X[:4], [0.3, 0.7, 0.3, 0.7])
    assert model.atoms_ is None
    assert model.grid_ is None
