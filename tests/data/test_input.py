"""Bad input gets one clear sentence; strange but honest input works without a warning (warnings are errors here)."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from treecdf import MLP, BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf.training.parameters import RULES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.5 * RNG.normal(size=60)
LEVELS = np.array([1e-4, 0.05, 0.3, 0.5, 0.8, 0.95, 1 - 1e-4])


def model(**settings):
    return TreeFlowRegressor(**{"max_trees": 3, "random_state": 0, **settings})


def changed(values, where, value):
    copy = np.array(values, dtype=float)
    copy[where] = value
    return copy


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, Y)


@pytest.fixture(scope="module")
def fitted_to_two():
    return model().fit(X, np.column_stack([Y, X[:, 1]]))


# Bad tables: fit arguments and the words the complaint must hold

TWO = np.column_stack([Y, Y])
BAD_TABLES = {
    "NaN in y": ((X, changed(Y, 7, np.nan)), "NaN in row 7"),
    "infinity in y": ((X, changed(Y, 9, np.inf)), "infinity in row 9"),
    "minus infinity in y": ((X, changed(Y, 0, -np.inf)), "infinity in row 0"),
    "NaN in one of two outcomes": ((X, changed(TWO, (3, 1), np.nan)), "NaN in row 3, outcome 1"),
    "y too short": ((X, Y[:-1]), "X has 60 rows and y has 59"),
    "y too long": ((X[:-1], Y), "X has 59 rows and y has 60"),
    "y missing": ((X, None), "y is missing"),
    "strings in y": ((X, ["a"] * 60), "y cannot be read as numbers"),
    "three-dimensional y": ((X, np.zeros((60, 2, 2))), r"Expected y of shape .*; got \(60, 2, 2\)"),
    "outcomes beyond float64": (
        (X, changed(Y, [0, 1], [-1.7e308, 1.7e308])),
        r"y is beyond 1e\+303 in row 0: rescale it",
    ),
    "outcomes whose mean is NaN": ((X, 1e306 * Y), r"y is beyond 1e\+303 in row 0: rescale it"),
    "weights that add up to almost nothing": (
        (X, Y, np.full(60, 1e-20)),
        "weights add up to 6e-19.*between 1e-09 and 1e.12; set weights_are=",
    ),
    "weights that add up to too much": (
        (X, Y, np.full(60, 1e16)),
        r"weights add up to 6e\+17.*between 1e-09 and 1e.12",
    ),
    "weights whose sum is infinite": ((X, Y, np.full(60, 1e308)), "weights add up to inf"),
    "one weight that is too large": ((X, Y, changed(np.ones(60), 5, 1e20)), r"weights add up to 1e\+20"),
    "infinity in X": ((changed(X, (2, 0), np.inf), Y), "X contains infinity"),
    "dates and text": ((pd.DataFrame({"day": [pd.Timestamp("2020"), "x"] * 30}), Y), "'day' of X holds dates and"),
    "dates as outcomes": ((X, pd.date_range("2020", periods=60)), "y holds dates"),
    "flat X": ((X[:, 0], Y), "Expected 2D array, got 1D array"),
    "no rows": ((X[:0], Y[:0]), r"0 sample\(s\)"),
    "one row": ((X[:1], Y[:1]), r"1 row\(s\).*at least 2 are required"),
    "no covariates": ((X[:, :0], Y), r"0 feature\(s\)"),
    "negative weight": ((X, Y, changed(np.ones(60), 5, -1)), "sample_weight of row 5 is -1"),
    "NaN weight": ((X, Y, changed(np.ones(60), 5, np.nan)), "sample_weight of row 5 is nan"),
    "all weights zero": ((X, Y, np.zeros(60)), "All sample weights are zero"),
    "one row of weight": ((X, Y, changed(np.zeros(60), 5, 1)), r"1 row\(s\).*at least 2 are required"),
    "weights of another length": ((X, Y, np.ones(59)), r"sample_weight of shape \(60,\); got \(59,\)"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_table(name):
    arguments, complaint = BAD_TABLES[name]
    with pytest.raises(ValueError, match=complaint):
        model().fit(*arguments)


KINDS = {
    "default": {},
    "fast": {"effort": "fast"},
    "box": {"base": "box"},
    "student": {"base": "student"},
    "atoms": {"effort": "fast", "atoms": [0.0]},
}


def every_answer(fitted, y):
    """What the distributions of a model of one outcome say, by the names of their methods."""
    found = fitted.predict_distribution(X)
    return {
        "logpdf": found.logpdf(y),
        "cdf": found.cdf(y),
        "icdf": found.icdf(np.full(len(X), 0.3)),
        "mean": found.mean(),
        "std": found.std(),
        "crps": found.crps(y),
        "sample": found.sample(5, random_state=0),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("total", [1e-8, 1e11])
def test_sums_of_weights_that_are_allowed_give_finite_answers(kind, total):
    y = changed(Y, slice(0, 20), 0.0) if kind == "atoms" else Y
    weight = np.full(60, total / 60)
    if total < 1:
        with pytest.warns(UserWarning, match="add up to 1e-08"):
            fitted = model(**KINDS[kind]).fit(X, y, weight)
    else:
        fitted = model(**KINDS[kind]).fit(X, y, weight)
    for name, answer in every_answer(fitted, y).items():
        assert np.isfinite(answer).all(), name


@pytest.mark.parametrize("power", [-16, 9])
def test_ratios_of_weights_may_be_large(power):
    fitted = model(effort="fast").fit(X, Y, changed(np.ones(60), slice(0, 60, 2), 10.0**power))
    for name, answer in every_answer(fitted, Y).items():
        assert np.isfinite(answer).all(), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_outcomes_give_finite_answers(kind):
    y = 1e303 * Y / np.abs(Y).max()
    if kind == "atoms":
        y[:20] = 0.0
    fitted = model(**KINDS[kind]).fit(X, y)
    for name, answer in every_answer(fitted, y).items():
        assert np.isfinite(answer).all(), name


BAD_VALIDATION = {
    "lengths": ({"X_val": X[:5], "y_val": Y[:4]}, "X has 5 rows and y has 4"),
    "covariates": ({"X_val": X[:5, :1], "y_val": Y[:5]}, "1 features.*expecting 2"),
    "outcomes": ({"X_val": X[:5], "y_val": TWO[:5]}, r"1 outcome\(s\); got 2"),
    "NaN": ({"X_val": X[:5], "y_val": changed(Y[:5], 3, np.nan)}, "NaN in row 3"),
    "X alone": ({"X_val": X[:5]}, "X_val and y_val together"),
    "weights alone": ({"sample_weight_val": np.ones(5)}, "X_val"),
}


@pytest.mark.parametrize("name", BAD_VALIDATION)
def test_bad_validation_rows(name):
    arguments, complaint = BAD_VALIDATION[name]
    with pytest.raises(ValueError, match=complaint):
        model().fit(X, Y, **arguments)


# Bad bounds


def test_outcome_outside_bounds_names_row_and_value():
    with pytest.raises(ValueError, match=r"is 12 in row 8, outside its bounds \(-10.0, 10.0\)"):
        model(bounds=(-10, 10)).fit(X, changed(Y, 8, 12))
    with pytest.raises(ValueError, match=r"Outcome 1 of y is -3 in row 4, outside its bounds \(-2.0, None\)"):
        model(bounds=[None, (-2, None)]).fit(X, changed(np.zeros((60, 2)), (4, 1), -3))


def test_outcome_outside_bounds_names_the_row_the_user_knows():
    """Rows of weight zero are left out, but they count when a row is named."""
    with pytest.raises(ValueError, match="is 12 in row 8"):
        model(bounds=(-10, 10)).fit(X, changed(Y, 8, 12), changed(np.ones(60), [0, 3], 0))


BAD_BOUNDS = {
    "reversed": ((10, -10), r"low < high, .*; got \(10, -10\)"),
    "equal": ((10, 10), r"low < high, .*; got \(10, 10\)"),
    "too many": ([(-10, 10)] * 3, r"bounds for 1 outcome\(s\); got 3"),
    "a number": (5, "bounds"),
    "strings": (("a", "b"), "bounds"),
    "one string": ((-10, "high"), "bounds"),
    "one end": ([(-10,)], "bounds"),
    "NaN": ((np.nan, 10), "bounds"),
    "NaN alone": ((None, np.nan), "bounds"),
}


@pytest.mark.parametrize("name", BAD_BOUNDS)
def test_bad_bounds(name):
    bounds, complaint = BAD_BOUNDS[name]
    with pytest.raises((ValueError, TypeError), match=complaint):
        model(bounds=bounds).fit(X, Y)


def test_infinite_bounds_are_no_bounds():
    free, infinite = model().fit(X, Y), model(bounds=(-np.inf, np.inf)).fit(X, Y)
    assert np.array_equal(infinite.log_prob(X, Y), free.log_prob(X, Y))


# Bad parameters: every entry of the rules

BAD_PARAMETERS = {
    "effort": ["high", None, 1],
    "structure": ["trees", None, 1],
    "base": ["gaussian", None, 1, ["box"]],
    "rotations": [-1, 2.5, True, False, "a", [], (), np.nan, np.eye(2), np.zeros((0, 2, 2))],
    "weights": ["stack", None, 3, ["equal"], True],
    "regions": [0, -1, 2.5, None, True, "kmeans", [], np.nan, DBSCAN(), KMeans],
    "random_state": ["a", -1, 2.5, [1, 2], True],
    "weights_are": ["count", None, True],
    "remember_rows": ["no", None, 1],
    "margin": [0, -0.1, np.nan, 11, "a", None],
    "penalty": ["mean", None, True],
    "c0": [0, 1, -0.1, np.nan, "a", None, True],
    "gamma": [-1, np.inf, "a"],
    "eta": [-1, np.nan, None],
    "grid_size": [0, 1001, 2.5, "a"],
    "min_samples_node": [0, 0.5, "a"],
    "max_trees": [-1, 2.5, None],
    "early_stopping_window": [0, 1.5, "a"],
    "validation_fraction": [-0.1, 1, 1.5, None],
    "subsample": [0, 1.1, "a"],
    "split_search": ["scores", None, 3],
    "n_jobs": [0, 1.5, "a"],
    "checkpoint": ["", 1, True, b"path"],
    "on_interrupt": ["stop", None, True],
    "verbose": [-1, "a", None],
}


def test_every_rule_is_tested():
    assert set(BAD_PARAMETERS) == set(RULES)


@pytest.mark.parametrize(("name", "value"), [(name, bad) for name, values in BAD_PARAMETERS.items() for bad in values])
def test_bad_parameter(name, value):
    complaint = f"Expected {name} to be {RULES[name][1]}; got {value!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        model(**{name: value}).fit(X, Y)


GOOD_PARAMETERS = {
    "base": ["auto", "unconditional", "box", "student"],
    "structure": ["auto", "joint"],
    "effort": ["fast", "default", "best"],
    "rotations": [None, 0, 1, np.int64(2), [np.eye(2)], np.eye(2)[None], (np.eye(2), [[0, 1], [-1, 0]])],
    "weights": ["equal", "stacked", "likelihood", "mean_likelihood"],
    "penalty": ["auto", "node", "row"],
    "regions": [1, np.int64(3), "hdbscan", KMeans(2, random_state=0), KMeans(2, random_state=0).fit(X)],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, good) for name, values in GOOD_PARAMETERS.items() for good in values]
)
def test_good_parameter_of_a_mixture(name, value):
    settings = {"stages": [Stage(Logistic(), 2)], "rotations": 2, "weights": "stacked", name: value}
    both = np.column_stack([Y, X[:, 1]])
    assert np.isfinite(model(**settings).fit(X, both).score(X, both))


BAD_STAGES = {
    "a classifier": (Logistic(), "stages"),
    "a stage": (Stage(Logistic()), "stages"),
    "classifiers": ([Logistic()], r"stages to be a list of Stage; got \[Logistic"),
    "a word": ("logistic", "stages to be a list of Stage"),
    "no classifier": ([Stage("logistic")], "Expected a node classifier.*got 'logistic'"),
    "a class": ([Stage(Logistic)], "Expected a node classifier"),
    "depth 0": ([Stage(Logistic(), 0)], "max_depth to be an integer from 1 to 30; got 0"),
    "depth 31": ([Stage(Logistic(), 31)], "max_depth to be an integer from 1 to 30; got 31"),
    "depth 2.5": ([Stage(Logistic(), 2.5)], "max_depth to be an integer from 1 to 30; got 2.5"),
}


@pytest.mark.parametrize("name", BAD_STAGES)
def test_bad_stages(name):
    stages, complaint = BAD_STAGES[name]
    with pytest.raises((ValueError, TypeError), match=complaint):
        model(stages=stages).fit(X, Y)


BAD_CLASSIFIERS = [
    (Logistic, {"C": 0}),
    (Logistic, {"C": -1}),
    (Logistic, {"C": "a"}),
    (Logistic, {"max_iter": 0}),
    (Logistic, {"basis": "splines"}),
    (Logistic, {"basis": 3}),
    (MLP, {"alpha": -1}),
    (MLP, {"max_iter": "a"}),
    (MLP, {"hidden": 4}),
    (MLP, {"hidden": ()}),
    (MLP, {"hidden": (4, 0)}),
    (MLP, {"hidden": (2.5,)}),
    (BoostedTrees, {"rounds": 0}),
    (BoostedTrees, {"rounds": 2.5}),
    (BoostedTrees, {"max_depth": 0}),
    (BoostedTrees, {"max_depth": 11}),
    (BoostedTrees, {"learning_rate": 0}),
    (BoostedTrees, {"learning_rate": 1.5}),
    (BoostedTrees, {"n_bins": 1}),
    (BoostedTrees, {"n_bins": 256}),
    (BoostedTrees, {"min_rows": 0.5}),
    (BoostedTrees, {"ridge": 0}),
    (BoostedTrees, {"ridge": "a"}),
]


@pytest.mark.parametrize(("kind", "setting"), BAD_CLASSIFIERS)
def test_bad_setting_of_a_classifier(kind, setting):
    """Told when the classifier is made or when the model is fitted, by name."""
    (name,) = setting
    with pytest.raises((ValueError, TypeError), match=rf"Expected {name}\b"):
        model(stages=[Stage(kind(**setting), 2)]).fit(X, Y)


# Bad questions to a model


@pytest.mark.parametrize("ask", ["predict", "sample", "predict_distribution", "log_prob", "score"])
def test_questions_before_fit(ask):
    arguments = (X, Y) if ask in ("log_prob", "score") else (X,)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model(), ask)(*arguments)


@pytest.mark.parametrize("ask", ["predict", "sample", "predict_distribution"])
def test_wrong_number_of_columns(fitted, ask):
    for x, q in ((X[:, :1], 1), (np.c_[X, X], 4)):
        with pytest.raises(ValueError, match=f"X has {q} features.*expecting 2 features"):
            getattr(fitted, ask)(x)


def test_bad_covariates_of_a_question(fitted):
    with pytest.raises(ValueError, match="X contains infinity"):
        fitted.predict(changed(X, (0, 0), np.inf))
    with pytest.raises(ValueError, match="column 0 of X had numbers when the model was fitted; got 'a'"):
        fitted.predict([["a", "b"]])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        fitted.predict(X[:0])


def test_lengths_must_match(fitted):
    with pytest.raises(ValueError, match="X has 1 rows and y has 60"):
        fitted.log_prob(X[:1], Y)
    with pytest.raises(ValueError, match="X has 60 rows and y has 1"):
        fitted.log_prob(X, Y[:1])
    with pytest.raises(ValueError, match="X has 60 rows and y has 59"):
        fitted.score(X, Y[:-1])
    distribution = fitted.predict_distribution(X)
    for ask in (distribution.logpdf, distribution.pdf, distribution.cdf, distribution.pit):
        with pytest.raises(ValueError, match=r"Expected y of shape \(60,\) or \(60, m\), .*; got \(59,\)"):
            ask(Y[:-1])
    with pytest.raises(ValueError, match=r"shape \(60,\), one outcome for each row; got \(59,\)"):
        distribution.crps(Y[:-1])


def test_bad_outcomes_of_a_question(fitted, fitted_to_two):
    with pytest.raises(ValueError, match="NaN in row 4"):
        fitted.log_prob(X, changed(Y, 4, np.nan))
    with pytest.raises(ValueError, match="infinity in row 4"):
        fitted.log_prob(X, changed(Y, 4, np.inf))
    with pytest.raises(ValueError, match=r"1 outcome\(s\); got 2"):
        fitted.log_prob(X, TWO)
    with pytest.raises(ValueError, match=r"2 outcome\(s\); got 1"):
        fitted_to_two.log_prob(X, Y)
    with pytest.raises(ValueError, match="y contains NaN"):
        fitted.predict_distribution(X).cdf(changed(Y, 4, np.nan))


def test_questions_for_one_outcome_only(fitted_to_two):
    distribution = fitted_to_two.predict_distribution(X)
    asks = {"cdf": Y, "icdf": 0.5, "ppf": 0.5, "crps": Y}
    for name, argument in asks.items():
        with pytest.raises(ValueError, match="is for one outcome; this distribution has 2"):
            getattr(distribution, name)(argument)
    with pytest.raises(IndexError, match="below 2; got 2"):
        distribution.marginal(2)


def test_bad_levels(fitted):
    distribution = fitted.predict_distribution(X)
    for levels in (-0.1, 1.1, np.nan, [0.5, 2.0]):
        with pytest.raises(ValueError, match="levels between 0 and 1"):
            distribution.icdf(levels)
    with pytest.raises(ValueError, match=r"levels of shape .*\(60, m\); got \(7, 2\)"):
        distribution.icdf(np.full((7, 2), 0.5))
    with pytest.raises(ValueError, match=r"levels of shape .*\(60, m\); got \(60, 2, 2\)"):
        distribution.icdf(np.full((60, 2, 2), 0.5))
    for level in (0, 1, 1.5, -1):
        with pytest.raises(ValueError, match=f"level between 0 and 1, or several; got {level}"):
            distribution.interval(level)


# Strange but honest tables

FAR_OUT = changed(Y, 0, 1e6)
STRANGE_TABLES = {
    "constant outcome": (X, np.full(60, 3.0)),
    "outcome zero": (X, np.zeros(60)),
    "constant covariate": (np.c_[X[:, 0], np.ones(60)], Y),
    "all covariates constant": (np.ones((60, 2)), Y),
    "duplicated covariates": (np.c_[X, X], Y),
    "more covariates than rows": (RNG.normal(size=(60, 80)), Y),
    "heavily tied outcomes": (X, np.round(Y)),
    "two values": (X, (Y > 0).astype(float)),
    "tiny outcomes": (X, 1e-300 * Y),
    "huge outcomes": (X, 1e300 * Y),
    "tiny positive outcomes": (X, 1e-300 * np.exp(Y)),
    "huge positive outcomes": (X, 1e300 * np.exp(Y)),
    "integers": (np.round(10 * X).astype(int), np.round(10 * Y).astype(int)),
    "float32": (X.astype(np.float32), Y.astype(np.float32)),
    "booleans": (X > 0, Y),
    "one covariate": (X[:, :1], Y),
    "a far outlier": (X, FAR_OUT),
    "large offset": (X, 1e6 + Y),
    "huge covariates": (1e300 * X, Y),
    "tiny covariates": (1e-300 * X, Y),
    "a far outlier in x": (changed(X, (0, 0), 1e300), Y),
    "two rows": (X[:2], Y[:2]),
    "few rows": (X[:12], Y[:12]),
    "lists": (X.tolist(), Y.tolist()),
    "column-major": (np.asfortranarray(X), Y),
    "every second row": (np.repeat(X, 2, 0)[::2], np.repeat(Y, 2)[::2]),
}


def check_answers(found, x, y):
    """Log density finite, CDF and quantiles each other's inverse, samples and moments finite."""
    distribution = found.predict_distribution(x)
    assert np.isfinite(found.log_prob(x, y)).all()
    quantiles = distribution.icdf(LEVELS)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=1) >= 0).all()
    if found.grid_ is not None:  # quantiles are values that occur: the first that reaches the level
        assert (distribution.cdf(quantiles) >= LEVELS - 1e-9).all()
        assert (distribution.cdf(quantiles - 1e-3) <= np.array(LEVELS) + 1e-9).all()
    else:
        resolution = np.abs(quantiles) * 4e-16 * distribution.pdf(quantiles)  # what rounding y does to p
        assert (np.abs(distribution.cdf(quantiles) - LEVELS) <= 1e-9 + resolution).all()
    assert np.isfinite(distribution.sample(5, random_state=0)).all()
    assert np.isfinite(found.predict(x)).all()
    assert np.isfinite(distribution.crps(y)).all()
    assert (distribution.std() > 0).all()


