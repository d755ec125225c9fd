"""The one place that says how kernels are compiled."""

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType
from typing import Any, TextIO

from numba import config, njit
from numba.core import caching

from treecdf._kernels.beside import Helper, name_of, start_helper
from treecdf._kernels.first_fit import FIRST_FIT

# Sums may be reordered and fused (that is what lets them use vector units), but infinities and NaN keep
# their meaning, so overflow of exp() to inf stays harmless. Threads run over shards of rows, never inside
# a kernel, so one compiled kernel gives one result whatever the number of threads. Nobody calls kernels from C, and the
# wrappers for that are a twentieth of the time of compiling. Kernels copy arrays by loops: one that assigns an array to
# a slice takes two seconds more to compile, for the text of an error that cannot happen (ADR 34).
_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# The kernels of this process, for `announce_compilation`.
_REGISTERED: list[Any] = []
# Where numba keeps machine code, in this order: NUMBA_CACHE_DIR, __pycache__ beside the source, the user's cache.
_PLACES = ("UserProvidedCacheLocator", "InTreeCacheLocator", "UserWideCacheLocator")


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on first call, keep the machine code on disk."""
    compiled = _compiled(function, fastmath={"reassoc", "contract", "nsz", "arcp"})
    _REGISTERED.append(compiled)
    return compiled


def ordered_kernel(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, but keep the written order of sums."""
    # Without flags of its own it would inherit those of its first caller.
    compiled = _compiled(function, fastmath={"contract"})
    _REGISTERED.append(compiled)
    return compiled


def inlined_kernel(function: Callable[..., Any]) -> Any:
    """Compile like `ordered_kernel`, into the caller: for the few lines in the middle of a loop."""
    return _compiled(function, fastmath={"contract"}, forceinline=True)


def _compiled(function: Callable[..., Any], **flags: Any) -> Any:
    """The kernel of a function, whose machine code is kept on disk where that is possible."""
    compiled = njit(**flags, **_FLAGS)(function)
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        compiled._cache = KernelCache(compiled.py_func)
        compiled.compile = _without_collections(compiled.compile)
    return compiled


_pauses = 0  # How many kernels are being compiled or loaded, one inside of the other.
_pausing = threading.Lock()
_collects = False  # Whether unreachable objects are to be collected after the last of them.


