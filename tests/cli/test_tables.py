"""Reading tables: what a field means depends on the model alone, and what cannot be read is refused with its line."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import fuzz_tables
from treecdf import load_model
from treecdf.cli.fields import MISSING, Kind, kind_of_levels
from treecdf.cli.inputs import Input
from treecdf.cli.main import main
from treecdf.cli.tables import read_file

HEADER = "size,zone,code,y\n"

# Levels that training rows did not have are told of; here they come on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:Column .* such as training rows did not have")


def read(path, content, **kinds):
    """A frame of a CSV file with this content; all columns are to be decided unless told otherwise."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_file(Input(path), lambda names: {name: kinds.get(name, Kind.ANY) for name in names})


def medians(small, tmp_path, content):
    """Median of every row of a CSV file."""
    (tmp_path / "asked.csv").write_text(content)
    arguments = [str(small / "m.tcdf"), str(tmp_path / "asked.csv"), "--levels", ".5"]
    assert main(["quantiles", *arguments, "--out", str(tmp_path / "medians.csv")]) == 0
    return pd.read_csv(tmp_path / "medians.csv")["y 0.5"].to_numpy()


def refusal(small, tmp_path, capsys, content, command="score"):
    """What is said of a CSV file with this content."""
    (tmp_path / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    out = ["--out", str(tmp_path / "x.csv")]
    assert main([command, str(small / "m.tcdf"), str(tmp_path / "bad.csv"), *out]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert not (tmp_path / "x.csv").exists()
    return err


# Types


@pytest.mark.parametrize("zone", ["01", "true", "1"])
def test_a_row_is_answered_the_same_whatever_the_other_rows_are(small, tmp_path, zone):
    row = f"0.5,{zone},3,1\n"
    (alone,) = medians(small, tmp_path, HEADER + row)
    among_others = medians(small, tmp_path, HEADER + row + "0.5,hill,4,1\n0.5,TRUE,x,1\n")
    assert among_others[0] == pytest.approx(alone, abs=1e-9)
    named = pd.DataFrame({"size": [0.5], "zone": [zone], "code": [3]})
    assert load_model(small / "m.tcdf").predict_distribution(named).median()[0] == pytest.approx(alone, abs=1e-9)


def test_levels_stay_as_written_in_a_long_file(small, tmp_path):
    n = 300_000
    zones = np.where(np.arange(n) < n // 2, "01", "1")
    zones[-1] = "hill"
    (tmp_path / "long.csv").write_text(HEADER + "".join(f"0.5,{zone},3,1\n" for zone in zones))
    frame = read_file(Input(tmp_path / "long.csv"), lambda names: {"zone": Kind.ANY, "size": Kind.ANY})
    assert (frame["zone"].to_numpy() == zones).all()
    assert (frame["size"] == 0.5).all()


def test_fit_decides_each_column_once_from_all_rows(tmp_path):
    content = "a,b,c,d,e,f\n1,01,true,1,,1.5\n-.5,02,false,1,NA,x\n 1e5 ,03,true,2.0,,7\n+2,4,false,,,8\n"
    frame = read(tmp_path / "t.csv", content)
    assert frame["a"].tolist() == [1, -0.5, 1e5, 2]
    assert frame["b"].tolist() == ["01", "02", "03", "4"]
    assert frame["c"].tolist() == ["true", "false", "true", "false"]
    np.testing.assert_array_equal(frame["d"], [1, 1, 2, np.nan])
    assert frame["e"].dtype == float
    assert frame["e"].isna().all()
    assert frame["f"].tolist() == ["1.5", "x", "7", "8"]


NUMBERS = ["0", "-0", "3", "-3", "+2", "1e5", "1E-5", "0.5", ".5", "5.", "0.0", "10", "123456789012345678901234567890"]
NAMES = ["01", "00", "-01", "0x10", "1_000", "1,5", "true", "1e", "e5", ".", "+", "--1", "１", "1 2", "007.5", "12a"]


@pytest.mark.parametrize("text", NUMBERS)
def test_plain_decimal_numbers(tmp_path, text):
    assert read(tmp_path / "t.csv", f"a,b\n{text},1\n")["a"].tolist() == [float(text)]


@pytest.mark.parametrize("text", NAMES)
def test_what_is_no_plain_number_is_a_name(tmp_path, text):
    assert read(tmp_path / "t.csv", f'a,b\n"{text}",1\n')["a"].tolist() == [text]


@pytest.mark.parametrize("mark", MISSING)
def test_missing_values(tmp_path, mark):
    frame = read(tmp_path / "t.csv", f"a,b\n{mark},{mark}\n1, {mark} \n", b=Kind.TEXT)
    np.testing.assert_array_equal(frame["a"], [np.nan, 1])
    assert frame["b"].tolist() == [None, None]


def test_numbers_are_the_nearest_floats(tmp_path):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-500, 500, 1)[:1000].clip(-300, 300)
    frame = read(tmp_path / "t.csv", "a,b\n" + "".join(f"{value!r},1\n" for value in values.tolist()))
    assert (frame["a"].to_numpy() == values).all()


def test_declared_categories_of_numbers_are_the_levels_of_python(small, tmp_path):
    three, also, other = medians(small, tmp_path, HEADER + "0.5,01,3,1\n0.5,01,3.0,1\n0.5,01,4,1\n")
    assert three == also
    assert three != other
    frame = read(tmp_path / "t.csv", "a,b,c\n3,01,3.0\n3.0,02,x\n", a=Kind.LEVELS, b=Kind.LEVELS, c=Kind.LEVELS)
    assert frame["a"].tolist() == ["3", "3"]
    assert frame["b"].tolist() == ["01", "02"]
    assert frame["c"].tolist() == ["3.0", "x"]


def test_kind_of_levels():
    assert kind_of_levels(["3", "-4.5", ""]) is Kind.CODE
    assert kind_of_levels(["3", "x"]) is Kind.TEXT
    assert kind_of_levels(["3", "3.0"]) is Kind.TEXT  # somebody tells them apart
    assert kind_of_levels(["01"]) is Kind.TEXT
    assert kind_of_levels([""]) is Kind.TEXT


def test_a_column_that_is_almost_numbers_is_told(tmp_path, capsys):
    frame = read(tmp_path / "t.csv", "a,b\n1,1\n2,2\n3O,3\n")
    assert frame["a"].tolist() == ["1", "2", "3O"]
    assert "column 'a' is read as a category: 1 of 3 values are no plain numbers, the first on line 4: '3O'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("first", "second"), [('"1,234.5"', "12"), ("12%", "7.5%"), ("$ 1200", "$ 950"), ('"0,5"', "1")]
)
def test_numbers_in_another_dress_are_told(tmp_path, capsys, first, second):
    read(tmp_path / "t.csv", f"a,b\n{first},1\n{second},2\n{first},3\n")
    told = capsys.readouterr().err
    assert "column 'a' is read as a category, but its values look like numbers in another dress" in told
    assert f"line 2: {first.strip(chr(34))!r}" in told


def test_codes_are_no_numbers_in_another_dress(tmp_path, capsys):
    read(tmp_path / "t.csv", "a,b\n007,1\n042,2\nA 12,3\n")
    assert "dress" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e999"])
def test_infinity_is_no_category(tmp_path, text):
    with pytest.raises(ValueError, match=r"t\.csv, line 3, column 'a': expected .*; got "):
        read(tmp_path / "t.csv", f"a,b\n1,1\n{text},2\n")


def test_fit_and_score_agree_on_types(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal():.6f},{zone},{code},{value}"
        for zone, code, value in zip(
            rng.choice(["01", "02"], 80), rng.choice(["1", "2"], 80), rng.normal(size=80), strict=True
        )
    ]
    (tmp_path / "t.csv").write_text("\n".join(["size,zone,code,y", *rows]))
    out = str(tmp_path / "m.tcdf")
    fit = ["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--categorical", "code", "--effort", "fast", "--jobs", "1"]
    assert main([*fit, "--out", out]) == 0
    model = load_model(out)
    assert model.covariates_.kinds == ("number", "category", "category")
    assert sorted(model.covariates_.columns[1].levels) == ["01", "02"]
    assert sorted(model.covariates_.columns[2].levels) == ["1", "2"]
    assert main(["score", out, str(tmp_path / "t.csv")]) == 0


