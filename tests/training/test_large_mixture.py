"""A boosted mixture of many more rows than the sample of a large table, where left-out rows are likelier by it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import treecdf.estimators.fitting
import treecdf.training.streaming
from treecdf import TreeFlowRegressor, load_model
from treecdf.estimators import fitting
from treecdf.training.streaming import Sampled

N = 5000
RNG = np.random.default_rng(3)
HEIGHTS = RNG.normal(size=(8, 8))  # of squares of the plane
BY_BOOSTING = "by a boosted mixture: left-out rows are more likely"
BY_TREES = "trees were grown on all others"


def squares(n, rng):
    x = rng.uniform(size=(n, 2))
    i, j = (8 * x).astype(int).T
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0)  # two modes, which a boosted mixture tells apart
    return pd.DataFrame(x, columns=["a", "b"]), side * (1 + 0.5 * HEIGHTS[i, j]) + 0.1 * rng.normal(size=n)


X, Y = squares(N, RNG)
NEW_X, NEW_Y = squares(2000, RNG)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """1,000 rows are a sample, and 5,000 rows are many."""
    monkeypatch.setattr(fitting, "ROWS_READ_WHOLE", 1000)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_SAMPLE", 1000)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_LARGE_MIXTURE", 4000)
    monkeypatch.setattr(fitting, "FEWEST_ROWS_OF_LARGE_MIXTURE", 3000)


@pytest.fixture
def never(monkeypatch):
    """Whoever asks for more rows than the sample's fails."""

    def refuse(sampled):
        raise AssertionError("a large mixture is tried")

    monkeypatch.setattr(Sampled, "larger", refuse)


def fast(**settings):
    return TreeFlowRegressor(**{"effort": "fast", "random_state": 0, **settings})


def test_it_replaces_the_sample_where_more_rows_tell_more(monkeypatch):
    larger = fast().fit(X, Y)
    assert BY_BOOSTING in larger.summary()
    rows = int(larger.summary().split("learnt from ")[1].split(" of")[0].replace(",", ""))
    assert 3800 < rows < 4200
    monkeypatch.setattr(fitting, "FEWEST_ROWS_OF_LARGE_MIXTURE", N + 1)
    sample = fast().fit(X, Y)
    assert BY_TREES in sample.summary()
    assert larger.score(NEW_X, NEW_Y) > sample.score(NEW_X, NEW_Y) + 0.1


def test_what_left_out_rows_gain_is_what_new_rows_gain(monkeypatch):
    states = []
    whole = fitting.fit_table
    monkeypatch.setattr(fitting, "fit_table", lambda *args, **how: states.append(whole(*args, **how)) or states[-1])
    model = fast().fit(X, Y)
    told = float(model.summary().split("more likely by ")[1].split(" nats")[0])
    sample, larger = states
    assert told == pytest.approx(larger.left_out - sample.left_out, abs=5e-4)
    assert larger.left_out == pytest.approx(model.score(NEW_X, NEW_Y), abs=0.1)


def test_it_is_the_same_from_files(tmp_path):
    for k, rows in enumerate(np.array_split(np.arange(N), 3)):
        X.assign(y=Y).iloc[rows].to_parquet(tmp_path / f"{k}.parquet", index=False)
    from_files = fast().fit_parquet(tmp_path, "y", ["a", "b"])
    assert BY_BOOSTING in from_files.summary()
    np.testing.assert_array_equal(from_files.log_prob(NEW_X, NEW_Y), fast().fit(X, Y).log_prob(NEW_X, NEW_Y))


def test_it_is_the_same_on_dask():
    distributed = pytest.importorskip("distributed")
    table = pytest.importorskip("dask.dataframe").from_pandas(X.assign(y=Y), npartitions=3, sort=False)
    how = {"threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(2, **how) as cluster, distributed.Client(cluster):
        on_dask = fast().fit(table[["a", "b"]], table["y"])
    assert BY_BOOSTING in on_dask.summary()
    np.testing.assert_array_equal(on_dask.log_prob(NEW_X, NEW_Y), fast().fit(X, Y).log_prob(NEW_X, NEW_Y))


def test_a_file_keeps_it(tmp_path):
    model = fast().fit(X, Y)
    model.save(tmp_path / "model.tcdf")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.tcdf").log_prob(NEW_X, NEW_Y), model.log_prob(NEW_X, NEW_Y)
    )


def test_it_does_not_replace_a_sample_that_tells_all():
    x = RNG.normal(size=(N, 2))
    model = fast().fit(x, x[:, 0] + RNG.normal(size=N))
    assert BY_BOOSTING not in model.summary()
    assert BY_TREES in model.summary()


def test_several_outcomes_are_a_chain_of_mixtures():
    model = fast().fit(X, np.column_stack([Y, Y + 0.1 * RNG.normal(size=N)]))
    assert BY_BOOSTING in model.summary()
    assert np.isfinite(model.log_prob(NEW_X, np.column_stack([NEW_Y, NEW_Y]))).all()


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("settings", [{"base": Ridge()}, {"base": "network"}, {"base": "conditional"}])
def test_a_base_by_another_name_is_not_replaced(settings):
    assert BY_TREES in fast(**settings).fit(X, Y).summary()


@pytest.mark.usefixtures("never")
def test_outcomes_of_few_values_keep_the_sample():
    model = fast().fit(X, np.round(Y))
    assert "no trees were grown" in model.summary()


def test_validation_rows_judge_both():
    model = fast().fit(X, Y, X_val=NEW_X, y_val=NEW_Y)
    assert BY_BOOSTING in model.summary()


def test_an_interrupt_keeps_the_sample(monkeypatch):
    whole, calls = fitting.fit_table, []

    def second_is_stopped(*args, **how):
        calls.append(how)
        state = whole(*args, **how)
        return state if len(calls) == 1 else replace(state, missing=("something",))

    monkeypatch.setattr(fitting, "fit_table", second_is_stopped)
    with pytest.warns(UserWarning, match="without a boosted mixture of more rows"):
        model = fast(on_interrupt="keep").fit(X, Y)
    assert BY_BOOSTING not in model.summary()
