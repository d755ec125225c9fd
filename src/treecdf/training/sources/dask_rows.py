"""Rows on Dask workers: a worker keeps its blocks where they are; operations, sums and trees are all that travels.

The blocks of a worker are a site. The driver notes which operations have changed the rows since they were read; a site
that is lost with its worker is read again elsewhere, and they are repeated there.
"""

from __future__ import annotations

import contextlib
import pickle
import time
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

from dask.delayed import Delayed
from distributed import Client, Future

from treecdf.training.sources.dask_messages import ask_workers, can_reach
from treecdf.training.sources.dask_sites import (
    Answer,
    Branch,
    Failure,
    Question,
    RemoteError,
    Request,
    answer,
    ask_blocks,
    build,
    dumps,
    forget,
)
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
from treecdf.training.sources.rows import Local, PartialSums

_PATIENCE = 300  # seconds to wait for a worker when there is none
_LOOK = 1.0  # seconds between looks whether a worker that builds a site is still there
_BROKEN = 0.2  # seconds until a worker whose connection broke is asked again, and between looks for any worker
_BRANCHES = 8  # workers that the driver asks at most, if sums come from more than twice as many
_MOST_LOSSES = 10  # times that the rows of one site may be lost in one pass
_UNSTABLE = f"Rows were lost {_MOST_LOSSES} times in one pass: the workers do not stay alive."
R = TypeVar("R")


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
            return partial(ask_blocks, operation=operation)
    raise TypeError(f"Expected an operation on shards or blocks; got {type(operation).__name__}.")