@pytest.mark.parametrize("name", STRANGE_TABLES)
def test_strange_table(name):
    x, y = STRANGE_TABLES[name]
    check_answers(model().fit(x, y), x, y)


@pytest.mark.parametrize("name", ["constant outcome", "heavily tied outcomes", "huge outcomes", "a far outlier"])
def test_strange_table_with_two_outcomes(name):
    x, y = STRANGE_TABLES[name]
    both = np.column_stack([y, X[:, 1]])
    found = model().fit(x, both)
    assert np.isfinite(found.log_prob(x, both)).all()
    assert np.isfinite(found.sample(x, 5, random_state=0)).all()
    assert np.isfinite(found.predict(x)).all()


def test_ties_stay_finite_when_the_trees_go_on():
    y = np.round(Y)
    found = model(max_trees=60, validation_fraction=0).fit(X, y)
    assert np.isfinite(found.log_prob(X, y)).all()
    assert np.isfinite(found.sample(X, 5, random_state=0)).all()


@pytest.mark.parametrize("y", [1e3, -1e3, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324])
def test_outcomes_far_outside_the_training_range(fitted, fitted_to_two, y):
    assert np.isfinite(fitted.log_prob(X, np.full(60, y))).all()
    assert np.isfinite(fitted_to_two.log_prob(X, np.full((60, 2), y))).all()
    assert np.isfinite(fitted.predict_distribution(X).crps(np.full(60, y / 4))).all()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_outcomes_far_outside_a_range_of_any_size(scale):
    found = model().fit(X, scale * Y)
    far = np.array([-1.7e308, -1e300, -1.0, 0.0, 1.0, 1e300, 1.7e308])
    log_prob = found.log_prob(X[:7], far)
    assert np.isfinite(log_prob).all()


