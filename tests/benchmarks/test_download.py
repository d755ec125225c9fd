"""Sets from their sources, with the sources made up from the local files; no test goes to the network."""

import io
import zipfile

import numpy as np
import pytest

from benchmarks import datasets, download
from benchmarks.datasets import DATASETS, load, split
from tests.benchmarks.test_benchmarks import DATA, needs_data


@pytest.fixture
def no_files(tmp_path, monkeypatch):
    """Neither TREECDF_DATA nor a directory of shared data, an empty cache."""
    monkeypatch.delenv("TREECDF_DATA", raising=False)
    monkeypatch.setattr(datasets, "ROOT", tmp_path / "repository")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def text(values):
    return "\n".join(" ".join(map(repr, np.atleast_1d(line).tolist())) for line in values).encode()


def source_of(name):
    """Pages of a set with published splits, its columns in another order and one of them not used."""
    record = DATASETS[name]
    x, y = load(name)
    tests = [split(name, k)[1] for k in range(record.n_splits)]
    pages = {"data.txt": text(np.column_stack([y, np.full(len(y), 7.0), x]))}
    pages |= {"index_features.txt": text(np.arange(2.0, 2 + record.q)), "index_target.txt": b"0\n"}
    return pages | {f"index_test_{k}.txt": text(test.astype(float)) for k, test in enumerate(tests)}


@needs_data
def test_published_set_is_downloaded_once_and_equals_the_file(no_files, monkeypatch):
    monkeypatch.setenv("TREECDF_DATA", str(DATA))
    pages, expected, rows = source_of("yacht"), load("yacht"), split("yacht", 3)
    monkeypatch.delenv("TREECDF_DATA")
    asked = []

    def read_url(url):
        assert "/yacht/data/" in url
        asked.append(url)
        return pages[url.rsplit("/", 1)[1]]

    monkeypatch.setattr(download, "read_url", read_url)
    for found, wanted in zip(load("yacht"), expected, strict=True):
        assert np.array_equal(found, wanted)
    once = len(asked)
    assert all(np.array_equal(*pair) for pair in zip(split("yacht", 3), rows, strict=True))
    assert len(asked) == once == 23
    pages["data.txt"] = pages["data.txt"].replace(b"7.0", b"8.0")
    (no_files / "cache/treecdf-benchmarks/yacht.npz").unlink()
    load("yacht")  # the column that changed is not used
    (no_files / "cache/treecdf-benchmarks/yacht.npz").unlink()
    pages["data.txt"] = pages["data.txt"].replace(b"0.11 ", b"0.12 ", 1)
    with pytest.raises(ValueError, match="values of yacht have sha256"):
        load("yacht")
    assert not list((no_files / "cache/treecdf-benchmarks").iterdir())


@needs_data
def test_archive_is_prepared_as_the_registry_says(no_files, monkeypatch):
    pd = pytest.importorskip("pandas")
    monkeypatch.setenv("TREECDF_DATA", str(DATA))
    x, y = load("skillcraft")
    monkeypatch.delenv("TREECDF_DATA")
    outcomes = ["NumberOfPACs", "GapBetweenPACs", "ActionLatency", "ActionsInPAC"]
    names = ["GameID", *(f"x{k}" for k in range(10)), *outcomes, *(f"x{k}" for k in range(10, 15))]
    frame = pd.DataFrame(np.column_stack([np.arange(len(x)), x[:, :10], y, x[:, 10:]]), columns=names).astype(object)
    unknown = frame.iloc[:1].copy()
    unknown["x3"] = "?"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("SkillCraft1_Dataset.csv", pd.concat([unknown, frame]).to_csv(index=False))
    monkeypatch.setattr(download, "read_url", lambda url: content.getvalue())
    found = load("skillcraft")
    assert np.array_equal(found[0], x)
    assert np.array_equal(found[1], y)


def test_without_network_the_message_names_file_and_place(no_files, monkeypatch):
    def read_url(url):
        raise OSError("no route to host")

    monkeypatch.setattr(download, "read_url", read_url)
    with pytest.raises(FileNotFoundError, match=r"kin8nm\.csv\.gz.*TREECDF_DATA.*UCI.*no route to host"):
        load("kin8nm")


def test_every_set_has_a_source_and_checksums():
    several = {name for name, record in DATASETS.items() if record.d > 1}
    assert set(download.ARCHIVES) == several
    files = {name for name, record in DATASETS.items() if record.dequantised is None}
    assert set(download.VALUES_SHA256) == files
    assert set(download.SPLITS_SHA256) == files - several
