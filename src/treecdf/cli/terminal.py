"""Safe output to the terminal: plain text, whatever names, files and messages contain."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO, cast

# Longest name or value that a message repeats; of longer ones it shows the beginning.
_MOST_SHOWN = 60
# Exit code of a program whose reader went away: 128 and the number of SIGPIPE.
_PIPE_CLOSED = 141


def printable(text: str) -> str:
    r"""The text on one line; control characters and the like are written as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(text: str) -> str:
    """A name or value for a message: in quotes, without control characters, shortened if it is long."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}...")


class SafeStream:
    r"""A text stream that escapes control characters and goes on, without writing, when its reader has gone.

    Line ends stay, and so does a `\r` at the beginning, with which progress rewrites its line. Characters that the
    stream's encoding lacks are written as in `\xf6`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write the text, made safe; returns its number of characters."""
        start = "\r" if text.startswith("\r") else ""
        clean = start + "\n".join(map(printable, text[len(start) :].split("\n")))
        shown = clean.encode(self.encoding, "backslashreplace").decode(self.encoding)
        self._try(lambda: self._stream.write(shown))
        return len(text)

    def write_data(self, text: str) -> None:
        """Write a result exactly as it is; on a terminal control characters are escaped."""
        if self.isatty():
            self.write(text)
        else:
            self._try(lambda: self._stream.write(text))

    def flush(self) -> None:
        """Flush the stream."""
        self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Number of the file."""
        return self._stream.fileno()

    def _try(self, act: Callable[[], object]) -> None:
        """Perform an output, unless an earlier one failed: the work goes on, and the error is told at the end."""
        if self.error is not None:
            return
        try:
            act()
        except OSError as error:
            self.error = error
            # What is held back goes to nowhere: else Python tries again at exit, and complains.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


class Terminal:
    """Standard output and errors of one command, made safe."""

    def __init__(self, out: SafeStream | None, err: SafeStream | None) -> None:
        self._out, self._err = out, err

    def exit_code(self, code: int) -> int:
        """The exit code, given that of the command: a failed output is an error too."""
        error = self._out.error if self._out is not None else None
        if code or error is None:
            return code
        if isinstance(error, BrokenPipeError):
            return _PIPE_CLOSED
        if self._err is not None:
            self._err.write(f"treecdf: the standard output cannot be written: {error.strerror}\n")
        return 1


@contextlib.contextmanager
def safe_terminal() -> Iterator[Terminal]:
    """Make standard output, standard errors and warnings safe for as long as a command runs."""
    before = sys.stdout, sys.stderr
    # Either is None in a process that was started with a closed descriptor.
    out, err = (None if stream is None else SafeStream(stream) for stream in before)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield Terminal(out, err)
    finally:
        for stream in (out, err):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as a sentence, without its place in the code."""
    if sys.stderr is not None:
        print(f"treecdf: warning: {printable(str(message))}", file=sys.stderr)
