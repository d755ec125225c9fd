"""The one place that says how kernels are compiled."""

import os
import sys

from numba import config, njit

# Sums may be reordered and fused (that is what lets them use vector units), but infinities and NaN keep
# their meaning, so overflow of exp() to inf stays harmless. Threads run over shards of rows, never inside
# a kernel, so one compiled kernel gives one result whatever the number of threads.
_FLAGS = {"cache": True, "nogil": True, "error_model": "numpy"}
_REGISTERED: list = []


def kernel(function):
    """Compile `function` on first call, keep the machine code on disk."""
    compiled = njit(fastmath={"reassoc", "contract", "nsz", "arcp"}, **_FLAGS)(function)
    _REGISTERED.append(compiled)
    return compiled


def ordered_kernel(function):
    """Compile like `kernel`, but keep the written order of sums."""
    # Without flags of its own it would inherit those of its first caller.
    compiled = njit(fastmath={"contract"}, **_FLAGS)(function)
    _REGISTERED.append(compiled)
    return compiled


def inlined_kernel(function):
    """Compile like `ordered_kernel`, into the caller: for the few lines in the middle of a loop."""
    return njit(fastmath={"contract"}, forceinline=True, **_FLAGS)(function)


def announce_compilation(stream=None) -> bool:
    """Say on a terminal that the first fit compiles its kernels; True when there is nothing on disk yet."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return False
    cold = not any(compiled.signatures for compiled in _REGISTERED) and not any(
        _is_on_disk(compiled) for compiled in _REGISTERED
    )
    stream = stream or sys.stderr
    if cold and stream.isatty():
        stream.write("treecdf: compiling its kernels, once per installation (about ten seconds)\n")
        stream.flush()
    return cold


def _is_on_disk(compiled) -> bool:
    cache = getattr(compiled, "_cache", None)
    directory = getattr(cache, "cache_path", None)
    if directory is None or not os.path.isdir(directory):
        return False
    prefix = os.path.basename(compiled.py_func.__code__.co_filename)[:-3] + "." + compiled.py_func.__name__
    return any(entry.startswith(prefix) and entry.endswith(".nbi") for entry in os.listdir(directory))
