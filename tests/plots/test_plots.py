"""Pictures show what they say: the arrays behind them are checked against the truth, not against themselves."""

import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import binom, norm
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from treecdf import Constant, Logistic, Stage, TreeFlowRegressor
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


class Normal:
    """Normal distributions at some rows, with the methods the pictures use."""

    n_outcomes = 1

    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __len__(self):
        return len(self.mean)

    def __getitem__(self, rows):
        return Normal(self.mean[rows], self.std[rows])

    def pdf(self, y):
        return norm.pdf(y.T, self.mean, self.std).T

    def cdf(self, y):
        return norm.cdf(np.asarray(y).T, self.mean, self.std).T

    def icdf(self, p):
        return norm.ppf(np.asarray(p)[:, None], self.mean, self.std).T


class NormalModel:
    """y = 2 x0 + noise, whose standard deviation grows with x0; `width` over 1 is too sure, below 1 too unsure."""

    def __init__(self, width=1.0):
        self.width = width

    def predict_distribution(self, X):
        x = np.asarray(X)[:, 0].astype(float)
        return Normal(2 * x, self.width * np.exp(0.3 * x))


def simulate(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 2 * X[:, 0] + np.exp(0.3 * X[:, 0]) * rng.normal(size=n)


@pytest.fixture(scope="module")
def frame():
    X, y = simulate(200)
    return pd.DataFrame(X, columns=["dose", "age"]), pd.Series(y, name="response")


@pytest.fixture(scope="module")
def model(frame):
    return TreeFlowRegressor(effort="fast", random_state=0).fit(*frame)


@pytest.fixture(scope="module")
def staged(frame):
    stages = [Stage(Constant(), 3), Stage(Logistic(), 3)]
    return TreeFlowRegressor.paper(stages=stages, max_trees=60, random_state=0).fit(*frame)


@pytest.fixture(scope="module")
def joint():
    X, y = simulate(200)
    y2 = np.column_stack([y, y + np.random.default_rng(1).normal(size=200)])
    stages = [Stage(Logistic(), 4)]
    return TreeFlowRegressor(
        structure="joint", base="student", stages=stages, max_trees=30, effort="fast", random_state=0
    ).fit(X, y2)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


X, Y = simulate(400, seed=3)

OF_MODELS = {
    "density": lambda ax: ConditionalDensityDisplay.from_estimator(NormalModel(), X[:3], y=Y[:3], ax=ax),
    "fan": lambda ax: FanChartDisplay.from_estimator(NormalModel(), X, 0, y=Y, ax=ax),
    "pit": lambda ax: PITDisplay.from_estimator(NormalModel(), X, Y, ax=ax),
    "calibration": lambda ax: CalibrationDisplay.from_estimator(NormalModel(), X, Y, ax=ax),
    "interval": lambda ax: IntervalDisplay.from_estimator(NormalModel(), X, Y, ax=ax),
    "effect": lambda ax: CovariateEffectDisplay.from_estimator(NormalModel(), X, 0, max_rows=10, ax=ax),
    "quantiles": lambda ax: CovariateEffectDisplay.from_estimator(NormalModel(), X, 0, kind="quantiles", ax=ax),
}


@pytest.mark.parametrize("draw", OF_MODELS.values(), ids=OF_MODELS)
def test_given_axes_are_used_and_plot_draws_again(draw):
    others = plt.get_fignums()
    figure, ax = plt.subplots()
    display = draw(ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert plt.get_fignums() == [*others, figure.number]
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_title()
    assert display.plot() is display
    assert display.ax_ is not ax
    display.figure_.canvas.draw()  # labels and layout are only made here


# Density


def test_curves_are_the_density_and_integrate_to_one(model, frame):
    rows = frame[0].iloc[:3]
    display = ConditionalDensityDisplay.from_estimator(model, rows, labels=["a", "b", "c"])
    (y,) = display.y_grid
    assert display.density.shape == (3, len(y))
    np.testing.assert_allclose(np.trapezoid(display.density, y, axis=1), 1.0, atol=0.01)
    exact = np.exp(model.log_prob(rows.iloc[[1] * len(y)], y))
    # Curves are means over narrow windows, which are larger where the density bends upwards, far out.
    np.testing.assert_allclose(display.density[1], exact, rtol=0.02, atol=0.002 * exact.max())
    assert [text.get_text().split(" (like")[0] for text in display.ax_.get_legend().get_texts()] == ["a", "b", "c"]


def test_curves_say_how_many_training_rows_support_them():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=120)
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(x, y)
    display = ConditionalDensityDisplay.from_estimator(model, [[0.0, 0.0], [9.0, 0.0]], labels=["usual", "odd"])
    usual, odd = (text.get_text() for text in display.ax_.get_legend().get_texts())
    assert odd == "odd (like 0 of 120 training rows)"
    like = int(usual.removeprefix("usual (like ").split()[0])
    size = np.quantile(np.abs(x[:, 0] - x[:, 0].mean()), 0.95)
    assert like == pytest.approx((np.abs(x[:, 0]) < size / 4).sum(), abs=8)  # the second covariate does not matter
    pipe = make_pipeline(StandardScaler(), TreeFlowRegressor(effort="fast", max_trees=2, random_state=0)).fit(x, y)
    assert "training rows" in ConditionalDensityDisplay.from_estimator(pipe, x[:1]).labels[0]


def test_narrow_peak_beside_a_wide_one_is_met():
    display = ConditionalDensityDisplay.from_estimator(NormalModel(), [[-20.0, 0.0], [5.0, 0.0]])
    peaks = norm.pdf(0) / np.exp(0.3 * np.array([-20.0, 5.0]))
    np.testing.assert_allclose(display.density.max(axis=1), peaks, rtol=0.01)
    np.testing.assert_allclose(np.trapezoid(display.density, display.y_grid[0], axis=1), 1.0, atol=0.01)


def test_true_outcome_far_out_is_still_in_the_picture():
    ax = ConditionalDensityDisplay.from_estimator(NormalModel(), [[0.0, 0.0]], y=[9.0]).ax_
    assert ax.get_xlim()[1] > 9


def test_joint_density_is_exact_and_its_regions_hold_what_they_say(joint):
    display = ConditionalDensityDisplay.from_estimator(joint, [[0.5, 0.0]], n_grid=60)
    first, second = display.y_grid
    assert joint.log_prob([[0.5, 0.0]], [[first[20], second[35]]]) == pytest.approx(np.log(display.density[20, 35]))
    cell = (first[1] - first[0]) * (second[1] - second[0])
    assert display.density.sum() * cell == pytest.approx(1.0, abs=0.03)
    draws = joint.sample([[0.5, 0.0]], 4000, random_state=0)[0]
    dense = np.exp(joint.log_prob(np.tile([0.5, 0.0], (4000, 1)), draws))
    for share, height in zip((0.5, 0.9), display._region_heights(), strict=True):
        assert (dense >= height).mean() == pytest.approx(share, abs=0.04)


def test_one_of_several_outcomes_comes_from_draws(joint):
    display = ConditionalDensityDisplay.from_estimator(joint, [[0.0, 0.0], [1.0, 0.0]], outcome=1)
    (y,) = display.y_grid
    np.testing.assert_allclose(display.density.sum(axis=1) * (y[1] - y[0]), 1.0, atol=0.01)
    mean = (display.density * y).sum(axis=1) * (y[1] - y[0])
    np.testing.assert_allclose(mean, joint.predict([[0.0, 0.0], [1.0, 0.0]])[:, 1], atol=0.1)
    assert display.ax_.get_xlabel() == "y1"


def test_grades_are_bars_at_their_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    grade = np.clip(np.round(3 + x[:, 0] + 0.5 * rng.normal(size=200)), 1, 5)
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(x, grade)
    display = ConditionalDensityDisplay.from_estimator(model, x[:3], y=grade[:3])
    (values,) = display.y_grid
    assert set(values) <= {1, 2, 3, 4, 5}
    np.testing.assert_allclose(display.density.sum(axis=1), 1.0, atol=0.01)
    assert len(display.ax_.patches) == 3 * len(values)
    assert display.ax_.get_ylabel() == "probability"


def test_density_refuses_what_it_cannot_show(joint):
    with pytest.raises(ValueError, match="at most 8 rows in X; got 9"):
        ConditionalDensityDisplay.from_estimator(NormalModel(), X[:9])
    with pytest.raises(ValueError, match="Expected 2 label"):
        ConditionalDensityDisplay.from_estimator(NormalModel(), X[:2], labels=["a"])
    with pytest.raises(ValueError, match="2 rows and y has 1"):
        ConditionalDensityDisplay.from_estimator(NormalModel(), X[:2], y=[1.0])
    with pytest.raises(ValueError, match="one row in X for two outcomes; got 2"):
        ConditionalDensityDisplay.from_estimator(joint, X[:2])


# Fan chart


def test_fan_is_the_quantiles_with_the_others_at_their_medians(model, frame):
    rows, y = frame
    display = FanChartDisplay.from_estimator(model, rows, "dose", y=y, levels=(0.9, 0.5), n_grid=12)
    held = pd.DataFrame({"dose": np.linspace(rows["dose"].min(), rows["dose"].max(), 12), "age": rows["age"].median()})
    low, high = model.predict_distribution(held).interval(0.9)
    np.testing.assert_allclose(display.values, held["dose"])
    np.testing.assert_allclose(display.levels, [0.5, 0.9])
    np.testing.assert_allclose(display.lower[1], low)
    np.testing.assert_allclose(display.upper[1], high)
    order = np.stack([display.lower[1], display.lower[0], display.median, display.upper[0], display.upper[1]])
    assert (np.diff(order, axis=0) > 0).all()
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("dose", "response")


def test_fan_holds_the_others_where_it_is_told():
    display = FanChartDisplay.from_estimator(NormalModel(), X, 1, at={0: 1.5}, n_grid=5)
    np.testing.assert_allclose(display.median, 3.0)


def test_fan_of_one_of_several_outcomes(joint):
    display = FanChartDisplay.from_estimator(joint, X, 0, outcome=1, n_grid=4)
    middle = np.column_stack([display.values, np.full(4, np.median(X[:, 1]))])
    np.testing.assert_allclose(display.median, joint.predict_distribution(middle).marginal(1).median())


class TwoModes(Normal):
    """Normal distributions of which one half is moved up by 10."""

    def icdf(self, p):
        p = np.asarray(p)
        upper = p >= 0.5
        return super().icdf(np.clip(np.where(upper, 2 * p - 1, 2 * p), 1e-9, 1 - 1e-9)) + 10.0 * upper

    def hdr(self, level):
        half = self.std * norm.ppf((1 + level) / 2)
        pairs = zip(self.mean - half, self.mean + half, strict=True)
        return [[(low, high), (low + 10, high + 10)] for low, high in pairs], np.full(len(self), level)


class TwoModesModel(NormalModel):
    def predict_distribution(self, X):
        one = super().predict_distribution(X)
        return TwoModes(one.mean, one.std)


def test_fan_of_regions_leaves_the_valley_out():
    display = FanChartDisplay.from_estimator(TwoModesModel(), X, 1, at={0: 0.0}, levels=[0.9], region="hdr", n_grid=5)
    half = norm.ppf(0.95)
    for intervals in display.regions[0]:
        np.testing.assert_allclose(intervals, [(-half, half), (10 - half, 10 + half)], atol=0.05)
    np.testing.assert_allclose(display.lower, -half, atol=0.05)
    np.testing.assert_allclose(display.upper, 10 + half, atol=0.05)
    drawn = [patch.get_bbox() for patch in display.ax_.patches]
    assert len(drawn) == 10
    assert not any(box.y0 < 5 < box.y1 for box in drawn)
    assert min(box.x0 for box in drawn) == pytest.approx(display.values[0])
    assert max(box.x1 for box in drawn) == pytest.approx(display.values[-1])
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["90 %"]
    central = FanChartDisplay.from_estimator(TwoModesModel(), X, 1, at={0: 0.0}, levels=[0.9], n_grid=5)
    assert central.regions is None


def test_fan_of_regions_is_that_of_the_distribution_and_takes_names(model, frame):
    rows, _ = frame
    display = FanChartDisplay.from_estimator(model, rows, "dose", levels=(0.5, 0.9), region="hdr", n_grid=4)
    held = pd.DataFrame({"dose": display.values, "age": rows["age"].median()})
    assert display.regions[1] == model.predict_distribution(held).hdr(0.9)[0]
    kinds = pd.DataFrame({"kind": ["b", "a"], "size": [1.0, 2.0]})
    names = FanChartDisplay.from_estimator(NamesModel(), kinds, "kind", region="hdr")
    assert len(names.regions[0]) == 2
    with pytest.raises(ValueError, match="region"):
        FanChartDisplay.from_estimator(model, rows, "dose", region="equal")


def test_density_curves_shade_their_regions():
    rows = [[0.0, 0.0], [1.0, 0.0]]
    plain = ConditionalDensityDisplay.from_estimator(TwoModesModel(), rows)
    display = ConditionalDensityDisplay.from_estimator(TwoModesModel(), rows, hdr=0.8)
    assert plain.regions is None
    assert display.regions == TwoModesModel().predict_distribution(rows).hdr(0.8)[0]
    shaded = [fill.get_datalim(display.ax_.transData) for fill in display.ax_.collections]
    assert len(shaded) == len(plain.ax_.collections) + 4
    ends = [(box.x0, box.x1) for box in shaded]
    for pair in display.regions[0]:
        assert any(np.allclose(pair, one) for one in ends)


class NamesModel:
    """The mean depends on a name; remembers the frame it was asked about."""

    def predict_distribution(self, X):
        self.asked = X
        mean = np.array([{"a": 0.0, "b": 5.0}[str(name)] for name in X["kind"]])
        return Normal(mean + np.asarray(X["size"], dtype=float), np.ones(len(X)))


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_names_are_shown_as_names_in_either_frame(library):
    rows = library.DataFrame({"kind": ["b", "a", "b", None], "size": [1.0, 2.0, 3.0, 10.0]})
    model = NamesModel()
    display = FanChartDisplay.from_estimator(model, rows, "kind", y=[0.0, 1.0, 2.0, 3.0])
    assert isinstance(model.asked, library.DataFrame)
    assert display.values == ["a", "b"]
    np.testing.assert_allclose(display.median, [2.5, 7.5])
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["a", "b"]
    other = FanChartDisplay.from_estimator(model, rows, "size", n_grid=3)
    np.testing.assert_allclose(other.median, 5.0 + np.linspace(1, 10, 3))  # the commonest name is held
    effect = CovariateEffectDisplay.from_estimator(model, rows[:3], "kind")
    np.testing.assert_allclose(np.diff(effect.quantiles([0.5])), 5.0, atol=0.05)


def test_categories_keep_their_dtype():
    rows = pd.DataFrame({"kind": pd.Categorical(["a", "b", "a"]), "size": [1.0, 2.0, 3.0]}, index=[7, 8, 9])
    model = NamesModel()
    FanChartDisplay.from_estimator(model, rows, "kind")
    assert model.asked["kind"].dtype == rows["kind"].dtype


def test_unknown_features_are_named():
    rows = pd.DataFrame(X, columns=["dose", "age"])
    with pytest.raises(ValueError, match="one of 'dose', 'age'; got 'weight'"):
        FanChartDisplay.from_estimator(NormalModel(), rows, "weight")
    with pytest.raises(ValueError, match="number below 2"):
        CovariateEffectDisplay.from_estimator(NormalModel(), X, 2)


# History


def test_history_counts_trees_and_finds_the_best():
    display = HistoryDisplay(
        {
            "member": np.array([0, 0, 0, 0, 0, 1, 1]),
            "stage": np.array([0, 0, 0, 1, 1, 0, 0]),
            "train": np.arange(7.0),
            "validation": np.array([-3.0, -2.0, -2.5, -1.5, -1.8, -2.0, -2.1]),
            "kept": np.array([True, True, False, True, False, False, False]),
        }
    )
    assert display.n_trees.tolist() == [1, 2, 3, 3, 4, 1, 2]
    assert display.best == {0: 3}
    labels = [text.get_text() for text in display.plot().ax_.get_legend().get_texts()]
    assert labels[:2] == ["member 0", "member 1"]


def test_history_of_a_model_of_two_stages(staged):
    display = HistoryDisplay.from_estimator(staged)
    (best,) = display.best.values()
    assert display.validation[best] == np.nanmax(display.validation)
    assert display.n_trees[best] == staged.n_trees_
    assert "stage 2" in [text.get_text() for text in display.ax_.texts]


def test_history_without_validation_rows(frame):
    plain = TreeFlowRegressor.paper(
        stages=[Stage(Constant(), 2)], max_trees=3, validation_fraction=0.0, random_state=0
    ).fit(*frame)
    display = HistoryDisplay.from_estimator(plain)
    assert display.best == {0: 2}
    assert "validation" not in [text.get_text() for text in display.ax_.get_legend().get_texts()]


# Calibration


def test_perfect_model_is_inside_the_bands():
    pit = PITDisplay.from_estimator(NormalModel(), X, Y)
    np.testing.assert_allclose(pit.pit, norm.cdf((Y - 2 * X[:, 0]) / np.exp(0.3 * X[:, 0])))
    assert pit.p_value > 0.01
    assert pit.height.mean() == pytest.approx(1.0)
    # The bands hold 95 % at each level and bar, so over many tables that is what is found.
    tables = np.random.default_rng(0).random((300, 400))
    shows = [CalibrationDisplay(table) for table in tables]
    share = np.mean([(show.low <= show.coverage) & (show.coverage <= show.high) for show in shows], axis=0)
    assert ((share > 0.92) & (share < 0.99)).all()
    pits = [PITDisplay(table) for table in tables]
    share = np.mean([(show.band[0] <= show.height) & (show.height <= show.band[1]) for show in pits], axis=0)
    assert ((share > 0.92) & (share < 0.99)).all()


def test_model_too_sure_of_itself_is_seen():
    pit = PITDisplay.from_estimator(NormalModel(width=0.5), X, Y, n_bins=10)
    assert pit.p_value < 1e-6
    assert min(pit.height[0], pit.height[-1]) > pit.band[1]
    assert f"KS {pit.ks:.3f}" in pit.ax_.get_title()
    calibration = CalibrationDisplay.from_estimator(NormalModel(width=0.5), X, Y, levels=[0.5, 0.9])
    inside = np.abs(Y - 2 * X[:, 0]) <= norm.ppf(0.95) * 0.5 * np.exp(0.3 * X[:, 0])
    assert calibration.coverage[1] == inside.mean()
    assert (calibration.coverage < calibration.low).all()


def test_bands_are_binomial():
    pit = PITDisplay(np.linspace(0.001, 0.999, 200), n_bins=8)
    assert pit.band == tuple(binom.ppf([0.025, 0.975], 200, 1 / 8) * 8 / 200)
    calibration = CalibrationDisplay(np.linspace(0.001, 0.999, 200), levels=[0.8])
    assert (calibration.low[0], calibration.high[0]) == tuple(binom.ppf([0.025, 0.975], 200, 0.8) / 200)


def test_pit_of_one_of_several_outcomes(joint):
    rows, y = simulate(30, seed=5)
    y2 = np.column_stack([y, y])
    display = PITDisplay.from_estimator(joint, rows, y2, outcome=1)
    np.testing.assert_allclose(display.pit, joint.predict_distribution(rows).marginal(1).cdf(y))


# Intervals


def test_intervals_and_hits(model, frame):
    rows, y = frame
    display = IntervalDisplay.from_estimator(model, rows, y, level=0.8, max_rows=40)
    low, high = model.predict_distribution(rows).interval(0.8)
    np.testing.assert_allclose(display.lower, low)
    np.testing.assert_allclose(display.upper, high)
    np.testing.assert_array_equal(display.hit, (low <= y) & (y <= high))
    assert f"{100 * display.hit.mean():.0f} % of 200" in display.ax_.get_title()
    assert sum(len(part.get_segments()) for part in display.ax_.collections if hasattr(part, "get_segments")) == 40


@pytest.mark.parametrize("sort_by", ["median", "truth"])
def test_intervals_are_in_order(sort_by):
    display = IntervalDisplay.from_estimator(NormalModel(), X, Y, sort_by=sort_by)
    points = np.concatenate([part.get_offsets() for part in display.ax_.collections if len(part.get_offsets()) > 1])
    medians = display.ax_.lines[0].get_ydata()
    drawn = medians if sort_by == "median" else points[np.argsort(points[:, 0]), 1]
    assert len(drawn) == 150
    assert (np.diff(drawn) >= 0).all()


# Importance


def test_importances_largest_first_with_their_names(model):
    display = ImportanceDisplay.from_estimator(model)
    assert display.names == ["dose", "age"]
    np.testing.assert_allclose(display.importances, model.feature_importances_)
    few = ImportanceDisplay(np.array([0.1, 0.6, 0.3]), ["x0", "x1", "x2"]).plot(max_features=2)
    assert few.names == ["x1", "x2", "x0"]
    assert [bar.get_width() for bar in few.ax_.patches] == [0.6, 0.3]
    assert "1 smaller" in few.ax_.get_title()


# Covariate effect


def test_effect_is_the_mean_of_the_densities():
    display = CovariateEffectDisplay.from_estimator(NormalModel(), X, 1, n_grid=3, n_cells=400, max_rows=400)
    middle = (display.y_edges[1:] + display.y_edges[:-1]) / 2
    mixture = norm.pdf(middle[:, None], 2 * X[:, 0], np.exp(0.3 * X[:, 0])).mean(axis=1)
    np.testing.assert_allclose(display.density, np.tile(mixture, (3, 1)), rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose((display.density * np.diff(display.y_edges)).sum(axis=1), 1.0, atol=0.01)


def test_effect_quantiles_follow_the_covariate():
    display = CovariateEffectDisplay.from_estimator(NormalModel(), X, 0, kind="quantiles", n_grid=5, n_cells=400)
    expected = norm.ppf(np.array([[0.1], [0.5], [0.9]]), 2 * display.values, np.exp(0.3 * display.values))
    np.testing.assert_allclose(display.quantiles([0.1, 0.5, 0.9]), expected, atol=0.03)


def test_effect_takes_a_sample_of_the_rows(monkeypatch):
    asked = []
    predict = NormalModel.predict_distribution
    monkeypatch.setattr(NormalModel, "predict_distribution", lambda self, X: asked.append(X) or predict(self, X))
    CovariateEffectDisplay.from_estimator(NormalModel(), X, 1, max_rows=7, n_grid=5)
    assert asked[0].shape == (35, 2)
    assert len(np.unique(asked[0][:, 0])) == 7


def test_effect_on_one_of_several_outcomes(joint):
    display = CovariateEffectDisplay.from_estimator(joint, X, 0, outcome=0, max_rows=10, n_grid=3)
    assert (np.diff(display.cdf, axis=1) >= 0).all()
    low, _, high = display.quantiles([0.5])[0]
    assert high > low + 2  # y0 = 2 x0 + noise


# Complaints


def test_several_outcomes_need_a_choice(joint):
    y2 = np.column_stack([Y, Y])[:5]
    for draw in (
        lambda **one: FanChartDisplay.from_estimator(joint, X[:5], 0, **one),
        lambda **one: CovariateEffectDisplay.from_estimator(joint, X[:5], 0, **one),
        lambda **one: IntervalDisplay.from_estimator(joint, X[:5], y2, **one),
        lambda **one: PITDisplay.from_estimator(joint, X[:5], y2, **one),
    ):
        with pytest.raises(ValueError, match="the model has 2: pass outcome=, 'y0', 'y1'"):
            draw()
        with pytest.raises(ValueError, match="number from 0 to 1; got 2"):
            draw(outcome=2)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="kind to be 'density' or 'quantiles'; got 'mean'"):
        CovariateEffectDisplay.from_estimator(NormalModel(), X, 0, kind="mean")
    with pytest.raises(ValueError, match="sort_by to be 'median' or 'truth'; got 'x'"):
        IntervalDisplay.from_estimator(NormalModel(), X, Y, sort_by="x")
    with pytest.raises(ValueError, match="levels to be numbers between 0 and 1"):
        FanChartDisplay.from_estimator(NormalModel(), X, 0, levels=[90])
    with pytest.raises(ValueError, match="levels between 0 and 1"):
        CalibrationDisplay(np.array([0.5]), levels=[1.0])
    with pytest.raises(ValueError, match="400 rows and y has 3"):
        PITDisplay.from_estimator(NormalModel(), X, Y[:3])


def test_models_that_cannot_be_drawn():
    for display in (HistoryDisplay, ImportanceDisplay):
        with pytest.raises(NotFittedError):
            display.from_estimator(TreeFlowRegressor())
        with pytest.raises(NotFittedError):
            PITDisplay.from_estimator(make_pipeline(StandardScaler(), TreeFlowRegressor()), X, Y)
    with pytest.raises(TypeError, match=r"Expected a model with predict_distribution.*got StandardScaler"):
        PITDisplay.from_estimator(StandardScaler(), X, Y)


def test_matplotlib_is_imported_late_and_missed_in_words(monkeypatch):
    code = "import sys, treecdf.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"treecdf\[plots\]"):
        PITDisplay(np.array([0.2, 0.7])).plot()