class DaskRows:
    """A source whose blocks are on the workers of a cluster."""

    def __init__(self, client: Client, tables: Sequence[Delayed], firsts: Sequence[int]) -> None:
        """From delayed tables of the blocks, each with the number of its first row."""
        self._client, self._tables, self._firsts = client, tables, firsts
        self._key = uuid.uuid4().hex
        self._journal, self._clock = Journal(), 0
        workers = list(client.nthreads()) or self._wait_for_workers()
        self._sites = divide(len(tables), len(workers))
        self._homes = workers[: len(self._sites)]

    def open(self, tables: Sequence[Future]) -> None:
        """Build the sites on the workers, from futures of the tables."""
        built = [self._build(k, [tables[b] for b in blocks]) for k, blocks in enumerate(self._sites)]
        for k, future in enumerate(built):
            self._homes[k] = self._result(k, future) or self._rebuild(k)
        self._direct = self._client.sync(can_reach, self._client, self._homes)

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
        return _in_order(self._ask(partial(Local.sum_shards, before=before, last=last), *before, last))

    def sum_blocks(self, before: Sequence[ShardOperation[None]], last: BlockSums) -> list[PartialSums]:
        """As `sum_shards`, where the shards of a block add to the same arrays one after the other."""
        return _in_order(self._ask(partial(Local.sum_blocks, before=before, last=last), *before, last))

    def ask_blocks(self, operation: BlockOperation[R]) -> list[R]:
        """What an operation returns for each block, in order."""
        return self._ask(partial(ask_blocks, operation=operation), operation)

    def _ask(self, request: Request[R], *operations: Operation) -> list[R]:
        """The answers of all sites to a request that runs these operations, one list after the other."""
        begin, payload = time.perf_counter(), dumps(request)
        are_sums = isinstance(operations[-1], Sums | SeveralSums | BlockSums)
        answers, n_sent = self._answers(payload, most_asked(len(self._sites)) if are_sums else len(self._sites))
        self._clock += 1
        for operation in operations:
            self._journal.note(operation)
        down, up = len(payload) * n_sent, sum(len(one.payload) for one in answers)
        seconds = [taken for one in answers for taken in one.seconds]
        noted = 1, down, up, time.perf_counter() - begin, max(seconds), sum(seconds) / len(seconds)
        _TRAFFIC[:] = [total + value for total, value in zip(_TRAFFIC, noted, strict=True)]
        return [part for one in answers for part in pickle.loads(one.payload)]

    def _answers(self, payload: bytes, most: int) -> tuple[list[Answer], int]:
        """What all sites answer to a pickled request, in order, and to how many workers it was sent from here.

        At most `most` workers are asked from here; they ask others and add up what these answer. Sites that are lost
        are built again and asked again.
        """
        question = Question(self._key, self._clock, payload, len(self._tables))
        found: list[Answer] = []
        wanted, broken, n_sent = set(range(len(self._sites))), set[str](), 0
        for _ in range(_MOST_LOSSES):
            sites: dict[str, list[int]] = {}
            for k in sorted(wanted):
                sites.setdefault(self._homes[k], []).append(k)
            messages = {to: (question, branch) for to, branch in branches(sites, most).items()}
            replies = self._client.sync(ask_workers, self._client, answer, messages, self._direct)
            n_sent += len(messages)
            for reply in replies.values():
                if isinstance(reply, Failure):
                    raise reply.error from RemoteError(reply.address, reply.text)
                found += reply
                wanted.difference_update(*(one.sites for one in reply))
            if not wanted:
                return sorted(found, key=lambda one: one.sites[0]), n_sent
            self._mend(wanted, replies, broken)
        raise RuntimeError(_UNSTABLE)

    def _mend(self, wanted: Iterable[int], replies: Container[str], broken: set[str]) -> None:
        """Build sites again that did not answer.

        If only the connection broke, for the first time in this pass (not in `broken`), the worker is asked again.
        """
        there = self._client.nthreads()
        once_more = {home for home in there if home not in replies and home not in broken}
        for k in wanted:
            if self._homes[k] not in once_more:
                self._homes[k] = self._rebuild(k)
        broken |= once_more
        time.sleep(_BROKEN)

    def _rebuild(self, k: int) -> str:
        """Read the rows of a site again, on the least busy worker; return its address."""
        for _ in range(_MOST_LOSSES):
            workers = self._wait_for_workers()
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
        return self._client.submit(build, *args, workers=[self._homes[k]], pure=False)

    def _result(self, k: int, future: Future) -> str | None:
        """The address where site k was built; None if the worker is gone."""
        while True:
            try:
                return str(future.result(timeout=_LOOK))
            except TimeoutError:
                if self._homes[k] not in self._client.nthreads():
                    return None

    def _wait_for_workers(self) -> list[str]:
        """Addresses of the workers, as soon as there is one.

        `Client.wait_for_workers` may miss one that a nanny has started again.
        """
        end = time.monotonic() + _PATIENCE
        while not (workers := list(self._client.nthreads())):
            if time.monotonic() > end:
                raise TimeoutError(f"There was no worker for {_PATIENCE} seconds.")
            time.sleep(_BROKEN)
        return workers


def divide(n_blocks: int, n_workers: int) -> list[range]:
    """The blocks of each worker that has any."""
    n_sites = min(n_workers, n_blocks)
    cuts = [-(-k * n_blocks // n_sites) for k in range(n_sites + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


def _in_order(parts: list[PartialSums]) -> list[PartialSums]:
    """Parts by their first block: those of workers that were asked twice come late."""
    return sorted(parts, key=lambda part: part[0].start)


def most_asked(n_sites: int) -> int:
    """How many workers the driver asks for sums."""
    return _BRANCHES if n_sites > 2 * _BRANCHES else n_sites


def branches(sites: Mapping[str, Sequence[int]], most: int) -> dict[str, Branch]:
    """Whom to ask for the sites of workers, by address: at most so many of them, which ask the others for their parts.

    Workers with consecutive sites are in one branch, so that halves of all blocks meet early.
    """
    homes = list(sites)
    if len(homes) <= most:
        return {home: (sites[home], {}) for home in homes}
    found: dict[str, Branch] = {}
    for part in divide(len(homes), most):
        first, *others = (homes[i] for i in part)
        found[first] = sites[first], branches({home: sites[home] for home in others}, most)
    return found


_TRAFFIC = [0.0] * 6  # the sums that `traffic` returns


def traffic() -> tuple[float, ...]:
    """Passes so far, bytes sent to workers and received, seconds of the passes, of the slowest site and of the mean."""
    return tuple(_TRAFFIC)
