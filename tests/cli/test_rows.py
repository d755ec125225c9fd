"""Results that can be joined back to their table, and all the ways in which a table comes."""

import gzip
import io
import re
import sys

import numpy as np
import pandas as pd
import pytest

from tests.helpers.small_tables import small_rows
from treecdf import load_model
from treecdf.cli.main import main


def ask(small, table, command, *options):
    return main([command, str(small / "m.tcdf"), str(table), *map(str, options)])


@pytest.fixture
def gappy(tmp_path):
    """A table in which the outcome of some rows is missing, with a column that names its rows."""
    table = small_rows(12, 3)
    table["name"] = [f"0{k}" for k in range(12)]
    table.loc[[0, 5], "y"] = np.nan
    table.loc[7, "y"] = 600.0  # the least likely by far
    table.to_csv(tmp_path / "gappy.csv", index=False)
    return tmp_path / "gappy.csv"


def test_rows_have_the_numbers_of_the_file(small, gappy, tmp_path, capsys):
    assert ask(small, gappy, "score", "--id", "name", "size", "--out", tmp_path / "s.csv") == 0
    assert "(row 7 of the file, from 0)" in capsys.readouterr().out
    scores = pd.read_csv(tmp_path / "s.csv", dtype={"name": str})
    assert scores.columns.tolist() == ["row", "name", "size", "log_density"]
    assert scores["row"].tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert scores["name"].tolist() == [f"0{k}" for k in scores["row"]]
    np.testing.assert_allclose(scores["size"], pd.read_csv(gappy)["size"][scores["row"]])


def test_a_complaint_about_training_rows_names_the_row_of_the_file(gappy, tmp_path, capsys):
    fit = ["fit", str(gappy), "--outcome", "y", "--bounds", ",500", "--drop", "name", "--out", str(tmp_path / "m.tcdf")]
    assert main(fit) == 1
    assert "is 600 in row 7, outside its bounds" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "n"), [("quantiles", 1), ("predict", 1), ("sample", 3)])
def test_columns_are_carried_over(small, gappy, tmp_path, command, n):
    options = ["--n", 3] if command == "sample" else []
    assert ask(small, gappy, command, "--id", "name", "--id", "zone", *options, "--out", tmp_path / "r.parquet") == 0
    result = pd.read_parquet(tmp_path / "r.parquet")
    assert result["row"].tolist() == [k for k in range(12) for _ in range(n)]
    assert result["name"].tolist() == [f"0{k}" for k in range(12) for _ in range(n)]
    assert result.columns[1:3].tolist() == ["name", "zone"]


def test_names_that_are_taken_give_way(small, gappy, tmp_path):
    table = pd.read_csv(gappy).rename(columns={"name": "row"})
    table["log_density"] = 1
    table.to_csv(tmp_path / "t.csv", index=False)
    assert ask(small, tmp_path / "t.csv", "score", "--id", "row", "log_density", "--out", tmp_path / "s.csv") == 0
    assert pd.read_csv(tmp_path / "s.csv").columns.tolist() == ["row_", "row", "log_density_", "log_density"]
    assert ask(small, tmp_path / "t.csv", "score", "--id", "nobody", "--out", tmp_path / "s.csv") == 1


def test_predict_equals_the_library(small, gappy, tmp_path):
    assert ask(small, gappy, "predict", "--interval", ".8", "--out", tmp_path / "p.csv") == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert found.columns.tolist() == ["row", "y mean", "y std", "y 0.1", "y 0.5", "y 0.9"]
    asked = pd.read_csv(gappy, dtype={"zone": str, "code": str})[["size", "zone", "code"]]
    d = load_model(small / "m.tcdf").predict_distribution(asked)
    expected = np.column_stack([d.mean(), d.std(), d.icdf([0.1, 0.5, 0.9])])
    np.testing.assert_allclose(found.to_numpy()[:, 1:], expected, rtol=1e-9)


# Ways in which a table comes


@pytest.fixture
def answer(small, tmp_path):
    """A function that asks for the medians of a table; they have to be those of small_rows(8, 1)."""

    def check(table, *options):
        assert ask(small, table, "quantiles", "--levels", ".5", *options, "--out", tmp_path / "q.csv") == 0
        expected = tmp_path / "expected.csv"
        assert ask(small, small / "t.csv", "quantiles", "--levels", ".5", "--out", expected) == 0
        np.testing.assert_allclose(pd.read_csv(tmp_path / "q.csv"), pd.read_csv(expected), rtol=1e-9)

    return check


def test_separators_are_found(small, tmp_path, answer):
    text = (small / "t.csv").read_text()
    for name, separator in (("a.csv", ";"), ("b.tsv", "\t"), ("c.txt", "|"), ("d.csv", ",")):
        (tmp_path / name).write_text(text.replace(",", separator))
        answer(tmp_path / name)
    (tmp_path / "e.csv").write_text(text.replace(",", "^"))
    answer(tmp_path / "e.csv", "--separator", "^")
    (tmp_path / "f.csv").write_text(text.replace(",", ";").replace(".", ","))
    answer(tmp_path / "f.csv")  # decimal commas


