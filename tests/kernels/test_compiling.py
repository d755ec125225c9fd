"""Kernels on disk: read from directories that cannot be written, compiled in memory where there are none."""

import gc
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from numba import config, types
from numba.core.errors import TypingError

import treecdf
from treecdf._kernels import compiling
from treecdf._kernels.rows import find_bin, is_left

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

PACKAGE = pathlib.Path(treecdf.__file__).parent
# Prints how many kernels were compiled and how many read, after a small fit.
FIT = """
import numpy as np, sys
from treecdf import TreeFlowRegressor, Stage, Constant
from treecdf._kernels import compiling
x = np.linspace(0, 1, 60)[:, None]
TreeFlowRegressor(base="box", stages=[Stage(Constant(), 2)], max_trees=2, random_state=0).fit(x, x[:, 0]).predict(x)
stats = [kernel.stats for kernel in compiling._REGISTERED]
print(sum(sum(s.cache_misses.values()) for s in stats), sum(sum(s.cache_hits.values()) for s in stats))
"""
# Prints the same after the use of one kernel, as every other would take seconds to compile.
ONE_KERNEL = """
import numpy as np
from treecdf._kernels.rows import is_left
assert is_left(np.zeros((1, 1)), 0, 0, 0.5) and not is_left(np.ones((1, 1), np.float32), 0, 0, 0.5)
print(sum(is_left.stats.cache_misses.values()), sum(is_left.stats.cache_hits.values()))
"""
READ_ONLY = 'for d in "$@"; do mount --bind "$d" "$d" && mount -o remount,bind,ro "$d" || exit 99; done'


def run(code, package=PACKAGE, cache_directory="", read_only=(), home=None):
    """What a program prints on stdout and stderr, with directories read-only in a mount namespace of its own."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(cache_directory)}
    environment |= {"HOME": str(home)} if home else {}
    environment.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-B", "-c", code]
    if read_only:
        script = f'program="$1"; shift; {READ_ONLY}; exec {sys.executable} -B -c "$program"'
        command = [*namespace(), "sh", "-c", script, "sh", code, *map(str, read_only)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def namespace():
    """The command that begins a mount namespace; skips the test where that is not allowed."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        probe = [*command, "sh", "-c", READ_ONLY, "sh", str(PACKAGE)]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            return command
    pytest.skip("mount namespaces are not allowed here")


@pytest.fixture
def home(tmp_path):
    """An empty home."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def copy(tmp_path):
    """A package that was never compiled."""
    place = tmp_path / "copy" / "treecdf"
    shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def test_a_warm_cache_that_is_read_only_is_used(home):
    cache = os.environ.get("NUMBA_CACHE_DIR", "")
    run(FIT, cache_directory=cache)  # warm, if it was not
    (misses, hits), said = run(
        FIT, cache_directory=cache, read_only=[PACKAGE, home, *([cache] if cache else [])], home=home
    )
    assert int(misses) == 0
    assert int(hits) > 0
    assert said == ""


@pytest.mark.parametrize("place", ["provided", "beside the source"])
def test_each_place_is_read(place, copy, home, tmp_path):
    cache = ""
    if place == "provided":
        cache = tmp_path / "cache"
        cache.mkdir()
    assert run(ONE_KERNEL, copy, cache, home=home) == (["2", "0"], "")
    read_only = [copy, home, *([cache] if cache else [])]
    assert run(ONE_KERNEL, copy, cache, read_only, home) == (["0", "2"], "")
    # The user's own cache can be written and is empty, the other one is read all the same.
    assert run(ONE_KERNEL, copy, cache, read_only[:1] + read_only[2:], home) == (["0", "2"], "")


def test_without_any_place_kernels_are_compiled_in_memory(copy, home):
    (misses, hits), said = run("import treecdf.estimators.regressor" + ONE_KERNEL, copy, home, [copy, home], home)
    assert (misses, hits) == ("2", "0")
    assert said.startswith("treecdf: compiling its kernels in memory")
    assert "NUMBA_CACHE_DIR" in said
    assert said.count("\n") == 1


def test_a_damaged_cache_is_compiled_anew(copy, home, tmp_path):
    run(ONE_KERNEL, copy, tmp_path / "cache", home=home)
    files = [*tmp_path.glob("cache/*/rows.is_left*")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:20])
    assert run(ONE_KERNEL, copy, tmp_path / "cache", home=home) == (["2", "0"], "")
    assert run(ONE_KERNEL, copy, tmp_path / "cache", home=home) == (["0", "2"], "")


def test_a_full_disk_is_no_error(monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    cache = compiling.KernelCache(is_left.py_func)
    monkeypatch.setattr(compiling, "_said", False)
    monkeypatch.setattr(cache._written, "save_overload", full)
    cache.save_overload(None, None)
    cache.save_overload(None, None)
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_without_numbas_private_parts_nothing_is_read(monkeypatch):
    monkeypatch.delattr(compiling.caching, "InTreeCacheLocator")
    assert compiling._readable_caches() == []


def test_garbage_is_not_collected_while_kernels_compile(monkeypatch):
    collects = []
    load = compiling.KernelCache.load_overload

    def note(self, signature, context):
        collects.append(gc.isenabled())
        return load(self, signature, context)

    monkeypatch.setattr(compiling.KernelCache, "load_overload", note)
    assert gc.isenabled()
    find_bin.compile((types.float32, types.float32[::1], types.float32))
    assert collects == [False]
    assert gc.isenabled()
    with pytest.raises(TypingError):
        find_bin.compile((types.unicode_type, types.float32[::1], types.float32))
    assert gc.isenabled()


def test_only_the_outermost_pause_ends_it_and_leaves_what_was():
    try:
        for was in (True, False):
            gc.enable() if was else gc.disable()
            with compiling._collections_paused():
                with compiling._collections_paused():
                    assert not gc.isenabled()
                assert not gc.isenabled()
            assert gc.isenabled() == was
    finally:
        gc.enable()
