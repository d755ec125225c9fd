"""Requests to Dask workers that are no tasks, from the driver or from another worker.

Tasks wait for their turn in the messages of client and scheduler, and `Client.run` makes the scheduler open a new
connection to every worker each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from distributed import Client, Worker
from distributed.core import clean_exception
from distributed.protocol.pickle import dumps

_LOOK = 1.0  # seconds between looks whether workers that do not answer are still there
_FIRST_CONTACT = 3.0  # seconds in which the driver has to reach all workers, or it asks them through the scheduler


async def ask_workers(
    sender: Client | Worker, function: Callable[..., Any], messages: Mapping[str, tuple[Any, ...]], direct: bool = True
) -> dict[str, Any]:
    """What function(*args) returns on each worker, for the args by address; workers that are lost are left out.

    A worker is lost if its connection ends, or if it has not answered and the scheduler knows it no more. An error of
    the function is raised.
    """
    tasks = {asyncio.ensure_future(_ask(sender, to, function, args, direct)): to for to, args in messages.items()}
    try:
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_LOOK)
            there = await sender.scheduler.ncores() if pending else ()
            for task in pending:
                if tasks[task] not in there:
                    task.cancel()
    finally:
        for task in tasks:
            task.cancel()
    replies = {}
    for task, address in tasks.items():
        if not task.cancelled() and not isinstance(task.exception(), OSError):
            replies[address] = task.result()
    return replies


async def _ask(
    sender: Client | Worker, to: str, function: Callable[..., Any], args: tuple[Any, ...], direct: bool
) -> Any:
    """What function(*args) returns on a worker."""
    message = {"function": dumps(function), "args": dumps(args), "kwargs": dumps({}), "wait": True}
    if direct:
        reply = await sender.rpc(to).run(**message)
    else:
        reply = await sender.scheduler.proxy(msg={"op": "run", **message}, worker=to)
    if reply["status"] == "error":
        _, error, trace = clean_exception(**reply)
        raise RuntimeError(f"The worker {to} could not answer.") if error is None else error.with_traceback(trace)
    return reply["result"]


async def can_reach(client: Client, workers: Iterable[str]) -> bool:
    """Whether the driver can connect to workers itself; in some networks only the scheduler can."""
    if client.direct_to_workers is False:
        return False
    try:
        found = await asyncio.wait_for(
            asyncio.gather(*(client.rpc(address).identity() for address in workers)), _FIRST_CONTACT
        )
    except Exception:  # no way, no time, or an address or encryption that the driver does not know
        return False
    return all(identity["type"] == "Worker" for identity in found)
