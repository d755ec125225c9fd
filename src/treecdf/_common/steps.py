"""The steps of a training job (a learner, a tree): each can be stopped, or stored in a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from treecdf._common.typing import Array

T = TypeVar("T")


class Interrupted(Exception):
    """A training job was interrupted before it had a usable result."""


class Stopped(KeyboardInterrupt):
    """Training was asked to stop and did so before it had anything to keep."""


class Stop:
    """A request to end a fit at its next tree: a file at `path`, which all processes of the fit can see."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path

    def __call__(self) -> bool:
        """Whether a stop was requested."""
        return self.path is not None and os.path.exists(self.path)

    @contextlib.contextmanager
    def children_ignore_interrupts(self) -> Iterator[None]:
        """Within this block new processes ignore Ctrl-C.

        A terminal sends it to all processes, but only one handles it.
        """
        with contextlib.ExitStack() as later:
            if self.path is not None:
                if hasattr(signal, "pthread_sigmask"):  # so that one that comes meanwhile is not lost
                    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
                    later.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
                later.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
            yield


@contextlib.contextmanager
def stop_by_interrupt(on_interrupt: str) -> Iterator[Stop]:
    """A `Stop` that the first Ctrl-C within this block sets, if `on_interrupt` is "keep"; a second one is raised.

    With "raise", outside the main thread, or where Ctrl-C is ignored, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if on_interrupt == "raise" or not is_main or before in (None, signal.SIG_IGN):
        yield Stop()
        return
    with tempfile.TemporaryDirectory(prefix="treecdf-") as directory:
        path = os.path.join(directory, "stop")

        def ask(*_: object) -> None:
            open(path, "w").close()
            signal.signal(signal.SIGINT, before)  # for those who cannot wait

        signal.signal(signal.SIGINT, ask)
        try:
            yield Stop(path)
        finally:
            signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the result of a job: covariates and outcomes of its flows; left-out rows, None if there are none."""

    n_covariates: int
    n_outcomes: int
    n_left_out: int | None


class TreeRows(Protocol):
    """Rows that trees are grown on."""

    n_covariates: int
    n_outcomes: int


class Steps:
    """Performs the steps of a training job without storing them; a checkpoint has a subclass that stores them."""

    result: Any = None  # what the job gave, if an earlier run of the fit had finished it

    def __init__(self, stop: Stop | None = None) -> None:
        self.stop = Stop() if stop is None else stop
        self.was_interrupted = False

    def learn(
        self,
        rng: np.random.Generator,
        n_covariates: int,
        shape: tuple[int, ...],
        fit: Callable[[], tuple[T, Array]],
    ) -> tuple[T, Array]:
        """The result of `fit`: a part of the base with n_covariates inputs, and out-of-fold predictions (shape)."""
        if self.stop():
            raise Interrupted
        return fit()

    def grow(
        self, rng: np.random.Generator, stage: int, rows: Sequence[TreeRows], grow: Callable[[], list[T]]
    ) -> list[T]:
        """The result of `grow`, a tree for each of the rows; an empty list if a stop was requested."""
        if self.stop():
            self.was_interrupted = True
            return []
        return grow()

    def write(self) -> None:
        """Write the steps that were done so far to the checkpoint, if there is one."""

    def finish(self, fitted: Any) -> None:
        """Write the result of the job to the checkpoint, if there is one."""


PLAIN_STEPS = Steps()
