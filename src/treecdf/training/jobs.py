"""Training jobs run side by side, the same result however many there are at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController, threadpool_limits

from treecdf._common.random import child
from treecdf._common.steps import Sizes, Steps, Stop, Stopped
from treecdf.flows.results import Fitted, History

# Told the number of flows to come (of one outcome or of all), a flow's history and its validation score.
Report = Callable[[int, int, History, float], None]
# The steps of the job of a number, which gives something of such sizes.
StepsOf = Callable[[int, Sizes], Steps]


@dataclass(frozen=True)
class Job:
    """A function that trains, to be called with its arguments, a generator, and how to go about it."""

    fit: Callable[..., Fitted]
    args: tuple[Any, ...]
    sizes: Sizes


class Workers:
    """Runs fits: a single one with all threads, several as jobs of one thread each.

    The seed of each is drawn beforehand, so the result does not depend on how they run.
    """

    def __init__(self, n_jobs: int | None, n_threads: int, report: Report, steps_of: StepsOf) -> None:
        self.n_jobs, self.n_threads, self.report, self.steps_of = n_jobs, n_threads, report, steps_of
        self.histories: list[History] = []
        self.missing: list[str] = []
        self._n_jobs_begun = self._n_cut_short = 0

    def run(self, jobs: Sequence[Job], rng: np.random.Generator) -> list[Fitted | None]:
        """What each job gives, None for one that was stopped before it had anything to give."""
        rngs = [child(rng) for _ in jobs]
        steps = [self.steps_of(self._n_jobs_begun + k, job.sizes) for k, job in enumerate(jobs)]
        self._n_jobs_begun += len(jobs)
        todo = [k for k, step in enumerate(steps) if step.result is None]
        results: Iterator[Fitted | None] = iter(())
        if todo and not steps[todo[0]].stop():
            calls = [(jobs[k].fit, *jobs[k].args, rngs[k]) for k in todo]
            results = self._begin(calls, [steps[k] for k in todo], len(jobs) == 1)
        fitted = []
        for number, step in enumerate(steps):
            fitted.append(_next(results, step.stop) if step.result is None else step.result)
            self._note(fitted[-1], number, len(jobs))
        return fitted

    def _begin(
        self, calls: Sequence[tuple[Any, ...]], steps: Sequence[Steps], is_single: bool
    ) -> Iterator[Fitted | None]:
        if is_single:
            report = partial(self.report, 1, 0)
            return iter([run_job(*calls[0], steps=steps[0], n_threads=self.n_threads, report=report)])
        tasks = (delayed(run_job)(*call, steps=step) for call, step in zip(calls, steps, strict=True))
        with steps[0].stop.deaf_children():
            results: Iterator[Fitted | None] = Parallel(self.n_jobs, return_as="generator")(tasks)
        return results

    def _note(self, result: Fitted | None, number: int, n_jobs: int) -> None:
        if result is not None:
            self.histories.append(result.history)
            self._n_cut_short += not result.is_whole
            if n_jobs > 1:
                self.report(n_jobs, number, result.history, max(result.history.validation, default=np.nan))

    def all_missing(self) -> tuple[str, ...]:
        """What is not there because the fit was stopped."""
        trees = f"some trees of {self._n_cut_short} training job(s)"
        return (trees, *self.missing) if self._n_cut_short else tuple(self.missing)


def _next(results: Iterator[Fitted | None], stop: Stop) -> Fitted | None:
    """The next result, or None if the same interrupt that asked to stop has ended the processes."""
    try:
        return next(results, None)
    except BrokenExecutor:
        if stop():
            return None
        raise


def run_job(
    fit: Callable[..., Fitted],
    *args: Any,
    steps: Steps,
    n_threads: int = 1,
    report: Callable[[History, float], None] = lambda history, score: None,
) -> Fitted | None:
    """What the job gives, or None if it is stopped too early; it is kept in any case."""
    with _pool(n_threads) as pool, _BLAS:
        if steps.stop():
            return None
        try:
            fitted = fit(*args, pool, report, steps)
        except Stopped:
            steps.write()
            return None
        except KeyboardInterrupt:
            steps.write()
            raise
        steps.finish(fitted)
    return fitted


class _OneThread:
    """Linear algebra on one thread while any fit is running, here or in another thread of the process."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limits = threadpool_limits(1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._hand_over()
                self._limits.restore_original_limits()
                self._hand_over()

    @staticmethod
    def _hand_over() -> None:
        """Recent threadpoolctl lets only the thread that set a limit change it; the last fit may run in another."""
        for library in ThreadpoolController().lib_controllers:
            clear = getattr(library, "clear_controlling_thread", None)
            if clear is not None:
                clear(force=True)


_BLAS = _OneThread()


@contextlib.contextmanager
def _pool(n_threads: int) -> Iterator[ThreadPoolExecutor | None]:
    if n_threads == 1:
        yield None
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool
