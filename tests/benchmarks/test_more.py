"""Tables of many kinds: what peers get of them, and the page, on rows made up here."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.more import page, run, tables
from benchmarks.rows import Run, Store


@pytest.fixture
def houses(tmp_path, monkeypatch):
    """A table of text, dates and gaps in the place of the files."""
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame({"area": rng.gamma(9, 9, n), "place": rng.choice(["hill", "town"], n)})
    frame["sold"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D")
    frame["price"] = frame["area"] * rng.lognormal(0, 0.1, n)
    frame.loc[::7, "area"] = np.nan
    frame.loc[0, "price"] = np.nan
    (tmp_path / "more").mkdir()
    frame.to_csv(tmp_path / "more" / "houses.csv.gz", index=False)
    monkeypatch.setenv("TREECDF_DATA", str(tmp_path))
    monkeypatch.setitem(tables.TASKS, "houses", tables.Task("houses", n - 1, "price", dates=("sold",)))
    tables.load.cache_clear()
    yield frame
    tables.load.cache_clear()


def test_rows_with_an_outcome_are_read_and_counted(houses, monkeypatch):
    x, y = tables.load("houses")
    assert list(x) == ["area", "place", "sold"]
    np.testing.assert_allclose(y, houses["price"][1:])
    assert x["sold"].dtype.kind == "M"
    tables.load.cache_clear()
    monkeypatch.setitem(tables.TASKS, "houses", tables.Task("houses", 7, "price"))
    with pytest.raises(ValueError, match="119 rows with an outcome; expected 7"):
        tables.load("houses")


def test_a_tenth_is_tested_and_no_row_twice():
    train, test = tables.split(119, 3)
    assert len(test) == 11
    assert sorted([*train, *test]) == list(range(119))


def test_libraries_get_numbers_by_what_training_rows_have():
    train = pd.DataFrame({"a": [1.0, np.nan, 5.0], "b": ["v", "u", "u"]})
    test = pd.DataFrame({"a": [np.nan], "b": ["new"]})
    x, new = tables.as_numbers(train, test)
    np.testing.assert_array_equal(x, [[1, 1], [3, 0], [5, 0]])
    np.testing.assert_array_equal(new, [[3, 0]])  # the median, and a level that none had: that of the middle


def test_a_run_scores_what_ours_and_others_have(houses):
    found = run.score_more(Run("houses", 0, "treecdf_fast", 0))
    assert set(found["metrics"]) >= {"crps", "coverage_90", "log_lik"}
    linear = run.score_more(Run("houses", 0, "linear", 0))
    assert found["metrics"]["crps"] < linear["metrics"]["crps"] * 1.5


def test_the_page_counts_wins_and_leaves_densities_of_few_values_out(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "Store", lambda name: Store(name, tmp_path))
    assert page.more_page() == []
    for name in ("solar", "autos"):
        for k in range(3):
            for method, crps in (("treecdf", 1.0), ("ngboost_early", 2.0), ("quantile_forest", 0.5)):
                metrics = {"crps": crps + 0.01 * k, "coverage_90": 0.9, "log_lik": -crps}
                row = {"dataset": name, "split": k, "method": method, "seed": k, "metrics": metrics}
                Store("more", tmp_path).append(row | {"seconds": {"fit": 1.0, "fit_cpu": 1.0}, "commit": "c"})
    text = "\n".join(page.more_page())
    assert "better on 2, level on 0, worse on 0 beside ngboost_early" in text
    assert "better on 0, level on 0, worse on 2 beside quantile_forest" in text
    likelihoods = text.split("## Log-likelihood")[1].split("## 90 %")[0]
    assert "| autos |" in likelihoods
    assert "solar" not in likelihoods
