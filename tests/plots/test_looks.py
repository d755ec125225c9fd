"""Pictures of counts and of several modes show what is there: no value is lost, nothing is ragged or hidden."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from treecdf import TreeFlowRegressor
from treecdf.plots import (
    CalibrationDisplay,
    ConditionalDensityDisplay,
    CovariateEffectDisplay,
    FanChartDisplay,
    PITDisplay,
)

RNG = np.random.default_rng(0)
N = 500
X = pd.DataFrame({"t": RNG.uniform(-2, 2, N), "place": [f"place {k}" for k in RNG.integers(0, 40, N)]})
COUNT = RNG.poisson(np.exp(0.5 + 0.8 * X["t"]))
TWO_MODES = np.where(RNG.random(N) < 0.5, -2.0, 2.0) + 0.3 * RNG.normal(size=N)
TRAIN, NEW = slice(0, 300), slice(300, N)


@pytest.fixture(scope="module")
def counts():
    return TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(X[TRAIN], COUNT[TRAIN])


@pytest.fixture(autouse=True)
def closed():
    """Close all figures afterwards."""
    yield
    plt.close("all")


def test_the_pit_of_counts_is_drawn_inside_of_their_steps(counts):
    display = PITDisplay.from_estimator(counts, X[NEW], COUNT[NEW])
    d = counts.predict_distribution(X[NEW])
    assert (d.cdf_below(COUNT[NEW]) <= display.pit).all()
    assert (display.pit <= d.cdf(COUNT[NEW])).all()
    np.testing.assert_allclose(d.cdf(COUNT[NEW]) - d.cdf_below(COUNT[NEW]), np.exp(d.logpdf(COUNT[NEW])), rtol=1e-6)
    assert display.p_value > 0.001  # without it the distance is .2, and the p-value 1e-9
    coverage = CalibrationDisplay.from_estimator(counts, X[NEW], COUNT[NEW])
    assert np.abs(coverage.coverage - coverage.levels).max() < 0.12


def test_the_pit_of_atoms_is_drawn_inside_of_their_steps():
    y = np.maximum(X["t"] + RNG.normal(size=N), 0.0)
    model = TreeFlowRegressor(effort="fast", max_trees=2, atoms=[0.0], bounds=(0, None), random_state=0)
    model.fit(X[["t"]][TRAIN], y[TRAIN])
    display = PITDisplay.from_estimator(model, X[["t"]][NEW], y[NEW])
    d = model.predict_distribution(X[["t"]][NEW])
    is_zero = (y[NEW] == 0).to_numpy()
    np.testing.assert_allclose(d.cdf_below(y[NEW])[is_zero], 0, atol=1e-12)
    np.testing.assert_allclose(display.pit[~is_zero], d.cdf(y[NEW])[~is_zero], rtol=1e-9)
    assert display.p_value > 0.001


def test_the_effect_on_counts_has_a_cell_for_each_value(counts):
    display = CovariateEffectDisplay.from_estimator(counts, X, "t", max_rows=20, n_grid=5)
    np.testing.assert_array_equal(display.points, np.arange(len(display.points)))
    np.testing.assert_array_equal(display.y_edges, np.arange(len(display.points) + 1) - 0.5)
    assert display.density[0, 0] > 0.5  # that of 0, at the smallest rate
    np.testing.assert_allclose(display.density.sum(axis=1), 1, atol=0.02)
    assert np.isin(display.quantiles([0.05, 0.5, 0.95]), display.points).all()
    assert display.ax_.get_ylim()[0] == -0.5


def test_fans_of_counts_are_steps_around_the_values(counts):
    display = FanChartDisplay.from_estimator(counts, X, "t", levels=[0.5], n_grid=9)
    assert display.half_step == 0.5
    (band,) = [part.get_paths()[0].vertices for part in display.ax_.collections]
    assert band[:, 1].min() == display.lower.min() - 0.5
    assert set(np.unique(band[:, 1] % 1)) == {0.5}
    bars = FanChartDisplay.from_estimator(counts, X, "place", levels=[0.5], region="hdr")
    assert min(bar.get_height() for bar in bars.ax_.patches) >= 1


def test_regions_of_others_are_not_ragged():
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(X, TWO_MODES)
    display = FanChartDisplay.from_estimator(model, X, "place", levels=[0.5, 0.9], region="hdr")
    assert display.values[-1].endswith("others")
    assert all(len(own[-1]) <= 3 for own in display.regions)


def test_the_legend_of_densities_hides_no_curve():
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(X, TWO_MODES)
    display = ConditionalDensityDisplay.from_estimator(model, X[:4], y=TWO_MODES[:4])
    display.figure_.canvas.draw()
    highest = display.ax_.transData.transform((0, display.density.max()))[1]
    assert display.ax_.get_legend().get_window_extent().y0 > highest


def test_curves_have_no_corners(monkeypatch):
    model = TreeFlowRegressor(base="box", effort="fast", max_trees=20, random_state=0).fit(X[["t"]], TWO_MODES)

    def bends():
        display = ConditionalDensityDisplay.from_estimator(model, X[["t"]][:2])
        (grid,) = display.y_grid
        return np.abs(np.diff(np.diff(display.density) / np.diff(grid), axis=1)).sum()

    smooth = bends()
    monkeypatch.setattr("treecdf.plots.density._OFFSETS", (0.0,))
    assert smooth < 0.8 * bends()