def test_a_value_that_is_no_number_is_refused_with_its_place(small, tmp_path, capsys):
    content = HEADER + '0.5,"a\nb",3,1\n\n' + "x,hill,3,1\n"
    err = refusal(small, tmp_path, capsys, content)
    assert "bad.csv, line 5, column 'size': expected a plain number" in err
    assert "got 'x'" in err
    assert "line 2, column 'y'" in refusal(small, tmp_path, capsys, HEADER + "1,hill,3,12kg\n")


def test_weights_must_be_known(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,y,w\n" + "1,2,1\n" * 5 + "1,2,\n")
    fit = ["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--weight", "w", "--out", str(tmp_path / "m")]
    assert main(fit) == 1
    assert "line 7, column 'w': expected a plain number such as 12, -0.5 or 1e5; got ''" in capsys.readouterr().err


# Lines


def test_exposures_are_named_in_every_question(small, tmp_path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=60), "hours": rng.uniform(1, 9, 60)})
    table["claims"] = table.hours * rng.gamma(4, 1, 60)
    table.to_csv(tmp_path / "t.csv", index=False)
    path, model = str(tmp_path / "t.csv"), str(tmp_path / "m.tcdf")
    options = ["--exposure", "hours", "--effort", "fast", "--jobs", "1", "--out", model]
    assert main(["fit", path, "--outcome", "claims", *options]) == 0
    assert main(["predict", model, path, "--exposure", "hours", "--out", str(tmp_path / "p.csv")]) == 0
    found = pd.read_csv(tmp_path / "p.csv")["claims mean"]
    expected = load_model(model).predict(table[["age"]], exposure=table.hours)
    assert found.to_numpy() == pytest.approx(expected)
    assert main(["score", model, path, "--exposure", "hours"]) == 0
    capsys.readouterr()
    assert main(["quantiles", model, path]) == 1
    assert "name its column by --exposure COLUMN" in capsys.readouterr().err
    assert main(["predict", str(small / "m.tcdf"), str(small / "t.csv"), "--exposure", "hours"]) == 1
    assert "fitted without an exposure" in capsys.readouterr().err
    table.loc[7, "hours"] = np.nan
    table.to_csv(path, index=False)
    assert main(["predict", model, path, "--exposure", "hours"]) == 1
    assert "hours" in capsys.readouterr().err


