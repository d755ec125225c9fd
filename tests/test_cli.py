"""The command line, and what merely importing the package costs."""

import subprocess
import sys

import pytest

import treecdf
from treecdf.cli import main


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
    assert "(the truth: -0.468)" in out
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
    monkeypatch.setattr("treecdf.demo.run_demo", lambda picture: pytest.fail(f"fitted in spite of {picture}"))
    assert main(["demo", "--out", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith("treecdf demo: ")


def test_the_installed_command_ends_without_a_traceback(tmp_path):
    code = f"import sys; from treecdf.cli import main; sys.exit(main(['demo', '--out', r'{tmp_path}/none/d.png']))"
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
    import treecdf, treecdf.cli
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
