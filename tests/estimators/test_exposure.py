"""Exposures: rates are learnt, answers are in the unit of the outcome, and the noise shrinks as exposures grow."""

import numpy as np
import pytest
from scipy.stats import poisson

from treecdf import TreeFlowRegressor, load_model

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 2))
RATE = np.exp(0.5 + 0.7 * X[:, 0])
EXPOSURE = np.exp(rng.uniform(np.log(0.5), np.log(20), 400))
Y = rng.poisson(EXPOSURE * RATE).astype(float)
AT = np.array([[0.0, 0.0], [1.0, 0.0]])


@pytest.fixture(scope="module")
def model():
    return TreeFlowRegressor(effort="fast", resolution=1, random_state=0).fit(X, Y, exposure=EXPOSURE)


def test_means_grow_with_the_exposure_and_noise_more_slowly(model):
    short, long = (model.predict_distribution(AT, exposure=e) for e in (2.0, 18.0))
    truth = np.exp([0.5, 1.2])
    assert short.mean() == pytest.approx(2 * truth, rel=0.25)
    assert long.mean() == pytest.approx(18 * truth, rel=0.15)
    ratio = long.std() / short.std()  # 3 in truth, 9 if noise were in proportion
    assert ((ratio > 2) & (ratio < 6)).all()


def test_counts_are_nearly_as_likely_as_under_the_truth(model):
    x = np.random.default_rng(1).normal(size=(500, 2))
    exposure = np.exp(np.random.default_rng(2).uniform(np.log(0.5), np.log(20), 500))
    expected = exposure * np.exp(0.5 + 0.7 * x[:, 0])
    y = np.random.default_rng(3).poisson(expected).astype(float)
    gap = poisson.logpmf(y, expected).mean() - model.score(x, y, exposure=exposure)
    assert gap < 0.12
    blind = TreeFlowRegressor(effort="fast", resolution=1, random_state=0).fit(X, Y)
    assert model.score(x, y, exposure=exposure) > blind.score(x, y) + 0.3


def test_all_answers_are_in_the_unit_of_the_outcome():
    y = EXPOSURE * RATE * np.exp(0.3 * np.random.default_rng(4).normal(size=400))
    fitted = TreeFlowRegressor(effort="fast", bounds=(0, None), random_state=0).fit(X, y, exposure=EXPOSURE)
    d = fitted.predict_distribution(AT, exposure=[2.0, 5.0])
    grid = np.linspace(0, 200, 40001)
    density = d.pdf(grid, grid=True)
    assert np.trapezoid(density, grid, axis=1) == pytest.approx(1.0, abs=2e-3)
    assert np.trapezoid(density * grid, grid, axis=1) == pytest.approx(d.mean(), rel=0.01)
    quantiles = d.icdf([0.1, 0.5, 0.9])
    assert d.cdf(quantiles) == pytest.approx(np.tile([0.1, 0.5, 0.9], (2, 1)), abs=1e-6)
    assert fitted.predict(AT, quantiles=0.5, exposure=[2.0, 5.0]) == pytest.approx(quantiles[:, 1])
    assert fitted.predict_interval(AT, 0.8, exposure=[2.0, 5.0]) == pytest.approx(quantiles[:, [0, 2]])
    draws = fitted.sample(AT, 4000, 0, exposure=[2.0, 5.0])
    assert draws.mean(axis=1) == pytest.approx(d.mean(), rel=0.05)
    points = np.array([4.0, 9.0])
    crps = np.abs(draws - points[:, None]).mean(axis=1) - np.abs(draws[:, ::2] - draws[:, 1::2]).mean(axis=1) / 2
    assert d.crps(points) == pytest.approx(crps, rel=0.1)
    assert d.logpdf(points) == pytest.approx(fitted.log_prob(AT, points, exposure=[2.0, 5.0]))
    assert d[1].mean() == pytest.approx(d.mean()[1:])


def test_no_exposure_is_unusual(model):
    far = model.predict_distribution(AT, exposure=60.0)
    assert far.mean() == pytest.approx(60 * np.exp([0.5, 1.2]), rel=0.25)
    assert model.novelty(AT).max() < 0.07


def test_rows_that_differ_in_exposure_are_no_copies():
    x, exposure = np.zeros((80, 1)), np.arange(1.0, 81.0)
    fitted = TreeFlowRegressor(effort="fast", base="box", max_trees=5, random_state=0)
    fitted.fit(x, np.repeat([3.0, 7.0], 40), exposure=exposure)
    assert len(np.unique(fitted.predict_distribution(x[:2], exposure=[1.0, 9.0]).icdf(0.5))) == 2


def test_model_files_keep_it(model, tmp_path):
    model.save(tmp_path / "model.tcdf")
    loaded = load_model(tmp_path / "model.tcdf")
    assert np.array_equal(loaded.predict(AT, exposure=3.0), model.predict(AT, exposure=3.0))


def test_what_does_not_go_together_is_said(model):
    with pytest.raises(ValueError, match="fitted with exposure: pass exposure="):
        model.predict(AT)
    with pytest.raises(ValueError, match=r"exposure of row 1 is 0.0: exposures must be finite and above 0"):
        model.predict(AT, exposure=[1.0, 0.0])
    with pytest.raises(ValueError, match=r"Expected exposure of shape \(2,\); got \(3,\)"):
        model.predict(AT, exposure=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="exposure cannot be read as numbers"):
        model.predict(AT, exposure=["a", "b"])
    fast = TreeFlowRegressor(effort="fast", random_state=0)
    with pytest.raises(ValueError, match="exposure is for one outcome; y has 2"):
        fast.fit(X, np.column_stack([Y, Y]), exposure=EXPOSURE)
    with pytest.raises(ValueError, match="only bound of an outcome can be 0"):
        TreeFlowRegressor(bounds=(0, 500)).fit(X, Y, exposure=EXPOSURE)
    with pytest.raises(ValueError, match="not with X_val"):
        fast.fit(X, Y, X_val=X, y_val=Y, exposure=EXPOSURE)
