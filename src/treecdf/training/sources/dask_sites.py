"""What runs on Dask workers: the blocks that each of them keeps, and its answers to the driver's requests."""

from __future__ import annotations

import asyncio
import importlib
import io
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from distributed import Worker, get_worker
from numba.core.dispatcher import Dispatcher
from threadpoolctl import threadpool_limits

from treecdf.training.sources.dask_messages import ask_workers
from treecdf.training.sources.operations import BlockOperation
from treecdf.training.sources.pieces import Columns
from treecdf.training.sources.rows import Local, add_halves
from treecdf.training.sources.shard import Block, Kernel

R = TypeVar("R")
Request = Callable[[Local], Sequence[R]]  # a `partial` of a function of this package, so that it can be pickled


class _Pickler(pickle.Pickler):
    """Pickles kernels by name; numba would send their code and compile it again."""

    def reducer_override(self, part: object) -> Any:  # a tuple, or NotImplemented as pickle wants it
        if isinstance(part, Dispatcher):
            return _kernel, (part.py_func.__module__, part.py_func.__name__)
        return NotImplemented


def dumps(part: object) -> bytes:
    """Bytes that `pickle.loads` turns back into the object, with kernels by name."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(part)
    return buffer.getvalue()


def _kernel(module: str, name: str) -> Kernel:
    """The kernel of a module with this name."""
    kernel: Kernel = getattr(importlib.import_module(module), name)
    return kernel


class Site:
    """Consecutive blocks on a worker.

    place: the number of the first of them, and of all blocks; clock: the number of requests answered so far.
    """

    def __init__(self, tables: Sequence[Columns], firsts: Sequence[int], place: tuple[int, int], clock: int) -> None:
        n_threads = get_worker().state.nthreads
        pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        blocks = [Block(*table, first) for table, first in zip(tables, firsts, strict=True)]
        self._local, self._clock, self._last = Local(blocks, pool, *place), clock, b""
        self._lock = threading.Lock()  # a request may come again while the first one is at work

    def perform(self, request: Request[object]) -> Sequence[object]:
        """What a request returns for the blocks of this site."""
        return request(self._local)

    def answer(self, clock: int, payload: bytes) -> bytes | None:
        """The pickled answer to request number `clock`, performed once; None if it is neither the next nor the last."""
        with self._lock:
            if clock == self._clock:
                self._last = dumps(self.perform(pickle.loads(payload)))
                self._clock += 1
            return self._last if clock == self._clock - 1 else None


_SITES: dict[tuple[str, int], Site] = {}


def build(
    key: str,
    number: int,
    clock: int,
    tables: Sequence[Columns],
    firsts: Sequence[int],
    place: tuple[int, int],
    history: bytes,
) -> str:
    """Make a site of tables and bring it up to date; return the address of the worker."""
    site = Site(tables, firsts, place, clock)
    for request in pickle.loads(history):
        site.perform(request)
    _SITES[key, number] = site
    return str(get_worker().address)


@dataclass(frozen=True)
class Failure:
    """An error on a worker, and its traceback as text: pickle drops the tracebacks of exceptions."""

    address: str
    error: Exception
    text: str

    @staticmethod
    def of(address: str, error: Exception) -> Failure:
        """The failure to send for an error; one that cannot be pickled is replaced by its text."""
        text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return Failure(address, error, text)


@dataclass(frozen=True)
class Answer:
    """What some sites answered: pickled, with the seconds that each took."""

    sites: tuple[int, ...]
    payload: bytes
    seconds: tuple[float, ...]


# The sites that a worker is asked for, and by address what it asks other workers for, to add their sums to its own
Branch = tuple[Sequence[int], Mapping[str, Any]]


@dataclass(frozen=True)
class Question:
    """A pickled request, its number, and the rows it is for; n_blocks: of all sites, whose sums may be added up."""

    key: str
    clock: int
    payload: bytes
    n_blocks: int


async def answer(question: Question, branch: Branch, dask_worker: Worker) -> list[Answer] | Failure:
    """The answers of a branch's sites that are where they should be and up to date, or what went wrong.

    Sums of several workers come as one answer.
    """
    own, below = branch
    run = partial(asyncio.get_running_loop().run_in_executor, dask_worker.executors["default"])
    messages = {address: (question, part) for address, part in below.items()}
    others = asyncio.ensure_future(ask_workers(dask_worker, answer, messages))
    try:
        answers = await run(_work, question, own)
        for reply in (await others).values():
            if isinstance(reply, Failure):
                return reply
            answers += reply
        return [await run(_merged, answers, question.n_blocks)] if below and answers else answers
    except Exception as error:
        return Failure.of(dask_worker.address, error)
    finally:
        others.cancel()


def _work(question: Question, sites: Sequence[int]) -> list[Answer]:
    """The answers of sites on this worker; those that are not there are left out."""
    answers = []
    for k in sites:
        begin, site = time.perf_counter(), _SITES.get((question.key, k))
        payload = None if site is None else site.answer(question.clock, question.payload)
        if payload is not None:
            answers.append(Answer((k,), payload, (time.perf_counter() - begin,)))
    return answers


def _merged(answers: Sequence[Answer], n_blocks: int) -> Answer:
    """One answer for all sites, with sums added up as far as halves of all blocks are here."""
    parts = sorted((part for one in answers for part in pickle.loads(one.payload)), key=lambda part: part[0].start)
    sites = tuple(k for one in answers for k in one.sites)
    seconds = tuple(taken for one in answers for taken in one.seconds)
    return Answer(sites, dumps(add_halves(parts, n_blocks)), seconds)


def ask_blocks(local: Local, operation: BlockOperation[R]) -> list[R]:
    """As `Local.ask_blocks`, with one thread of linear algebra: sums then have the same bits on all machines."""
    with threadpool_limits(1, user_api="blas"):
        return local.ask_blocks(operation)


def forget(key: str) -> None:
    """Delete the sites of a fit on this worker."""
    for name in [name for name in _SITES if name[0] == key]:
        del _SITES[name]


def assemble(parts: Sequence[Columns], slices: Sequence[slice]) -> Columns:
    """The table of a block from rows of the pieces it lies in."""
    cut = [[column[s] for column in part] for part, s in zip(parts, slices, strict=True)]
    x, y, weight = (np.concatenate(columns) for columns in zip(*cut, strict=True))
    return np.ascontiguousarray(x), np.ascontiguousarray(y), weight


class RemoteError(Exception):
    """The traceback of an error on a worker, as text: the cause of the error that the driver raises."""

    def __init__(self, address: str, text: str) -> None:
        super().__init__(address, text)

    def __str__(self) -> str:
        address, text = self.args
        return f"on worker {address}\n\n{text}"
