"""Levels, outcomes, rows and numbers of draws are checked alike by every kind of distribution."""

import numpy as np
import pytest

from treecdf import ConditionalDistribution, TreeFlowRegressor

RNG = np.random.default_rng(0)
N, M = 400, 7
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
OTHER = Y**2 + RNG.normal(size=N)
ROUNDED = np.round(4 * Y) / 4
TABLES = {
    "plain": ({}, Y),
    "atoms": ({"atoms": [0.0]}, np.where(RNG.random(N) < 0.3, 0.0, np.exp(Y))),
    "capped": ({"atoms": [0.5]}, np.minimum(Y, 0.5)),
    "grid": ({"resolution": 0.25}, ROUNDED),
    "both": ({"atoms": [0.0], "resolution": 0.25}, np.where(RNG.random(N) < 0.3, 0.0, ROUNDED)),
    "two": ({}, np.column_stack([Y, OTHER])),
    "two on a grid": ({"resolution": [0.25, None]}, np.column_stack([ROUNDED, OTHER])),
}
ONE = ["plain", "atoms", "capped", "grid", "both", "marginal", "marginal on a grid"]
ALL = [*ONE, "two", "two on a grid"]


@pytest.fixture(scope="module")
def kinds():
    """Distributions of every kind at M rows; marginals are of the first of two outcomes."""
    settings = {"effort": "fast", "max_trees": 5, "random_state": 0}
    found = {
        name: TreeFlowRegressor(**settings, **own).fit(X, y).predict_distribution(X[:M])
        for name, (own, y) in TABLES.items()
    }
    return {**found, "marginal": found["two"].marginal(0), "marginal on a grid": found["two on a grid"].marginal(0)}


@pytest.mark.parametrize("name", ALL)
def test_every_kind_is_a_conditional_distribution(kinds, name):
    assert isinstance(kinds[name], ConditionalDistribution)
    assert isinstance(kinds[name][1:3], type(kinds[name]))
    assert repr(kinds[name]).endswith(f"({M} rows, {kinds[name].n_outcomes} outcome(s))")


# Levels


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("level", [-0.5, 0.0, 1.0, 1.5, np.nan])
def test_intervals_hold_a_share_between_zero_and_one(kinds, name, level):
    with pytest.raises(ValueError, match="Expected a level between 0 and 1, or several; got"):
        kinds[name].interval(level)


@pytest.mark.parametrize("name", ONE)
def test_levels_of_quantiles(kinds, name):
    d = kinds[name]
    for wrong in (-0.1, 1.1, np.nan, [0.5, 2.0]):
        with pytest.raises(ValueError, match="Expected levels between 0 and 1; got"):
            d.icdf(wrong)
    with pytest.raises(ValueError, match=r"Expected levels between 0 and 1; got 95: 95 % is 0.95\."):
        d.icdf([0.5, 95])
    with pytest.raises(ValueError, match="levels cannot be read as numbers: could not convert string to float: 'low'"):
        d.icdf("low")
    with pytest.raises(ValueError, match="y cannot be read as numbers"):
        d.cdf("low")
    for wrong in (np.full((M + 1, 2), 0.5), np.full((M, 2, 2), 0.5)):
        with pytest.raises(ValueError, match=rf"Expected levels of shape \(m,\) or \({M}, m\)"):
            d.icdf(wrong)
    assert d.icdf([]).shape == (M, 0)
    own = np.linspace(0.1, 0.9, 2 * M).reshape(M, 2)
    for row, quantiles in enumerate(d.icdf(own)):
        np.testing.assert_allclose(quantiles, d[row].icdf(own[row])[0], rtol=1e-9)


@pytest.mark.parametrize("name", ONE)
def test_quantiles_of_zero_and_one_are_of_one_kind_in_all_rows(kinds, name):
    low, high = kinds[name].icdf([0.0, 1.0]).T
    if "marginal" in name:  # known on a grid: it ends at the outermost points
        assert np.isfinite([low, high]).all()
    else:
        assert (low == -np.inf).all()
        assert (high == (kinds[name].icdf(1.0)[0] if name == "both" else np.inf)).all()  # a grid may end


def test_an_atom_at_a_bound_is_the_end_of_the_support():
    y = np.minimum(Y, 0.5)
    model = TreeFlowRegressor(atoms=[0.5], bounds=(None, 0.5), effort="fast", max_trees=5, random_state=0).fit(X, y)
    ends = model.predict_distribution(X).icdf([0.0, 1.0])
    assert (ends == [-np.inf, 0.5]).all()


# Outcomes


