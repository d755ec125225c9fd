"""Tables as users have them: names that are no text, masks, mixed rows, strange texts; right, or one sentence."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from treecdf import TreeFlowRegressor, load_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] - X[:, 2] + 0.5 * RNG.normal(size=60)


def model(**settings):
    return TreeFlowRegressor(**{"max_trees": 2, "base": "box", "random_state": 0, **settings})


def same_as(first, second, table, other):
    """Whether two models, each with its own form of the rows, predict the same."""
    return np.array_equal(first.predict(table), second.predict(other))


# Names of columns


@pytest.mark.parametrize(
    "columns",
    [
        [2020, 2021, 2022],
        [2.5, 1.5, 0.5],
        pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
        pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        [True, "x", 3],
        [2, 0, 1],
    ],
    ids=["years", "floats", "MultiIndex", "dates", "mixed", "numbers that could be places"],
)
def test_columns_are_known_by_names_of_any_kind(columns):
    frame = pd.DataFrame(X, columns=columns)
    fitted = model().fit(frame, Y)
    assert same_as(fitted, fitted, frame, frame.iloc[:, [2, 0, 1]])
    assert same_as(fitted, model().fit(X, Y), frame, X)


def test_other_years_are_refused():
    fitted = model().fit(pd.DataFrame(X, columns=[2020, 2021, 2022]), Y)
    with pytest.raises(ValueError, match="unseen at fit time:\n- 2023"):
        fitted.predict(pd.DataFrame(X, columns=[2020, 2021, 2023]))


def test_names_that_are_written_alike_are_refused():
    with pytest.raises(ValueError, match="more than one column '1'"):
        model().fit(pd.DataFrame(X, columns=[1, "1", 2]), Y)


# Columns that are called categories

LEVELS = np.column_stack([RNG.integers(0, 3, 60), X[:, 1], RNG.integers(0, 2, 60)])


def kinds(table, declared):
    return model(categorical_features=declared).fit(table, Y).covariates_.kinds


@pytest.mark.parametrize("mask", [[True, False], [True] * 4, np.array([True]), [True, False, True, False]])
def test_a_mask_of_the_wrong_length_is_refused(mask):
    for table in (LEVELS, pd.DataFrame(LEVELS, columns=list("abc"))):
        with pytest.raises(ValueError, match=f"one boolean for each of 3 columns; got {len(mask)}"):
            kinds(table, mask)


def test_a_mask_of_the_right_length_is_a_mask():
    expected = ("category", "number", "category")
    for mask in ([True, False, True], np.array([True, False, True]), (np.True_, np.False_, np.True_)):
        assert tuple(kinds(LEVELS, mask)) == expected


@pytest.mark.parametrize("declared", [[1], 1, np.array([1]), [1.0], ["1"]])
def test_names_that_are_numbers_are_no_positions(declared):
    frame = pd.DataFrame(LEVELS, columns=[1, 2, 0])
    assert tuple(kinds(frame, declared)) == ("category", "number", "number")


def test_a_position_is_no_name_among_names_that_are_numbers():
    with pytest.raises(ValueError, match="names -1, which is no column"):
        kinds(pd.DataFrame(LEVELS, columns=[2020, 2021, 2022]), [-1])


def test_a_tuple_names_a_column_of_a_multiindex():
    columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    frame = pd.DataFrame(LEVELS, columns=columns)
    assert tuple(kinds(frame, [("a", 1), ("b", 1)])) == ("category", "number", "category")


def test_booleans_among_names_are_refused():
    with pytest.raises(ValueError, match="names True, which is no column"):
        kinds(LEVELS, [True, 2])


# Values


def test_mixed_rows_keep_numbers_as_numbers():
    rows = [
        [float(a), "low" if b < 0 else "high", int(c)] for a, b, c in zip(X[:, 0], X[:, 1], LEVELS[:, 0], strict=True)
    ]
    fitted = model().fit(rows, Y)
    assert tuple(fitted.covariates_.kinds) == ("number", "category", "number")
    frame = pd.DataFrame(rows)
    assert same_as(fitted, model().fit(frame, Y), rows, frame)
    with pytest.raises(ValueError, match=r"column 0 of X had numbers.*got 'low'"):
        fitted.predict([["low", "low", 1]])


def test_mixed_rows_may_have_gaps():
    rows = [[a, "low" if b < 0 else None] for a, b in X[:, :2].tolist()]
    for row in rows[: len(rows) // 5]:
        row[0] = None
    fitted = model().fit(rows, Y)
    assert tuple(fitted.covariates_.kinds) == ("number", "category")
    assert np.isfinite(fitted.predict([[None, None]])).all()


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="rows have different lengths"):
        model().fit([[1.0, 2.0], [3.0]], [1.0, 2.0])


@pytest.mark.parametrize("dtype", [float, int, object])
def test_masked_covariates_are_missing(dtype):
    values = np.round(X * 10).astype(dtype)
    masked = np.ma.MaskedArray(values, mask=RNG.random(X.shape) < 0.2)
    gaps = np.where(masked.mask, np.nan, values.astype(float))
    first, second = model().fit(masked, Y), model().fit(gaps, Y)
    assert same_as(first, second, masked, gaps)
    assert same_as(first, first, masked, gaps)


def test_masked_names_are_missing():
    values = np.array([["a", "b", "c"]] * 20).reshape(60, 1)
    masked = np.ma.MaskedArray(values, mask=np.arange(60)[:, None] % 7 == 0)
    gaps = np.where(masked.mask, None, values.astype(object))
    assert same_as(model().fit(masked, Y), model().fit(gaps, Y), masked, gaps)


def test_masked_outcomes_are_refused_with_their_row():
    masked = np.ma.MaskedArray(Y, mask=np.arange(60) == 7)
    with pytest.raises(ValueError, match="y contains NaN in row 7"):
        model().fit(X, masked)
    with pytest.raises(ValueError, match="NaN in row 7"):
        model().fit(X, Y).log_prob(X, masked)


def test_masked_weights_are_refused_with_their_row():
    with pytest.raises(ValueError, match="sample_weight of row 4"):
        model().fit(X, Y, sample_weight=np.ma.MaskedArray(np.ones(60), mask=np.arange(60) == 4))


def test_an_array_of_masks_that_hide_nothing_is_the_array():
    hidden = np.ma.MaskedArray(X)
    assert same_as(model().fit(hidden, np.ma.MaskedArray(Y)), model().fit(X, Y), hidden, X)


@pytest.mark.parametrize("table", ["list", "array", "frame"])
def test_integers_beyond_float64_are_refused_with_their_column(table):
    values = np.round(X).astype(int).astype(object)
    values[5, 1] = 10**400
    given = {"list": values.tolist(), "array": values, "frame": pd.DataFrame(values, columns=list("abc"))}[table]
    name = "'b'" if table == "frame" else "1"
    with pytest.raises(ValueError, match=f"column {name} of X holds an integer beyond the range of float64"):
        model().fit(given, Y)
    fitted = model().fit(pd.DataFrame(X, columns=list("abc")) if table == "frame" else X, Y)
    with pytest.raises(ValueError, match=f"column {name} of X holds an integer beyond the range of float64"):
        fitted.predict(given)


def test_outcomes_and_weights_beyond_float64_are_refused():
    huge = [10**400, *Y[1:]]
    with pytest.raises(ValueError, match="y cannot be read as numbers"):
        model().fit(X, huge)
    with pytest.raises(ValueError, match="sample_weight cannot be read as numbers"):
        model().fit(X, Y, sample_weight=[10**400, *np.ones(59)])


# Texts


def levels_of(values):
    column = np.array(values, dtype=object)[:, None]
    return model().fit(column, np.arange(len(values)) + 0.5).covariates_.columns[0]


def test_zero_characters_belong_to_a_name():
    names = ["x", "x\0", "\0", "", "\0\0"] * 4
    found = levels_of(names)
    assert set(found.levels) == set(names)
    assert found.missing_place == -1


def test_zero_characters_belong_to_a_name_at_prediction_and_in_files(tmp_path):
    names = np.array(["x", "x\0", "\0", ""] * 15, dtype=object)
    y = np.tile([0.0, 10.0, 20.0, 30.0], 15) + 0.1 * RNG.normal(size=60)
    fitted = model(max_trees=100).fit(names[:, None], y)
    predicted = fitted.predict(names[:4, None])
    assert (np.diff(predicted) > 5).all()
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(names[:4, None]), predicted)
    np.testing.assert_array_equal(fitted.predict(pd.DataFrame(names[:4, None])), predicted)


@pytest.mark.parametrize("form", ["objects", "list", "frame"])
def test_one_long_text_takes_memory_once(form):
    names = RNG.choice(["a", "b", "c"], size=(2000, 1)).astype(object)
    y = RNG.normal(size=2000)
    make = {"objects": np.array, "list": np.ndarray.tolist, "frame": lambda names: pd.DataFrame(names, columns=["a"])}

    def peaks():
        found = []
        for ask in (lambda table: fitted.fit(table, y), lambda table: fitted.predict(table)):
            table = make[form](names)
            tracemalloc.start()
            ask(table)
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return np.array(found)

    fitted = model(max_trees=1).fit(make[form](names), y)  # kernels are compiled
    fitted.predict(make[form](names))
    before = peaks()
    names[7, 0] = "x" * 100_000
    assert (peaks() - before < 4e6).all()  # 100,000 characters for each of 2,000 rows would be 800 MB


# Seeds


@pytest.mark.parametrize(
    "seed",
    [
        np.random.SeedSequence(1),
        np.random.PCG64(1),
        np.random.default_rng(1),
        np.random.RandomState(1),
        np.int64(1),
    ],
    ids=lambda seed: type(seed).__name__,
)
def test_seeds_of_every_kind_fit_save_and_load(seed, tmp_path):
    fitted = model(random_state=seed, checkpoint=tmp_path / "checkpoint").fit(X, Y)
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), fitted.predict(X))


@pytest.mark.parametrize("seed", ["one", -1, 1.5, [1, 2], object()], ids=lambda seed: type(seed).__name__)
def test_what_is_no_seed_is_refused_with_its_name(seed):
    with pytest.raises((ValueError, TypeError), match="random_state"):
        model(random_state=seed).fit(X, Y)


# Names where values are needed, and what is no table


def test_a_column_is_not_named_where_its_values_are_needed():
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    for name in ("sample_weight", "groups", "exposure"):
        with pytest.raises(ValueError, match=rf"Expected {name} to have a value for each row; got 'a': pass X\['a'\]"):
            model().fit(frame, np.abs(Y), **{name: "a"})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("houses.csv", r"X is the name of a file, and a table is needed: pass pandas.read_csv\('houses.csv'\)"),
        (Path("houses.csv"), "X is the name of a file"),
        (iter(X.tolist()), r"X is an iterator, and a table is needed: pass list\(X\)"),
        (pl.DataFrame({"a": X[:, 0], "b": [{"u": 1.0}] * len(X)}), "must be a string or a real number; .* 'b' of X"),
    ],
)
def test_what_is_no_table_is_refused_in_words(table, words):
    with pytest.raises(TypeError, match=words):
        model().fit(table, Y)


# Hostile names


def test_names_in_complaints_and_warnings_are_written_out():
    hostile = "\x1b[2Jname"
    frame = pd.DataFrame({hostile: X[:, 0], "b": X[:, 1]})
    fitted = model().fit(frame, Y)
    for ask in (
        lambda: fitted.predict(frame.rename(columns={hostile: "\x1b]0;other"})),
        lambda: fitted.predict(frame.assign(**{hostile: "text\x1b"})),
        lambda: fitted.predict(frame.assign(**{hostile: np.inf})),
        lambda: model(categorical_features=["\x1b"]).fit(frame, Y),
        lambda: model().fit(pd.concat([frame, frame], axis=1), Y),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            ask()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", str(caught.value)), str(caught.value)


class ForeignDtype:
    """As tensors of other libraries have it: a dtype without a kind."""


class Tensor:
    dtype = ForeignDtype()

    def __init__(self, values):
        self.values, self.shape, self.ndim = values, values.shape, values.ndim

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)

    def __len__(self):
        return len(self.values)


def test_arrays_of_other_libraries_are_read_as_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + rng.normal(size=60)
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0)
    expected = model.fit(x, y).log_prob(x, y)
    np.testing.assert_array_equal(model.fit(Tensor(x), y).log_prob(Tensor(x), y), expected)
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        model.fit(pl.Series("a", x[:, 0]), y)


def test_weights_beyond_float64_are_refused_or_scaled_wherever_they_come():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + rng.normal(size=60)
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0)
    with pytest.raises(ValueError, match="sample weights add up to inf"):
        model.fit(x, y, X_val=x, y_val=y, sample_weight_val=np.full(60, 1e307))
    model.fit(x, y)
    assert model.score(x, y, np.full(60, 1e307)) == pytest.approx(model.score(x, y))