def _without_collections(compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, or load, while unreachable objects are not looked for: a fifth of the time goes into that."""

    def compile_or_load(signature: Any) -> Any:
        with _collections_paused():
            return compile_kernel(signature)

    return compile_or_load


@contextlib.contextmanager
def _collections_paused() -> Iterator[None]:
    """A time without garbage collection, whatever it was before; threads may overlap."""
    global _pauses, _collects
    with _pausing:
        if _pauses == 0:
            _collects = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _pausing:
            _pauses -= 1
            if _pauses == 0 and _collects:
                gc.enable()


# On disk


class KernelCache:
    """The machine code of one kernel on disk, as numba's dispatchers ask for it.

    numba's own `cache=True` raises an error where no directory can be written. Here a kernel is read from any
    directory that has it, compiled in memory if none does, and one line on stderr says so if it cannot be kept.
    """

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._written, self._reason = _written_cache(function)

    @property
    def cache_path(self) -> str | None:
        """The directory that machine code is written to, None if there is none."""
        return None if self._written is None else self._written.cache_path

    def load_overload(self, signature: object, context: object) -> object | None:
        """The machine code for the types of `signature`, None if it is on no disk or cannot be read."""
        if self._written is not None:
            found = _load(self._written, signature, context)
            if found is not None:
                return found
        for cache in self._readable:
            found = _load(cache, signature, context)
            if found is not None:
                return found
        if self._written is not None and _helper is not None and _helper.take(name_of(self._function)):
            return _load(self._written, signature, context)
        return None

    def save_overload(self, signature: object, compiled: object) -> None:
        """Keep machine code for the types of `signature` on disk, or say once that it cannot be kept."""
        _note_compiled(name_of(self._function))
        if self._written is not None:
            for prepare in (_nothing, self._written.flush):  # flushed, a damaged file is written anew
                try:
                    prepare()
                    return self._written.save_overload(signature, compiled)
                except Exception as error:  # a full disk, a directory that is gone, a file that is cut off
                    self._reason = f"{type(error).__name__}: {error}"
        _say_once(self._reason)

    def enable(self) -> None:
        """Part of numba's interface: the cache is always on."""

    def disable(self) -> None:
        """Part of numba's interface: the cache is always on."""

    def flush(self) -> None:
        """Forget what was written for this kernel."""
        if self._written is not None:
            self._written.flush()

    def is_warm(self) -> bool:
        """Whether a directory has machine code of this kernel."""
        module = os.path.basename(self._function.__code__.co_filename)[:-3]
        prefix = f"{module}.{self._function.__name__}-"
        directories = {cache.cache_path for cache in self._readable} | {self.cache_path}
        return any(
            entry.startswith(prefix) and entry.endswith(".nbi")
            for directory in directories
            if directory is not None and os.path.isdir(directory)
            for entry in os.listdir(directory)
        )

    @cached_property
    def _readable(self) -> list[Any]:
        """numba's caches in the directories that exist, writable or not; only asked if the written one has no code."""
        found = []
        for cache in _READABLE:
            try:
                found.append(cache(self._function))
            except Exception:  # no such directory, or another numba: this place has nothing for us
                continue
        return found


def _nothing() -> None:
    """Do nothing."""


def _written_cache(function: FunctionType) -> tuple[Any, str]:
    """numba's cache in the first directory that can be written, or None and the reason."""
    try:
        return caching.FunctionCache(function), ""
    except (RuntimeError, OSError) as error:
        return None, str(error)


def _readable_caches() -> list[Any]:
    """Classes of numba's caches, one for each place, that ask for a directory to be there and not to be writable.

    They are made of private parts of numba: without them nothing is read from directories that cannot be written.
    """

    def must_exist(self: Any) -> None:
        os.listdir(self.get_cache_path())

    try:
        parent = caching.CompileResultCacheImpl
        places = [type(name, (getattr(caching, name),), {"ensure_cache_path": must_exist}) for name in _PLACES]
        finders = [type("Finder", (parent,), {"_locator_classes": [place]}) for place in places]
        return [type("ReadableCache", (caching.FunctionCache,), {"_impl_class": finder}) for finder in finders]
    except (AttributeError, TypeError):
        return []


_READABLE = _readable_caches()


def _load(cache: Any, signature: object, context: object) -> object | None:
    """What a cache of numba's holds for `signature`; None if it holds nothing, or files that cannot be read."""
    try:
        found: object | None = cache.load_overload(signature, context)
    except Exception:  # a file that is cut off may raise anything; the kernel is compiled instead
        return None
    return found


_said = False  # Whether this process was told that kernels are compiled in memory.


def _say_once(reason: str) -> None:
    """Tell the user on stderr that compiled kernels cannot be kept."""
    global _said
    if not _said and sys.stderr is not None:
        _said = True
        sys.stderr.write(
            "treecdf: compiling its kernels in memory, in every process anew, because no directory can be written to "
            f"keep them (see NUMBA_CACHE_DIR): {reason}\n"
        )


# On stderr

_helper: Helper | None = None  # The process that compiles beside this one.
_N_FIRST = len({(module, name) for module, name, _ in FIRST_FIT})
_waited: set[str] = set()  # Kernels of a first fit that are not compiled yet, while a line tells how many are.
_telling = threading.Lock()
_ANNOUNCEMENT = "treecdf: compiling its kernels, once per installation (`treecdf warmup` does it beforehand)"


def announce_compilation(stream: TextIO | None = None, rewrite: bool = True) -> bool:
    """Say on stderr that the first fit compiles its kernels; True when there is nothing on disk yet.

    Then a second process begins to compile, too, where a core is idle. On a terminal the line tells how far it is, if
    it may be rewritten, until `end_announcement`.
    """
    global _helper
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return False
    cold = not any(compiled.signatures for compiled in _REGISTERED) and not any(
        compiled._cache.is_warm() for compiled in _REGISTERED
    )
    stream = stream or sys.stderr
    if cold and stream is not None:
        if rewrite and stream.isatty():
            _waited.update(f"{module}.{name}" for module, name, _ in FIRST_FIT)
        stream.write(_ANNOUNCEMENT + ("" if _waited else "\n"))
        stream.flush()
    if cold and _helper is None and _REGISTERED[0]._cache.cache_path is not None:
        _helper = start_helper(_note_compiled)
    return cold


def end_announcement() -> None:
    """End the line that told how far compilation is, if there is one."""
    with _telling:
        if _waited and sys.stderr is not None:
            _waited.clear()
            sys.stderr.write("\n")
            sys.stderr.flush()


def _note_compiled(name: str) -> None:
    """Tell, while the first fit's kernels are waited for, how many of them are compiled."""
    with _telling:
        if name not in _waited or sys.stderr is None:
            return
        _waited.discard(name)
        done = f"\r{_ANNOUNCEMENT}: {_N_FIRST - len(_waited)} of {_N_FIRST}"
        sys.stderr.write(done + ("" if _waited else "\n"))
        sys.stderr.flush()