def test_a_trailing_comma_is_refused(small, tmp_path, capsys):
    err = refusal(small, tmp_path, capsys, HEADER + "0.5,hill,3,1,\n")
    assert "bad.csv, line 2: expected 4 fields, as in the header; got 5: it ends with a comma" in err
    (tmp_path / "t.csv").write_text("y,a,b\n" + "1,2,3,\n" * 30)
    assert main(["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--out", str(tmp_path / "m.tcdf")]) == 1
    assert "line 2: expected 3 fields" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_do(small, tmp_path, capsys, end):
    content = HEADER + '0.5,"a\nb\n""c",3,1\n\n   \n0.5,hill,3,1\n0.5,hill,3\n'
    err = refusal(small, tmp_path, capsys, content.replace("\n", end))
    assert "bad.csv, line 8: expected 4 fields, as in the header; got 3\n" in err


def test_marks_ends_quotes_and_blank_lines_are_read(tmp_path):
    content = '\ufeff\r\na,"b,c"\r\n\r\n1,"x, ""y""\r\nz"\r\n\r\n2,ü\0\r\n'
    frame = read(tmp_path / "t.csv", content)
    assert frame.columns.tolist() == ["a", "b,c"]
    assert frame["a"].tolist() == [1, 2]
    assert frame["b,c"].tolist() == ['x, "y"\r\nz', "ü\0"]


