"""One fit at a time in a directory."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: there directories are not locked
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"  # name of the file that is locked; it says which process has locked it


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; a ValueError if another fit holds it, in this process or in another.

    The operating system releases the lock of a process that ends, however it ends: a lock file that it leaves behind
    stops nobody. A file system without locks is warned about.
    """
    path = directory / LOCK
    file = None if fcntl is None else _lock(path)
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            os.close(file)


def _lock(path: Path) -> int | None:
    """Descriptor of the lock file, which is locked now; None if the file system knows no locks."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 20, 0).decode(errors="replace").strip()
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise ValueError(
                    f"The checkpoint {path.parent} is in use by another fit, in process {holder or 'unknown'}. Wait "
                    "for its end, or name another directory."
                ) from None
            text = f"The checkpoint {path.parent} cannot be locked ({error.strerror}): let no other fit use it."
            warnings.warn(text, UserWarning, stacklevel=4)
            return None
        if _is_at(path, file):
            with contextlib.suppress(OSError):  # a full disk: the number is only for the message above
                os.ftruncate(file, 0)
                os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
            return file
        os.close(file)  # a fit that ended just now has removed it; the next one is a new file


def _is_at(path: Path, file: int) -> bool:
    """Whether the file that is open is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