def test_the_density_falls_with_the_distance(fitted):
    log_prob = fitted.predict_distribution(X[:1]).logpdf([[10.0, 1e2, 1e4, 1e8, 1e16, 1e100, 1e290]])[0]
    assert (np.diff(log_prob) < 0).all()


@pytest.mark.parametrize("name", ["integers", "one covariate", "tiny covariates", "huge covariates"])
def test_covariates_far_outside_the_training_range(name):
    x, y = STRANGE_TABLES[name]
    found = model().fit(x, y)
    for far in (1e3, -1e300, 1e300, -1.7e308, 1.7e308):
        check_answers(found, np.full((20, x.shape[1]), far), y[:20])


def test_far_covariate_that_hardly_varied():
    found = model().fit(1 + 1e-9 * X, Y)
    assert np.isfinite(found.log_prob(np.full((60, 2), 1e300), Y)).all()


def test_rows_of_a_subsample_may_be_few():
    found = model(subsample=0.05, min_samples_node=1, max_trees=20).fit(X[:25], Y[:25])
    check_answers(found, X, Y)


def test_some_rows_are_always_left_for_training():
    found = model(validation_fraction=0.9).fit(X[:3], Y[:3])
    check_answers(found, X, Y)


def test_validation_rows_may_all_be_far_away():
    found = model().fit(X, Y, X_val=X[:5], y_val=np.full(5, 1e9))
    assert np.isfinite(found.history_["validation"]).all()
    check_answers(found, X, Y)


