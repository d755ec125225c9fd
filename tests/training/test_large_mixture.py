"""A boosted mixture of many more rows than the sample of a large table, where left-out rows are likelier by it."""

import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import treecdf.estimators.fitting
import treecdf.training.ensemble
import treecdf.training.streaming
from treecdf import TreeFlowRegressor, load_model
from treecdf.estimators import fitting
from treecdf.training.parameters import read_settings
from treecdf.training.streaming import Sampled, half_of

N = 8000
RNG = np.random.default_rng(3)
HEIGHTS = RNG.normal(size=(6, 6))  # of squares of the plane
BY_BOOSTING = "by a boosted mixture: left-out rows are more likely"
BY_TREES = "trees were grown on all others"


def squares(n, rng):
    x = rng.uniform(size=(n, 2))
    i, j = (6 * x).astype(int).T
    side = np.where(rng.random(n) < 0.5, -2.0, 2.0)  # two modes, which a boosted mixture tells apart
    return pd.DataFrame(x, columns=["a", "b"]), side * (1 + 0.5 * HEIGHTS[i, j]) + 0.1 * rng.normal(size=n)


X, Y = squares(N, RNG)
NEW_X, NEW_Y = squares(2000, RNG)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """2,500 rows are a sample, 8,000 rows are many; a mixture of few rows is far behind."""
    monkeypatch.setattr(fitting, "ROWS_READ_WHOLE", 2500)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_SAMPLE", 2500)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_LARGE_MIXTURE", 7000)
    monkeypatch.setattr(fitting, "FEWEST_ROWS_OF_LARGE_MIXTURE", 6000)
    monkeypatch.setattr(fitting, "FAR_BEHIND_FOR_LARGE_MIXTURE", 1.0)


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
    assert 6800 < rows < 7200
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
    sample, _, _, larger = states  # two looks come between them
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
    model = fast().fit(X, np.column_stack([Y, Y + RNG.normal(size=N)]))
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
    whole = fitting.fit_table

    def large_one_is_stopped(*args, **how):
        state, kind = whole(*args, **how), how["sample"]
        return replace(state, missing=("something",)) if kind.is_for_mixture and not kind.is_look else state

    monkeypatch.setattr(fitting, "fit_table", large_one_is_stopped)
    with pytest.warns(UserWarning, match="without a boosted mixture of more rows"):
        model = fast(on_interrupt="keep").fit(X, Y)
    assert BY_BOOSTING not in model.summary()


