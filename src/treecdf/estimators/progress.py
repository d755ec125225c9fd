"""Progress on a terminal: one line that is rewritten, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from treecdf.training.context import News, Report


class Progress:
    """A line of text that is rewritten at most ten times a second; silent unless `verbose` and on a terminal."""

    def __init__(self, verbose: int | bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = bool(verbose) and self._stream.isatty()
        self._last = 0.0
        self._width = 0

    def show(self, text: str, *, force: bool = False) -> None:
        """Replace the line by `text`."""
        now = time.monotonic()
        if not self._shown or (now - self._last < 0.1 and not force):
            return
        self._last = now
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def close(self) -> None:
        """End the line, if there is one."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0


def bar(done: float, width: int = 24) -> str:
    """A bar of `width` characters, `done` of it (0 to 1) full."""
    full = round(min(max(done, 0.0), 1.0) * width)
    return "[" + "#" * full + "." * (width - full) + "]"


def reporter(progress: Progress, max_trees: int) -> Report:
    """Tells people how far a fit is, in words and with a bar."""
    trees = 0

    def report(news: News) -> None:
        nonlocal trees
        history = news.history
        if news.n_flows == 1:
            stage = history.stage[-1]
            done = bar(history.stage.count(stage) / max_trees)
            text = f"stage {stage + 1} {done} {len(history.stage)} trees"
        else:
            trees += sum(history.kept)
            done = bar((news.flow + 1) / news.n_flows)
            text = f"{done} {news.flow + 1} of {news.n_flows} flows, {trees} trees"
        progress.show(f"{text}, validation log-likelihood {news.score:.4f}")

    return report
