"""Dates, times, periods and durations become numbers, in whatever way a table holds them."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from treecdf import TreeFlowRegressor, load_model
from treecdf.cli.main import main
from treecdf.data.columns import Date
from treecdf.data.dates import as_dates, as_seconds

N = 90
HOURS = pd.Timestamp("2025-12-01") + pd.to_timedelta(13 * np.arange(N), unit="h")
Y = np.random.default_rng(0).normal(size=N) + HOURS.hour.to_numpy() / 4


def small(**settings):
    return TreeFlowRegressor(effort="fast", max_trees=3, random_state=0, **settings)


FORMS = {
    "timestamps": pd.DataFrame({"when": HOURS}),
    "nanoseconds": pd.DataFrame({"when": HOURS.astype("datetime64[ns]")}),
    "with a time zone": pd.DataFrame({"when": HOURS.tz_localize("UTC").tz_convert("Asia/Tokyo")}),
    "python": pd.DataFrame({"when": np.array(HOURS.to_pydatetime(), dtype=object)}),
    "periods": pd.DataFrame({"when": HOURS.to_period("h")}),
    "text": pd.DataFrame({"when": HOURS.strftime("%Y-%m-%d %H:%M:%S")}),
    "text with T and Z": pd.DataFrame({"when": HOURS.strftime("%Y/%m/%dT%H:%MZ")}),
    "text with points": pd.DataFrame({"when": HOURS.strftime("%d.%m.%Y %H:%M")}),
    "text with a month's name": pd.DataFrame({"when": HOURS.strftime("%d %b %Y %H:%M")}),
    "text with a zone": pd.DataFrame({"when": HOURS.tz_localize("UTC").tz_convert("Asia/Tokyo").map(str)}),
    "polars": pl.DataFrame({"when": HOURS.to_numpy().astype("M8[us]")}),
    "array": np.array(HOURS.to_pydatetime(), dtype=object)[:, None],
    "array of datetime64": HOURS.to_numpy()[:, None],
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_the_same_dates(form):
    model = small().fit(FORMS[form], Y)
    (encoder,) = model.covariates_.columns
    assert isinstance(encoder, Date)
    assert encoder.parts == ("days", "month", "weekday", "hour")
    assert model.covariates_.kinds == ("date",)
    expected = small().fit(FORMS["timestamps"], Y).log_prob(FORMS["timestamps"], Y)
    np.testing.assert_array_equal(model.log_prob(FORMS[form], Y), expected)


def test_parts_are_those_of_the_calendar():
    encoder = Date.fit(HOURS.to_numpy().astype("M8[us]"), np.ones(N))
    days, month, weekday, hour = encoder(HOURS.to_numpy().astype("M8[us]")).T
    np.testing.assert_allclose(days, 13 * np.arange(N) / 24)
    np.testing.assert_array_equal(month, HOURS.month)
    np.testing.assert_array_equal(weekday, HOURS.day_of_week)
    np.testing.assert_array_equal(hour, HOURS.hour)
    assert str(encoder) == "days since 2025-12-01, month, weekday, hour"


def test_what_does_not_vary_is_left_out():
    def parts(*dates):
        return Date.fit(np.array(dates, "M8[us]"), np.ones(len(dates))).parts

    assert parts("2026-01-01", "2026-01-03") == ("days", "weekday")
    assert parts("2026-01-01", "2026-02-05") == ("days", "month")
    assert parts("2026-01-01T05", "2026-01-01T07") == ("days",)  # hours say the same as days
    assert parts("2026-01-01T05", "2026-01-08T07") == ("days", "hour")


def test_missing_and_unseen_dates():
    when = pd.Series(HOURS).where(np.arange(N) % 5 > 0)
    model = small().fit(pd.DataFrame({"when": when}), Y)
    asked = pd.DataFrame({"when": pd.to_datetime(["2100-07-04", None, "1900-01-01"])})
    assert np.isfinite(model.predict(asked)).all()
    assert np.isfinite(model.predict(pd.DataFrame({"when": pd.to_datetime([None, None])}))).all()
    encoder = model.covariates_.columns[0]
    assert encoder.width == 5
    np.testing.assert_array_equal(encoder(np.array(["NaT"], "M8[us]")), [[*encoder.medians, 1]])


def test_the_summary_names_them():
    assert "column 'when' holds dates, read as days since 2025-12-01, month, weekday, hour" in (
        small().fit(FORMS["text"], Y).summary()
    )


TEXTS = {
    "2026-02-28": "2026-02-28",
    "2026-02-28 05:30": "2026-02-28T05:30",
    "2026-02-28T05:30:10.123456789+02:00": "2026-02-28T03:30:10.123456",
    "2026-02": "2026-02-01",
    "2026Q3": "2026-07-01",
    "05:30": "1970-01-01T05:30",
    "2026-2-8": "2026-02-08",
    "28.02.2026": "2026-02-28",
    "8.2.2026 05:30": "2026-02-08T05:30",
    "28 Feb 2026": "2026-02-28",
    "28-FEB-2026": "2026-02-28",
    "February 28, 2026 05:30:10": "2026-02-28T05:30:10",
    "Feb. 8 2026": "2026-02-08",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text):
    assert as_dates(np.array([text, None], dtype=object))[0] == np.datetime64(TEXTS[text], "us")


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30",
        "2026",
        "20260131",
        "31/01/2026",
        "31.13.2026",
        "01.02.26",
        "1.2.3",
        "28 Feb-2026",
        "25:00",
        "hill",
        "2026-13",
    ],
)
def test_what_is_no_date(text):
    assert as_dates(np.array([text], dtype=object)) is None


def test_times_and_dates_do_not_mix():
    assert as_dates(np.array(["05:30", "2026-01-01"], dtype=object)) is None
    with pytest.raises(ValueError, match=r"'when' of X holds dates and other values: got .*2026.* beside 'x'"):
        small().fit(pd.DataFrame({"when": [datetime.date(2026, 1, 1), "x"] * 20}), np.arange(40.0))


def test_days_and_months_that_cannot_be_told_apart_are_told():
    frame = pd.DataFrame({"when": HOURS.strftime("%m/%d/%Y")})
    with pytest.warns(UserWarning, match=r"'when' of X looks like dates in which day and month cannot be told apart"):
        assert small().fit(frame, Y).covariates_.kinds == ("category",)


def test_a_model_of_dates_wants_dates():
    model = small().fit(FORMS["timestamps"], Y)
    with pytest.raises(ValueError, match="'when' of X had dates when the model was fitted; got 'soon'"):
        model.predict(pd.DataFrame({"when": ["soon"]}))


def test_durations_are_seconds():
    frame = pd.DataFrame({"took": pd.to_timedelta(np.arange(N), unit="min")})
    numbers = pd.DataFrame({"took": 60.0 * np.arange(N)})
    model = small().fit(frame, Y)
    assert model.covariates_.kinds == ("number",)
    np.testing.assert_array_equal(model.log_prob(frame, Y), small().fit(numbers, Y).log_prob(numbers, Y))
    np.testing.assert_array_equal(as_seconds(np.array([datetime.timedelta(hours=1), None])), [3600, np.nan])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_outcomes_that_are_durations_are_in_seconds(unit):
    x = np.arange(40.0)[:, None]
    took = pd.Series(pd.to_timedelta(np.arange(40), unit="s")).astype(f"timedelta64[{unit}]")
    expected = small().fit(x, np.arange(40.0)).predict(x)
    np.testing.assert_array_equal(small().fit(x, took).predict(x), expected)
    both = pd.DataFrame({"took": took, "other": np.arange(40.0)})
    assert small().fit(x, both).predict(x).max() < 100


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(HOURS),
        HOURS.to_numpy(),
        pd.DataFrame({"a": HOURS}),
        HOURS.to_pydatetime(),
        pd.Series(HOURS).dt.strftime("%d.%m.%Y"),
    ],
)
def test_outcomes_that_are_dates_are_refused(y):
    with pytest.raises(ValueError, match="y holds dates, and an outcome is a number: take the time until"):
        small().fit(np.arange(float(N))[:, None], y)


@pytest.mark.filterwarnings("ignore:Column when has missing values")
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.xlsx"])
def test_the_command_line_reads_the_same_dates(name, tmp_path):
    table = pd.DataFrame({"when": HOURS, "y": Y})
    table.loc[3, "when"] = pd.NaT
    write = {"csv": table.to_csv, "parquet": table.to_parquet, "xlsx": table.to_excel}[name.split(".")[1]]
    write(tmp_path / name, index=False)
    fit = ["fit", str(tmp_path / name), "--outcome", "y", "--effort", "fast", "--jobs", "1"]
    assert main([*fit, "--out", str(tmp_path / "m.tcdf")]) == 0
    model = load_model(tmp_path / "m.tcdf")
    assert model.covariates_.kinds == ("date",)
    assert main(["predict", str(tmp_path / "m.tcdf"), str(tmp_path / name), "--out", str(tmp_path / "p.csv")]) == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["y mean"], model.predict(table[["when"]]), rtol=1e-6)


def test_a_field_that_is_no_date_is_refused_with_its_line(tmp_path, capsys):
    table = pd.DataFrame({"when": HOURS, "y": Y})
    small(n_jobs=1).fit(table[["when"]], table["y"]).save(tmp_path / "m.tcdf")
    (tmp_path / "t.csv").write_text("when\n2026-01-01\n\nsoon\n")
    assert main(["predict", str(tmp_path / "m.tcdf"), str(tmp_path / "t.csv")]) == 1
    assert "t.csv, line 4, column 'when': expected a date or time such as 2026-01-31" in capsys.readouterr().err


# Ordered categories

SIZES = pd.Categorical(np.array(["S", "M", "L", "XL"])[np.arange(N) % 4], ["S", "M", "L", "XL"], ordered=True)


def test_ordered_levels_keep_their_order(tmp_path):
    frame = pd.DataFrame({"size": SIZES})
    model = small().fit(frame, Y)
    (encoder,) = model.covariates_.columns
    assert model.covariates_.kinds == ("category",)
    numbers = encoder(np.array(["S", "M", "L", "XL", None, "huge"], dtype=object))
    np.testing.assert_array_equal(numbers[:, -1], [0, 1, 2, 3, np.nan, np.nan])
    np.testing.assert_array_equal(numbers[:4, :4].sum(axis=0), [1, 1, 1, 1])
    assert "the levels of column 'size' have an order" in model.summary()
    model.save(tmp_path / "m.tcdf")
    text = pd.DataFrame({"size": SIZES.astype(str)})  # the order is known from training
    np.testing.assert_array_equal(load_model(tmp_path / "m.tcdf").predict(text), model.predict(frame))


def test_an_order_of_many_levels_stands_beside_their_means():
    levels = [f"{k:02}" for k in range(30)]
    frame = pd.DataFrame({"size": pd.Categorical(np.array(levels)[np.arange(N) % 30], levels, ordered=True)})
    model = small().fit(frame, Y)
    (encoder,) = model.covariates_.columns
    assert encoder.width == 16 + 1 + 1
    np.testing.assert_array_equal(encoder(np.array(levels, dtype=object))[:, -1], np.arange(30))


def test_levels_without_an_order_have_none():
    frame = pd.DataFrame({"size": SIZES.as_unordered()})
    assert small().fit(frame, Y).covariates_.width == 4


def test_models_of_dates_go_into_files(tmp_path):
    model = small().fit(FORMS["timestamps"], Y)
    model.save(tmp_path / "m.tcdf")
    again = load_model(tmp_path / "m.tcdf")
    np.testing.assert_array_equal(again.predict(FORMS["timestamps"]), model.predict(FORMS["timestamps"]))
    assert again.covariates_.columns[0].parts == model.covariates_.columns[0].parts
