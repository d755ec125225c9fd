"""Runs and their rows: one run is one line of JSON in rows/NAME.jsonl, and what is there is not run again."""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

ROWS = Path(__file__).resolve().parent / "rows"


@dataclass(frozen=True)
class Run:
    """The key of a row."""

    dataset: str
    split: int
    method: str
    seed: int

    @classmethod
    def of(cls, row: dict) -> "Run":
        """Key of a stored row."""
        return cls(row["dataset"], row["split"], row["method"], row["seed"])


Work = Callable[[Run], dict]


class Store:
    """Append-only file of rows; a later row replaces an earlier one of the same key when read."""

    def __init__(self, name: str, directory: Path = ROWS):
        self.path = directory / f"{name}.jsonl"

    def read(self) -> list[dict]:
        """All rows in the order of writing."""
        content = self.path.read_text() if self.path.exists() else ""
        whole_lines = content.split("\n")[:-1]  # what follows the last line end was cut short by a crash
        return [json.loads(line) for line in whole_lines]

    def append(self, row: dict) -> None:
        """Add one row in a single write, down to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(rounded(row), separators=(",", ":")) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.truncate(self._end_of_last_line())
            file.write(line.encode())
            os.fsync(file.fileno())

    def _end_of_last_line(self) -> int:
        return self.path.read_bytes().rfind(b"\n") + 1


def rounded(value):
    """The same JSON value with floats at 6 significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def latest(rows: Iterable[dict]) -> dict[Run, dict]:
    """The last row of every key."""
    return {Run.of(row): row for row in rows}


class OverTime(BaseException):
    """A run has passed its time limit; no `except Exception` of a library on the way holds it up."""


def attempt(work: Work, run: Run, limit: float | None = None) -> dict:
    """The row of a run; an exception, or more than `limit` seconds, becomes a row that gives the reason."""
    try:
        with at_most(limit):
            return asdict(run) | work(run)
    except OverTime:
        return _failed(run, f"stopped after the limit of {limit:g} s")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return _failed(run, f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Raise OverTime in the block after so many seconds; compiled code that never returns ends with its process."""
    if seconds is None or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number, frame):
        raise OverTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(2 * seconds + 60, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _failed(run: Run, reason: str) -> dict:
    return asdict(run) | {"error": reason}


def run_all(runs: Iterable[Run], work: Work, store: Store, jobs: int = 1, limit: float | None = None) -> None:
    """Work off the runs in `jobs` processes, each in at most `limit` seconds; every row is stored when it is there."""
    waiting = deque(runs)
    progress = Progress(len(waiting))
    while waiting:
        running = {}
        # Fresh interpreters that inherit the one-thread settings of the environment; jobs=1 has its own too.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        future = pool.submit(attempt, work, waiting[0], limit)
                        running[future] = waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        row = future.result()
                        del running[future]
                        store.append(row)
                        progress.step(row)
            except BrokenProcessPool:
                for run in running.values():
                    row = _failed(run, "a worker process died, out of memory or far over its time limit")
                    store.append(row)
                    progress.step(row)


class Progress:
    """A line on stderr after every run: how many are done, how many failed, the time left."""

    def __init__(self, total: int):
        self.total, self.done, self.failed, self.start = total, 0, 0, time.monotonic()

    def step(self, row: dict) -> None:
        """Count a finished run."""
        self.done += 1
        self.failed += "error" in row
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        failed = f", {self.failed} failed" if self.failed else ""
        name = f"{row['dataset']} {row['split']} {row['method']}"
        line = f"{self.done}/{self.total}{failed}, {_span(left)} left: {name}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="\n" if self.done == self.total else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
