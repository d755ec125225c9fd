"""Kernels compiled beside a first fit, in a second process that nothing depends on."""

import io
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from numba import config

from tests.kernels.test_compiling import PACKAGE, copy, home, run  # noqa: F401
from tests.record_kernels import recorded_twice
from treecdf._kernels import beside, compiling
from treecdf._kernels.rows import is_left

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
SMALL = (("rows", "is_left", "float64:2 int64 int64 float64"),)


def test_the_lists_are_what_a_first_fit_and_the_first_questions_use():
    for wanted, there in zip(recorded_twice(), (beside.FIRST_FIT, beside.FIRST_QUESTIONS), strict=True):
        assert set(wanted) == set(there), "run `python -m tests.record_kernels` and commit"


def test_types_survive_being_written_down():
    for _, _, words in (*beside.FIRST_FIT, *beside.FIRST_QUESTIONS):
        types = [beside._type(word) for word in words.split()]
        assert beside.words_of(types) == words
    assert beside.words_of([compiling.caching]) is None


def helper_of(code, copy, home, stdin=subprocess.PIPE):  # noqa: F811
    """A second process with a list of its own, on an empty cache."""
    program = f"import treecdf._kernels.beside as b; b.FIRST_FIT, b.FIRST_QUESTIONS = {code}, (); b.main()"
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "NUMBA_CACHE_DIR": "", "HOME": str(home)}
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=stdin, stdout=subprocess.PIPE, text=True, env=environment, cwd="/"
    )


def test_the_helper_fills_the_cache_and_passes_over_what_it_does_not_know(copy, home):  # noqa: F811
    entries = (*SMALL, ("rows", "no_such_kernel", "int64"), ("rows", "is_left", "no_such_type"))
    with helper_of(repr(entries), copy, home) as process:
        said = process.stdout.read().split("\n")
    assert process.returncode == 0
    assert said[:4] == [
        "begin rows.is_left",
        "done rows.is_left",
        "begin rows.no_such_kernel",
        "done rows.no_such_kernel",
    ]
    code = """
import numpy as np
from treecdf._kernels.rows import is_left
is_left(np.zeros((1, 1)), 0, 0, 0.5)
print(sum(is_left.stats.cache_misses.values()), sum(is_left.stats.cache_hits.values()))
"""
    assert run(code, copy, home=home) == (["0", "1"], "")


def test_the_helper_ends_when_its_parent_is_gone(copy, home):  # noqa: F811
    with helper_of("(('rows', 'is_left', 'float64:2 int64 int64 float64'),) * 10**7", copy, home) as process:
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(60) == 0


class Told(beside.Helper):
    """A helper whose process says what the test wants."""

    def __init__(self, program, told):
        real = beside._PROGRAM
        beside._PROGRAM = program
        try:
            super().__init__(told.append)
        finally:
            beside._PROGRAM = real


def test_a_kernel_that_was_begun_is_waited_for_and_others_are_ours():
    told = []
    helper = Told("import time; print('begin a', flush=True); time.sleep(1); print('done a'); print('begin b')", told)
    try:
        deadline = time.monotonic() + 30
        while "a" not in helper._begun and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not helper.take("c")
        assert helper.take("a")
        assert not helper.take("b")  # it ended without it
        assert told == ["a"]
        assert not helper.take("d")
    finally:
        helper.end()


def test_no_helper_without_an_idle_core_or_python(monkeypatch):
    monkeypatch.setattr(beside, "Helper", lambda tell: "a helper")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert beside.start_helper(print) == "a helper"
    with monkeypatch.context() as other:
        other.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        assert beside.start_helper(print) is None
    for program in (None, "", "/opt/program/notebook"):
        with monkeypatch.context() as other:
            other.setattr(sys, "executable", program)
            assert beside.start_helper(print) is None

    def refused(tell):
        raise OSError("no more processes")

    monkeypatch.setattr(beside, "Helper", refused)
    assert beside.start_helper(print) is None


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "rewrite"), [(Terminal, True), (Terminal, False), (io.StringIO, True)])
def test_one_line_tells_how_far_it_is(monkeypatch, stream, rewrite):
    out, started = stream(), []
    cache = SimpleNamespace(is_warm=lambda: False, cache_path=".")
    monkeypatch.setattr(compiling, "_REGISTERED", [SimpleNamespace(signatures=[], _cache=cache)])
    monkeypatch.setattr(compiling, "start_helper", started.append)
    monkeypatch.setattr(compiling, "_helper", None)
    monkeypatch.setattr(sys, "stderr", out)
    assert compiling.announce_compilation(rewrite=rewrite)
    assert started == [compiling._note_compiled]
    compiling._note_compiled("histogram.grow")
    compiling._note_compiled("rows.unheard_of")
    compiling.end_announcement()
    compiling._note_compiled("transform.forward")
    lines = out.getvalue().split("\r")
    assert lines[0].startswith("treecdf: compiling its kernels")
    if stream is Terminal and rewrite:
        assert lines[1].endswith(f": 1 of {compiling._N_FIRST}\n")
    assert len(lines) == (2 if stream is Terminal and rewrite else 1)
    assert out.getvalue().count("\n") == 1


def test_a_kernel_from_the_helper_is_read(monkeypatch):
    asked = []

    class Busy:
        def take(self, name):
            asked.append(name)
            return False

    monkeypatch.setattr(compiling, "_helper", Busy())
    cache = compiling.KernelCache(is_left.py_func)
    monkeypatch.setattr(compiling, "_load", lambda *_: None)
    assert cache.load_overload(None, None) is None
    assert asked == ["rows.is_left"]