def test_encodings_and_packed_files(small, tmp_path, answer, capsys):
    text = (small / "t.csv").read_text()
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write(text)
    answer(tmp_path / "t.csv.gz")
    for k, encoding in enumerate(("utf-16", "utf-8-sig", "utf-16-le")):
        (tmp_path / f"{k}.csv").write_bytes(text.encode(encoding))
        answer(tmp_path / f"{k}.csv", *(["--encoding", encoding] if k == 2 else []))  # marks of others say it
    (tmp_path / "u.csv").write_bytes(text.replace("y", "ö").encode("latin-1"))
    assert ask(small, tmp_path / "u.csv", "predict") == 1
    assert "say what it is with --encoding" in capsys.readouterr().err
    assert ask(small, tmp_path / "u.csv", "predict", "--encoding", "utf-99") == 1
    assert "expected --encoding such as utf-8" in capsys.readouterr().err


def test_excel(small, tmp_path, answer, capsys):
    frame = pd.read_csv(small / "t.csv", dtype={"zone": str})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    answer(tmp_path / "t.xlsx")
    (tmp_path / "bad.xlsx").write_bytes(b"nothing")
    assert ask(small, tmp_path / "bad.xlsx", "predict") == 1
    assert "bad.xlsx cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_and_output(small, capsys, monkeypatch, pack):
    data = pack((small / "t.csv").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert ask(small, "-", "quantiles", "--id", "zone", "--levels", ".5") == 0
    out, err = capsys.readouterr()
    assert err == "1 quantiles for each of 8 rows written to the standard output\n"
    frame = pd.read_csv(io.StringIO(out))
    assert frame.columns.tolist() == ["row", "zone", "y 0.5"]
    assert len(frame) == 8


def test_a_comma_at_the_end_of_every_line_makes_no_column(tmp_path, capsys):
    rows = "".join(f"{k},{k % 7},\n" for k in range(60))
    (tmp_path / "t.csv").write_text("y,a,\n" + rows)
    fit = ["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--effort", "fast", "--jobs", "1"]
    assert main([*fit, "--out", str(tmp_path / "m.tcdf")]) == 0
    assert load_model(tmp_path / "m.tcdf").feature_names_in_.tolist() == ["a"]
    (tmp_path / "t.csv").write_text("y,a,\n" + rows + "1,2,x\n")
    assert main([*fit, "--out", str(tmp_path / "m.tcdf")]) == 1
    assert "column 3 has no name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["q.csv.gz", "q.tsv", "q.parquet"])
def test_results_are_written_as_their_names_say(small, tmp_path, name):
    assert ask(small, small / "t.csv", "quantiles", "--levels", ".5", "--out", tmp_path / name) == 0
    read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
    options = {"sep": "\t"} if name.endswith("tsv") else {}
    assert read(tmp_path / name, **options).columns.tolist() == ["row", "y 0.5"]


# Settings of a fit


def test_recording_and_several_outcomes(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=80), "rain": rng.gamma(2, 1, 80).round(1), "wind": rng.normal(size=80)})
    table.loc[:30, "rain"] = 0.0
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", str(tmp_path / "t.csv"), "--effort", "fast", "--jobs", "1", "--out", str(tmp_path / "m.tcdf")]
    assert main([*fit, "--outcome", "rain", "--atoms", "0", "--bounds", "-100,", "--resolution", "0.1"]) == 0
    model = load_model(tmp_path / "m.tcdf")
    assert (model.atoms, model.bounds, model.resolution) == ([0.0], [(-100.0, None)], 0.1)
    assert main([*fit, "--outcome", "rain", "wind"]) == 0
    assert load_model(tmp_path / "m.tcdf").outcome_names_ == ("rain", "wind")


@pytest.mark.parametrize("option", ["--atoms", "--resolution"])
def test_settings_that_are_no_numbers(small, tmp_path, capsys, option):
    fit = ["fit", str(small / "t.csv"), "--outcome", "y", option, "many", "--out", str(tmp_path / "m.tcdf")]
    assert main(fit) == 1
    assert f"expected {option} to be auto or numbers; got 'many'" in capsys.readouterr().err


# Pictures


PICTURES = [
    ["density", "--outcome", "deposit"],
    ["density"],
    ["pit", "--outcome", "0"],
    ["calibration", "--outcome", "rent"],
    ["intervals", "--outcome", "rent"],
    ["fan", "--outcome", "deposit", "--covariate", "area"],
    ["effect", "--outcome", "rent", "--covariate", "district"],
]


@pytest.mark.parametrize("options", PICTURES, ids=" ".join)
def test_pictures_of_several_outcomes(flats, tmp_path, options):
    picture = tmp_path / "p.png"
    command = ["plot", str(flats / "two.tcdf"), str(flats / "new.csv"), "--kind", *options, "--out", str(picture)]
    assert main(command) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_outcome_that_has_to_be_named(flats, tmp_path, capsys):
    command = ["plot", str(flats / "two.tcdf"), str(flats / "new.csv"), "--out", str(tmp_path / "p.png")]
    for kind in ("pit", "intervals", "calibration"):
        assert main([*command, "--kind", kind]) == 1
        assert "say which to draw with --outcome: 'rent', 'deposit'" in capsys.readouterr().err
    assert main([*command, "--kind", "pit", "--outcome", "price"]) == 1
    assert re.search(r"expected --outcome to be 'rent', 'deposit', or a number", capsys.readouterr().err)
    for rows in ("100", "-1", "99999999999999999999"):
        assert main([*command, "--rows", rows]) == 1
        assert "expected --rows from 0 to 99" in capsys.readouterr().err


def test_a_file_behind_the_outcomes_is_missed_in_words(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--out", "m.tcdf", "--outcome", "y", "t.csv"])
    assert "name the files first" in capsys.readouterr().err
