"""Rows on Dask workers: a worker keeps its blocks where they are; operations, sums and trees are all that travels.

The blocks of a worker are a site. The driver notes which operations have changed the rows since they were read; a site
that is lost with its worker is read again elsewhere, and they are repeated there.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import pickle
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, TypeVar

import numpy as np
from dask.delayed import Delayed
from distributed import Client, Future, Worker, get_worker
from numba.core.dispatcher import Dispatcher
from threadpoolctl import threadpool_limits

from treecdf.training.sources.operations import (
    Apply,
    BlockOperation,
    BlockSums,
    Keep,
    Operation,
    Restore,
    SeveralSums,
    ShardOperation,
    Span,
    Sums,
)
from treecdf.training.sources.pieces import Columns
from treecdf.training.sources.rows import Local, PartialSums
from treecdf.training.sources.shard import Block, Kernel

_PATIENCE = 300  # seconds to wait for a worker when there is none
_LOOK = 5  # seconds between looks whether a worker is still there
_MOST_LOSSES = 10  # times that the rows of one site may be lost in one pass
_UNSTABLE = f"Rows were lost {_MOST_LOSSES} times in one pass: the workers do not stay alive."
R = TypeVar("R")
Request = Callable[[Local], Sequence[R]]  # a `partial` of a function of this package, so that it can be pickled


class RemoteError(Exception):
    """The traceback of an error on a worker, as text: the cause of the error that the driver raises."""

    def __init__(self, address: str, text: str) -> None:
        super().__init__(address, text)

    def __str__(self) -> str:
        address, text = self.args
        return f"on worker {address}\n\n{text}"


# On the driver


class Journal:
    """The operations that lead from the rows as they were read to their current state."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def note(self, operation: Operation) -> None:
        """Remember an operation if it changes the rows; forget those that need not be repeated any more."""
        if operation.lasts is Span.NONE:
            return
        self.operations = [past for past in self.operations if past.lasts > operation.ends]
        if isinstance(operation, Keep):
            self.operations = [past for past in self.operations if not isinstance(past, Keep)]
        if isinstance(operation, Restore):
            kept = [isinstance(past, Keep) for past in self.operations].index(True)
            since = [past for past in self.operations[kept + 1 :] if not isinstance(past, Apply)]
            self.operations = [*self.operations[: kept + 1], *since]
        else:
            self.operations.append(operation)

    def requests(self) -> list[Request[object]]:
        """Requests that repeat the operations, in order."""
        return [_repeat(operation) for operation in self.operations]


def _repeat(operation: Operation) -> Request[object]:
    """The request that runs one operation on all rows of a site."""
    match operation:
        case ShardOperation():
            return partial(Local.ask_shards, before=(), last=operation)
        case BlockSums():
            return partial(Local.sum_blocks, before=(), last=operation)
        case BlockOperation():
            return partial(_ask_blocks, operation=operation)
    raise TypeError(f"Expected an operation on shards or blocks; got {type(operation).__name__}.")


