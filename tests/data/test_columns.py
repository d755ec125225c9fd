"""Tables as people have them: frames, text, categories, gaps, and what may not be passed."""

import pickle

import numpy as np
import pandas as pd
import pytest

from treecdf import Stage, TreeFlowRegressor
from treecdf.data.columns import Category, Covariates, Number
from treecdf.training.classifiers import Logistic

RNG = np.random.default_rng(0)
N = 300
CITY = RNG.choice(["Bern", "Oslo", "Rome"], N)
SIZE = RNG.normal(size=N)
GAPPY = np.where(RNG.random(N) < 0.3, np.nan, RNG.normal(size=N))
FRAME = pd.DataFrame({"city": CITY, "size": SIZE, "gappy": GAPPY, "flag": SIZE > 0})
SHIFT = pd.Series(CITY).map({"Bern": 0.0, "Oslo": 3.0, "Rome": -3.0}).to_numpy()
Y = SHIFT + SIZE + 2 * np.isnan(GAPPY) + 0.3 * RNG.normal(size=N)


def small(**settings):
    return TreeFlowRegressor(effort="fast", random_state=0, max_trees=3, **settings)


def numbers_of(*columns, y=None):
    y = np.zeros((len(columns[0]), 1)) if y is None else y
    units = np.arange(len(y), dtype=np.uint64)
    return Covariates.cross_fit(columns, y, np.ones(len(y)), units, np.random.default_rng(0))


# What the columns become


def test_numbers_without_gaps_stay_as_they_are():
    covariates, x = numbers_of(SIZE, GAPPY[::-1] * 0 + SIZE)
    assert np.array_equal(x[:, 0], SIZE)
    assert covariates.columns[0] == Number(float(np.median(SIZE)), has_gaps=False)


def test_gaps_get_the_median_and_an_indicator():
    covariates, x = numbers_of(GAPPY)
    gaps = np.isnan(GAPPY)
    assert x.shape == (N, 2)
    assert np.array_equal(x[~gaps, 0], GAPPY[~gaps])
    assert (x[gaps, 0] == np.median(GAPPY[~gaps])).all()
    assert np.array_equal(x[:, 1], gaps)
    assert covariates([np.array([np.nan, 2.0])]).tolist() == [[np.median(GAPPY[~gaps]), 1.0], [2.0, 0.0]]


def test_new_gaps_in_a_column_that_had_none_stay_unknown():
    covariates, _ = numbers_of(SIZE)
    unknown = covariates([np.array([np.nan])])
    assert np.isnan(unknown).all()
    assert covariates.filled(unknown).tolist() == [[np.median(SIZE)]]


def test_too_few_gaps_to_learn_from_count_as_none():
    few = np.where(np.arange(N) < 3, np.nan, SIZE)
    covariates, x = numbers_of(few)
    assert covariates.columns[0] == Number(float(np.median(few[3:])), has_gaps=False)
    assert np.array_equal(x[:, 0], np.where(np.isnan(few), np.median(few[3:]), few))
    names = np.where(np.arange(N) < 3, None, CITY).astype(object)
    covariates, x = numbers_of(names)
    assert covariates.columns[0].missing_place == -1
    assert np.isfinite(x).all()
    assert np.isnan(covariates([names[:3]])).all()


def test_intervals_are_wide_enough_where_few_training_rows_had_a_gap():
    rng = np.random.default_rng(0)
    x, x_new = rng.normal(size=(400, 3)), rng.normal(size=(1000, 3))
    y, y_new = (rows[:, 0] + 0.3 * rng.normal(size=len(rows)) for rows in (x, x_new))
    x[:8, 0] = x_new[:, 0] = np.nan
    fitted = TreeFlowRegressor(effort="fast", random_state=0).fit(x, y)
    with pytest.warns(UserWarning, match="too few to learn from"):
        low, high = fitted.predict_distribution(x_new).interval(0.9)
    assert np.mean((low <= y_new) & (y_new <= high)) > 0.85


def test_a_column_of_gaps_only_is_no_trouble():
    _, x = numbers_of(np.full(5, np.nan))
    assert np.isfinite(x).all()


def test_few_levels_get_indicators_and_unseen_ones_stay_unknown():
    covariates, x = numbers_of(np.array(["b", "a", "a", None, "c", "a", "b"], dtype=object))
    assert covariates.columns[0].levels == ("a", "b", "c")
    assert covariates.columns[0].missing_place == 2
    assert x.tolist() == [
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
    ]
    unseen, *others = covariates([np.array(["new", "c", None], dtype=object)])
    assert np.isnan(unseen).all()
    assert np.array_equal(others, [[0, 0, 0, 1], [0, 0, 1, 0]])
    assert covariates.filled(unseen[None]).tolist() == [[0, 0, 0, 0]]


def test_two_levels_need_one_indicator():
    _, x = numbers_of(np.array(["no", "yes", "no"], dtype=object))
    assert x.tolist() == [[1], [0], [1]]


