"""Files and Dask collections of not too many rows give the very model of `fit`, whatever the settings."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import treecdf.training.sources.parquet
from treecdf import Stage, TreeFlowRegressor
from treecdf.training.sources.pieces import joined

pytest.importorskip("distributed")
import dask.array as da
import dask.dataframe as dd
from distributed import Client, LocalCluster

RNG = np.random.default_rng(3)
N = 240
TABLE = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N), "level": RNG.choice(["u", "v", "w"], N)})
TABLE.loc[::9, "b"] = np.nan
TABLE["town"] = [f"town {k}" for k in RNG.integers(0, 25, N)]  # more levels than have columns of their own
TABLE["weight"] = RNG.integers(1, 3, N).astype(float)
TABLE["person"] = RNG.integers(0, 80, N)
TABLE["y"] = np.where(RNG.random(N) < 0.2, 0.0, np.exp(0.5 * TABLE["a"] + 0.3 * RNG.normal(size=N)))
TABLE["z"] = TABLE["a"] + RNG.normal(size=N)
COVARIATES = ["a", "b", "level", "town"]
NEW = TABLE[COVARIATES].iloc[:50]


def model(**settings):
    return TreeFlowRegressor(**{"effort": "fast", "max_trees": 3, "random_state": 0, **settings})


def write(directory, frame, n_files=3):
    """Files whose rows are in another order than those of the frame."""
    directory.mkdir(exist_ok=True)
    frame = frame.sample(frac=1, random_state=1)
    for k, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[rows].to_parquet(directory / f"{k}.parquet", index=False)
    return directory


def lazy(frame, npartitions=4):
    return dd.from_pandas(frame, npartitions=npartitions, sort=False)


def assert_same_bits(fitted, expected, outcomes):
    y = TABLE[outcomes].iloc[:50]
    assert fitted.log_prob(NEW, y).tobytes() == expected.log_prob(NEW, y).tobytes()
    assert fitted.sample(NEW, 3, random_state=0).tobytes() == expected.sample(NEW, 3, random_state=0).tobytes()
    assert fitted.feature_importances_.tobytes() == expected.feature_importances_.tobytes()
    assert fitted.summary() == expected.summary()


CASES = {
    "the default": ({}, "y"),
    "atoms": ({"atoms": [0.0], "bounds": (0, None)}, "y"),
    "a grid": ({"resolution": 0.01, "base": "conditional"}, "z"),
    "a regressor": ({"base": LinearRegression(), "weights_are": "relative"}, "z"),
    "a chain": ({}, ["y", "z"]),
    "rotations": ({"rotations": 2, "structure": "joint", "base": "student"}, ["y", "z"]),
    "a classifier": ({"base": "box", "stages": [Stage(LogisticRegression(), 2)], "max_trees": 1}, "z"),
}


@pytest.mark.filterwarnings("ignore:.*repeat")
@pytest.mark.parametrize(("settings", "outcomes"), CASES.values(), ids=CASES)
def test_files_and_collections_give_the_bits_of_rows_in_memory(settings, outcomes, tmp_path):
    expected = model(**settings).fit(
        TABLE[COVARIATES], TABLE[outcomes], sample_weight=TABLE["weight"], groups=TABLE["person"]
    )
    path = write(tmp_path / "rows", TABLE)
    files = model(**settings).fit_parquet(path, outcomes, COVARIATES, sample_weight="weight", groups="person")
    assert_same_bits(files, expected, outcomes)
    table = lazy(TABLE)
    dask = model(**settings).fit(
        table[COVARIATES], table[outcomes], sample_weight=table["weight"], groups=table["person"]
    )
    assert_same_bits(dask, expected, outcomes)


def test_given_validation_rows_stop_the_trees(tmp_path):
    train, held_out = TABLE[:160], TABLE[160:]
    given = {"X_val": held_out[COVARIATES], "y_val": held_out["z"], "sample_weight_val": held_out["weight"]}
    expected = model().fit(train[COVARIATES], train["z"], sample_weight=train["weight"], **given)
    path, path_val = write(tmp_path / "train", train), write(tmp_path / "held_out", held_out, 2)
    files = model().fit_parquet(path, "z", COVARIATES, sample_weight="weight", path_val=path_val)
    np.testing.assert_allclose(files.log_prob(NEW, TABLE["z"][:50]), expected.log_prob(NEW, TABLE["z"][:50]), atol=1e-9)
    assert len(files.families_[0].left_out) == len(held_out)
    table, later = lazy(train), lazy(held_out, 2)
    given = {"X_val": later[COVARIATES], "y_val": later["z"], "sample_weight_val": later["weight"]}
    dask = model().fit(table[COVARIATES], table["z"], sample_weight=table["weight"], **given)
    assert_same_bits(dask, expected, "z")


def test_the_number_of_workers_does_not_matter():
    x, y = TABLE[["a", "b"]].to_numpy(), TABLE[["z"]].to_numpy()
    expected = model().fit(x, y).log_prob(x, y).tobytes()
    for n_workers in (1, 2, 4):
        with LocalCluster(n_workers, processes=False, dashboard_address=":0") as cluster, Client(cluster):
            fitted = model().fit(da.from_array(x, chunks=(50, 1)), da.from_array(y, chunks=(50, 1)))
        assert fitted.log_prob(x, y).tobytes() == expected, n_workers


def test_a_checkpoint_is_kept_and_removed(tmp_path, monkeypatch):
    """A fit that was broken off goes on, and ends in the same model; then its directory is gone."""
    path, where = write(tmp_path / "rows", TABLE), tmp_path / "checkpoint"
    expected = model().fit_parquet(path, "z", COVARIATES)

    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("treecdf.estimators.fitting.importances", fail)
        with pytest.raises(KeyboardInterrupt):
            model(checkpoint=where).fit_parquet(path, "z", COVARIATES)
    assert where.exists()
    with pytest.raises(ValueError, match="checkpoint"):
        model(checkpoint=where).fit_parquet(path, "y", COVARIATES)
    assert_same_bits(model(checkpoint=where).fit_parquet(path, "z", COVARIATES), expected, "z")
    assert not where.exists()


def test_only_so_many_rows_are_read_into_memory(tmp_path, monkeypatch):
    path = write(tmp_path / "rows", TABLE[["a", "z"]])
    whole, pieces = [], treecdf.training.sources.parquet.ParquetPieces

    def watched(self):
        whole.append(self)
        return read(self)

    read = pieces.whole
    monkeypatch.setattr(pieces, "whole", watched)
    monkeypatch.setattr("treecdf.estimators.fitting.ROWS_READ_WHOLE", N)
    model(base="box").fit_parquet(path, "z")
    assert len(whole) == 1
    monkeypatch.setattr("treecdf.estimators.fitting.ROWS_READ_WHOLE", N - 1)
    model(base="box").fit_parquet(path, "z")
    assert len(whole) == 1


def test_levels_of_all_partitions_are_kept():
    """Partitions may know different levels of a category, or none."""
    parts = [pd.DataFrame({"k": pd.Categorical(list(text)), "x": [0.0] * len(text)}) for text in ("aab", "bc", "")]
    whole, y, weight, groups = joined([(part, part["x"], None, part["x"].to_numpy()) for part in parts])
    assert list(whole["k"]) == list("aabbc")
    assert list(whole["k"].cat.categories) == ["a", "b", "c"]
    assert len(y) == len(groups) == 5
    assert weight is None
    kept = joined([(part.assign(k=part["k"].cat.set_categories(list("cba"), ordered=True)),) * 4 for part in parts])[0]
    assert kept["k"].cat.ordered
    assert list(kept["k"].cat.categories) == list("cba")