class DaskRows:
    """A source whose blocks are on the workers of a cluster."""

    def __init__(self, client: Client, tables: Sequence[Delayed], firsts: Sequence[int]) -> None:
        """From delayed tables of the blocks, each with the number of its first row."""
        self._client, self._tables, self._firsts = client, tables, firsts
        self._key = uuid.uuid4().hex
        self._journal, self._clock = Journal(), 0
        self._workers, self._looked = set[str](), -np.inf
        workers = list(client.nthreads()) or self._wait_for_workers()
        self._sites = divide(len(tables), len(workers))
        self._homes = workers[: len(self._sites)]

    def open(self, tables: Sequence[Future]) -> None:
        """Build the sites on the workers, from futures of the tables."""
        built = [self._build(k, [tables[b] for b in blocks]) for k, blocks in enumerate(self._sites)]
        for k, future in enumerate(built):
            self._homes[k] = self._result(k, future) or self._rebuild(k)

    def close(self) -> None:
        """Delete the rows on all workers; without a scheduler this is impossible and skipped."""
        if self._client.status == "running":
            with contextlib.suppress(OSError):
                self._client.run(forget, self._key, on_error="ignore")

    def ask_shards(self, before: Sequence[ShardOperation[None]], last: ShardOperation[R]) -> list[R]:
        """What the last operation returns for each shard, in order."""
        return self._ask(partial(Local.ask_shards, before=before, last=last), *before, last)

    def sum_shards(self, before: Sequence[ShardOperation[None]], last: Sums | SeveralSums) -> list[PartialSums]:
        """Sums of what the last operation returns for each shard; few consecutive parts that cover all blocks."""
        return self._ask(partial(Local.sum_shards, before=before, last=last), *before, last)

    def sum_blocks(self, before: Sequence[ShardOperation[None]], last: BlockSums) -> list[PartialSums]:
        """As `sum_shards`, where the shards of a block add to the same arrays one after the other."""
        return self._ask(partial(Local.sum_blocks, before=before, last=last), *before, last)

    def ask_blocks(self, operation: BlockOperation[R]) -> list[R]:
        """What an operation returns for each block, in order."""
        return self._ask(partial(_ask_blocks, operation=operation), operation)

    def _ask(self, request: Request[R], *operations: Operation) -> list[R]:
        """The answers of all sites to a request that runs these operations, one list after the other."""
        begin, payload = time.perf_counter(), dumps(request)
        answers, seconds = zip(*self._answers(payload), strict=True)
        self._clock += 1
        for operation in operations:
            self._journal.note(operation)
        size = len(payload) * len(answers), sum(map(len, answers))
        _TRAFFIC[:] = np.add(_TRAFFIC, [1, *size, time.perf_counter() - begin, max(seconds), np.mean(seconds)])
        return list(chain.from_iterable(map(pickle.loads, answers)))

    def _answers(self, payload: bytes) -> list[tuple[bytes, float]]:
        """Pickled answers of the sites to a pickled request, in order, each with the seconds it took.

        Sites that are lost are built again and asked again.
        """
        found: dict[int, tuple[bytes, float]] = {}
        for _ in range(_MOST_LOSSES):
            wanted = [k for k in range(len(self._sites)) if k not in found]
            homes = [self._homes[k] for k in wanted]
            # Not as tasks: those wait for their turn in the messages of client and scheduler.
            args = (self._key, list(zip(homes, wanted, strict=True)), self._clock, payload)
            replies = self._client.run(answer, *args, workers=self._alive(homes), on_error="ignore")
            for reply in replies.values():
                if isinstance(reply, Failure):
                    raise reply.error from RemoteError(reply.address, reply.text)
                found.update(reply)
            if len(found) == len(self._sites):
                return [found[k] for k in range(len(self._sites))]
            for k in wanted:
                if k not in found:
                    self._homes[k] = self._rebuild(k)
        raise RuntimeError(_UNSTABLE)

    def _alive(self, homes: Sequence[str]) -> list[str]:
        """Those of the addresses that still have a worker, checked now and then.

        Only these are connected to, because an attempt to reach a lost worker takes half a minute.
        """
        if time.monotonic() - self._looked > _LOOK:
            self._workers, self._looked = set(self._client.nthreads()), time.monotonic()
        return list(self._workers.intersection(homes))

    def _rebuild(self, k: int) -> str:
        """Read the rows of a site again, on the least busy worker; return its address."""
        for _ in range(_MOST_LOSSES):
            workers, self._looked = list(self._client.nthreads()) or self._wait_for_workers(), -np.inf
            self._homes[k] = min(workers, key=self._homes.count)
            tables = self._client.compute([self._tables[b] for b in self._sites[k]])
            address = self._result(k, self._build(k, tables))
            if address is not None:
                return address
        raise RuntimeError(_UNSTABLE)

    def _build(self, k: int, tables: Sequence[Future]) -> Future:
        """A future of the address where site k is built from futures of its tables."""
        firsts = [self._firsts[b] for b in self._sites[k]]
        place = (self._sites[k].start, len(self._tables))
        args = (self._key, k, self._clock, tables, firsts, place, dumps(self._journal.requests()))
        return self._client.submit(build, *args, workers=[self._homes[k]], allow_other_workers=True, pure=False)

    def _result(self, k: int, future: Future) -> str | None:
        """The address where site k was built; None if the worker is gone and no other took over the task."""
        while True:
            try:
                return str(future.result(timeout=_LOOK))
            except TimeoutError:
                if self._homes[k] not in self._client.nthreads():
                    return None

    def _wait_for_workers(self) -> list[str]:
        """Addresses of the workers, as soon as there is one."""
        self._client.wait_for_workers(1, timeout=_PATIENCE)
        return list(self._client.nthreads())


def divide(n_blocks: int, n_workers: int) -> list[range]:
    """The blocks of each worker that has any."""
    n_sites = min(n_workers, n_blocks)
    cuts = [-(-k * n_blocks // n_sites) for k in range(n_sites + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


_TRAFFIC = [0.0] * 6  # the sums that `traffic` returns


def traffic() -> tuple[float, ...]:
    """Passes so far, bytes sent to workers and received, seconds of the passes, of the slowest site and of the mean."""
    return tuple(_TRAFFIC)


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


# On a worker


class Site:
    """Consecutive blocks on a worker.

    place: the number of the first of them, and of all blocks; clock: the number of requests answered so far.
    """

    def __init__(self, tables: Sequence[Columns], firsts: Sequence[int], place: tuple[int, int], clock: int) -> None:
        n_threads = get_worker().state.nthreads
        pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        blocks = [Block(*table, first) for table, first in zip(tables, firsts, strict=True)]
        self._local, self._clock, self._last = Local(blocks, pool, *place), clock, b""

    def perform(self, request: Request[object]) -> Sequence[object]:
        """What a request returns for the blocks of this site."""
        return request(self._local)

    def answer(self, clock: int, payload: bytes) -> bytes | None:
        """The pickled answer to request number `clock`, performed once; None if it is neither the next nor the last."""
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


async def answer(
    key: str, wanted: Sequence[tuple[str, int]], clock: int, payload: bytes, dask_worker: Worker
) -> dict[int, tuple[bytes, float]] | Failure:
    """The answers of the wanted sites of this worker that are here and up to date, or what went wrong."""

    def work() -> dict[int, tuple[bytes, float]]:
        answers = {}
        for home, k in wanted:
            begin = time.perf_counter()
            if home == dask_worker.address and (key, k) in _SITES:
                found = _SITES[key, k].answer(clock, payload)
                if found is not None:
                    answers[k] = found, time.perf_counter() - begin
        return answers

    try:
        return await asyncio.get_running_loop().run_in_executor(dask_worker.executors["default"], work)
    except Exception as error:
        return Failure.of(dask_worker.address, error)


def _ask_blocks(local: Local, operation: BlockOperation[R]) -> list[R]:
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