@pytest.fixture
def heard():
    """SIGINT is heard, which background jobs of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("call", [2, 4])
def test_an_interrupt_before_a_mixture_learns_keeps_the_sample(monkeypatch, call):
    whole, calls = fitting.fit_ensemble, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return whole(*args)

    monkeypatch.setattr(fitting, "fit_ensemble", interrupted)
    with pytest.warns(UserWarning, match="without a boosted mixture of more rows"):
        model = fast(on_interrupt="keep").fit(X, Y)
    assert len(calls) == call
    assert np.isfinite(model.log_prob(NEW_X, NEW_Y)).all()


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("call", "missing"), [(1, "trees of the other rows"), (2, "a boosted mixture"), (4, "a boosted mixture")]
)
def test_an_interrupt_while_a_fit_learns_is_heard_when_it_ends(monkeypatch, call, missing):
    """A quick mixture learns in one step: the request comes too late for it, but not for what follows."""
    whole, calls = fitting.fit_ensemble, []

    def interrupted(*args):
        calls.append(args)
        ensemble = whole(*args)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return ensemble

    monkeypatch.setattr(fitting, "fit_ensemble", interrupted)
    model = fast(on_interrupt="keep")
    if call == 4:  # the large mixture itself is ready, and better
        assert BY_BOOSTING in model.fit(X, Y).summary()
    else:
        with pytest.warns(UserWarning, match=f"without {missing}"):
            model.fit(X, Y)
    assert len(calls) == call


@pytest.mark.usefixtures("heard")
def test_an_interrupt_between_fits_keeps_the_sample(monkeypatch):
    def interrupted(rows):
        signal.raise_signal(signal.SIGINT)
        return half_of(rows)

    monkeypatch.setattr(fitting, "half_of", interrupted)
    with pytest.warns(UserWarning, match="without a boosted mixture"):
        model = fast(on_interrupt="keep").fit(X, Y)
    assert np.isfinite(model.log_prob(NEW_X, NEW_Y)).all()
    with pytest.raises(KeyboardInterrupt):
        fast().fit(X, Y)


@pytest.mark.usefixtures("heard")
def test_an_interrupt_while_trees_grow_on_a_link_keeps_the_samples_chain(monkeypatch):
    whole, calls = treecdf.training.ensemble.fit_streamed_flow, []

    def interrupted(*args, **how):
        calls.append(args)
        signal.raise_signal(signal.SIGINT)
        return whole(*args, **how)

    monkeypatch.setattr(treecdf.training.ensemble, "fit_streamed_flow", interrupted)
    both = np.column_stack([Y, Y + np.random.default_rng(1).normal(size=N)])
    with pytest.warns(UserWarning, match="without trees of the other rows"):
        model = fast(base="conditional", on_interrupt="keep").fit(X, both)
    assert len(calls) == 1
    assert np.isfinite(model.log_prob(X[:9], both[:9])).all()


def test_a_text_that_half_of_the_sample_lacks_ends_the_look_alone(monkeypatch):
    """A column of numbers and one text is of numbers where the text is missing; validation rows have it."""
    values = np.random.default_rng(2).integers(0, 10, N).astype(float)

    def without_the_text(rows):
        half = half_of(rows)
        return (half[0].assign(c=half[0]["c"].replace("x", 0.0).astype(float)), *half[1:])

    monkeypatch.setattr(fitting, "half_of", without_the_text)
    mixed = X.assign(c=np.where(values == 0, "x", values.astype(object)))
    model = fast().fit(mixed, Y, X_val=mixed[:300], y_val=Y[:300])
    assert BY_TREES in model.summary()


@pytest.mark.parametrize(
    ("effort", "half", "whole", "expected"),
    [
        ("fast", -1.7, None, False),  # too far behind to look again
        ("fast", -0.9, -0.7, True),  # .11 are missing, .2 were gained
        ("fast", -1.0, -0.88, False),  # gained .12, but .29 are missing
        ("default", -1.0, -0.88, True),  # three doublings of the rows may gain .36
        ("default", -0.9, -0.85, False),
        ("fast", -0.7, -0.72, False),  # more rows told nothing
        ("fast", -0.55, -0.58, True),  # it is ahead already
        ("default", np.nan, None, False),  # validation_fraction is 0: nobody knows
    ],
)
def test_mixtures_of_half_of_the_sample_and_of_all_of_it_tell_what_more_rows_promise(
    monkeypatch, effort, half, whole, expected
):
    answers = [half] if whole is None else [half, whole]
    monkeypatch.setattr(fitting, "_look", lambda *_: answers.pop(0))
    rows = X[:1000], Y[:1000], None, None
    settings = read_settings(TreeFlowRegressor(effort=effort).get_params(deep=False))
    assert fitting._is_promising(settings, rows, None, -0.6, 8000) is expected
    assert not answers


def test_half_of_the_rows_does_not_depend_on_their_order():
    rows = X[:1000], Y[:1000], np.arange(1000.0), np.arange(1000) // 4
    turned = X[:1000][::-1], Y[:1000][::-1], np.arange(1000.0)[::-1], np.arange(1000)[::-1] // 4
    half, other = half_of(rows), half_of(turned)
    assert 450 < len(half[0]) < 550
    for part, again in zip(half, other, strict=True):
        np.testing.assert_array_equal(part, again[::-1])
    np.testing.assert_array_equal(half[0], X.iloc[half[2].astype(int)])


def test_a_slow_mixture_is_trained_only_if_a_quick_one_of_half_of_its_rows_is_nearly_as_good(monkeypatch):
    monkeypatch.setattr(fitting, "_is_promising", lambda *_: True)
    monkeypatch.setattr(fitting, "_look", lambda *_: -100.0)
    assert BY_BOOSTING not in fast(effort="default", max_trees=1).fit(X, Y).summary()


def test_validation_rows_judge_the_looks_too(monkeypatch):
    whole, judged = fitting.fit_table, []

    def note(settings, train, validation, *args, **how):
        judged.append(validation is not None)
        return whole(settings, train, validation, *args, **how)

    monkeypatch.setattr(fitting, "fit_table", note)
    fast().fit(X, Y, X_val=NEW_X, y_val=NEW_Y)
    assert judged == [True] * 4