FRAMES = {
    "pandas": (pd.DataFrame(X, columns=["a", "b"]), pd.Series(Y)),
    "pandas, mixed types": (pd.DataFrame({"a": X[:, 0].astype(np.float32), "b": np.arange(60)}), pd.Series(Y)),
    "pandas, nullable types": (pd.DataFrame(X, columns=["a", "b"]).astype("Float64"), pd.Series(Y, dtype="Float64")),
    "pandas, shuffled index": (pd.DataFrame(X, index=np.arange(60)[::-1]).rename(columns=str), pd.Series(Y)),
    "polars": (pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}), pl.Series("y", Y)),
    "polars, y a frame": (pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}), pl.DataFrame({"y": Y})),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    x, y = FRAMES[name]
    found = model().fit(x, y, sample_weight=pd.Series(np.ones(60)))
    plain = model().fit(np.asarray(x, dtype=float), Y)
    assert np.array_equal(found.log_prob(x, y), plain.log_prob(np.asarray(x, dtype=float), Y))
    check_answers(found, x, y)


def test_frame_of_two_outcomes():
    frame = pd.DataFrame({"first": Y, "second": X[:, 1]})
    found = model().fit(X, frame)
    assert found.n_outcomes_ == 2
    assert np.array_equal(found.log_prob(X, frame), model().fit(X, frame.to_numpy()).log_prob(X, frame.to_numpy()))


