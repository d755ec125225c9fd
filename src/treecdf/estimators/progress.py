"""Progress of a fit: one line that is rewritten on a terminal or in a notebook, or lines that can be logged."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from treecdf.training.context import News, Report

_SECONDS_OF_A_LINE = 0.1  # least time from one rewriting of the line to the next
_SECONDS_OF_A_LOG = 1.0  # least time from one line of a log to the next


class Progress:
    """Shows what a fit is doing, with the seconds since it began.

    `verbose` 1: a line that is rewritten, on a terminal or in a notebook, and nothing elsewhere. 2: lines of their own,
    on any stream.
    """

    def __init__(self, verbose: int | bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_log = int(verbose) >= 2
        self._shown = self._stream is not None and (self._is_log or (bool(verbose) and _rewrites(self._stream)))
        self._begin, self._last = time.monotonic(), -1e9
        self._width = 0

    def show(self, text: str, *, force: bool = False) -> None:
        """Replace the line by `text`, or write it as a line of its own; too soon after the last one it is left out."""
        now = time.monotonic()
        pause = _SECONDS_OF_A_LOG if self._is_log else _SECONDS_OF_A_LINE
        if not self._shown or (now - self._last < pause and not force):
            return
        self._last = now
        text = f"{text}, {now - self._begin:.0f} s"
        if self._is_log:
            self._stream.write(f"treecdf: {text}\n")
        else:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        self._stream.flush()

    def close(self) -> None:
        """End the line, if there is one."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0


def _rewrites(stream: TextIO) -> bool:
    """Whether a line of the stream can be rewritten: on a terminal and in a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel")


def reporter(progress: Progress) -> Report:
    """Tells people what is being trained and how far that is, in words."""
    trees = 0

    def report(news: News) -> None:
        nonlocal trees
        if news.doing:
            progress.show(f"{news.what}: {news.doing}", force=True)
            return
        history = news.history
        if news.n_flows == 1:
            done = f"stage {history.stage[-1] + 1}, {len(history.stage)} trees"
        else:
            trees += sum(history.kept)
            done = f"{news.flow + 1} of {news.n_flows} done, {trees} trees in all"
        progress.show(f"{news.what}: {done}, validation log-likelihood {news.score:.4f}", force=news.n_flows > 1)

    return report


_said: set[str] = set()  # what this process was told


def say_once(text: str, stream: TextIO | None = None) -> None:
    """Write a line that people should read to stderr; the same one only once in a process, as many fits may follow."""
    stream = stream or sys.stderr
    if text not in _said and stream is not None:
        _said.add(text)
        stream.write(f"treecdf: {text}\n")
        stream.flush()
