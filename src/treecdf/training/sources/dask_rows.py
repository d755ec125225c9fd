"""Rows on Dask workers: a worker keeps its blocks where they are; calls, sums and trees are all that travels.

The blocks of a worker are a site. The driver notes which calls have changed the rows since they were read; a site that
is lost with its worker is read again elsewhere and told these calls.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import pickle
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any

import numpy as np
from distributed import Client, get_worker
from threadpoolctl import threadpool_limits

from treecdf.training.sources.pieces import Columns
from treecdf.training.sources.rows import Local, Part
from treecdf.training.sources.shard import Block, Call

_PATIENCE = 300  # seconds to wait for a worker when there is none
_LOOK = 5  # seconds between looks whether a worker is still there
_MOST_LOSSES = 10  # of one site in one pass
_UNSTABLE = f"Rows were lost {_MOST_LOSSES} times in one pass: the workers do not stay alive."
_READS = {"sums", "column", "densities"}  # calls that leave the rows as they are
Request = tuple[Any, ...]  # a method of Local, and its arguments


# On the driver


class Journal:
    """The requests that bring rows as they were read to where they are now."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, Request]] = []

    def requests(self) -> list[Request]:
        """In order."""
        return [request for _, request in self._entries]

    def note(self, method: str, calls: Any, *args: Any) -> None:
        """Remember a request, and forget what it makes obsolete."""
        if method == "blocks":
            if calls == "locate":
                self._entries.append((calls, (method, calls, *args)))
            return
        for call in calls:
            name = call[0]
            if name in _READS:
                continue
            if name in ("begin_tree", "apply", "restore"):
                self._forget("begin_tree", "descend", "arrange", "add")
            if name == "descend":
                self._forget("arrange", "add")
            if name == "keep":
                self._forget("keep")
            if name == "restore":
                kept = [entry[0] for entry in self._entries].index("keep")
                self._entries = [e for k, e in enumerate(self._entries) if k <= kept or e[0] != "apply"]
            elif name == "add":
                self._entries.append((name, (method, [call], *args)))
            else:
                self._entries.append((name, ("each", [call])))

    def _forget(self, *names: str) -> None:
        self._entries = [entry for entry in self._entries if entry[0] not in names]


class DaskRows:
    """A source whose blocks are on the workers of a cluster."""

    def __init__(self, client: Client, tables: Sequence[Any], firsts: Sequence[int]) -> None:
        """From delayed tables of the blocks, each with the number of its first row."""
        self._client, self._tables, self._firsts = client, tables, firsts
        self._key = uuid.uuid4().hex
        self._journal, self._clock = Journal(), 0
        self._workers, self._looked = set[str](), -np.inf
        workers = list(client.nthreads()) or self._wait_for_workers()
        self._sites = divide(len(tables), len(workers))
        self._homes = workers[: len(self._sites)]

    def open(self, tables: Sequence[Any]) -> None:
        """Build the sites from futures of the tables."""
        built = [self._build(k, [tables[b] for b in blocks]) for k, blocks in enumerate(self._sites)]
        for k, future in enumerate(built):
            self._homes[k] = self._result(k, future) or self._rebuild(k)

    def close(self) -> None:
        """Let the workers forget the rows."""
        self._client.run(forget, self._key, on_error="ignore")

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """What the last call returns, shard by shard."""
        return self._ask("each", calls)

    def totals(self, calls: Sequence[Call]) -> list[Part]:
        """What the last call adds up to, in few parts."""
        return self._ask("totals", calls)

    def carried(self, calls: Sequence[Call], shapes: Sequence[tuple[int, ...]]) -> list[Part]:
        """What the last call adds up to, in few parts."""
        return self._ask("carried", calls, shapes)

    def blocks(self, name: str, *args: Any) -> list[Any]:
        """What a method of every block returns."""
        return self._ask("blocks", name, *args)

    def _ask(self, *request: Any) -> list[Any]:
        begin, payload = time.perf_counter(), dumps(request)
        answers, seconds = zip(*self._answers(payload), strict=True)
        self._clock += 1
        self._journal.note(*request)
        size = len(payload) * len(answers), sum(map(len, answers))
        _TRAFFIC[:] = np.add(_TRAFFIC, [1, *size, time.perf_counter() - begin, max(seconds), np.mean(seconds)])
        return list(chain.from_iterable(map(pickle.loads, answers)))

    def _answers(self, payload: bytes) -> list[tuple[bytes, float]]:
        """What the sites answer, in order, and the seconds they took; lost ones are built again."""
        found: dict[int, tuple[bytes, float]] = {}
        for _ in range(_MOST_LOSSES):
            wanted = [k for k in range(len(self._sites)) if k not in found]
            homes = [self._homes[k] for k in wanted]
            # Not as tasks: those wait for their turn in the messages of client and scheduler.
            args = (self._key, list(zip(homes, wanted, strict=True)), self._clock, payload)
            replies = self._client.run(answer, *args, workers=self._alive(homes), on_error="ignore")
            for reply in replies.values():
                if isinstance(reply, Exception):
                    raise reply
                found.update(reply)
            if len(found) == len(self._sites):
                return [found[k] for k in range(len(self._sites))]
            for k in wanted:
                if k not in found:
                    self._homes[k] = self._rebuild(k)
        raise RuntimeError(_UNSTABLE)

    def _alive(self, homes: Sequence[str]) -> list[str]:
        """Those that there still are, by a look now and then: connecting to another one takes half a minute."""
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
                return str(address)
        raise RuntimeError(_UNSTABLE)

    def _build(self, k: int, tables: Sequence[Any]) -> Any:
        firsts = [self._firsts[b] for b in self._sites[k]]
        place = (self._sites[k].start, len(self._tables))
        args = (self._key, k, self._clock, tables, firsts, place, dumps(self._journal.requests()))
        return self._client.submit(build, *args, workers=[self._homes[k]], allow_other_workers=True, pure=False)

    def _result(self, k: int, future: Any) -> Any:
        """What a task on a site's worker returns; None if the worker is gone and no other took over the task."""
        while True:
            try:
                return future.result(timeout=_LOOK)
            except TimeoutError:
                if self._homes[k] not in self._client.nthreads():
                    return None

    def _wait_for_workers(self) -> list[str]:
        self._client.wait_for_workers(1, timeout=_PATIENCE)
        return list(self._client.nthreads())