@pytest.mark.parametrize("name", ONE)
def test_outcomes_of_one_outcome(kinds, name):
    d = kinds[name]
    for ask in (d.cdf, d.pit, d.crps):
        with pytest.raises(ValueError, match="y contains NaN"):
            ask(np.r_[np.zeros(M - 1), np.nan])
        for wrong in (np.zeros(M + 1), np.zeros((2, M)), np.zeros((M, 2, 1))):
            with pytest.raises(ValueError, match=rf"Expected y of shape \({M},\)"):
                ask(wrong)
    with pytest.raises(ValueError, match=rf"Expected y of shape \({M},\)"):
        d.crps(np.zeros((M, 2)))
    with pytest.raises(ValueError, match="y contains infinity"):
        d.crps(np.r_[np.zeros(M - 1), np.inf])
    assert d.cdf(np.zeros((M, 3))).shape == (M, 3)
    assert d.crps(np.zeros((M, 1))).shape == (M,)


@pytest.mark.parametrize("name", ["marginal", "marginal on a grid"])
def test_marginals_have_densities(kinds, name):
    assert kinds[name].logpdf(np.zeros(M)).shape == (M,)
    assert (kinds[name].pdf(kinds[name].median()) > 0).all()


@pytest.mark.parametrize("name", ["two", "two on a grid"])
def test_several_outcomes_are_asked_one_by_one(kinds, name):
    d = kinds[name]
    asks = {"cdf": [np.zeros(M)], "icdf": [0.5], "crps": [np.zeros(M)], "quadrature": [], "median": [], "interval": []}
    for method, arguments in asks.items():
        with pytest.raises(ValueError, match=f"{method} is for one outcome; this distribution has 2: see marginal"):
            getattr(d, method)(*arguments)


@pytest.mark.parametrize("name", ALL)
def test_numbers_of_outcomes(kinds, name):
    d = kinds[name]
    for wrong in (d.n_outcomes, -d.n_outcomes - 1):
        with pytest.raises(IndexError, match=f"Expected an outcome below {d.n_outcomes}; got"):
            d.marginal(wrong)
    for wrong in (0.5, None):
        with pytest.raises(TypeError, match="Expected the name of an outcome, or its number"):
            d.marginal(wrong)
    with pytest.raises(ValueError, match=r"Expected an outcome among 'y.*; got 'z'"):
        d.marginal("z")


# Draws and rows


@pytest.mark.parametrize("name", ALL)
def test_numbers_of_draws(kinds, name):
    d = kinds[name]
    for wrong in (-1, 1.5, "3", None, True):
        with pytest.raises(ValueError, match="Expected n_samples to be an integer of at least 0; got"):
            d.sample(wrong)
    tail = () if d.n_outcomes == 1 else (d.n_outcomes,)
    assert d.sample(0).shape == (M, 0, *tail)
    assert d.sample(np.int64(2), random_state=0).shape == (M, 2, *tail)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rows", [slice(0), np.zeros(M, bool), []])
def test_no_rows_at_all(kinds, name, rows):
    d = kinds[name][rows]
    tail = () if d.n_outcomes == 1 else (d.n_outcomes,)
    assert len(d) == 0
    assert d.sample(3).shape == (0, 3, *tail)
    for moment in (d.mean(), d.std(), d.var()):
        assert moment.shape == (0, *tail)
    assert d.pit(np.empty((0, *tail))).shape == (0, *tail)
    assert d.logpdf(np.empty((0, *tail))).shape == (0,)
    assert d.pdf(np.empty((0, 4, *tail))).shape == (0, 4)
    assert len(d.marginal(0)) == 0
    assert d.marginal(0).cdf([]).shape == (0,)
    if d.n_outcomes == 1:
        assert d.icdf([0.1, 0.2]).shape == (0, 2)
        assert d.median().shape == d.crps([]).shape == (0,)
        assert [end.shape for end in d.interval(0.5)] == [(0,), (0,)]
        values, masses = d.quadrature()
        assert values.shape == masses.shape
        assert len(values) == 0


@pytest.mark.parametrize("name", ALL)
def test_rows_are_chosen_as_in_an_array(kinds, name):
    d = kinds[name]
    for rows in (slice(1, 4), [0, 3, 3], np.arange(M) % 2 == 0, slice(None, None, -1), np.array([2])):
        np.testing.assert_allclose(d[rows].mean(), d.mean()[rows], rtol=1e-9)
    np.testing.assert_allclose(d[-1].std(), d.std()[-1:], rtol=1e-9)
    for wrong in (M, np.zeros(M + 1, bool), (0, 0), None):
        with pytest.raises(IndexError):
            d[wrong]


@pytest.mark.parametrize("name", ALL)
def test_what_is_returned_belongs_to_the_caller(kinds, name):
    d = kinds[name]
    before = d.mean().copy()
    d.mean()[:] = 0
    assert np.array_equal(d.mean(), before)
