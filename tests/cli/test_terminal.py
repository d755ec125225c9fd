"""What reaches the terminal, and how the command line ends."""

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from treecdf import TreeFlowRegressor, load_model
from treecdf.cli import commands
from treecdf.cli.main import main
from treecdf.cli.terminal import SafeStream, printable, quoted

ESCAPE = "\x1b]0;gone\x07\x1b[31m"


def start(*arguments, **options):
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "treecdf", *map(str, arguments)],
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
        **options,
    )


def test_printable():
    assert printable("größe 日本") == "größe 日本"
    assert printable("a\x1b[31m\n\u202e\udcff\x9b") == r"a\x1b[31m\n\u202e\udcff\x9b"
    assert len(quoted("x" * 10_000)) < 70
    assert quoted("\x1b") == r"'\x1b'"


def test_escapes_in_names_do_not_reach_the_terminal(tmp_path, capsys):
    rng = np.random.default_rng(0)
    name, outcome = f"si{ESCAPE}ze\nfake", f"y{ESCAPE}"
    table = pd.DataFrame({name: rng.normal(size=60), outcome: rng.normal(size=60), "w": [f"{ESCAPE}"] * 60})
    path, model = tmp_path / f"t{ESCAPE}.csv", str(tmp_path / f"m{ESCAPE}.tcdf")
    table.to_csv(path, index=False)
    assert main(["fit", str(path), "--outcome", outcome, "--effort", "fast", "--jobs", "1", "--out", model]) == 0
    assert main(["info", model]) == 0
    assert main(["score", model, str(path)]) == 0
    assert main(["sample", model, str(path), "--n", "1", "--out", str(tmp_path / "d.csv")]) == 0
    out, err = capsys.readouterr()
    assert r"si\x1b]0;gone\x07\x1b[31mze\nfake" in out
    table[[name]].to_csv(path, index=False)
    assert main(["score", model, str(path)]) == 1
    with pytest.raises(SystemExit):
        main(["score", model, str(path), f"--{ESCAPE}"])
    err += capsys.readouterr().err
    assert err
    assert not any(c < " " and c != "\n" for c in out + err)


def test_warnings_are_sentences_without_escapes(small, monkeypatch, capsys):
    def warn(args):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"odd {ESCAPE}", UserWarning, stacklevel=1)

    monkeypatch.setattr(commands, "info", warn)
    assert main(["info", str(small / "m.tcdf")]) == 0
    assert capsys.readouterr().err == "treecdf: warning: odd \\x1b]0;gone\\x07\\x1b[31m\n"


def test_progress_may_rewrite_its_line():
    import io

    stream = io.StringIO()
    SafeStream(stream).write("\rtree 3\r4")
    assert stream.getvalue() == "\rtree 3\\r4"


def test_a_terminal_that_is_not_utf8(tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame({"größe": rng.normal(size=60), "y": rng.normal(size=60)}).to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", tmp_path / "t.csv", "--outcome", "y", "--effort", "fast", "--jobs", "1", "--out", tmp_path / "m.tcdf"]
    ended = start(*fit, stdout=subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "ascii:strict"})
    assert ended.returncode == 0, ended.stderr
    assert rb"gr\xf6\xdfe" in ended.stdout
    assert load_model(tmp_path / "m.tcdf").feature_names_in_.tolist() == ["größe"]


def test_a_closed_pipe_is_quiet_and_the_work_is_done(small, tmp_path):
    for arguments in (
        ["info", small / "m.tcdf"],
        ["score", small / "m.tcdf", small / "t.csv", "--out", tmp_path / "scores.csv"],
    ):
        reading, writing = os.pipe()
        os.close(reading)
        ended = start(*arguments, stdout=writing)
        os.close(writing)
        assert ended.returncode == 141
        assert ended.stderr == b""
    reading, writing = os.pipe()
    os.close(reading)
    ended = start("--help", stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(pd.read_csv(tmp_path / "scores.csv")) == 8


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_an_output_that_is_full_is_told(small):
    with open("/dev/full", "w") as full:
        ended = start("info", small / "m.tcdf", stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == b"treecdf: the standard output cannot be written: No space left on device\n"


def test_no_standard_output_at_all(small):
    command = f"{sys.executable} -m treecdf info {small / 'm.tcdf'} >&- 2>&-"
    assert subprocess.run(command, shell=True, timeout=120, check=False).returncode == 0


def test_interrupted_while_importing(tmp_path):
    (tmp_path / "numba.py").write_text(f"import os, time\nos.kill(os.getpid(), {int(signal.SIGINT)})\ntime.sleep(30)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = start("info", "m.tcdf", stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path})
    assert ended.returncode == 130
    assert ended.stderr == b"treecdf info: interrupted\n"


def test_help_needs_no_numba(tmp_path):
    (tmp_path / "numba.py").write_text("raise SystemExit('numba was imported')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert start("--version", stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}).returncode == 0


# Errors


def test_bugs_are_not_told_as_mistakes_of_the_user(small, monkeypatch, capsys):
    def stumble(args):
        raise TypeError("unsupported operand\x1b")

    monkeypatch.setattr(commands, "info", stumble)
    ask = ["info", str(small / "m.tcdf")]
    assert main(ask) == 1
    expected = "treecdf info: unexpected error (TypeError: unsupported operand\\x1b); run again with --debug for the"
    assert capsys.readouterr().err == f"{expected} traceback\n"
    for arguments in (["--debug", *ask], [*ask, "--debug"]):
        assert main(arguments) == 1
        err = capsys.readouterr().err
        assert "Traceback (most recent call last)" in err
        assert "in stumble" in err
        assert "\x1b" not in err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AttributeError("x"), "unexpected error (AttributeError: x); run again with --debug"),
        (KeyError("x"), "unexpected error (KeyError: 'x'); run again with --debug"),
        (MemoryError(), "there is not enough memory\n"),
        (np.linalg.LinAlgError("Singular matrix"), "Singular matrix\n"),
        (OSError(28, "No space left on device", "f"), "f: No space left on device\n"),
        (OSError("odd"), "odd\n"),
        (ValueError("expected 1;\ngot 2"), "expected 1;\\ngot 2\n"),
    ],
)
def test_errors_are_one_sentence(small, monkeypatch, capsys, error, words):
    def fail(args):
        raise error

    monkeypatch.setattr(commands, "info", fail)
    assert main(["info", str(small / "m.tcdf")]) == 1
    err = capsys.readouterr().err
    assert f"treecdf info: {words}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--bounds", "-50,50"], ["--bounds=-50,50"], ["--bound", "-50,50"]])
def test_bounds_may_be_negative(tmp_path, monkeypatch, arguments):
    (tmp_path / "t.csv").write_text("a,y\n" + "1,2\n" * 20)
    seen = []
    monkeypatch.setattr(TreeFlowRegressor, "fit", lambda self, *_, **__: seen.append(self.bounds) or self)
    main(["fit", str(tmp_path / "t.csv"), "--outcome", "y", *arguments, "--out", str(tmp_path / "m.tcdf")])
    assert seen == [[(-50.0, 50.0)]]


@pytest.mark.parametrize("bounds", ["0", "a,b", "1,2,3"])
def test_bounds_that_are_no_pair_are_told_before_the_table_is_read(tmp_path, capsys, bounds):
    fit = ["fit", str(tmp_path / "none.csv"), "--outcome", "y", "--bounds", bounds, "--out", str(tmp_path / "m.tcdf")]
    assert main(fit) == 1
    assert f"expected --bounds LOW,HIGH, an empty end for none; got '{bounds}'" in capsys.readouterr().err
