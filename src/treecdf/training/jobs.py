"""Training jobs run side by side; the result does not depend on how many run at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController, threadpool_limits

from treecdf._common.random import child
from treecdf._common.steps import Interrupted, Sizes, Steps, Stop
from treecdf._common.telling import Listener, listening
from treecdf.flows.results import Fitted, History
from treecdf.training.context import News, Report, TrainingContext, silent

Call = tuple[Callable[[np.random.Generator, TrainingContext], Fitted], np.random.Generator, Steps]

# The steps of the job with a number, which gives flows of such sizes.
StepsOf = Callable[[int, Sizes], Steps]


def no_steps(number: int, sizes: Sizes) -> Steps:
    """Steps that are neither stored nor stopped."""
    return Steps()


@dataclass(frozen=True)
class Job:
    """A function that trains flows of these sizes, given a generator and a context; it can be pickled."""

    fit: Callable[[np.random.Generator, TrainingContext], Fitted]
    sizes: Sizes


class Workers:
    """Runs training jobs: a single one with all threads, several as jobs of one thread each.

    The seed of each is drawn beforehand, so the result does not depend on how they run.
    """

    def __init__(self, n_jobs: int | None = None, report: Report = silent, steps_of: StepsOf = no_steps) -> None:
        self.n_jobs, self.report, self.steps_of = n_jobs, report, steps_of
        self.histories: list[History] = []
        self.missing: list[str] = []
        self._n_jobs_begun = self._n_interrupted = 0
        self._what = ""

    def run(self, jobs: Sequence[Job], rng: np.random.Generator, what: str = "a flow") -> list[Fitted | None]:
        """The result of each job, None for one stopped before it had a result; `what` names what is trained."""
        self._what = what
        if jobs:
            side_by_side = f"{len(jobs)} to train, {min(n_threads(self.n_jobs), len(jobs))} at a time"
            self._tell(News.of_doing("training begins" if len(jobs) == 1 else side_by_side))
        rngs = [child(rng) for _ in jobs]
        steps = [self.steps_of(self._n_jobs_begun + k, job.sizes) for k, job in enumerate(jobs)]
        self._n_jobs_begun += len(jobs)
        todo = [k for k, step in enumerate(steps) if step.result is None]
        results: Iterator[Fitted | None] = iter(())
        if todo and not steps[todo[0]].stop():
            calls = [(jobs[k].fit, rngs[k], steps[k]) for k in todo]
            results = self._begin(calls, is_single=len(jobs) == 1)
        fitted = []
        for number, step in enumerate(steps):
            fitted.append(_next(results, step.stop) if step.result is None else step.result)
            self._note(fitted[-1], number, len(jobs))
        return fitted

    def _begin(self, calls: Sequence[Call], is_single: bool) -> Iterator[Fitted | None]:
        if is_single:
            return iter([run_job(*calls[0], n_threads=n_threads(self.n_jobs), report=self._tell)])
        # Processes cannot tell how far they are; jobs that follow each other in this one can.
        is_here = effective_n_jobs(self.n_jobs) == 1
        reports = [partial(self._tell_of, k, len(calls)) if is_here else silent for k in range(len(calls))]
        with calls[0][2].stop.children_ignore_interrupts():
            results: Iterable[Fitted | None] = self._parallel()(
                delayed(run_job)(*call, report=report) for call, report in zip(calls, reports, strict=True)
            )
        return iter(results)

    def _parallel(self) -> Parallel:
        """The joblib object that runs several jobs; it returns results as they come where the backend can."""
        try:
            return Parallel(self.n_jobs, return_as="generator")
        except ValueError:
            return Parallel(self.n_jobs)

    def _note(self, result: Fitted | None, number: int, n_jobs: int) -> None:
        if result is not None:
            self.histories.append(result.history)
            self._n_interrupted += not result.is_whole
            score = max(result.history.validation, default=np.nan)
            self._tell(News(result.history, score, number, n_jobs, done=1.0, ends=True))

    def _tell(self, news: News) -> None:
        """Report news about what is being trained."""
        self.report(replace(news, what=self._what))

    def _tell_of(self, number: int, n_jobs: int, news: News) -> None:
        """Report news about one of several jobs."""
        self._tell(replace(news, flow=number, n_flows=n_jobs))

    def look(self, what: str) -> None:
        """Report that a quick look decides whether this is worth training."""
        self._what = what
        self._tell(News.of_doing("a first look on few rows"))

    def all_missing(self) -> tuple[str, ...]:
        """Names of what is missing because the fit was stopped."""
        trees = f"some trees of {self._n_interrupted} training job(s)"
        return (trees, *self.missing) if self._n_interrupted else tuple(self.missing)


def _next(results: Iterator[Fitted | None], stop: Stop) -> Fitted | None:
    """The next result, or None if the processes were ended by the interrupt that asked to stop."""
    try:
        return next(results, None)
    except BrokenExecutor:
        if stop():
            return None
        raise


def run_job(
    fit: Callable[[np.random.Generator, TrainingContext], Fitted],
    rng: np.random.Generator,
    steps: Steps,
    n_threads: int = 1,
    report: Report = silent,
) -> Fitted | None:
    """The result of a job, or None if it is stopped too early; what it has done is stored in any case."""
    with _pool(n_threads) as pool, ONE_BLAS_THREAD:
        if steps.stop():
            return None
        try:
            with contextlib.nullcontext() if report is silent else listening(_as_news(report)):
                fitted = fit(rng, TrainingContext(pool, report, steps))
        except Interrupted:
            steps.write()
            return None
        except KeyboardInterrupt:
            steps.write()
            raise
        steps.finish(fitted)
    return fitted


def _as_news(report: Report) -> Listener:
    """A listener that reports the parts of a job as news."""

    def listen(words: str, done: float, begins: bool) -> None:
        report(News.of_doing(words, done, begins))

    return listen


def n_threads(n_jobs: int | None) -> int:
    """How many threads `n_jobs` means, as joblib counts them; None is one."""
    return 1 if n_jobs is None else int(effective_n_jobs(n_jobs))


class _OneThread(contextlib.ContextDecorator):
    """Limits linear algebra to one thread while any fit is running, here or in another thread of the process.

    More threads cost more than they gain on the small matrices of a fit, and sums would depend on their number.
    """

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
        """Let another thread remove the limit: recent threadpoolctl allows only the thread that set it."""
        for library in ThreadpoolController().lib_controllers:
            clear = getattr(library, "clear_controlling_thread", None)
            if clear is not None:
                clear(force=True)


ONE_BLAS_THREAD = _OneThread()


@contextlib.contextmanager
def _pool(n_threads: int) -> Iterator[ThreadPoolExecutor | None]:
    if n_threads == 1:
        yield None
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield pool
