"""Files that commands write: where they may go, that they are whole, and that no column is lost."""

import os
import stat

import numpy as np
import pandas as pd
import pytest

from tests.helpers.small_tables import small_model
from treecdf.cli.main import main
from treecdf.cli.output import check_memory, check_output, free_name


def files_of(small, tmp_path):
    """Copies of the model and the table, which a test may lose."""
    for name in ("m.tcdf", "t.csv"):
        (tmp_path / name).write_bytes((small / name).read_bytes())
    return tmp_path / "m.tcdf", tmp_path / "t.csv"


# Where


@pytest.mark.parametrize("how", ["same", "symbolic link", "hard link", "other spelling"])
def test_input_and_output_are_different_files(small, tmp_path, capsys, how):
    model, table = files_of(small, tmp_path)
    before = table.read_bytes(), model.read_bytes()

    def other_name(path):
        name = tmp_path / f"other{path.suffix}"
        name.unlink(missing_ok=True)
        if how == "symbolic link":
            name.symlink_to(path)
        elif how == "hard link":
            name.hardlink_to(path)
        return {"same": path, "other spelling": tmp_path / ".." / tmp_path.name / path.name}.get(how, name)

    fit = ["fit", str(table), "--outcome", "y", "--effort", "fast", "--out", str(other_name(table))]
    assert main(fit) == 1
    assert f"is the same file as the input {table}" in capsys.readouterr().err
    for command in ("score", "quantiles", "sample"):
        assert main([command, str(model), str(table), "--out", str(other_name(table))]) == 1
        assert f"is the same file as the input {table}" in capsys.readouterr().err
    with pytest.raises(ValueError, match="is the same file as the input"):
        check_output(other_name(model), [model, table])
    assert (table.read_bytes(), model.read_bytes()) == before


def test_a_pipe_is_not_replaced(small, tmp_path, capsys):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    assert main(["quantiles", str(small / "m.tcdf"), str(small / "t.csv"), "--out", str(pipe)]) == 1
    assert main(["fit", str(small / "t.csv"), "--outcome", "y", "--out", str(pipe)]) == 1
    assert capsys.readouterr().err.count("is a device or a pipe: the output has to be a regular file\n") == 2
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(("command", "name"), [("quantiles", "q.csv"), ("sample", "q.parquet"), ("plot", "q.png")])
def test_links_are_followed_and_modes_stay(small, tmp_path, command, name):
    target, link = tmp_path / f"target-{name}", tmp_path / name
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert main([command, str(small / "m.tcdf"), str(small / "t.csv"), "--out", str(link)]) == 0
    assert link.is_symlink()
    assert target.read_bytes() != b"old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"target-{name}"]


def test_names_may_be_as_long_as_the_system_allows(small, tmp_path, capsys):
    ask = ["quantiles", str(small / "m.tcdf"), str(small / "t.csv"), "--out"]
    assert main([*ask, str(tmp_path / ("q" * 251 + ".csv"))]) == 0
    capsys.readouterr()
    assert main([*ask, str(tmp_path / ("q" * 252 + ".csv"))]) == 1
    assert "name too long" in capsys.readouterr().err


def test_a_link_to_nowhere_and_one_to_itself(small, tmp_path, capsys):
    (tmp_path / "new.csv").symlink_to(tmp_path / "made.csv")
    (tmp_path / "lost.csv").symlink_to(tmp_path / "nowhere" / "made.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    ask = ["quantiles", str(small / "m.tcdf"), str(small / "t.csv"), "--out"]
    assert main([*ask, str(tmp_path / "new.csv")]) == 0
    assert (tmp_path / "made.csv").is_file()
    assert main([*ask, str(tmp_path / "lost.csv")]) == 1
    assert f"there is no directory {tmp_path / 'nowhere'}" in capsys.readouterr().err
    assert main([*ask, str(tmp_path / "loop.csv")]) == 1
    assert "treecdf quantiles: " in capsys.readouterr().err


# Columns


def test_free_names():
    assert free_name("row", ["y"]) == "row"
    assert free_name("row", ["row", "row_"]) == "row__"


def test_outcomes_named_like_our_columns_are_kept(small, tmp_path, capsys):
    model = small_model(("row", "draw"))
    model.save(tmp_path / "m.tcdf")
    ask = ["sample", str(tmp_path / "m.tcdf"), str(small / "t.csv"), "--n", "3", "--seed", "2"]
    assert main([*ask, "--out", str(tmp_path / "draws.csv")]) == 0
    draws = pd.read_csv(tmp_path / "draws.csv")
    assert draws.columns.tolist() == ["row_", "draw_", "row", "draw"]
    assert draws["row_"].tolist() == [k // 3 for k in range(24)]
    own = model.sample(pd.read_csv(small / "t.csv")[["size", "zone", "code"]], 3, random_state=2).reshape(-1, 2)
    np.testing.assert_allclose(draws[["row", "draw"]], own)
    assert "columns row_, draw_, row, draw" in capsys.readouterr().out


def test_levels_that_print_alike_and_outcomes_like_quantiles(small, tmp_path):
    small_model(("y", "y 0.1")).save(tmp_path / "m.tcdf")
    ask = ["quantiles", str(tmp_path / "m.tcdf"), str(small / "t.csv"), "--out", str(tmp_path / "q.parquet")]
    assert main([*ask, "--levels", ".1", "0.1000000001", "0.1", "0.5"]) == 0
    names = ["0.1", "0.1000000001", "0.5"]
    expected = [f"{outcome} {level}" for outcome in ("y", "y 0.1") for level in names]
    assert pd.read_parquet(tmp_path / "q.parquet").columns.tolist() == ["row", *expected]


# Sizes


def test_more_draws_than_memory(small, tmp_path, capsys):
    ask = ["sample", str(small / "m.tcdf"), str(small / "t.csv"), "--out", str(tmp_path / "draws.csv")]
    assert main([*ask, "--n", str(10**12)]) == 1
    err = capsys.readouterr().err
    assert "1000000000000 draws for each of 1 row need about 9.6e+04 GB of memory" in err
    assert err.count("\n") == 1
    check_memory(8, 100, 3)


def test_rows_beyond_the_table(small, tmp_path, capsys):
    header, *rows = (small / "t.csv").read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join([header, *rows[:2]]))
    ask = ["plot", str(small / "m.tcdf"), str(tmp_path / "two.csv"), "--out", str(tmp_path / "p.png")]
    assert main(ask) == 0
    for row in ("2", "-1"):
        assert main([*ask, "--rows", "0", row]) == 1
        assert f"expected --rows from 0 to 1, as the table has 2; got {row}\n" in capsys.readouterr().err
