"""Rows on the workers of a real cluster give the model that rows in memory give, also when a worker is killed."""

import importlib
import os
import pickle
import signal
import time
import traceback
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest

import treecdf.data.blocks
import treecdf.training.boosting
import treecdf.training.sources.rows
from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor
from treecdf._kernels.losses import logistic_loss
from treecdf.data.basis import Basis
from treecdf.training.sources.operations import (
    Apply,
    Arrange,
    BeginTree,
    BlockSums,
    Column,
    CountRows,
    Descend,
    Encode,
    EveryNth,
    Keep,
    Locate,
    OfTable,
    Restore,
    SeveralSums,
    Sums,
)
from treecdf.training.sources.rows import Local, add_halves

pytest.importorskip("distributed")
import dask
import dask.array as da
import dask.dataframe as dd
from distributed import Client, LocalCluster

from tests import kill_cluster
from treecdf.training.sources import dask_rows
from treecdf.training.sources.dask_rows import DaskRows, Journal, traffic
from treecdf.training.sources.dask_sites import dumps

RNG = np.random.default_rng(1)
N = 1200
X = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["a", "b"])
Y = pd.Series(np.sin(2 * X["a"]) + np.exp(0.5 * X["b"]) * RNG.normal(size=N), name="y")
SECONDS_TO_NOTICE = 5.0  # that a worker was killed
STAGES = [Stage(Logistic(), 2), Stage(BoostedTrees(rounds=2, max_depth=2), 2)]


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    patience = {"distributed.comm.timeouts.connect": "9s"}  # of Dask itself, with a worker that is gone
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as running,
    ):
        yield running


@pytest.fixture
def client(cluster):
    with Client(cluster) as connected:
        connected.wait_for_workers(2)
        yield connected


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks and partitions that end in different places; workers are told where."""
    monkeypatch.setattr(treecdf.training.sources.rows, "SHARD_ROWS", 50)
    monkeypatch.setattr(treecdf.data.blocks, "BLOCK_ROWS", 150)
    monkeypatch.setattr("treecdf.estimators.fitting.ROWS_READ_WHOLE", 0)


def model(**settings):
    return TreeFlowRegressor(**{"base": "box", "stages": STAGES, "max_trees": 2, "random_state": 0, **settings})


def frames(npartitions=5):
    table = dd.from_pandas(X.assign(y=Y), npartitions=npartitions, sort=False)
    return table[["a", "b"]], table["y"]


def kernel_of(operation):
    """The name of the kernel that an operation runs, if it does."""
    first = operation.parts[0] if isinstance(operation, SeveralSums) else operation
    return first.kernel.__name__ if hasattr(first, "kernel") else ""


def bits(fitted):
    """Everything that was learnt."""
    (flow,) = fitted.mixture_.members
    arrays = [*vars(flow.standardize).values(), flow.base.low, flow.base.high, *fitted.history_.values()]
    for stage in flow.stages:
        arrays += [stage.nodes, stage.theta, stage.roots, stage.kind]
    return [array.tobytes() for array in arrays]


@pytest.fixture
def in_files(tmp_path_factory):
    """The model of the same rows, in the same order, in a file."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    X.assign(y=Y).to_parquet(path)
    return model(subsample=0.7).fit_parquet(path, "y")


def test_two_processes_give_the_model_of_rows_in_files(client, in_files):
    before = traffic()
    fitted = model(subsample=0.7).fit(*frames())
    assert fitted.n_trees_ == 4
    assert bits(fitted) == bits(in_files)
    calls, down, up, seconds, slowest, mean = np.subtract(traffic(), before)
    assert calls > 20
    assert seconds > slowest > mean > 0
    assert 0 < down < up < 100 * X.to_numpy().nbytes  # counted, and far from rows times passes
    assert not any(
        client.run(lambda: len(importlib.import_module("treecdf.training.sources.dask_sites")._SITES)).values()
    )