def test_fields_may_be_long(tmp_path):
    long = "x" * 300_000
    assert read(tmp_path / "t.csv", f"a,b\n1,{long}\n")["b"].tolist() == [long]


REFUSED = {
    "a quote that is not closed": (HEADER + '1,hill,3,1\n1,"hill,3,1\n1,hill,3,1\n', "line 3: a field begins with"),
    "text after a quote": (HEADER + '1,"hill"x,3,1\n', "line 2: expected a comma after a quoted field"),
    "bytes that are no text": (HEADER.encode() + b"1,h\xfcgel,3,1\n", "line 2, about field 2: expected UTF-8"),
    "UTF-16 without its mark": (HEADER.encode("utf-16-le"), "there is no column 'size'"),
    "two columns of one name": ("size,zone,size,code,y\n", "line 1: expected different names of columns; got 'size'"),
    "nothing": ("", "is empty"),
    "blank lines": ("\n\n", "is empty"),
    "no rows": (HEADER, "has no rows"),
    "no outcomes": (HEADER + "1,hill,3,\n", "every row of the table lacks an outcome ('y')"),
    "a name that is missing": (
        "size,zone,y\n1,hill,3\n",
        "there is no column 'code'; the table has 'size', 'zone', 'y'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_sentence(small, tmp_path, capsys, name):
    content, complaint = REFUSED[name]
    assert complaint in refusal(small, tmp_path, capsys, content)


def test_a_column_without_a_name_is_no_covariate(small, tmp_path, capsys):
    rows = "".join(f"{k},{k % 7},{k % 3}\n" for k in range(60))
    (tmp_path / "t.csv").write_text(",a,y\n" + rows)
    fit = ["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--effort", "fast", "--out", str(tmp_path / "m.tcdf")]
    assert main(fit) == 1
    assert "line 1: column 1 has no name: name it, or leave it out with --drop 'Unnamed: 0'" in capsys.readouterr().err
    frame = read_file(Input(tmp_path / "t.csv"), lambda names: {"a": Kind.ANY})  # asking does not need its name
    assert len(frame) == 60


def test_columns_have_one_role(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    fit = ["fit", str(tmp_path / "t.csv"), "--outcome", "y", "--out", str(tmp_path / "m.tcdf")]
    for more in (["--outcome", "y"], ["--drop", "y"], ["--weight", "y"], ["--categorical", "y"]):
        assert main([*fit, *more]) == 1
        assert "names 'y', which is dropped or named already" in capsys.readouterr().err
    assert main([*fit, "--drop", "a"]) == 1
    assert "no column is left" in capsys.readouterr().err


def test_models_without_names_are_refused_in_words(tmp_path, capsys):
    from treecdf import TreeFlowRegressor

    x = np.random.default_rng(0).normal(size=(60, 1))
    TreeFlowRegressor(effort="fast", max_trees=2, random_state=0).fit(x, x[:, 0]).save(tmp_path / "m.tcdf")
    (tmp_path / "t.csv").write_text("a\n1\n")
    assert main(["quantiles", str(tmp_path / "m.tcdf"), str(tmp_path / "t.csv"), "--out", str(tmp_path / "q.csv")]) == 1
    assert "was fitted on an array" in capsys.readouterr().err


# Parquet


def test_parquet_keeps_its_types(small, tmp_path):
    frame = pd.DataFrame({"size": [0.5, 0.5], "zone": ["01", None], "code": pd.array([3, None], "Int64")})
    frame.to_parquet(tmp_path / "t.parquet")
    arguments = [str(small / "m.tcdf"), str(tmp_path / "t.parquet"), "--levels", ".5", "--out", str(tmp_path / "q.csv")]
    assert main(["quantiles", *arguments]) == 0
    asked = medians(small, tmp_path, "size,zone,code\n0.5,01,3\n0.5,,\n")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "q.csv")["y 0.5"], asked)


def test_large_whole_numbers_of_parquet_are_not_rounded_next_to_a_missing_one(tmp_path):
    large = 12345678901234567
    pq.write_table(pa.table({"id": pa.array([large, None]), "n": pa.array([1, None])}), tmp_path / "t.parquet")
    frame = read_file(Input(tmp_path / "t.parquet"), lambda names: {"id": Kind.TEXT, "n": Kind.NUMBER})
    assert frame["id"].tolist() == [large, None]
    assert frame["n"].dtype == float


def test_parquet_that_cannot_be_used_is_refused(small, tmp_path, capsys):
    path = tmp_path / "t.parquet"
    ask = ["score", str(small / "m.tcdf"), str(path)]
    path.write_bytes(b"PAR1 nothing")
    assert main(ask) == 1
    assert "t.parquet cannot be read" in capsys.readouterr().err
    columns = {"size": [1.0], "zone": [["a"]], "code": [3], "y": [1.0]}
    pq.write_table(pa.table(columns), path)
    assert main(ask) == 1
    assert "column 'zone': expected numbers, text or truth values; got list" in capsys.readouterr().err
    pq.write_table(pa.table(columns | {"zone": ["a"], "y": ["b"]}), path)
    assert main(ask) == 1
    assert "column 'y': expected numbers, as it is an outcome" in capsys.readouterr().err


# Memory and the fuzzer


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_is_in_proportion_to_the_file(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{k}.{k % 97},level {k % 50},{k}\n" for k in range(400_000))
    path.write_text("a,b,c\n" + rows + f"1,{'x' * 1_000_000},1\n")
    code = f"""
import pathlib, re
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Input
from treecdf.cli.tables import read_file
import pandas
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
read_file(Input(pathlib.Path({str(path)!r})), lambda names: dict.fromkeys(names, Kind.ANY))
print(peak() - before)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < 30e6 + 8 * path.stat().st_size  # the first part is for what the libraries load


def test_fuzzed_tables(tmp_path):
    outcomes, _ = fuzz_tables.run(200, 0, tmp_path)
    assert sum(outcomes.values()) == 200
    assert {fault for _, fault in outcomes} == {"none", *fuzz_tables.FATAL}


def test_levels_that_are_numbers_are_the_same_however_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text('a\n0.50\n.5\n5e-1\n3.0\n+3\n1e20\n""\n007\n')
    frame = read_file(Input(tmp_path / "t.csv"), lambda names: {"a": Kind.CODE})
    assert frame["a"].tolist() == ["0.5", "0.5", "0.5", "3", "3", "100000000000000000000", None, "007"]
    assert kind_of_levels(["0.5", "3", "100000000000000000000"]) is Kind.CODE
    assert kind_of_levels(["0.50"]) is Kind.TEXT


def test_parquet_columns_with_names_that_are_no_text_and_indices(tmp_path, capsys):
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]))
    frame.to_parquet(tmp_path / "t.parquet")
    found = read_file(Input(tmp_path / "t.parquet"), lambda names: dict.fromkeys(names, Kind.ANY))
    assert found.to_numpy().tolist() == [[1.0, 2.0], [3.0, 4.0]]
    named = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["u", "v"], name="key"))
    named.to_parquet(tmp_path / "i.parquet")
    found = read_file(Input(tmp_path / "i.parquet"), lambda names: dict.fromkeys(names, Kind.ANY))
    assert list(found.columns) == ["x"]
    assert "key" in capsys.readouterr().err