def divide(n_blocks: int, n_workers: int) -> list[range]:
    """The blocks of each worker that has any."""
    n_sites = min(n_workers, n_blocks)
    cuts = [-(-k * n_blocks // n_sites) for k in range(n_sites + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


_TRAFFIC = [0.0] * 6


def traffic() -> tuple[float, ...]:
    """Passes so far, bytes sent to workers and received, seconds of the passes, of the slowest site and of the mean."""
    return tuple(_TRAFFIC)


class _Pickler(pickle.Pickler):
    """Kernels travel by name: numba would send their code and compile it again."""

    def reducer_override(self, part: Any) -> Any:
        if hasattr(part, "py_func"):
            return _kernel, (part.py_func.__module__, part.py_func.__name__)
        return NotImplemented


def dumps(part: Any) -> bytes:
    """What `pickle.loads` turns back into the part."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(part)
    return buffer.getvalue()


def _kernel(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


# On a worker


class Site:
    """Blocks on a worker; place: the number of the first, and of all; clock: how many requests they have answered."""

    def __init__(self, tables: Sequence[Columns], firsts: Sequence[int], place: tuple[int, int], clock: int) -> None:
        n_threads = get_worker().state.nthreads
        pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None
        blocks = [Block(*table, first) for table, first in zip(tables, firsts, strict=True)]
        self._local, self._clock, self._last = Local(blocks, pool, *place), clock, b""

    def perform(self, method: str, *args: Any) -> list[Any]:
        """Answer a request."""
        if method == "blocks":
            with threadpool_limits(1, user_api="blas"):
                return self._local.blocks(*args)
        return list(getattr(self._local, method)(*args))

    def answer(self, clock: int, payload: bytes) -> bytes | None:
        """Answer request number `clock`, once; None if the rows are not where it finds them."""
        if clock == self._clock:
            self._last = dumps(self.perform(*pickle.loads(payload)))
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
        site.perform(*request)
    _SITES[key, number] = site
    return str(get_worker().address)


async def answer(
    key: str, wanted: Sequence[tuple[str, int]], clock: int, payload: bytes, dask_worker: Any
) -> dict[int, tuple[bytes, float]] | Exception:
    """What the wanted sites of this worker answer, as far as they are here and up to date, or what went wrong."""

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
        return error


def forget(key: str) -> None:
    """Drop the sites of a fit."""
    for name in [name for name in _SITES if name[0] == key]:
        del _SITES[name]


def assemble(parts: Sequence[Columns], slices: Sequence[slice]) -> Columns:
    """The table of a block from rows of the pieces it lies in."""
    cut = [[column[s] for column in part] for part, s in zip(parts, slices, strict=True)]
    x, y, weight = (np.concatenate(columns) for columns in zip(*cut, strict=True))
    return np.ascontiguousarray(x), np.ascontiguousarray(y), weight