@pytest.mark.parametrize(("n_workers", "threads", "branches"), [(1, 2, 8), (4, 1, 8), (7, 1, 2)])
def test_the_model_does_not_depend_on_the_number_of_workers(n_workers, threads, branches, in_files, monkeypatch):
    """Seven workers are asked by way of two, and add up their sums on the way."""
    monkeypatch.setattr(dask_rows, "_BRANCHES", branches)
    with (
        LocalCluster(n_workers, threads_per_worker=threads, processes=False, dashboard_address=":0") as running,
        Client(running),
    ):
        arrays = da.from_array(X.to_numpy(), chunks=(500, 1)), da.from_array(Y.to_numpy(), chunks=500)
        fitted = model(subsample=0.7).fit(*arrays)
    assert bits(fitted) == bits(in_files)


def test_without_a_cluster_the_rows_go_to_files(in_files):
    assert bits(model(subsample=0.7).fit(*frames(3))) == bits(in_files)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own, with recent pandas
def test_columns_of_files_are_divided_alike(tmp_path, in_files):
    """Dask reads a few narrow columns in fewer partitions than the whole table."""
    for k, rows in enumerate(np.array_split(np.arange(N), 6)):
        X.assign(y=Y).iloc[rows].to_parquet(tmp_path / f"{k}.parquet", index=False)
    frame = dd.read_parquet(tmp_path)
    fitted = model(subsample=0.7).fit(frame[["a", "b"]], frame["y"])
    assert bits(fitted) == bits(in_files)
    assert len(fitted.log_prob(frame[["a", "b"]], frame["y"]).compute()) == N


def test_partitions_may_be_empty():
    table = dd.from_pandas(X.assign(y=Y, row=np.arange(N)), npartitions=4, sort=False)
    some = table[(table["row"] < 300) | (table["row"] >= 650)]
    x, y = some[["a", "b"]], some["y"]
    here = np.r_[0:300, 650:N]
    fitted, ours = model().fit(x, y), model().fit(X.iloc[here], Y.iloc[here])
    np.testing.assert_allclose(fitted.log_prob(x, y).compute(), ours.log_prob(X.iloc[here], Y.iloc[here]), atol=1e-9)
    assert fitted.sample(x, 3).compute().shape == (len(here), 3)


@pytest.mark.parametrize("asked", [2, 1], ids=["asked by the driver", "asked by the other one"])
def test_a_killed_worker_changes_nothing(asked, client, in_files, monkeypatch):
    """One dies while a logistic node is fitted, another between the rounds of boosted trees; both come back empty."""
    monkeypatch.setattr(dask_rows, "most_asked", lambda n: min(n, asked))
    seen, built, killed, noticed = [], [], [], []
    ask, build, mend = DaskRows._ask, DaskRows._build, DaskRows._mend

    def deadly_ask(self, request, *operations):
        seen.append(kernel := kernel_of(operations[-1]))
        if kernel in ("logistic_loss", "next_level_of_one_side") and seen.count(kernel) == 3:
            pids = client.run(os.getpid)
            killed.append(time.monotonic())
            os.kill(pids[self._homes[-1 if kernel == "logistic_loss" else 0]], signal.SIGKILL)
        return ask(self, request, *operations)

    def counted_build(self, *args):
        built.append(args[0])
        return build(self, *args)

    def timed_mend(self, *args):
        noticed.append(time.monotonic())
        return mend(self, *args)

    monkeypatch.setattr(DaskRows, "_mend", timed_mend)
    monkeypatch.setattr(DaskRows, "_ask", deadly_ask)
    monkeypatch.setattr(DaskRows, "_build", counted_build)
    fitted = model(subsample=0.7).fit(*frames())
    assert seen.count("next_level_of_one_side") >= 3
    assert len(built) >= 6  # two sites of training rows and one or two of others, and what was lost
    assert bits(fitted) == bits(in_files)
    assert len(killed) == 2
    for strike in killed:  # mostly at once; Dask itself would try to connect for half a minute, 9 s here
        assert min(moment for moment in noticed if moment > strike) - strike < SECONDS_TO_NOTICE


