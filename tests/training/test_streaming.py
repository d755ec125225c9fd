"""Rows in files give the model that rows in memory give."""

import copy
import itertools
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import treecdf.data.blocks
import treecdf.training.sources.parquet
import treecdf.training.sources.rows
import treecdf.training.sources.shard
import treecdf.training.sources.spill
from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.data.blocks import block_slices, one_in
from treecdf.data.scaling import Standardizer
from treecdf.training.parameters import read_settings
from treecdf.training.sources.dask_rows import divide
from treecdf.training.sources.rows import Rows, add_halves, sum_of_all
from treecdf.training.sources.spill import Spill
from treecdf.training.streaming import is_one_flow

RNG = np.random.default_rng(1)
N = 2000
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "c"])
Y = np.column_stack([np.sin(2 * X["a"]), X["b"]]) + 0.4 * RNG.normal(size=(N, 2))
STAGES = [Stage(Logistic(), 3), Stage(BoostedTrees(), 2), Stage(MLP((3,), max_iter=5), 2), Stage(Constant(), 2)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Many shards, several blocks, batches that end nowhere near them, and no file that is read into memory."""
    monkeypatch.setattr(treecdf.training.sources.rows, "SHARD_ROWS", 64)
    monkeypatch.setattr(treecdf.data.blocks, "BLOCK_ROWS", 256)
    monkeypatch.setattr("treecdf.training.sources.parquet._PIECE_ROWS", 300)
    monkeypatch.setattr("treecdf.estimators.fitting.ROWS_READ_WHOLE", 0)


def model(**settings):
    return TreeFlowRegressor(**{"base": "box", "stages": STAGES, "max_trees": 3, "random_state": 0, **settings})


def write(directory, frame, n_files=3):
    for k, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[part].to_parquet(directory / f"{k}.parquet", row_group_size=450)
    return directory


def bits(fitted):
    """Everything that was learnt."""
    (flow,) = fitted.mixture_.members
    arrays = [*vars(flow.standardize).values(), *(a for a in vars(flow.base).values() if a is not None)]
    arrays += [*fitted.history_.values(), fitted.feature_importances_]
    for stage in flow.stages:
        arrays += [stage.nodes, stage.theta, stage.roots, stage.kind]
    return [array.tobytes() for array in arrays]


def assert_same(streamed, in_memory):
    """The same model but for the rounding of sums: rows in memory are put into the order of their content."""
    (flow,), (other,) = streamed.mixture_.members, in_memory.mixture_.members
    assert streamed.n_trees_ == in_memory.n_trees_
    for stage, own in zip(flow.stages, other.stages, strict=True):
        for name in ("axis", "left", "right"):
            np.testing.assert_array_equal(stage.nodes[name], own.nodes[name])
        np.testing.assert_allclose(stage.nodes["cut"], own.nodes["cut"], rtol=1e-9)
    for name, values in streamed.history_.items():
        np.testing.assert_allclose(values, in_memory.history_[name], atol=1e-9)


CASES = {
    "one outcome": ({}, ["y"]),
    "two outcomes": ({}, ["y", "z"]),
    "student": ({"base": "student", "structure": "joint"}, ["y", "z"]),
    "normal": ({"base": "normal", "structure": "joint"}, ["y"]),
    "bounds": ({"bounds": (-20, None)}, ["y"]),
    "no validation": ({"validation_fraction": 0}, ["y"]),
    "threads": ({"n_jobs": 3}, ["y"]),
}


@pytest.mark.parametrize(("settings", "outcomes"), CASES.values(), ids=CASES)
def test_files_give_the_model_of_rows_in_memory(settings, outcomes, tmp_path):
    y = pd.DataFrame(Y, columns=["y", "z"])[outcomes]
    in_memory = model(**settings).fit(X, y)
    path = write(tmp_path, pd.concat([X, y], axis=1))
    streamed = model(**settings).fit_parquet(path, outcomes=outcomes)
    assert streamed.n_trees_ > 6
    assert_same(streamed, in_memory)
    np.testing.assert_allclose(streamed.log_prob(X, y), in_memory.log_prob(X, y), atol=1e-9)
    assert streamed.outcome_names_ == in_memory.outcome_names_
    if streamed.validation_fraction:
        known = in_memory.families_[0].left_out
        assert streamed.families_[0].left_out[0] == pytest.approx(known[np.isfinite(known)].mean(), abs=1e-9)


def test_work_space_may_be_as_small_as_it_likes(tmp_path, monkeypatch):
    y = pd.Series(Y[:, 0], name="y")
    path = write(tmp_path, X.assign(y=y))
    roomy = model().fit_parquet(path, "y")
    monkeypatch.setattr(treecdf.training.sources.shard, "_MOST_BYTES", 0)
    assert bits(model().fit_parquet(path, "y")) == bits(roomy)


def test_weights_gaps_and_categories_come_from_files_as_from_frames(tmp_path):
    frame = X.assign(d=pd.Categorical(RNG.choice(["u", "v", "w"], N)), y=Y[:, 0])
    frame.loc[::7, "b"] = np.nan
    frame["w"] = RNG.integers(0, 3, N).astype(float)
    covariates = ["a", "b", "d"]
    in_memory = model().fit(frame[covariates], frame["y"], sample_weight=frame["w"])
    streamed = model().fit_parquet(write(tmp_path, frame), "y", covariates, sample_weight="w")
    assert streamed.covariates_.kinds == ("number", "number", "category")
    assert list(streamed.feature_names_in_) == covariates
    assert_same(streamed, in_memory)


MORE_THAN_ONE_FLOW = {
    "base": {"base": "conditional"},
    "auto": {"base": "auto"},
    "regressor": {"base": LinearRegression()},
    "structure": {"structure": "chain"},
    "rotations": {"rotations": 2},
    "atoms": {"atoms": [0.0]},
    "resolution": {"resolution": 0.5},
    "classifier": {"stages": [Stage(LogisticRegression(), 2)]},
}


@pytest.mark.parametrize("settings", MORE_THAN_ONE_FLOW.values(), ids=MORE_THAN_ONE_FLOW)
def test_what_sums_over_all_rows_cannot_train(settings):
    assert is_one_flow(read_settings(model().get_params(deep=False)))
    assert not is_one_flow(read_settings(model(**settings).get_params(deep=False)))


def test_complaints_name_rows_and_columns(tmp_path):
    path = write(tmp_path, X.assign(y=Y[:, 0]))
    with pytest.raises(ValueError, match="Expected columns of the files: a, b, c, y; got 'nothing'"):
        model().fit_parquet(path, "nothing")
    with pytest.raises(ValueError, match=r"Outcome 0 of y is .* outside its bounds"):
        model(bounds=(0, None)).fit_parquet(path, "y")
    write(tmp_path, X.assign(y=Y[:, 0])[:0])
    with pytest.raises(ValueError, match=r"Found 0 row\(s\)"):
        model().fit_parquet(path, "y")
    frame = X.assign(y=Y[:, 0], many=[str(k % 40) for k in range(N)])
    with pytest.raises(ValueError, match="Column 3 of X has 40 levels"):
        model().fit_parquet(write(tmp_path, frame), "y")


def test_many_rows_are_learnt_from_a_sample(tmp_path, monkeypatch):
    """Bins, medians and levels are then those of a sample, and rows are set aside by their values, not their ranks."""
    monkeypatch.setattr(treecdf.training.sources.rows, "SAMPLE_ROWS", 500)
    monkeypatch.setattr("treecdf.training.streaming.SAMPLE_ROWS", 500)
    path = write(tmp_path, X.assign(y=Y[:, 0]))
    streamed, in_memory = model().fit_parquet(path, "y"), model().fit(X, Y[:, 0])
    assert np.abs(streamed.log_prob(X, Y[:, 0]) - in_memory.log_prob(X, Y[:, 0])).mean() < 0.1
    again = model().fit_parquet(path, "y")
    np.testing.assert_array_equal(streamed.log_prob(X, Y[:, 0]), again.log_prob(X, Y[:, 0]))
    assert abs(streamed.covariates_.columns[0].median - np.median(X["a"])) > 0


# Parts


def test_a_sample_is_a_matter_of_the_numbers_of_the_rows():
    whole = one_in(10, 0, 100_000)
    assert whole.mean() == pytest.approx(0.1, abs=0.005)
    np.testing.assert_array_equal(whole, np.concatenate([one_in(10, 0, 333), one_in(10, 333, 99_667)]))
    for period in range(2, 30):
        shares = [whole[k::period].mean() for k in range(period)]
        assert max(shares) < 0.13
        assert min(shares) > 0.07


def test_a_spill_gives_back_what_it_took():
    spill = Spill(10_000)
    rng = np.random.default_rng(0)
    slices = [slice(k, k + 2500) for k in range(0, 10_000, 2500)]
    values = [rng.normal(size=(2500, 3)) for _ in slices]
    kept = [spill.put("x", rows, part) for rows, part in zip(slices, values, strict=True)]
    short = spill.put("order", slices[2], np.arange(700))
    for rows in slices:
        spill.drop_from_memory(rows)
    np.testing.assert_array_equal(kept, values)
    np.testing.assert_array_equal(short, np.arange(700))
    short[:] = -1
    spill.drop_from_memory(slices[2])
    assert (short == -1).all()


def test_blocks_are_few_however_many_rows():
    for n in (0, 1, 256, 257, 10**9):
        slices = block_slices(n)
        assert len(slices) <= 512
        assert sum(s.stop - s.start for s in slices) == n


@pytest.mark.parametrize("n", [1, 2, 7, 16, 23])
def test_sums_do_not_depend_on_who_adds_up_which_blocks(n):
    """Two, three or more machines send few parts, which add up to the same bits."""
    parts = [(range(k, k + 1), [RNG.normal(size=1)]) for k in range(n)]
    (one,) = sum_of_all(copy.deepcopy(parts))
    assert one == pytest.approx(sum(terms[0] for _, terms in parts), abs=1e-12)
    for n_sites in range(1, n + 1):
        sites = [add_halves(copy.deepcopy(parts[k.start : k.stop]), n) for k in divide(n, n_sites)]
        assert max(map(len, sites)) <= 2 * n.bit_length()
        assert sum_of_all(list(itertools.chain(*sites)))[0] == one
        if n_sites in (1, 2, 4):
            assert [len(site) for site in sites] == [1] * n_sites


def test_a_standardizer_of_blocks_is_that_of_the_whole(monkeypatch):
    x, weight = RNG.normal(3, 2, size=(1000, 4)), RNG.random(1000)
    x[:, 2] = 5.0
    in_blocks = Standardizer.fit(x, weight)
    monkeypatch.setattr(treecdf.data.blocks, "BLOCK_ROWS", 10_000)
    whole = Standardizer.fit(x, weight)
    np.testing.assert_allclose(in_blocks.mean, whole.mean, rtol=1e-13)
    np.testing.assert_allclose(in_blocks.scale, whole.scale, rtol=1e-13)
    assert whole.scale[2] == np.inf


def test_every_shard_takes_its_own_part_of_one_stream():
    """Also the 32 bits that a generator may have left over stay where they were."""
    x, u, rng, twin = np.zeros((N, 1)), np.full((N, 1), 0.5), np.random.default_rng(3), np.random.default_rng(3)
    weight = RNG.random(N)
    for generator in (rng, twin):
        generator.integers(2**31, dtype=np.int32)
    rows = Rows(x, u, weight)
    for _ in range(2):
        assert rows.begin_tree(0.4, rng) == pytest.approx(weight[twin.random(N) < 0.4].sum(), rel=1e-12)
    assert rng.bit_generator.state == twin.bit_generator.state


def test_operations_without_an_answer_wait_for_the_next_one_with():
    """A block in files is visited once for all of them."""
    visits = []

    class Watched(treecdf.training.sources.rows.Local):
        def ask_shards(self, before, last):
            visits.append([type(operation).__name__ for operation in (*before, last)])
            return super().ask_shards(before, last)

    block = treecdf.training.sources.shard.Block(np.zeros((10, 1)), np.full((10, 1), 0.5), np.ones(10), 0).cut(4)
    rows = Rows.of(Watched([block]), (10, 1, 1), 10.0)
    rows.keep()
    rows.begin_tree(1.0, np.random.default_rng(0))
    rows.restore()
    rows.log_density()
    assert visits == [["Keep", "BeginTree"], ["Restore", "Densities"]]


# Files that differ


def fitted_columns(path, **settings):
    """Names of the covariates, and the columns as learnt, of a small fit."""
    fitted = model(stages=STAGES[:1], max_trees=1).fit_parquet(path, "y", **settings)
    return dict(zip(fitted.feature_names_in_, fitted.covariates_.kinds, strict=True))


def test_directories_of_partitions_are_columns(tmp_path):
    """As the same column in a frame; directories above the one that was named are none."""
    frame = X.assign(y=Y[:, 0], year=np.repeat([2020, 2021], N // 2), place=np.repeat(["north", "south"], N // 2))
    root = tmp_path / "run=5"
    frame.to_parquet(root, partition_cols=["year", "place"], index=False)
    streamed = model().fit_parquet(root, "y")
    names = ["a", "b", "c", "year", "place"]
    assert list(streamed.feature_names_in_) == names
    assert streamed.covariates_.kinds == ("number",) * 4 + ("category",)
    assert_same(streamed, model().fit(frame[names], frame["y"]))
    (file,) = (root / "year=2020" / "place=north").iterdir()
    assert fitted_columns(file) == dict.fromkeys("abc", "number")


def test_columns_of_files_win_over_names_of_directories(tmp_path):
    for k in range(2):
        part = X.assign(y=Y[:, 0])[k::2].reset_index(drop=True)
        (tmp_path / f"a={k}").mkdir()
        part.to_parquet(tmp_path / f"a={k}" / "rows.parquet")
    streamed = model().fit_parquet(tmp_path, "y")
    order = np.r_[0:N:2, 1:N:2]
    assert_same(streamed, model().fit(X.iloc[order], Y[order, 0]))


def test_names_like_01_stay_text(tmp_path):
    X.assign(y=Y[:, 0], zone=np.repeat(["01", "1"], N // 2)).to_parquet(tmp_path, partition_cols=["zone"], index=False)
    assert fitted_columns(tmp_path)["zone"] == "category"


def halves(directory, first, second):
    frame = X.assign(y=Y[:, 0])
    for k, changed in enumerate((first, second)):
        part = frame[k * N // 2 : (k + 1) * N // 2]
        part.assign(**{name: f(part) for name, f in changed.items()}).to_parquet(directory / f"{k}.parquet")
    return directory


def test_types_of_columns_are_those_of_all_files(tmp_path):
    """Whole numbers in the first file do not decide for the second, nor does a column without any value."""
    path = halves(
        tmp_path,
        {"a": lambda part: np.ones(len(part), int), "b": lambda part: None, "c": lambda part: "u"},
        {"c": lambda part: None},
    )
    frame = X.assign(a=np.where(np.arange(N) < N // 2, 1.0, X["a"]), c=np.where(np.arange(N) < N // 2, "u", None))
    frame.loc[: N // 2 - 1, "b"] = np.nan
    assert_same(model().fit_parquet(path, "y"), model().fit(frame, Y[:, 0]))


def test_a_column_of_a_later_file_is_missing_in_the_first(tmp_path):
    path = halves(tmp_path, {}, {"late": lambda part: 1.0 + part["a"]})
    frame = X.assign(late=(1.0 + X["a"]).where(np.arange(N) >= N // 2))
    assert_same(model().fit_parquet(path, "y"), model().fit(frame, Y[:, 0]))


def test_text_and_numbers_in_one_column_are_refused_by_name(tmp_path):
    path = halves(tmp_path, {}, {"b": lambda part: part["b"].astype(str)})
    with pytest.raises(
        ValueError, match=r"one type of column 'b' in all files; got double in .*0.parquet and .*1.parq"
    ):
        model().fit_parquet(path, "y")
    assert fitted_columns(path, covariates=["a", "c"]) == {"a": "number", "c": "number"}


def test_a_column_without_any_value_is_one_of_missing_numbers(tmp_path):
    path = halves(tmp_path, {"b": lambda part: None}, {"b": lambda part: None})
    frame = X.assign(b=np.nan)
    assert_same(model().fit_parquet(path, "y"), model().fit(frame, Y[:, 0]))


def test_no_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Expected Parquet files in .*; found none"):
        model().fit_parquet(tmp_path, "y")


@pytest.mark.parametrize("keeps_time", [False, True], ids=["new time", "same time"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_a_file_that_changes_between_passes_is_noticed(weight, keeps_time, tmp_path, monkeypatch):
    """Its size is the same, perhaps even its time."""
    monkeypatch.setattr("treecdf.training.streaming.SAMPLE_ROWS", 500)
    frame = X.assign(y=Y[:, 0], w=1.0)
    path = write(tmp_path, frame)
    part = frame.iloc[np.array_split(np.arange(N), 3)[2]]
    part.to_parquet(path / "2.parquet", compression=None)
    take_in = Spill.take_in
    before = (path / "2.parquet").stat()

    def rewrite(self, first, columns):
        part.assign(a=-part["a"]).to_parquet(path / "2.parquet", compression=None)
        assert (path / "2.parquet").stat().st_size == before.st_size
        if keeps_time:
            os.utime(path / "2.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
        take_in(self, first, columns)

    monkeypatch.setattr(Spill, "take_in", rewrite)
    with pytest.raises(ValueError, match=r"2.parquet was changed"):
        model().fit_parquet(path, "y", ["a", "b", "c"], sample_weight=weight)


@pytest.mark.parametrize(("weight", "most", "passes"), [(None, 10**6, 1), (None, 500, 3), ("w", 10**6, 1)])
def test_files_are_read_as_often_as_they_must_be(weight, most, passes, tmp_path, monkeypatch):
    """Footers give the number of rows; weights are read alone; a sample of all rows is all that is read."""
    monkeypatch.setattr("treecdf.training.streaming.SAMPLE_ROWS", most)
    path = write(tmp_path, X.assign(y=Y[:, 0], w=1.0), n_files=2)
    read, batches = [], treecdf.training.sources.parquet._File.batches

    def watched(self, schema, columns):
        read.append(list(columns))
        return batches(self, schema, columns)

    monkeypatch.setattr(treecdf.training.sources.parquet._File, "batches", watched)
    model(max_trees=1).fit_parquet(path, "y", ["a", "b"], sample_weight=weight)
    weights = [] if weight is None else ["w"]
    assert read == [["w"]] * 2 * len(weights) + [["a", "b", "y", *weights]] * 2 * passes


# Disks that are full


def on_a_disk_of(size, directory, code):
    """What Python prints to the end, in a namespace of its own in which the directory is a small disk."""
    disk = directory / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={size} none {disk}"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, mount], capture_output=True).returncode:
        pytest.skip("no small disk without the right to mount one in a namespace")
    script = f"{mount} && exec {sys.executable} -W ignore -c '{code}'"
    return subprocess.run([*command, script], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(disk)})


STREAM = """from treecdf import *
import treecdf.estimators.fitting
treecdf.estimators.fitting.ROWS_READ_WHOLE = 0
"""
PARQUET = 'TreeFlowRegressor(base="box", max_trees=1).fit_parquet("{path}", "y", directory={directory})'
DASK = """import dask.dataframe as dd
frame = dd.read_parquet("{path}")
TreeFlowRegressor(base="box", max_trees=1).fit(frame[["a", "b", "c"]], frame["y"])"""


FULL = {
    "files": (PARQUET, '"{disk}"', "64k"),
    "files, little is missing": (PARQUET, '"{disk}"', "140k"),
    "files, temporary directory": (PARQUET, "None", "64k"),
    "Dask without a client": (DASK, "", "64k"),
}


@pytest.mark.parametrize(("fit", "directory", "size"), FULL.values(), ids=FULL)
def test_a_full_disk_is_an_error_with_its_name(fit, directory, size, tmp_path):
    """It ended the interpreter by a bus error."""
    path = tmp_path / "rows.parquet"
    X.assign(y=Y[:, 0]).to_parquet(path, index=False)
    where = directory.format(disk=tmp_path / "disk")
    done = on_a_disk_of(size, tmp_path, STREAM + fit.format(path=path, directory=where))
    assert done.returncode == 1, done
    assert "No space left on device" in done.stderr
    assert "OSError: [Errno 28] Expected " in done.stderr.splitlines()[-1]
    assert f"'{tmp_path / 'disk'}'" in done.stderr.splitlines()[-1]


def test_space_is_reserved_without_the_system_call(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        treecdf.training.sources.spill._reserve_space(file, 3 * 2**20 + 5)
        assert os.fstat(file.fileno()).st_size == 3 * 2**20 + 5
        assert os.fstat(file.fileno()).st_blocks * 512 >= 3 * 2**20