def test_missing_values_in_frames_are_named():
    with pytest.raises(ValueError, match="NaN in row 2"):
        model().fit(X, pd.Series([*Y[:2], None, *Y[3:]], dtype="Float64"))
    with pytest.raises(ValueError, match="NaN in row 2"):
        model().fit(X, pl.Series("y", [*Y[:2], None, *Y[3:]]))


def test_read_only_and_strided_arrays_need_no_further_compilation():
    """Kernels have one signature each; weights are the one array that could reach them as the user gave it."""
    from treecdf._kernels.rows import search_sums

    model().fit(X, Y)
    known = len(search_sums.signatures)
    strided, frozen = np.ones((60, 2))[:, 0], np.ones(60)
    frozen.flags.writeable = False
    for weight in (strided, frozen):
        model().fit(X, Y, weight)
    assert len(search_sums.signatures) == known


def test_tables_of_pyarrow_and_lazy_frames_are_read():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(city=np.where(X[:, 0] > 0, "x", "y"))
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(frame, Y)
    lazy = pl.DataFrame({name: frame[name].to_list() for name in frame}).lazy()
    for other in (pa.Table.from_pandas(frame), lazy):
        np.testing.assert_array_equal(model.predict(other), model.predict(frame))
        again = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(other, Y)
        assert again.feature_names_in_.tolist() == ["a", "b", "city"]
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_a_pipeline_with_sparse_rows_says_what_helps():
    frame = pd.DataFrame({"city": np.where(X[:, 0] > 0, "x", "y")})
    pipe = make_pipeline(OneHotEncoder(), TreeFlowRegressor(effort="fast"))
    with pytest.raises(TypeError, match=r"OneHotEncoder\(sparse_output=False\), or leave out the encoder"):
        pipe.fit(frame, Y)


def test_dicts_are_refused_in_words():
    model = TreeFlowRegressor(effort="fast", random_state=0)
    for x in ({"a": [1.0, 2.0]}, [{"a": 1.0}, {"a": 2.0}]):
        with pytest.raises(TypeError, match=r"made of dicts.*pandas\.DataFrame\(X\)"):
            model.fit(x, [1.0, 2.0])


def test_a_complaint_about_outcomes_does_not_print_them_all():
    with pytest.raises(ValueError, match=r"^y cannot be read as numbers: Complex data not supported$"):
        TreeFlowRegressor().fit(np.zeros((50, 1)), np.ones(50) * 1j)