def test_a_killed_worker_changes_nothing_after_a_sample_either(client, tmp_path, monkeypatch):
    """The sample's model travels to the workers, and to the one that takes the place of the killed one."""
    monkeypatch.setattr("treecdf.training.streaming.ROWS_OF_SAMPLE", 150)
    settings = {"base": "auto", "stages": None, "effort": "fast", "max_trees": 4}
    X.assign(y=Y).to_parquet(tmp_path / "rows.parquet")
    expected = model(**settings).fit_parquet(tmp_path / "rows.parquet", "y")
    assert "trees were grown on all others" in expected.summary()
    seen, ask = [], DaskRows._ask

    def deadly_ask(self, request, *operations):
        seen.append(kernel := kernel_of(operations[-1]))
        if kernel == "next_level_of_one_side" and seen.count(kernel) == 3:
            os.kill(client.run(os.getpid)[self._homes[-1]], signal.SIGKILL)
        return ask(self, request, *operations)

    monkeypatch.setattr(DaskRows, "_ask", deadly_ask)
    fitted = model(**settings).fit(*frames())
    assert seen.count("next_level_of_one_side") >= 3
    assert fitted.log_prob(X, Y).tobytes() == expected.log_prob(X, Y).tobytes()


def test_a_killed_scheduler_is_one_error():
    """In processes of their own; `python -m tests.kill_cluster` kills workers, schedulers and clients in all phases."""
    result = kill_cluster.run(1, cases=[("scheduler", "growing")], one_more=False)
    assert result["good"] == 1, result


def test_two_outcomes_on_arrays(client):
    both = np.column_stack([Y, X["a"] + RNG.normal(size=N)])
    x, y = da.from_array(X.to_numpy(), chunks=(400, 2)), da.from_array(both, chunks=(400, 1))
    settings = {"base": "student", "structure": "joint", "stages": STAGES[:1]}
    fitted, ours = model(**settings).fit(x, y), model(**settings).fit(X.to_numpy(), both)
    np.testing.assert_allclose(fitted.log_prob(x, y).compute(), ours.log_prob(X.to_numpy(), both), atol=1e-9)
    assert fitted.sample(x, 3, random_state=0).shape == (N, 3, 2)
    assert fitted.predict(x).compute().shape == (N, 2)


def test_collections_must_be_divided_alike(client):
    x, y = frames()
    with pytest.raises(TypeError, match="Expected y to be a Dask collection"):
        model().fit(x, Y)
    with pytest.raises(ValueError, match="partitions: expected one number"):
        model().fit(x, frames(3)[1])
    with pytest.raises(ValueError, match="they must be divided in the same way"):
        model().fit(x, da.from_array(Y.to_numpy(), chunks=(((300,) * 3 + (150,) * 2),)))
    with pytest.raises(ValueError, match="Validation rows of base='box'"):
        model().fit(x, y, X_val=x, y_val=y)


@pytest.mark.parametrize("backend", ["threading", "loky", "dask"])
def test_members_are_tasks_of_any_backend(backend, client, monkeypatch):
    """In other threads, in processes and on the workers of the cluster."""
    monkeypatch.undo()  # other processes know nothing of small pieces
    both = np.column_stack([Y, X["b"] + RNG.normal(size=N)])[:200]
    settings = {"rotations": 3, "max_trees": 1, "n_jobs": 2, "structure": "joint"}
    alone = model(**{**settings, "n_jobs": 1}).fit(X[:200], both)
    with joblib.parallel_config(backend):
        elsewhere = model(**settings).fit(X[:200], both)
    np.testing.assert_allclose(elsewhere.log_prob(X[:200], both), alone.log_prob(X[:200], both), rtol=1e-13)


# Parts


