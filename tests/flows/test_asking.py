"""What people ask of distributions first: one value or a grid for all rows, several intervals, names, mode, entropy."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from treecdf import TreeFlowRegressor, plots, predict_distribution
from treecdf.metrics import crps_scorer

RNG = np.random.default_rng(0)
N, M = 400, 7
X = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["a", "b"])
Y = np.sin(X["a"].to_numpy()) + 0.3 * RNG.normal(size=N)
BOTH = pd.DataFrame({"rent": Y, "deposit": 2 * Y + RNG.normal(size=N)})
GRID = np.linspace(-2, 2, 11)


def small(**settings):
    return TreeFlowRegressor(effort="fast", max_trees=5, random_state=0, **settings)


@pytest.fixture(scope="module")
def model():
    return small().fit(X, Y)


@pytest.fixture(scope="module")
def one(model):
    return model.predict_distribution(X[:M])


@pytest.fixture(scope="module")
def joint():
    return small().fit(X, BOTH)


@pytest.mark.parametrize("method", ["logpdf", "pdf", "cdf", "sf", "pit", "crps"])
def test_a_number_is_for_all_rows(one, method):
    ask = getattr(one, method)
    np.testing.assert_array_equal(ask(0.25), ask(np.full(M, 0.25)))


@pytest.mark.parametrize("method", ["logpdf", "pdf", "cdf", "sf", "pit"])
def test_a_grid_is_for_all_rows(one, method):
    ask = getattr(one, method)
    expected = ask(np.tile(GRID, (M, 1)))
    np.testing.assert_array_equal(ask(GRID, grid=True), expected)
    np.testing.assert_array_equal(ask(GRID[None]), expected)
    np.testing.assert_allclose(getattr(one[2], method)(GRID), expected[2:3], rtol=1e-9)
    square = ask(GRID[:M], grid=True)  # as many points as rows
    np.testing.assert_allclose(square, expected[:, :M], rtol=1e-9)


def test_a_grid_that_could_be_mistaken_for_rows_is_refused_with_a_hint(one):
    with pytest.raises(ValueError, match=r"or a number for all rows, or \(m,\) with grid=True; got \(11,\)"):
        one.pdf(GRID)
    with pytest.raises(ValueError, match=r"of shape \(m,\), the same outcomes for all rows; got \(2, 3\)"):
        one.pdf(np.zeros((2, 3)), grid=True)


def test_points_of_several_outcomes(joint):
    d = joint.predict_distribution(X[:M])
    points = RNG.normal(size=(4, 2))
    np.testing.assert_array_equal(d.logpdf(points[0]), d.logpdf(np.tile(points[0], (M, 1))))
    np.testing.assert_array_equal(d.logpdf(points, grid=True), d.logpdf(np.tile(points, (M, 1, 1))))


def test_several_intervals(one):
    low, high = one.interval([0.5, 0.9])
    assert low.shape == high.shape == (M, 2)
    for k, level in enumerate((0.5, 0.9)):
        np.testing.assert_allclose(np.array(one.interval(level)), [low[:, k], high[:, k]], rtol=1e-12)
    with pytest.raises(ValueError, match="between 0 and 1, or several"):
        one.interval([0.5, 1.5])


def test_survival_is_what_the_cdf_leaves(one):
    np.testing.assert_allclose(one.sf(0.1) + one.cdf(0.1), 1)


def test_mode_and_entropy_of_a_normal_outcome():
    x = RNG.normal(size=(3000, 1))
    d = (
        TreeFlowRegressor(effort="fast", random_state=0)
        .fit(x, 2 * RNG.normal(size=3000) + 5)
        .predict_distribution(x[:5])
    )
    np.testing.assert_allclose(d.entropy(), norm(scale=2).entropy(), atol=0.1)
    np.testing.assert_allclose(d.entropy(), -d.logpdf(d.sample(4000, random_state=0)).mean(axis=1), atol=0.1)
    density = d.pdf(np.linspace(-3, 13, 2001), grid=True)
    assert (d.pdf(d.mode()) >= 0.999 * density.max(axis=1)).all()
    np.testing.assert_allclose(d.mode(), 5, atol=1.5)


def test_mode_and_entropy_of_recorded_outcomes():
    zero = np.where(RNG.random(N) < 0.4, 0.0, np.exp(Y))
    atoms = small(atoms=[0.0]).fit(X, zero).predict_distribution(X[:M])
    assert (atoms.mode() == 0).all()
    np.testing.assert_allclose(
        atoms.entropy(), -atoms.logpdf(atoms.sample(4000, random_state=0)).mean(axis=1), atol=0.2
    )
    rare = np.where(RNG.random(N) < 0.03, -5.0, Y)
    assert (small(atoms=[-5.0]).fit(X, rare).predict_distribution(X[:M]).mode() > -5).all()
    grid = small(resolution=0.5).fit(X, np.round(2 * Y) / 2).predict_distribution(X[:M])
    cells = np.arange(-4, 4.5, 0.5)
    np.testing.assert_allclose(grid.mode(), cells[grid.pdf(cells, grid=True).argmax(axis=1)], atol=1e-9)


def test_entropy_of_several_outcomes(joint):
    d = joint.predict_distribution(X[:3])
    np.testing.assert_allclose(d.entropy(), -d.logpdf(d.sample(2000, random_state=1)).mean(axis=1), atol=0.2)
    with pytest.raises(ValueError, match="mode is for one outcome"):
        d.mode()


def test_outcomes_have_names(joint):
    d = joint.predict_distribution(X[:M])
    assert d.outcome_names == d[:2].outcome_names == ("rent", "deposit")
    np.testing.assert_array_equal(d.marginal("deposit").median(), d.marginal(1).median())
    with pytest.raises(ValueError, match="Expected an outcome among 'rent', 'deposit'; got 'price'"):
        d.marginal("price")
    assert plots.PITDisplay.from_estimator(joint, X, BOTH, outcome="deposit").pit.shape == (N,)
    with pytest.raises(ValueError, match="pass outcome=, 'rent', 'deposit'"):
        plots.PITDisplay.from_estimator(joint, X, BOTH)


# Through scikit-learn


def test_quantiles_and_intervals_of_predict(model, joint, one):
    np.testing.assert_array_equal(model.predict(X[:M], quantiles=[0.1, 0.9]), one.icdf([0.1, 0.9]))
    np.testing.assert_array_equal(model.predict(X[:M], quantiles=0.5), one.median())
    np.testing.assert_array_equal(model.predict_interval(X[:M], 0.8), np.column_stack(one.interval(0.8)))
    assert joint.predict(X[:M], quantiles=[0.1, 0.5, 0.9]).shape == (M, 3, 2)
    assert joint.predict_interval(X[:M]).shape == (M, 2, 2)
    with pytest.raises(ValueError, match="Expected level to be one number between 0 and 1"):
        model.predict_interval(X[:M], [0.5, 0.9])


def test_pipelines_and_searches_reach_all_of_it():
    pipe = make_pipeline(StandardScaler(), small()).fit(X, Y)
    inside = pipe[-1].predict_distribution(pipe[:-1].transform(X[:M]))
    np.testing.assert_array_equal(predict_distribution(pipe, X[:M]).mean(), inside.mean())
    np.testing.assert_array_equal(pipe.predict(X[:M], quantiles=[0.2, 0.8]), inside.icdf([0.2, 0.8]))
    search = GridSearchCV(pipe, {"treeflowregressor__max_trees": [1, 2]}, cv=2, scoring=crps_scorer).fit(X, Y)
    assert predict_distribution(search, X[:M]).interval([0.5, 0.9])[0].shape == (M, 2)
    assert plots.PITDisplay.from_estimator(pipe, X, Y).pit.shape == (N,)
    with pytest.raises(TypeError, match="Expected a model with predict_distribution, a pipeline"):
        predict_distribution(StandardScaler().fit(X), X)
    with pytest.raises(TypeError, match="A TransformedTargetRegressor changes predictions, not distributions"):
        predict_distribution(TransformedTargetRegressor(small()), X)


def test_crps_compares_models_whose_log_densities_have_other_units():
    zero = np.where(RNG.random(N) < 0.3, 0.0, Y)
    scores = [cross_val_score(small(**own), X, zero, cv=2, scoring=crps_scorer) for own in ({}, {"atoms": [0.0]})]
    assert np.allclose(*scores, rtol=0.3)
    fitted = small().fit(X, zero)
    expected = -fitted.predict_distribution(X).crps(zero)
    assert crps_scorer(fitted, X, zero) == pytest.approx(expected.mean())
    weight = np.arange(N) % 2
    assert crps_scorer(fitted, X, zero, sample_weight=weight) == pytest.approx(expected[weight == 1].mean())


def test_crps_of_several_outcomes_is_the_mean_of_theirs(joint):
    d = joint.predict_distribution(X[:50])
    expected = np.mean([d.marginal(name).crps(BOTH[name][:50]).mean() for name in BOTH])
    assert crps_scorer(joint, X[:50], BOTH[:50]) == pytest.approx(-expected)
