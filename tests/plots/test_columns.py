"""Pictures over categories of many levels and over dates, and density curves without steps."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy.signal import find_peaks

from treecdf import TreeFlowRegressor
from treecdf.plots import ConditionalDensityDisplay, CovariateEffectDisplay, FanChartDisplay

mpl.use("Agg")
RNG = np.random.default_rng(0)
N = 600
SHARES = 1 / np.arange(1, 41)
FRAME = pd.DataFrame({"line": RNG.choice([f"airline {k:02}" for k in range(40)], N, p=SHARES / SHARES.sum())})
FRAME["when"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(RNG.integers(0, 24 * 365, N), unit="h")
FRAME["size"] = pd.Categorical(RNG.choice(["S", "M", "L"], N), ["S", "M", "L"], ordered=True)
Y = FRAME["when"].dt.month.to_numpy() + RNG.normal(size=N)


@pytest.fixture(scope="module")
def model():
    return TreeFlowRegressor(effort="fast", random_state=0).fit(FRAME, Y)


def test_a_fan_of_many_levels_shows_the_common_ones_and_the_others_together(model):
    display = FanChartDisplay.from_estimator(model, FRAME, "line", y=Y)
    common = FRAME["line"].value_counts()
    rest = len(common) - 20
    assert display.values[-1] == f"{rest} others"
    assert len(display.values) == 21
    assert set(display.values[:-1]) <= set(common.index[common >= common.iloc[19]])
    points, _ = display.points
    assert ((points == 20) == ~FRAME["line"].isin(display.values[:-1])).all()
    display.figure_.canvas.draw()
    bottom, top = display.ax_.get_ylim()
    assert bottom < display.lower.min()  # no bar is cut off
    assert top > display.upper.max()
    legend = display.ax_.get_legend().get_window_extent()
    assert legend.x0 >= display.ax_.get_window_extent().x1 - 1  # beside the bars
    effect = CovariateEffectDisplay.from_estimator(model, FRAME, "line", max_rows=5, n_cells=10)
    assert effect.cdf.shape == (21, 11)
    plt.close("all")


def test_the_others_are_the_mixture_of_their_distributions(model):
    display = FanChartDisplay.from_estimator(model, FRAME, "line", levels=[0.5])
    others = FRAME[~FRAME["line"].isin(display.values[:-1])].copy()
    held = FRAME.assign(line=FRAME["line"])
    others["when"] = held["when"].sort_values().iloc[N // 2]
    others["size"] = held["size"].mode()[0]
    draws = model.sample(others, 200, random_state=0)
    low, middle, high = np.quantile(draws, [0.25, 0.5, 0.75])
    found = [display.lower[0, -1], display.median[-1], display.upper[0, -1]]
    np.testing.assert_allclose(found, [low, middle, high], atol=0.25)
    plt.close("all")


@pytest.mark.parametrize("kind", ["timestamps", "text"])
def test_dates_run_over_their_range(model, kind):
    frame = FRAME if kind == "timestamps" else FRAME.assign(when=FRAME["when"].dt.strftime("%Y-%m-%d %H:%M"))
    display = FanChartDisplay.from_estimator(model, frame, "when", y=Y, n_grid=12)
    assert display.values.dtype == "M8[us]"
    assert display.values[0] == FRAME["when"].min()
    assert display.values[-1] == FRAME["when"].max()
    assert display.median[-1] > display.median[0] + 5
    effect = CovariateEffectDisplay.from_estimator(model, frame, "when", max_rows=5, n_grid=6, kind="quantiles")
    assert effect.cdf.shape[0] == 6
    display.figure_.canvas.draw()
    assert any("Jul" in label.get_text() for label in display.ax_.get_xticklabels())
    plt.close("all")


def test_ordered_levels_are_drawn_in_their_order(model):
    assert FanChartDisplay.from_estimator(model, FRAME, "size").values == ["S", "M", "L"]
    plt.close("all")


def test_curves_of_a_smooth_density_have_one_peak():
    x = RNG.normal(size=(1500, 1))
    y = x[:, 0] + RNG.normal(size=1500)
    model = TreeFlowRegressor(base="box", effort="fast", random_state=0).fit(x, y)

    def n_peaks(density):
        return sum(len(find_peaks(row, prominence=0.05 * row.max())[0]) for row in density)

    display = ConditionalDensityDisplay.from_estimator(model, x[:4])
    (grid,) = display.y_grid
    exact = model.predict_distribution(x[:4]).pdf(grid, grid=True)
    assert n_peaks(display.density) < n_peaks(exact) / 2  # which has the steps of the trees
    np.testing.assert_allclose(np.trapezoid(display.density, grid, axis=1), 1, atol=0.02)
    plt.close("all")
