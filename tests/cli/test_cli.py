"""The command line, and what merely importing the package costs."""

import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import treecdf
from treecdf import CompositionalFlow, load_model
from treecdf.cli.main import main
from treecdf.training.growing.grower import TreeGrower


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_demo_prints_its_figures_and_draws(tmp_path, capsys):
    picture = tmp_path / "density.png"
    assert main(["demo", "--out", str(picture)]) == 0
    out, err = capsys.readouterr()
    figures = {line[2:36].strip(): line[36:].split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert -0.7 < float(figures["log-likelihood of the new rows"]) < -0.4
    assert 0.4 < float(figures["CRPS"]) < 0.6
    assert 85 < float(figures["coverage of the 90 % interval"]) < 95
    assert "(the truth: -0.486)" in out
    assert " s\n" in out
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert err == ""  # no progress bar unless on a terminal


def test_warmup(capsys):
    assert main(["warmup"]) == 0
    assert "kernels ready in" in capsys.readouterr().out


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "warmup" in out


@pytest.mark.parametrize("command", ["demo", "warmup"])
def test_help_of_a_command(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"treecdf {command}" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"treecdf {treecdf.__version__}\n"


def test_no_command_shows_the_help(capsys):
    assert main([]) == 2
    assert "usage: treecdf" in capsys.readouterr().out


def test_unknown_command(capsys):
    with pytest.raises(SystemExit) as end:
        main(["dmeo"])
    assert end.value.code == 2
    assert "dmeo" in capsys.readouterr().err


def test_picture_in_a_missing_directory(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "none" / "density.png")]) == 1
    out, err = capsys.readouterr()
    assert err == f"treecdf demo: there is no directory {tmp_path / 'none'}\n"
    assert out == ""


