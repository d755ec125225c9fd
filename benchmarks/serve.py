"""`python -m benchmarks serve`: a server under load on this machine, closed loop, and under malformed requests.

The server is held to one core where the system can do so. Its clients are threads of this process on the others; each
sends its next request when it has the answer to the last. All phases are bounded in time or requests.

Requests a second are those of a machine that does nothing else. Linux shares cores among sessions: on a crowded machine
the server waits, and only the processor seconds of a request tell what it would do with a core of its own.
"""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.comparisons import markdown_table
from benchmarks.datasets import prepared
from benchmarks.malformed import malformed

SET = "concrete"
N_CLIENTS = 4
SECONDS = 10.0
N_MALFORMED = 10_000
LEAST_RATE, MOST_P99 = 200.0, 0.05  # requests a second, seconds
MOST_GROWTH = 20.0  # MiB of the server after all malformed requests
_JSON = {"Content-Type": "application/json"}


@dataclass
class Seen:
    """What clients saw: seconds of each answered request, statuses, and requests that got no whole answer."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0


def run_serve(seconds: float = SECONDS, n_clients: int = N_CLIENTS, n_malformed: int = N_MALFORMED) -> list[list[str]]:
    """Fit a default model, serve it, load the server; print and return the lines of the table."""
    from treecdf import TreeFlowRegressor

    x, y, x_test, _ = prepared(SET, 0)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m.tcdf"
        TreeFlowRegressor(n_jobs=1, random_state=0).fit(x, y).save(path)
        rows = [{str(j): float(value) for j, value in enumerate(row)} for row in x_test]
        with served(path) as (process, port):
            lines = _load(process, port, rows, seconds, n_clients)
            lines += _malformed(process, port, rows, n_malformed)
            lines += _stop(process, port, rows, n_clients)
    print("\n".join(markdown_table(["what", "seen", "target", "met"], lines)))
    return lines


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen, int]]:
    """A process that serves a model file, once it is ready, and its port."""
    command = [sys.executable, "-m", "treecdf", "serve", str(path), "--port", "0", "--threads", "1", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    reader = threading.Thread(target=process.stderr.read, daemon=True)  # so that the server never waits for one
    try:
        port = next(int(found[1]) for line in process.stderr if (found := re.search(r"listening at .*:(\d+) ", line)))
        reader.start()
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        _wait(port)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if reader.is_alive():
            reader.join()
        process.stderr.close()


def _wait(port: int) -> None:
    """Wait until a server is ready, at most two minutes."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        own = closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30))
        with suppress(OSError, http.client.HTTPException), own as connection:
            connection.request("GET", "/v2/health/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server was not ready within two minutes")


def closed_loop(port: int, bodies: list[tuple[str, bytes]], seen: Seen, until: float) -> None:
    """Send requests one after the other until the time has come or the server takes its leave."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        for k in range(10**9):
            if time.monotonic() > until:
                return
            path, body = bodies[k % len(bodies)]
            start = time.perf_counter()
            try:
                connection.request("POST", path, body, _JSON)
                response = connection.getresponse()
                response.read()
            except ConnectionRefusedError:  # nothing was sent
                return
            except (OSError, http.client.HTTPException):
                seen.lost += 1
                return
            seen.seconds.append(time.perf_counter() - start)
            seen.statuses[response.status] = seen.statuses.get(response.status, 0) + 1
            if response.headers.get("Connection") == "close":
                return
    finally:
        connection.close()


def load(port: int, bodies: list[tuple[str, bytes]], seconds: float, n_clients: int) -> tuple[list[Seen], list]:
    """Begin to load a server; what clients see, and their threads."""
    seen = [Seen() for _ in range(n_clients)]
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=closed_loop, args=(port, bodies[k:] + bodies[:k], own, until))
        for k, own in enumerate(seen)
    ]
    for thread in threads:
        thread.start()
    return seen, threads


def _intervals(rows: list[dict[str, float]]) -> list[tuple[str, bytes]]:
    """Requests of one row's interval."""
    return [("/intervals", json.dumps({"rows": [row], "level": 0.9}).encode()) for row in rows]


