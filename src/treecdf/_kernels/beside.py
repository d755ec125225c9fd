"""Compiling the kernels of a first fit in two processes, where a core is idle.

On an empty cache a fit would compile one kernel after the other. A second Python process takes those that are needed
last, writes them to the cache on disk and tells when it begins and ends each; the fit reads them there. Nothing depends
on it: what the helper has not begun the fit compiles itself, and a helper that fails, or cannot be started, is not
missed. It ends with the last kernel, or when the process that started it is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from treecdf._kernels.first_fit import FIRST_FIT, FIRST_QUESTIONS

Entry = tuple[str, str, str]  # module, kernel, types of its arguments in words
# Longest time to wait for a kernel that the helper has begun: many times that of the largest.
_PATIENCE = 120.0
# What takes longest of what a fit needs late. The helper begins with it: so the two processes meet at a small kernel,
# and neither waits for long.
_LARGEST = ("add_trees", "forward")
_PROGRAM = "from treecdf._kernels.beside import main; main()"


class Helper:
    """The process that compiles beside this one, as far as it is known what it does."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._begun: set[str] = set()
        self._done: set[str] = set()
        self._is_over = False
        path = os.pathsep.join(part for part in sys.path if part)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        threading.Thread(target=self._listen, daemon=True, name="treecdf-compiling").start()
        atexit.register(self.end)

    def _listen(self) -> None:
        """Note what the helper says, until it ends."""
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout or ():
                word, _, name = line.strip().partition(" ")
                with self._changed:
                    (self._begun if word == "begin" else self._done).add(name)
                    self._changed.notify_all()
                if word == "done":
                    self._tell(name)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def take(self, name: str) -> bool:
        """Whether the helper has compiled this kernel; if it has just begun it waits, else the kernel is ours."""
        with self._changed:
            if name not in self._begun:
                self._skip(name)
                return False
            self._changed.wait_for(lambda: name in self._done or self._is_over, _PATIENCE)
            return name in self._done

    def _skip(self, name: str) -> None:
        """Tell the helper to leave a kernel to us."""
        with contextlib.suppress(OSError, ValueError):  # it has ended
            if self._process.stdin is not None:
                self._process.stdin.write(f"{name}\n")
                self._process.stdin.flush()

    def end(self) -> None:
        """End the helper, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()


def start_helper(tell: Callable[[str], None]) -> Helper | None:
    """A helper, which tells the names of kernels that are ready; None where there is no idle core, or no Python."""
    try:
        n_cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        n_cores = os.cpu_count() or 1
    is_python = os.path.basename(sys.executable or "").lower().startswith("python")  # else it is inside a program
    if n_cores < 2 or not is_python or multiprocessing.parent_process() is not None:
        return None
    try:
        return Helper(tell)
    except (OSError, RuntimeError, ValueError):  # processes or threads are not allowed here
        return None


def name_of(function: Any) -> str:
    """The name by which both processes know a kernel."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


# In the other process


def main() -> None:
    """Compile the kernels that a fit needs last, from the last on but the largest first, then those of questions."""
    gc.disable()  # it ends soon, and a fifth of the time of compiling goes into looking for unreachable objects
    skipped: set[str] = set()
    threading.Thread(target=_read_skipped, args=(skipped,), daemon=True).start()
    largest = [entry for entry in reversed(FIRST_FIT) if entry[1] in _LARGEST]
    others = (entry for entry in reversed(FIRST_FIT) if entry[1] not in _LARGEST)
    for module, name, types in itertools.chain(largest, others, FIRST_QUESTIONS):
        key = f"{module}.{name}"
        if key in skipped:
            continue
        _say(f"begin {key}")
        # An old list of a newer kernel: the fit will compile what it needs.
        with contextlib.suppress(Exception):
            kernel = getattr(importlib.import_module(f"treecdf._kernels.{module}"), name)
            kernel.compile(tuple(_type(word) for word in types.split()))
        _say(f"done {key}")


def _say(line: str) -> None:
    """Tell the other process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _read_skipped(skipped: set[str]) -> None:
    """Note the kernels that the other process compiles; end when that is gone. Files are whole at any time."""
    for line in sys.stdin:
        skipped.add(line.strip())
    os._exit(0)


def words_of(types: Sequence[Any]) -> str | None:
    """Types of arguments in words, such as "int64 float64:2" for a number and a matrix; None if there are others."""
    from numba.core.types import Array, Record

    words = []
    for each in types:
        dtype = each.dtype if isinstance(each, Array) else each
        name = "node" if isinstance(dtype, Record) else str(dtype)
        word = f"{name}:{each.ndim}" if isinstance(each, Array) else name
        try:
            is_plain = _type(word) == each
        except (AttributeError, TypeError, ValueError):
            is_plain = False
        if not is_plain:
            return None
        words.append(word)
    return " ".join(words)


def _type(word: str) -> Any:
    """The type of a word."""
    import numpy as np
    from numba import typeof
    from numba.core import types

    from treecdf._kernels.transform import NODE

    name, _, ndim = word.partition(":")
    if not ndim:
        return getattr(types, name)
    return typeof(np.empty((0,) * int(ndim), NODE if name == "node" else name))