@pytest.mark.parametrize("name", [".", "density.xyz"])
def test_picture_that_cannot_be_written_is_told_before_the_fit(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("treecdf.cli.demo.run_demo", lambda picture: pytest.fail(f"fitted in spite of {picture}"))
    assert main(["demo", "--out", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith("treecdf demo: ")


def test_the_installed_command_ends_without_a_traceback(tmp_path):
    code = f"import sys; from treecdf.cli.main import main; sys.exit(main(['demo', '--out', r'{tmp_path}/none/d.png']))"
    ended = run(code)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "there is no directory" in ended.stderr


def test_import_compiles_nothing_and_leaves_the_extras_alone():
    code = """
import sys
from numba.core.event import install_recorder
from numba.core.registry import CPUDispatcher

with install_recorder("numba:compile") as compilations:
    import treecdf, treecdf.cli.commands
    treecdf.TreeFlowRegressor
kernels = {
    value
    for name, module in list(sys.modules.items())
    if name.startswith("treecdf")
    for value in vars(module).values()
    if isinstance(value, CPUDispatcher)
}
print(len(kernels) > 10, len(compilations.buffer), sum(len(kernel.signatures) for kernel in kernels))
print({"matplotlib", "polars"} & set(sys.modules))
"""
    ended = run(code)
    assert ended.stderr == ""
    assert ended.stdout == "True 0 0\nset()\n"


def test_public_names_are_imported_when_they_are_used():
    assert set(treecdf._HOMES) == set(treecdf.__all__)
    assert set(treecdf.__all__) <= set(dir(treecdf))
    for name in treecdf.__all__:
        assert getattr(treecdf, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'TreeFlow'"):
        treecdf.TreeFlow  # noqa: B018


# Tables in, answers out


def ask(flats, command, model="one", *options):
    return main([command, str(flats / f"{model}.tcdf"), str(flats / "new.csv"), *map(str, options)])


def test_a_fit_can_forget_its_rows(flats):
    out = flats / "forgetful.tcdf"
    arguments = ["fit", str(flats / "flats.csv"), "--outcome", "rent", "--effort", "fast", "--jobs", "1"]
    assert main([*arguments, "--forget-rows", "--out", str(out)]) == 0
    assert "training rows that the model remembers: none" in load_model(out).summary()
    assert "training rows that the model remembers: none" not in load_model(flats / "one.tcdf").summary()


def test_fit_says_what_was_learnt(flats, capsys):
    out = str(flats / "again.tcdf")
    arguments = ["fit", str(flats / "flats.csv"), "--outcome", "rent", "--drop", "deposit", "--effort", "fast"]
    assert main([*arguments, "--bounds", "0,", "--jobs", "1", "--out", out]) == 0
    told = capsys.readouterr().out
    assert "1 rows without an outcome are left out" in told
    assert "199 rows, 3 covariates, fitted in" in told
    assert re.search(r"district +[\d.]+%  category", told)
    assert re.search(r"year +[\d.]+%  number", told)
    assert "log-likelihood of left-out rows" in told
    assert f"written to {out}" in told
    assert load_model(out).bounds == [(0.0, None)]


def test_info_tells_the_same(flats, capsys):
    assert main(["info", str(flats / "two.tcdf")]) == 0
    told = capsys.readouterr().out
    assert "outcome: rent, deposit" in told
    assert "kB, loaded in" in told


def test_questions_that_compositions_do_not_answer(flats, capsys):
    shares = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    CompositionalFlow(random_state=0).fit(np.arange(3.0)[:, None], shares).save(flats / "shares.tcdf")
    assert ask(flats, "predict", "shares") != 0
    assert "holds a CompositionalFlow" in capsys.readouterr().err


def test_score_equals_the_library(flats, capsys):
    assert ask(flats, "score", "one", "--out", flats / "scores.csv") == 0
    told = capsys.readouterr().out
    new = pd.read_csv(flats / "new.csv")
    model, model_two = load_model(flats / "one.tcdf"), load_model(flats / "two.tcdf")
    log_prob = model.log_prob(new[["area", "district", "year"]], new.rent)
    assert f"mean log density              {log_prob.mean():10.4f}" in told
    assert "CRPS" in told
    assert "90 % interval holds" in told
    np.testing.assert_allclose(pd.read_csv(flats / "scores.csv").log_density, log_prob)
    assert ask(flats, "score", "two") == 0
    told = capsys.readouterr().out
    both = model_two.predict_distribution(new[["area", "district", "year"]])
    for name in ("rent", "deposit"):
        crps = both.marginal(["rent", "deposit"].index(name)).crps(new[name]).mean()
        (said,) = re.findall(rf"{name}\nCRPS +([0-9.]+)\n50 % interval holds", told)
        assert float(said) == pytest.approx(crps, rel=1e-3)


def test_draws_are_one_line_each(flats):
    assert ask(flats, "sample", "two", "--n", 7, "--seed", 3, "--out", flats / "draws.csv") == 0
    draws = pd.read_csv(flats / "draws.csv")
    assert draws.columns.tolist() == ["row", "draw", "rent", "deposit"]
    assert len(draws) == 700
    assert draws.row.tolist() == [k // 7 for k in range(700)]
    new = pd.read_csv(flats / "new.csv")[["area", "district", "year"]]
    own = load_model(flats / "two.tcdf").sample(new, 7, random_state=3)
    np.testing.assert_allclose(draws[["rent", "deposit"]].to_numpy(), own.reshape(-1, 2))


def test_quantiles_are_columns(flats):
    assert ask(flats, "quantiles", "one", "--levels", ".1", ".9", "--out", flats / "quantiles.csv") == 0
    quantiles = pd.read_csv(flats / "quantiles.csv")
    assert quantiles.columns.tolist() == ["row", "rent 0.1", "rent 0.9"]
    assert (quantiles["rent 0.1"] < quantiles["rent 0.9"]).all()
    assert ask(flats, "quantiles", "two", "--levels", ".5", "--out", flats / "quantiles.csv") == 0
    assert pd.read_csv(flats / "quantiles.csv").columns.tolist() == ["row", "rent 0.5", "deposit 0.5"]


def test_parquet_in_and_out(flats):
    pytest.importorskip("pyarrow")
    pd.read_csv(flats / "new.csv").to_parquet(flats / "new.parquet")
    arguments = [str(flats / "one.tcdf"), str(flats / "new.parquet"), "--n", "2", "--out", str(flats / "draws.parquet")]
    assert main(["sample", *arguments]) == 0
    assert len(pd.read_parquet(flats / "draws.parquet")) == 200


@pytest.mark.parametrize("kind", ["density", "intervals", "importance"])
def test_plots_are_pictures(flats, kind):
    assert ask(flats, "plot", "one", "--kind", kind, "--out", flats / "picture.png") == 0
    assert (flats / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_fan_needs_its_covariate(flats, capsys):
    picture = flats / "fan.svg"
    assert ask(flats, "plot", "one", "--kind", "fan", "--covariate", "area", "--out", picture) == 0
    assert "area" in picture.read_text()
    assert ask(flats, "plot", "one", "--kind", "fan", "--out", picture) == 1
    assert "--covariate" in capsys.readouterr().err
    assert ask(flats, "plot", "one", "--kind", "fan", "--covariate", "town", "--out", picture) == 1
    assert "no column 'town'" in capsys.readouterr().err


COMPLAINTS = {
    "no such table": (["score", "one.tcdf", "missing.csv"], "there is no file"),
    "no such model": (["score", "none.tcdf", "new.csv"], "No such file"),
    "not a model": (["info", "new.csv"], "cannot be loaded"),
    "not a table": (["score", "one.tcdf", "one.tcdf"], "should end in .csv or .parquet"),
    "no such outcome": (["fit", "flats.csv", "--outcome", "price", "--out", "x.tcdf"], "no column 'price'"),
    "a covariate is missing": (["score", "one.tcdf", "scores.csv"], "no column"),
    "an output that is no table": (["sample", "one.tcdf", "new.csv", "--out", "draws.txt"], "should end in .csv"),
    "no such directory": (["sample", "one.tcdf", "new.csv", "--out", "nowhere/draws.csv"], "there is no directory"),
    "bounds that are no pair": (
        ["fit", "flats.csv", "--outcome", "rent", "--bounds", "0", "--out", "x.tcdf"],
        "LOW,HIGH",
    ),
    "outcomes outside bounds": (
        ["fit", "flats.csv", "--outcome", "rent", "--bounds", ",5", "--out", "x.tcdf"],
        "outside its",
    ),
}


@pytest.mark.parametrize("name", COMPLAINTS)
def test_complaints_are_one_line_without_a_traceback(flats, name, capsys, monkeypatch):
    monkeypatch.chdir(flats)
    pd.DataFrame({"log_density": [0.0], "rent": [1.0]}).to_csv("scores.csv", index=False)
    arguments, complaint = COMPLAINTS[name]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"treecdf {arguments[0]}: ")
    assert complaint in err
    assert err.count("\n") == 1
    assert not Path("x.tcdf").exists()


def test_a_failed_write_leaves_what_was_there(flats, monkeypatch):
    place = flats / "kept.csv"
    place.write_text("old")
    before = set(flats.iterdir())

    def fail(self, file, **kwargs):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    assert ask(flats, "sample", "one", "--n", 1, "--out", place) == 1
    assert place.read_text() == "old"
    assert set(flats.iterdir()) == before


@pytest.mark.parametrize("arguments", [["sample", "m", "t", "--n", "0"], ["quantiles", "m", "t", "--levels", "2"]])
def test_wrong_arguments_end_with_two(arguments):
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--out", "x.csv"])
    assert end.value.code == 2


def test_interrupted(monkeypatch, flats, capsys):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("treecdf.cli.commands.load_model", stop)
    assert main(["info", str(flats / "one.tcdf")]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_an_interrupted_fit_goes_on_with_the_same_command(flats, monkeypatch, capsys):
    outcome = ["--outcome", "rent", "--effort", "fast", "--jobs", "1"]
    command = ["fit", str(flats / "flats.csv"), *outcome, "--checkpoint", str(flats / "long"), "--out"]
    grow, n_grown = TreeGrower.grow, count(1)

    def stop(self):
        if next(n_grown) == 4:
            raise KeyboardInterrupt
        return grow(self)

    with monkeypatch.context() as patch:
        patch.setattr(TreeGrower, "grow", stop)
        assert main([*command, str(flats / "long.tcdf")]) == 130
    assert capsys.readouterr().err == "treecdf fit: interrupted; run the same command again to go on\n"
    assert (flats / "long" / "job-0.tcdf").exists()
    assert not (flats / "long.tcdf").exists()
    assert main([*command, str(flats / "long.tcdf")]) == 0
    assert not (flats / "long").exists()
    assert main([*command, str(flats / "short.tcdf")]) == 0
    assert (flats / "long.tcdf").read_bytes() == (flats / "short.tcdf").read_bytes()