def _load(process, port: int, rows, seconds: float, n_clients: int) -> list[list[str]]:
    """Rate and latencies of one row's interval, asked by one client and by several."""
    lines = []
    for n in (1, n_clients):
        cpu, start = _cpu_seconds(process.pid), time.monotonic()
        seen, threads = load(port, _intervals(rows), seconds, n)
        for thread in threads:
            thread.join()
        times = np.concatenate([own.seconds for own in seen])
        rate = len(times) / (time.monotonic() - start)
        p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99])
        own = 1000 * (_cpu_seconds(process.pid) - cpu) / len(times)
        who = f"{n} client(s)"
        lines.append([f"{who}: requests a second", f"{rate:.0f}", f"{LEAST_RATE:.0f}", _met(rate >= LEAST_RATE)])
        lines.append([f"{who}: median, 95 %, ms", f"{1000 * p50:.1f}, {1000 * p95:.1f}", "", ""])
        lines.append([f"{who}: 99 %, ms", f"{1000 * p99:.1f}", f"{1000 * MOST_P99:.0f}", _met(p99 <= MOST_P99)])
        lines.append([f"{who}: processor of a request, ms", f"{own:.2f}", "", ""])
        alone = 1000 / own  # what a crowded machine does not change: there the server has a part of a core
        lines.append([f"{who}: requests a core second", f"{alone:.0f}", f"{LEAST_RATE:.0f}", _met(alone >= LEAST_RATE)])
        others = {status: n for each in seen for status, n in each.statuses.items() if status != 200}
        lines.append(
            [f"{who}: other statuses, lost", f"{sum(others.values())}, {sum(s.lost for s in seen)}", "0, 0", ""]
        )
    return lines


def _malformed(process, port: int, rows, n: int) -> list[list[str]]:
    """What malformed requests do to a server."""
    good = {
        "/intervals": {"rows": rows[:2], "level": 0.9},
        "/quantiles": {"rows": rows[:1], "levels": [0.1, 0.9]},
        "/density": {"rows": rows[:2], "outcomes": [1, 2]},
        "/samples": {"rows": rows[:1], "draws": 3, "seed": 0},
    }
    rng = random.Random(0)
    requests = [malformed(good, rng) for _ in range(n)]
    counts: dict[int, int] = {}
    before = 0.0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for k, (path, body) in enumerate(requests):
        if k == n // 10:  # what is made at first use is there
            before = _memory_mib(process.pid)
        connection.request("POST", path, body, _JSON)
        response = connection.getresponse()
        response.read()
        counts[response.status] = counts.get(response.status, 0) + 1
    connection.close()
    growth = _memory_mib(process.pid) - before
    told = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
    is_alive = process.poll() is None
    return [
        [f"{n} malformed requests, by status", told, "no 5xx", _met(all(status < 500 for status in counts))],
        ["the server goes on", "yes" if is_alive else "no", "yes", _met(is_alive)],
        [
            "its memory after the last nine tenths, MiB",
            f"{growth:+.1f}",
            f"{MOST_GROWTH:+.0f}",
            _met(growth <= MOST_GROWTH),
        ],
    ]


def _stop(process, port: int, rows, n_clients: int) -> list[list[str]]:
    """What is lost when a server is stopped under load."""
    seen, threads = load(port, _intervals(rows), 30, n_clients)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    code = process.wait(60)
    answered, lost = sum(len(own.seconds) for own in seen), sum(own.lost for own in seen)
    return [
        ["stopped under load: answered, lost", f"{answered}, {lost}", "all, 0", _met(lost == 0)],
        ["exit code", str(code), "0", _met(code == 0)],
    ]


def _met(is_met: bool) -> str:
    return "yes" if is_met else "no"


def _cpu_seconds(pid: int) -> float:
    """Processor seconds of a process so far (Linux only, else NaN)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return float("nan")


def _memory_mib(pid: int) -> float:
    """Resident memory of a process (Linux only, else NaN)."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        found = None
    return int(found[1]) / 1024 if found else float("nan")