def test_many_workers_are_asked_along_a_tree():
    """Every site once, few questions from everybody, neighbours in one branch; few workers are all asked directly."""
    sites = {f"w{k}": [k] for k in range(100)}

    def walk(branches):
        assert len(branches) <= 8
        found = []
        for own, below in branches.values():
            inside = [*own, *walk(below)]
            assert sorted(inside) == list(range(min(inside), max(inside) + 1))
            found += inside
        return found

    assert sorted(walk(dask_rows.branches(sites, dask_rows.most_asked(100)))) == list(range(100))
    assert dask_rows.most_asked(16) == 16
    assert dask_rows.branches({"a": [0, 2], "b": [1]}, 2) == {"a": ([0, 2], {}), "b": ([1], {})}


def test_halves_are_added_up_only_where_nothing_is_missing_between_them():
    def ones(a, b):
        return range(a, b), [np.full(1, float(b - a))]

    parts = add_halves([ones(0, 2), ones(3, 4), ones(4, 8)], 8)
    assert [part for part, _ in parts] == [range(2), range(3, 4), range(4, 8)]
    ((everything, (total,)),) = add_halves([ones(0, 2), ones(2, 3), ones(3, 4), ones(4, 8)], 8)
    assert (everything, total[0]) == (range(8), 8.0)


def test_kernels_travel_by_name():
    sent = dumps((logistic_loss, np.arange(3)))
    assert len(sent) < 400
    assert pickle.loads(sent)[0] is logistic_loss


def test_operations_travel_light():
    """A request of a pass holds the arguments of its kernel and little else."""
    sums = Sums(logistic_loss, "node", (np.arange(3),), [(3,), (3, 2)])
    request = partial(Local.sum_shards, before=(Arrange(np.arange(2), np.zeros(2), Basis.linear(2)),), last=sums)
    assert len(dumps(request)) < 1500
    again = pickle.loads(dumps(request))
    assert again.func is Local.sum_shards
    assert again.keywords["last"].kernel is logistic_loss


def names(journal):
    return [type(operation).__name__ for operation in journal.operations]


def test_a_journal_keeps_what_brings_rows_to_where_they_are():
    at = np.zeros(1, np.int64), np.zeros(1)
    begin, arrange, down = BeginTree(1.0, None), Arrange(*at, Basis.linear(1)), Descend(*at, np.zeros((1, 2)), 2)
    sums, block_sums = Sums(logistic_loss, "node", (), []), BlockSums(logistic_loss, (), [(1,)])

    def note(*operations):
        for operation in operations:
            journal.note(operation)
        return names(journal)

    journal = Journal()
    assert note(OfTable(len), CountRows(), EveryNth(2)) == []
    note(Locate(None, None, 3), Keep(), begin, sums)
    assert note(arrange, sums) == ["Locate", "Keep", "BeginTree", "Arrange"]
    assert note(Encode(None), block_sums) == ["Locate", "Keep", "BeginTree", "Arrange", "Encode", "BlockSums"]
    assert note(down, sums) == ["Locate", "Keep", "BeginTree", "Encode", "Descend"]
    assert note(Apply("one"), Keep(), begin) == ["Locate", "Encode", "Apply", "Keep", "BeginTree"]
    assert note(Apply("two"), Restore(), Keep(), Column(0, 1)) == ["Locate", "Encode", "Apply", "Keep"]
    assert [request.func.__name__ for request in journal.requests()] == ["ask_blocks", *["ask_shards"] * 3]


class TwoWords(Exception):
    """Cannot be pickled: its arguments are not those of its constructor."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def slip(x, y, weight):
    raise ZeroDivisionError("a slip")


def slip_in_two_words(x, y, weight):
    raise TwoWords("a", "slip")


@pytest.mark.parametrize(("task", "kind"), [(slip, ZeroDivisionError), (slip_in_two_words, RuntimeError)])
def test_errors_of_workers_come_with_their_traceback(task, kind, client, monkeypatch):
    """The driver's error shows the worker's line; errors that cannot be pickled arrive as text."""
    monkeypatch.setattr(treecdf.training.boosting, "sum_of_weights", task)
    with pytest.raises(kind, match="a slip") as caught:
        model().fit(*frames())
    report = "".join(traceback.format_exception(caught.value))
    assert f"in {task.__name__}" in report
    assert "on worker tcp://" in report
