"""Draw the pictures of docs/gallery.md: `python docs/make_gallery.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from treecdf import TreeFlowRegressor
from treecdf.cli import demo
from treecdf.plots import (
    CalibrationDisplay,
    ConditionalDensityDisplay,
    CovariateEffectDisplay,
    FanChartDisplay,
    HistoryDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    PITDisplay,
)

GALLERY = Path(__file__).parent / "gallery"


def save(name, display):
    """One picture, small enough for a page."""
    display.figure_.savefig(GALLERY / f"{name}.png", dpi=90)
    plt.close(display.figure_)


def branches():
    """Two branches that part and cross, the data of `treecdf demo`."""
    X, y = demo.sample(3000, np.random.default_rng(0))
    model = TreeFlowRegressor(random_state=0).fit(X, y)
    rows, labels = [[-0.8], [0.0], [0.8]], ["x = -0.8", "x = 0", "x = 0.8"]
    save("density", ConditionalDensityDisplay.from_estimator(model, rows, labels=labels, hdr=0.9))
    some = slice(400)
    save("fan_regions", FanChartDisplay.from_estimator(model, X[some], 0, y=y[some], region="hdr"))
    paper = TreeFlowRegressor.paper(random_state=0).fit(X[:1000], y[:1000])
    save("history", HistoryDisplay.from_estimator(paper))


def load():
    """Load of a grid over the day, skewed and most uncertain in the evening (simulated)."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hour": rng.uniform(0, 24, 1500), "temperature": rng.normal(15, 8, 1500)})
    wave = np.sin((X["hour"] - 9) * np.pi / 12)
    y = 50 + 12 * wave - 0.4 * (X["temperature"] - 15) + rng.gamma(2, 1.5 + np.exp(wave), 1500)
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(X, y)
    mild = X["temperature"].between(10, 20)
    save("fan", FanChartDisplay.from_estimator(model, X[mild], "hour", y=y[mild].rename("load")))


def two_outcomes():
    """Two outcomes on a parabola that bends with x."""
    rng = np.random.default_rng(0)
    X, first = rng.uniform(-1, 1, size=(1500, 1)), rng.normal(size=1500)
    y = np.column_stack([first, X[:, 0] * first**2 + 0.4 * rng.normal(size=1500)])
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(X, y)
    near = np.abs(X[:, 0] - 0.8) < 0.05
    save("joint", ConditionalDensityDisplay.from_estimator(model, [[0.8]], y=y[near], labels=["x = 0.8"]))


def diabetes():
    """Progression of diabetes in a year, a real table."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X, X_test, y, y_test = train_test_split(X, y.rename("progression"), test_size=0.4, random_state=0)
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(X, y)
    save("pit", PITDisplay.from_estimator(model, X_test, y_test))
    save("calibration", CalibrationDisplay.from_estimator(model, X_test, y_test))
    save("intervals", IntervalDisplay.from_estimator(model, X_test, y_test))
    save("importance", ImportanceDisplay.from_estimator(model))
    save("effect", CovariateEffectDisplay.from_estimator(model, X, "bmi"))
    save("effect_quantiles", CovariateEffectDisplay.from_estimator(model, X, "bmi", kind="quantiles"))


def flats():
    """The rents of the quick start: two flats of one size in two districts."""
    rng = np.random.default_rng(0)
    n = 1500
    flats = pd.DataFrame({"area": rng.gamma(9, 8, n), "district": rng.choice(["old town", "harbour"], n)})
    level = flats.district.map({"old town": 14.0, "harbour": 10.0})
    rent = level * flats.area * rng.lognormal(0, 0.05 + 0.15 * (flats.district == "harbour"))
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(flats, rent.rename("rent"))
    new = pd.DataFrame({"area": [60.0, 60.0], "district": ["old town", "harbour"]})
    save("flats", ConditionalDensityDisplay.from_estimator(model, new, labels=["old town, 60 m2", "harbour, 60 m2"]))


if __name__ == "__main__":
    GALLERY.mkdir(exist_ok=True)
    flats()
    branches()
    load()
    two_outcomes()
    diabetes()
