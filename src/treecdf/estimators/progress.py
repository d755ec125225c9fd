"""Progress of a fit: a bar on a terminal or in a notebook, or lines that can be logged."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any, TextIO

from treecdf.training.context import News, Report
from treecdf.training.ensemble import ALONE, LINKS
from treecdf.training.plan import Plan

_SECONDS_OF_A_LINE = 0.1  # least time from one rewriting of the line to the next
_SECONDS_OF_A_LOG = 5.0  # least time from one line of a log to the next, if nothing new begins
_FIRST_ESTIMATE = 2.0  # seconds after which there is an estimate of the time left
_SMALLEST_SHARE = 0.02  # of the work, done before there is one
_BAR = "{percentage:3.0f}%|{bar:10}| {elapsed}<{remaining} {desc}"
# Time of a family's flows relative to each other, roughly: an estimate needs no more, and skipped families correct it.
_WORK_OF_FLOWS, _WORK_OF_A_MIXTURE, _WORK_OF_A_JOINT_FLOW = 4.0, 1.5, 1.5


class Progress:
    """Shows what a fit is doing, its progress, and the time it has taken and will take.

    `verbose` 1: one line that is rewritten, on a terminal or in a notebook (with a bar if tqdm is installed), and
    nothing elsewhere. 2: separate lines, on any stream.
    """

    def __init__(self, verbose: int | bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_log = int(verbose) >= 2
        self._shown = self._stream is not None and (self._is_log or (bool(verbose) and _rewrites(self._stream)))
        self._begin, self._last = time.monotonic(), -1e9
        self._width, self._bar = 0, None
        self._share, self._text = 0.0, ""

    def show(self, text: str, share: float = 0.0, *, force: bool = False) -> None:
        """Show what is being done and the share of the fit that is done; skipped if the last time was just before."""
        now = time.monotonic()
        self._share, self._text = min(max(self._share, share), 1.0), text
        pause = _SECONDS_OF_A_LOG if self._is_log else _SECONDS_OF_A_LINE
        if not self._shown or (now - self._last < pause and not force):
            return
        self._last = now
        if self._is_log:
            self._stream.write(f"treecdf: {self._told(now)}\n")
            self._stream.flush()
        elif not self._show_bar(text):
            line = self._told(now)[: _columns() - 1]
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
            self._stream.flush()

    def _told(self, now: float) -> str:
        """The line to show: share done, seconds so far, estimated seconds to come, and the text."""
        past = now - self._begin
        left = ""
        if past >= _FIRST_ESTIMATE and _SMALLEST_SHARE <= self._share < 1:
            left = f", about {past * (1 - self._share) / self._share:.0f} s left"
        return f"{self._share:.0%}, {past:.0f} s{left}: {self._text}"

    def _show_bar(self, text: str) -> bool:
        """Show the bar of tqdm; False if it is not installed."""
        if self._bar is None:
            self._bar = _make_bar(self._stream)
        if self._bar is None:
            return False
        self._bar.n = round(self._share, 3)
        self._bar.set_description_str(text, refresh=True)
        return True

    def finish(self) -> None:
        """Show that the fit is done."""
        if self._text and not (self._is_log and self._share == 1):
            self.show(self._text, 1.0, force=True)

    def close(self) -> None:
        """End the line, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        elif self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0


def _rewrites(stream: TextIO) -> bool:
    """Whether a line of the stream can be rewritten: on a terminal and in a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel")


def _columns() -> int:
    """Columns of the terminal: a longer line could not be rewritten."""
    return max(shutil.get_terminal_size((120, 24)).columns, 20)


def _make_bar(stream: TextIO) -> Any:
    """A bar of tqdm for terminals and notebooks, None if tqdm is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a notebook without widgets, where the bar is made of letters
        try:
            from tqdm.auto import tqdm

            return tqdm(
                total=1.0, file=stream, bar_format=_BAR, smoothing=0.0, mininterval=0.0, delay=1e-9, dynamic_ncols=True
            )
        except ImportError:
            return None


def expected_work(plan: Plan) -> dict[str, tuple[int, float]]:
    """Names of what a plan trains, in order; for each the number of flows or links and the rough work of one."""
    work = dict[str, tuple[int, float]]()
    if plan.conditional is not None:
        links = {(order[k], frozenset(order[:k])) for order in plan.orders for k in range(len(order))}
        work[ALONE if len(links) == 1 else LINKS] = len(links), _WORK_OF_FLOWS
        work |= {f"the family {name!r}": (len(links), _WORK_OF_A_MIXTURE) for name in plan.mixtures}
    alone = _WORK_OF_A_JOINT_FLOW
    return work | {f"the family {name!r}": (len(plan.rotations), alone) for name in plan.joint}


class _Share:
    """The share of a fit's work that is done, estimated from the news of its flows."""

    def __init__(self, work: Mapping[str, tuple[int, float]]) -> None:
        self._work = work
        self._total = sum(number * one for number, one in work.values())
        self._what, self._ended = "", 0

    def __call__(self, news: News) -> float:
        if news.what != self._what:
            self._what, self._ended = news.what, 0
        if news.what not in self._work:
            return news.done if not self._work else 0.0
        self._ended += news.ends
        before = 0.0  # what comes earlier is done, or was found not to be worth it
        for what, (number, one) in self._work.items():
            if what == news.what:
                here = self._ended + (0.0 if news.ends else news.done)
                return (before + min(here, number) * one) / self._total
            before += number * one
        return 0.0


def reporter(progress: Progress, work: Mapping[str, tuple[int, float]] | None = None) -> Report:
    """A function that shows the news of training in words; `work` is the result of `expected_work`."""
    trees, share_of = 0, _Share(work or {})

    def report(news: News) -> None:
        nonlocal trees
        share, history = share_of(news), news.history
        own = f"{news.flow + 1} of {news.n_flows}, " if news.n_flows > 1 and not news.ends else ""
        if news.doing:
            progress.show(f"{news.what}: {own}{news.doing}", share, force=news.begins)
            return
        trees += sum(history.kept) if news.ends else 0
        if not news.ends:
            done = f"{own}stage {history.stage[-1] + 1}, {len(history.stage)} trees"
        elif news.n_flows > 1:
            done = f"{news.flow + 1} of {news.n_flows} done, {trees} trees in all"
        else:
            done = f"done, {sum(history.kept)} trees kept"
        score = "" if news.score != news.score else f", validation log-likelihood {news.score:.4f}"
        progress.show(f"{news.what}: {done}{score}", share, force=news.ends)

    return report


_said: set[str] = set()  # what this process was told


def say_once(text: str, stream: TextIO | None = None) -> None:
    """Print a line for the user on stderr; the same line only once per process, as many fits may follow."""
    stream = stream or sys.stderr
    if text not in _said and stream is not None:
        _said.add(text)
        stream.write(f"treecdf: {text}\n")
        stream.flush()