def many_levels(n=4000, n_levels=200, noise=1.0):
    rng = np.random.default_rng(1)
    level = rng.integers(n_levels, size=n)
    effect = rng.normal(size=n_levels)
    y = (effect[level] + noise * rng.normal(size=n))[:, None]
    return np.array([f"level {k}" for k in level], dtype=object), level, effect, y


def test_many_levels_get_mean_outcomes_drawn_towards_the_mean_of_all():
    column, level, _, y = many_levels()
    covariates, _ = numbers_of(column, y=y)
    (category,) = covariates.columns
    assert isinstance(category, Category)
    assert category.means.shape == (201, 1)
    place = {name: k for k, name in enumerate(category.levels)}
    means, prior = category.means[:-1, 0], within_over_between()
    z = (y - y.mean()) / y.std()
    for k in (0, 50, 199):
        own = level == k
        assert means[place[f"level {k}"]] == pytest.approx(z[own].sum() / (own.sum() + prior), rel=0.02)
    unseen = covariates([np.array(["never seen"], dtype=object)])
    assert np.isnan(unseen).all()
    assert covariates.filled(unseen)[0, -1] == 0


def within_over_between():
    """What random effects are drawn towards 0 by: rows that the mean of all counts for."""
    _, level, _, y = many_levels()
    groups = [y[level == k, 0] for k in range(200)]
    within = np.mean([group.var(ddof=1) for group in groups])
    return within / (np.var([group.mean() for group in groups], ddof=1) - within / 20)


def test_means_of_levels_allow_for_the_other_columns():
    """Levels that differ in x alone are not told apart by it."""
    rng = np.random.default_rng(3)
    level = rng.integers(40, size=2000)
    x = rng.normal(size=40)[level] + 0.1 * rng.normal(size=2000)
    column = np.array([f"level {k}" for k in level], dtype=object)
    covariates, _ = Covariates.cross_fit([x, column], (2 * x + 0.5 * rng.normal(size=2000))[:, None], *rows_of(2000))
    assert np.abs(covariates.columns[1].means).max() < 0.1


def rows_of(n):
    """Weights, units and a generator of n rows."""
    return np.ones(n), np.arange(n, dtype=np.uint64), np.random.default_rng(0)


def test_training_rows_do_not_see_their_own_outcome_in_the_mean_of_their_level():
    column, _, _, y = many_levels()
    noise = np.random.default_rng(2).normal(size=(len(column), 1))  # says nothing about the levels
    _, x = numbers_of(column, y=noise)
    # Means with the rows themselves would correlate with them: 20 rows a level, so by more than 0.1.
    assert abs(np.corrcoef(x[:, -1], noise[:, 0])[0, 1]) < 0.05
    covariates, x = numbers_of(column, y=y)
    assert np.corrcoef(x[:, -1], y[:, 0])[0, 1] > 0.6
    assert np.corrcoef(covariates([column])[:, -1], y[:, 0])[0, 1] > np.corrcoef(x[:, -1], y[:, 0])[0, 1]


def test_levels_do_not_depend_on_how_numbers_are_stored():
    assert Category.fit(
        np.array(["3", "3", "4"], dtype=object), np.zeros((3, 1)), np.ones(3), np.zeros((3, 0))
    ).levels == ("3", "4")
    model = small(categorical_features=["k"])
    k = RNG.integers(4, size=N)
    model.fit(pd.DataFrame({"k": k, "size": SIZE}), Y)
    same = [
        model.log_prob(pd.DataFrame({"k": values, "size": SIZE}), Y)
        for values in (k, k.astype(float), k.astype(str), pd.Categorical(k), pd.array(k, dtype="Int64"))
    ]
    for other in same[1:]:
        assert np.array_equal(same[0], other)


# Frames in a model


def test_text_booleans_and_gaps_work_as_they_come():
    model = small().fit(FRAME, Y)
    assert model.covariates_.kinds == ("category", "number", "number", "number")
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == ["city", "size", "gappy", "flag"]
    assert model.feature_importances_.shape == (4,)
    assert model.feature_importances_.argmax() == 0
    assert model.score(FRAME, Y) > small().fit(FRAME[["size", "flag"]], Y).score(FRAME[["size", "flag"]], Y) + 0.5
    oslo = model.predict(FRAME[CITY == "Oslo"]).mean()
    assert oslo > model.predict(FRAME[CITY == "Bern"]).mean() + 2
    new = FRAME.head(3).assign(city=["Paris", None, "Oslo"], size=[np.nan, 0.0, 0.0])
    with pytest.warns(UserWarning, match="training rows did not have"):
        assert np.isfinite(model.log_prob(new, Y[:3])).all()


def test_rows_do_not_depend_on_the_rows_beside_them():
    model = small().fit(FRAME, Y)
    for rows in (slice(7, 8), CITY == "Rome"):
        alone = model.log_prob(FRAME[rows], Y[rows])
        np.testing.assert_allclose(alone, model.log_prob(FRAME, Y)[rows], rtol=1e-9)


