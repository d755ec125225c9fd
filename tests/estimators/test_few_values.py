"""Outcomes of few values are recognised, modelled as cells, and said to be."""

import warnings
from functools import cache

import numpy as np
import pytest

from treecdf import TreeFlowRegressor, load_model
from treecdf.estimators import progress

RNG = np.random.default_rng(0)
N = 300
X = RNG.normal(size=(N, 2))
GRADES = np.clip(np.round(5 + X[:, 0] + 0.7 * RNG.normal(size=N)), 3, 7)
UNEVEN = np.array([1.0, 2.0, 5.0, 10.0])[np.clip(np.round(1.5 + X[:, 0] + 0.5 * RNG.normal(size=N)), 0, 3).astype(int)]
NEW = X[:40]


def fit(y, **settings):
    return TreeFlowRegressor(effort="fast", max_trees=3, random_state=0, **settings).fit(X, y)


OUTCOMES = {"grades": GRADES, "uneven": UNEVEN}


@cache
def model_of(name):
    return fit(OUTCOMES[name])


@pytest.fixture(params=OUTCOMES)
def fitted(request):
    return model_of(request.param), np.unique(OUTCOMES[request.param])


def test_everything_a_model_says_is_a_value(fitted):
    model, values = fitted
    d = model.predict_distribution(NEW)
    for said in (d.sample(50, random_state=0), d.icdf([0, 0.1, 0.5, 0.9, 1]), d.median(), d.mode(), *d.interval(0.9)):
        assert np.isin(said, values).all()


def test_probabilities_of_the_values_sum_to_one_and_give_all_figures(fitted):
    model, values = fitted
    d, y = model.predict_distribution(NEW), np.tile(values, (len(NEW), 1))
    width = np.ones(len(values)) if len(values) == 5 else np.array([1.0, 2.0, 4.0, 5.0])
    mass = d.pdf(y) * width
    assert mass.sum(axis=1) == pytest.approx(1)
    np.testing.assert_allclose(np.diff(np.hstack([np.zeros((len(NEW), 1)), d.cdf(y)]), axis=1), mass, atol=1e-9)
    assert d.mean() == pytest.approx((mass * y).sum(axis=1))
    assert d.std() == pytest.approx(np.sqrt((mass * y**2).sum(axis=1) - d.mean() ** 2))
    one = np.full(len(NEW), values[1])
    apart = np.abs(values[:, None] - values)
    crps = (mass * np.abs(y - values[1])).sum(axis=1) - np.einsum("ni,ij,nj->n", mass, apart, mass) / 2
    assert d.crps(one) == pytest.approx(crps)
    assert np.array_equal(y[0][mass.argmax(axis=1)], d.mode())


def test_a_value_that_nobody_foresaw_costs_some_nats_and_no_more(fitted):
    model, values = fitted
    beyond = model.log_prob(NEW, np.full(len(NEW), values[-1] + 5 * (values[-1] - values[-2])))
    assert np.isfinite(beyond).all()
    assert (beyond < -5).all()


def test_files_keep_it(fitted, tmp_path):
    model, values = fitted
    model.save(tmp_path / "model.tcdf")
    y = np.full(len(NEW), values[2])
    assert np.array_equal(load_model(tmp_path / "model.tcdf").log_prob(NEW, y), model.log_prob(NEW, y))


def test_one_line_says_so_once_and_is_no_warning(capsys):
    progress._said.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(GRADES)
        fit(GRADES)
    line = "the outcome has 5 values, 3 to 7 in steps of 1; each is modelled as a cell of a grid"
    assert capsys.readouterr().err.count(line) == 1
    assert line in model.summary()
    assert "the log of its cell's probability over the cell's width" in model.summary()
    assert "the values 1, 2, 5, 10; each is modelled" in model_of("uneven").summary()


def test_the_plain_density_stays_available():
    model = fit(GRADES, resolution=None)
    assert model.grid_ is None
    draws = model.sample(NEW, 20, random_state=0)
    assert not np.isin(draws, np.unique(GRADES)).any()
    assert TreeFlowRegressor.paper().resolution is None


def test_outcome_in_another_unit_is_the_same_model():
    model, other = model_of("grades"), fit(100 - 20 * GRADES)
    mean = model.predict(NEW)
    np.testing.assert_allclose(other.predict(NEW), 100 - 20 * mean, atol=2.0)
    assert other.grid_.step == [20]
    assert np.mean(model.log_prob(X, GRADES)) - np.log(20) == pytest.approx(other.score(X, 100 - 20 * GRADES), abs=0.03)


def test_rows_twice_are_rows_of_weight_two():
    twice = TreeFlowRegressor(effort="fast", max_trees=3, random_state=0)
    twice.fit(np.vstack([X, X]), np.tile(GRADES, 2))
    once = TreeFlowRegressor(effort="fast", max_trees=3, random_state=0).fit(X, GRADES, sample_weight=np.full(N, 2.0))
    np.testing.assert_allclose(twice.log_prob(NEW, GRADES[:40]), once.log_prob(NEW, GRADES[:40]), atol=1e-8)


def test_atoms_beside_few_values():
    y = np.where(RNG.random(N) < 0.3, -10.0, GRADES)
    model = fit(y, atoms=[-10.0])
    assert model.grid_.ends.tolist() == [3, 7]
    assert np.isin(model.sample(NEW, 50, random_state=0), [-10, 3, 4, 5, 6, 7]).all()


def test_one_of_two_outcomes():
    both = np.column_stack([GRADES, X[:, 1] + RNG.normal(size=N)])
    model = fit(both)
    assert model.grid_.step.tolist() == [1, 0]
    assert "few values (outcome 0 in steps of 1)" in model.summary()
    draws = model.sample(NEW, 10, random_state=0)
    assert np.array_equal(draws[..., 0], np.round(draws[..., 0]))


def test_cells_are_learnt_better_than_by_spreading_outcomes_at_random():
    """The likelihood of a narrow truth: almost every outcome can be told from x."""
    y = np.round(2 * X[:, 0])
    fresh = np.random.default_rng(1).normal(size=(2000, 2))
    model = fit(y)
    assert model.score(fresh, np.round(2 * fresh[:, 0])) > -0.45
    assert np.mean(model.predict_distribution(fresh).median() == np.round(2 * fresh[:, 0])) > 0.93
