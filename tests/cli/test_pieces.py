"""Large files: results that are read, made and written piece by piece are those of the whole table."""

import io
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.helpers.small_tables import small_rows
from treecdf.cli import questions
from treecdf.cli.csv_files import read_csv_pieces
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Input
from treecdf.cli.main import main
from treecdf.cli.output import write_pieces
from treecdf.cli.tables import read_pieces
from treecdf.estimators.progress import Progress

COMMANDS = {"score": [], "predict": [], "quantiles": ["--levels", ".1", ".9"], "sample": ["--n", "3"]}


@pytest.fixture
def table(tmp_path):
    """A table of 50 rows, as CSV and as Parquet, with gaps in the outcome and in what is carried over."""
    rows = small_rows(50, 3)
    rows["name"] = [f"0{k}" if k % 3 else None for k in range(50)]
    rows["number"] = pd.array([None if k < 20 or k % 4 == 0 else k for k in range(50)], "Int64")
    rows["day"] = pd.date_range("2026-01-01", periods=50, freq="7h")
    rows.loc[[0, 5, 30], "y"] = np.nan
    rows.to_csv(tmp_path / "t.csv", index=False)
    rows.to_parquet(tmp_path / "t.parquet", index=False)
    return tmp_path


def asked(small, table, command, kind, out):
    call = [command, str(small / "m.tcdf"), str(table / f"t.{kind}"), "--id", "name", "number", "day"]
    return [*call, *COMMANDS[command], "--out", str(out)]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_pieces_are_the_whole(small, table, monkeypatch, capsys, command, kind):
    found, told = [], []
    for name, n_rows in (("whole", 1000), ("parts", 7)):
        monkeypatch.setattr(questions, "ROWS_OF_PIECE", n_rows)
        assert main(asked(small, table, command, kind, table / f"{name}.{kind}")) == 0
        told.append(capsys.readouterr().out.replace(f"{name}.", "."))
        read = pd.read_csv if kind == "csv" else pd.read_parquet
        found.append(read(table / f"{name}.{kind}"))
    assert told[0] == told[1]
    assert len(found[0]) == {"score": 47, "sample": 150}.get(command, 50)
    pd.testing.assert_frame_equal(*found, rtol=1e-12)
    assert found[0]["row"].is_monotonic_increasing
    assert found[0]["name"].isna().any()


def test_a_type_that_comes_late_is_that_of_all_pieces(tmp_path):
    pieces = [{"id": np.array([None, None], object)}, {"id": np.array([None, 2**60 + 1], object)}]
    write_pieces(tmp_path / "t.parquet", iter(pieces))
    assert pq.read_table(tmp_path / "t.parquet")["id"].to_pylist() == [None, None, None, 2**60 + 1]
    write_pieces(tmp_path / "t.parquet", iter(pieces[:1]))
    assert pq.read_table(tmp_path / "t.parquet")["id"].to_pylist() == [None, None]


def test_a_piece_that_cannot_be_read_leaves_nothing(small, table, monkeypatch, capsys):
    monkeypatch.setattr(questions, "ROWS_OF_PIECE", 7)
    text = (table / "t.csv").read_text().splitlines()
    text[40] = "tall" + text[40][text[40].index(",") :]
    (table / "t.csv").write_text("\n".join(text))
    assert main(asked(small, table, "quantiles", "csv", table / "q.csv")) == 1
    assert "line 41, column 'size'" in capsys.readouterr().err
    assert not (table / "q.csv").exists()
    assert main(asked(small, table, "quantiles", "csv", "-")) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_table(small, tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setattr(questions, "ROWS_OF_PIECE", 200)
    peaks = []
    for n in (200, 400, 4000):  # the first for what is made once
        rows = small_rows(n, 3)[["size", "zone", "code"]]
        rows["text"] = "carried " * 50
        rows.to_csv(tmp_path / "t.csv", index=False)
        rows.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=200)
        call = ["sample", str(small / "m.tcdf"), str(tmp_path / f"t.{kind}"), "--n", "20", "--id", "text"]
        tracemalloc.start()
        assert main([*call, "--out", str(tmp_path / f"draws.{kind}")]) == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


def test_progress_is_told_of_several_pieces(small, table, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(Progress, "show", lambda self, text, share=0.0, **_: shown.append((text, share)))
    assert main(asked(small, table, "predict", "csv", table / "p.csv")) == 0
    assert shown == []
    monkeypatch.setattr(questions, "ROWS_OF_PIECE", 30)
    assert main(asked(small, table, "predict", "parquet", table / "p.csv")) == 0
    assert shown == [("30 rows", 0.6), ("50 rows", 1.0)]


def test_a_table_without_rows_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a\n")
    with pytest.raises(ValueError, match="has no rows"):
        list(read_pieces(Input(tmp_path / "t.csv"), lambda names: {"a": Kind.NUMBER}, 5))


def test_the_share_of_a_packed_file_is_that_of_its_bytes(tmp_path):
    pd.DataFrame({"a": np.random.default_rng(0).normal(size=30_000)}).to_csv(tmp_path / "t.csv.gz", index=False)
    pieces = read_csv_pieces(Input(tmp_path / "t.csv.gz"), lambda names: {"a": Kind.NUMBER}, 10_000)
    shares = [share for _, share in pieces]
    assert len(shares) == 3
    assert 0 < shares[0] < shares[1] <= shares[2] <= 1


def test_what_is_piped_is_read_in_pieces_too(small, table, monkeypatch, capsys):
    monkeypatch.setattr(questions, "ROWS_OF_PIECE", 7)
    text = (table / "t.csv").read_bytes()
    outputs = []
    for name in ("-", str(table / "t.csv")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["quantiles", str(small / "m.tcdf"), name]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 51