def test_dtypes_for_the_same_table_give_the_same_model():
    plain = small().fit(FRAME, Y).log_prob(FRAME, Y)
    others = [
        FRAME.astype({"city": "category", "size": "Float64", "flag": "boolean"}),
        FRAME.astype({"city": "string"}),
        FRAME.astype({"gappy": object}),
    ]
    for other in others:
        assert np.array_equal(small().fit(other, Y).log_prob(other, Y), plain)
    as_objects = FRAME.to_numpy(dtype=object)
    assert np.array_equal(small().fit(as_objects, Y).log_prob(as_objects, Y), plain)


def test_polars_frames_are_read_like_pandas_ones():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: FRAME[name].to_list() for name in FRAME.columns}, strict=False)
    frame = frame.with_columns(polars.col("gappy").fill_nan(None), polars.col("city").cast(polars.Categorical))
    model = small().fit(FRAME, Y)
    assert np.array_equal(model.log_prob(frame, Y), model.log_prob(FRAME, Y))
    own = small().fit(frame, Y)
    assert np.array_equal(own.log_prob(frame.select(frame.columns[::-1]), Y), model.log_prob(FRAME, Y))


def test_a_reordered_frame_is_put_right_and_a_missing_column_is_named():
    model = small().fit(FRAME, Y)
    assert np.array_equal(model.log_prob(FRAME[FRAME.columns[::-1]], Y), model.log_prob(FRAME, Y))
    with pytest.raises(ValueError, match=r"(?s)missing.*city"):
        model.predict(FRAME.drop(columns="city"))
    assert np.array_equal(
        model.log_prob(FRAME.assign(extra=1.0), Y), model.log_prob(FRAME, Y)
    )  # as on the command line


def test_joint_flows_and_several_outcomes_take_frames():
    both = np.column_stack([Y, Y + RNG.normal(size=N)])
    for settings in ({}, {"structure": "joint", "stages": [Stage(Logistic(), 2)]}):
        model = small(**settings).fit(FRAME, both)
        assert np.isfinite(model.log_prob(FRAME, both)).all()
        assert model.sample(FRAME.head(5), 3).shape == (5, 3, 2)


def test_validation_rows_may_have_other_levels_and_gaps():
    new = FRAME.head(50).assign(city="Paris", size=np.nan)
    model = small().fit(FRAME, Y, X_val=new, y_val=Y[:50])
    with pytest.warns(UserWarning, match="training rows did not have"):
        assert np.isfinite(model.log_prob(new, Y[:50])).all()


@pytest.mark.filterwarnings("ignore:Column city has")
def test_weights_of_zero_leave_levels_out():
    weight = (CITY != "Rome").astype(float)
    model = small().fit(FRAME, Y, sample_weight=weight)
    assert "Rome" not in model.covariates_.columns[0].levels
    left = FRAME[CITY != "Rome"]
    again = small().fit(left, Y[CITY != "Rome"])
    assert np.array_equal(model.log_prob(FRAME, Y), again.log_prob(FRAME, Y))


def test_models_with_categories_can_be_pickled():
    model = small().fit(FRAME, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.log_prob(FRAME, Y), model.log_prob(FRAME, Y))


@pytest.mark.parametrize("declared", [["k"], [0], [-2], [True, False], np.array([True, False])])
def test_columns_can_be_declared_categories(declared):
    frame = pd.DataFrame({"k": RNG.integers(3, size=N), "size": SIZE})
    assert small(categorical_features=declared).fit(frame, Y).covariates_.kinds == ("category", "number")


# What is refused


def test_what_is_no_number_and_no_name_is_refused():
    with pytest.raises(TypeError, match="string or a real number"):
        small().fit(FRAME.assign(city=[{}] * N), Y)
    with pytest.raises(ValueError, match=r"'size'.*infinity"):
        small().fit(FRAME.assign(size=np.inf), Y)
    with pytest.raises(ValueError, match="X contains infinity"):
        small().fit(np.where(np.arange(2 * N).reshape(N, 2) == 9, np.inf, 1.0), Y)
    with pytest.raises(ValueError, match="Complex data"):
        small().fit(FRAME.assign(size=1j), Y)
    with pytest.raises(ValueError, match="no column of X"):
        small(categorical_features=["town"]).fit(FRAME, Y)
    with pytest.raises(ValueError, match="more than one column 'a'"):
        small().fit(pd.DataFrame(np.ones((N, 2)), columns=["a", "a"]), Y)


def test_names_in_a_column_of_numbers_are_refused_at_prediction():
    model = small().fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"'size'.*had numbers.*'large'"):
        model.predict(FRAME.assign(size="large"))


@pytest.mark.parametrize("shape", [(0, 4), (5, 0)])
def test_empty_frames_are_refused(shape):
    with pytest.raises(ValueError, match="minimum of 1"):
        small().fit(pd.DataFrame(np.ones(shape)), np.zeros(shape[0]))
