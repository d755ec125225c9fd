"""Writing a file so that it is never seen half-written."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# How the names of files begin that are not whole yet. The rest is random, so the name is short whatever file it is for.
UNFINISHED = ".treecdf-"
_NAMES = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a new file, or put a new one in the place of an old one, all at once or not at all.

    A link is followed: the file that it points to is replaced. A file that exists keeps its mode, a new one gets that
    of the umask. The content is written to a file beside the target, flushed to the disk and then moved into place; if
    anything fails before the move, the target is as it was and nothing is left beside it. Only a process that is
    killed leaves a file whose name begins with `UNFINISHED`.

    Parameters
    ----------
    path : str or os.PathLike
        Name of the file.
    write : callable
        Gets a binary file that is open for writing, and writes the content.

    Raises
    ------
    OSError
        If the name is that of something else than a regular file, if its directory does not exist, or if writing
        fails; the message has the name of the file.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     name = os.path.join(directory, "numbers.bin")
    ...     replace_file(name, lambda file: file.write(b"123"))
    ...     os.listdir(directory), os.path.getsize(name)
    (['numbers.bin'], 3)
    """
    path = os.fspath(path)
    mode = _mode(path)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"Expected a file in a directory that exists; got {path}.")
    beside = target.with_name(UNFINISHED + secrets.token_hex(6))
    try:
        _write_all(beside, write, 0o666 if mode is None else 0o600)  # others must not read what they could not before
        if mode is not None:
            os.chmod(beside, mode)
        os.replace(beside, target)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(beside)):
            raise OSError(error.errno, error.strerror, path) from error  # the name that the caller knows
        raise


def _mode(path: str) -> int | None:
    """Permission bits of the file at `path`, links followed; None if there is none, an OSError if it is no file."""
    try:
        found = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(f"Expected the name of a file; got the directory {path}.")
    if not stat.S_ISREG(found):
        kind = _NAMES.get(stat.S_IFMT(found), "something else")
        raise OSError(f"Expected the name of a regular file; got {path}, which is {kind}.")
    return stat.S_IMODE(found)


def _write_all(path: Path, write: Callable[[BinaryIO], object], mode: int) -> None:
    """Make a new file of this mode, less the umask, and leave its content on the disk."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
