"""Progress of a long computation, reported from deep inside of it without a parameter in every function.

A listener hears everything that is reported in its thread; parts can be divided into parts:

>>> with listening(lambda words, done, begins: print(f"{done:.0%} {words}")):
...     with part("learner 1 of 2, boosted trees", 0.0, 0.5):
...         tell("round 20", 0.5)
0% learner 1 of 2, boosted trees
25% learner 1 of 2, boosted trees: round 20
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

# Hears what is being done, in words, which share of the whole is done, and whether something new begins.
Listener = Callable[[str, float, bool], None]


@dataclass(frozen=True)
class _Part:
    """A part of a computation: its begin and end, as shares of the whole, and its words."""

    listener: Listener
    words: tuple[str, ...] = ()
    begin: float = 0.0
    end: float = 1.0

    def overall(self, done: float) -> float:
        """Share of the whole, from the share of this part."""
        return self.begin + (self.end - self.begin) * min(max(done, 0.0), 1.0)


_PART: ContextVar[_Part | None] = ContextVar("treecdf_part", default=None)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report the progress of this block to the listener."""
    token = _PART.set(_Part(listener))
    try:
        yield
    finally:
        _PART.reset(token)


@contextlib.contextmanager
def part(words: str, begin: float = 0.0, end: float = 1.0) -> Iterator[None]:
    """The progress of this block is that of a part, from begin to end, as shares of the part around it.

    The beginning is reported unless the part has no words of its own.
    """
    around = _PART.get()
    if around is None:
        yield
        return
    own = (*around.words, words) if words else around.words
    token = _PART.set(_Part(around.listener, own, around.overall(begin), around.overall(end)))
    try:
        if words:
            tell()
        yield
    finally:
        _PART.reset(token)


def tell(words: str = "", done: float = 0.0) -> None:
    """Report the current work and the share of the current part that is done; without a listener nothing happens."""
    own = _PART.get()
    if own is not None:
        own.listener(": ".join((*own.words, words) if words else own.words), own.overall(done), not words)


def share_done(done: float) -> float:
    """The share of the whole that is done, from the share of the current part."""
    own = _PART.get()
    return done if own is None else own.overall(done)


def each_fold(n_folds: int) -> Iterator[int]:
    """The numbers of the folds, 0, 1, ..., reporting the progress."""
    for f in range(n_folds):
        tell(f"fold {f + 1} of {n_folds}", f / n_folds)
        yield f
