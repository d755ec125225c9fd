"""The steps of a training job: what takes long goes through here, to be stopped, or kept by a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from treecdf._common.typing import Array


class Interrupted(Exception):
    """A job was told to stop before there was anything of it to keep."""


class Stop:
    """Whether a fit is to end at its next tree: it is when a file is there, which all its processes see."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path

    def __call__(self) -> bool:
        """Whether it is."""
        return self.path is not None and os.path.exists(self.path)

    @contextlib.contextmanager
    def children_ignore_interrupts(self) -> Iterator[None]:
        """Processes begun in this block ignore Ctrl-C: a terminal sends it to all, but one decides what it means."""
        with contextlib.ExitStack() as later:
            if self.path is not None:
                if hasattr(signal, "pthread_sigmask"):  # so that one that comes meanwhile is not lost
                    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                    later.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
                later.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
            yield


@contextlib.contextmanager
def stop_by_interrupt(on_interrupt: str) -> Iterator[Stop]:
    """What the first Ctrl-C in this block asks to stop, if it is to "keep" what there is; else it is raised as ever.

    Only a main thread can handle it. It stays ignored if it was.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if on_interrupt == "raise" or not is_main or before in (None, signal.SIG_IGN):
        yield Stop()
        return
    with tempfile.TemporaryDirectory(prefix="treecdf-") as directory:
        path = os.path.join(directory, "stop")

        def ask(*_: Any) -> None:
            open(path, "w").close()
            signal.signal(signal.SIGINT, before)  # for those who cannot wait

        signal.signal(signal.SIGINT, ask)
        try:
            yield Stop(path)
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Sizes:
    """Of what a job gives: covariates and outcomes of its flows, and rows left out, or None."""

    n_covariates: int
    n_outcomes: int
    n_left_out: int | None


class TreeRows(Protocol):
    """What trees are grown on."""

    n_covariates: int
    n_outcomes: int


class Steps:
    """Does the steps of a job and remembers nothing."""

    result: Any = None  # of a job that was done before

    def __init__(self, stop: Stop | None = None) -> None:
        self.stop = Stop() if stop is None else stop
        self.was_interrupted = False

    def learn(
        self,
        rng: np.random.Generator,
        n_covariates: int,
        shape: tuple[int, ...],
        fit: Callable[[], tuple[Any, Array]],
    ) -> tuple[Any, Array]:
        """A part that sees so many covariates, fitted with the generator, and its left-out predictions."""
        if self.stop():
            raise Interrupted
        return fit()

    def grow(
        self, rng: np.random.Generator, stage: int, rows: Sequence[TreeRows], grow: Callable[[], list[Any]]
    ) -> list[Any]:
        """A tree for each of the rows, grown with the generator; none if the training is to end."""
        if self.stop():
            self.was_interrupted = True
            return []
        return grow()

    def write(self) -> None:
        """Keep what was done so far."""

    def finish(self, fitted: Any) -> None:
        """Keep what the job gave."""


PLAIN_STEPS = Steps()
