"""Dask fits whose worker, scheduler or client is killed in every phase: the same model, or one error, in bounded time.

    python -m tests.kill_cluster --count 15

Scheduler, workers and each client are processes of their own. A client fits, and kills the victim by its number a few
milliseconds after the phase has begun. Without a worker the fit ends in the same model; without the scheduler in an
error; without the client the cluster serves the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import product

import numpy as np

PHASES = ("reading", "locating", "growing", "applying", "finishing")
VICTIMS = ("worker", "scheduler", "client")
OPERATIONS = {"locating": "Locate", "growing": "Sums", "applying": "Apply"}  # the requests that make a phase
MOST_SECONDS = 150  # for one fit, its imports included; beyond it hangs


def problem():
    """A small table, and the model that is fitted to it."""
    from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 2))
    stages = [Stage(Logistic(), 2), Stage(BoostedTrees(rounds=2, max_depth=2), 2)]
    return TreeFlowRegressor(base="box", stages=stages, max_trees=3, random_state=0), x, x[:, 0] + rng.normal(size=1200)


def bits(model):
    """A checksum of what was learnt."""
    _, x, y = problem()
    arrays = [model.log_prob(x, y), *model.history_.values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def small_blocks():
    """Let 1,200 rows be several blocks, so that both workers have some."""
    import treecdf.data.blocks
    import treecdf.estimators.fitting
    import treecdf.training.sources.rows

    treecdf.training.sources.rows.SHARD_ROWS, treecdf.data.blocks.BLOCK_ROWS = 50, 150
    treecdf.estimators.fitting.ROWS_READ_WHOLE = 0  # so that the rows stay on the workers


def arm(phase, strike):
    """Call `strike` in a thread of its own when the phase has begun."""
    from treecdf.training.sources.dask_rows import DaskRows

    def armed(name, is_phase):
        function = getattr(DaskRows, name)

        def wrapper(self, *args):
            if is_phase(*args) and not begun:
                begun.append(name)
                threading.Thread(target=strike, args=(self,), daemon=True).start()
            return function(self, *args)

        setattr(DaskRows, name, wrapper)

    begun: list[str] = []
    armed("open", lambda *_: phase == "reading")
    armed("close", lambda *_: phase == "finishing")
    armed("_ask", lambda _, *operations: type(operations[-1]).__name__ == OPERATIONS.get(phase))
    return begun


def be_client(address, phase, victim, scheduler, delay):
    """Fit, and kill the victim in the phase; print what came of it."""
    import dask.array as da
    from distributed import Client

    small_blocks()
    client = Client(address, timeout=30)
    client.wait_for_workers(2, timeout=60)
    pids = client.run(os.getpid)

    def strike(rows):
        time.sleep(delay)
        pid = {"worker": pids[rows._homes[-1]], "scheduler": scheduler, "client": os.getpid()}[victim]
        os.kill(pid, signal.SIGKILL)

    begun = arm(phase, strike)
    model, x, y = problem()
    begin = time.perf_counter()
    try:
        model.fit(da.from_array(x, chunks=(500, 2)), da.from_array(y, chunks=500))
        answer = bits(model)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - begin, 1)
    print(json.dumps({"answer": answer, "seconds": seconds, "begun": len(begun)}), flush=True)  # noqa: T201
    os._exit(0)  # without the farewell of a client whose scheduler is gone


class Cluster:
    """A scheduler and two workers without a nanny, each a process of its own."""

    def __init__(self, directory):
        self._file = os.path.join(directory, f"scheduler{time.monotonic_ns()}")
        self._directory = directory
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard")
        self._workers = []
        self.mend()

    def mend(self):
        """Two workers again."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        while len(self._workers) < 2:
            self._workers.append(self._start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard"))

    def _start(self, kind, *options):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", self._file, *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def address(self):
        """Where the scheduler listens."""
        for _ in range(600):
            with contextlib.suppress(FileNotFoundError, ValueError), open(self._file) as file:
                return json.load(file)["address"]
            time.sleep(0.1)
        raise TimeoutError("The scheduler did not start.")

    def stop(self):
        """End all processes."""
        for process in (*self._workers, self.scheduler):
            process.kill()
            process.wait()


def attempt(cluster, phase, victim, delay):
    """What a client gave whose victim was killed: its answer in words, with seconds."""
    command = [sys.executable, "-m", "tests.kill_cluster", "--client", cluster.address(), phase, victim]
    command += [str(cluster.scheduler.pid), str(delay)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return {"answer": "hung", "seconds": MOST_SECONDS, "begun": 1}
    if done.returncode == -signal.SIGKILL:
        return {"answer": "killed", "seconds": round(time.perf_counter() - begin, 1), "begun": 1}
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def verdict(victim, answer, honest):
    """Whether an answer is what is promised."""
    if victim == "scheduler":  # in the last phase the model may have been there already
        return answer == honest or answer.startswith("ConnectionError: The scheduler of the Dask cluster")
    return answer == ("killed" if victim == "client" else honest)


def run(count, seed=0, cases=None, report=None, one_more=True):
    """Kill so many; what each gave, and whether all was as promised. Then one more fit is left alone."""
    small_blocks()
    import dask.array as da

    model, x, y = problem()
    rows = (da.from_array(part, chunks=300) for part in (x, y))  # without a cluster they go to files
    honest, rng, found = bits(model.fit(*rows)), np.random.default_rng(seed), []
    cases = list(cases or product(VICTIMS, PHASES))
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(directory)
        try:
            for k in range(count):
                victim, phase = cases[k % len(cases)]
                told = attempt(cluster, phase, victim, rng.uniform(0, 0.03))
                good = verdict(victim, told["answer"], honest) and told["begun"] == 1
                answer = "same" if told["answer"] == honest else told["answer"]
                found.append({"victim": victim, "phase": phase, **told, "answer": answer, "good": good})
                if report:
                    report(found[-1])
                if k == count - 1 and not one_more:
                    break
                if victim == "scheduler":
                    cluster.stop()
                    cluster = Cluster(directory)
                cluster.mend()
            last = attempt(cluster, "none", "client", 0.0)["answer"] == honest if one_more else None
        finally:
            cluster.stop()
    return {"cases": found, "good": sum(case["good"] for case in found), "last": last}


def main():
    """Kill parts of clusters from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=len(VICTIMS) * len(PHASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--client", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        address, phase, victim, scheduler, delay = options.client
        be_client(address, phase, victim, int(scheduler), float(delay))
    result = run(options.count, options.seed, report=lambda case: print(json.dumps(case), flush=True))  # noqa: T201
    print(f"{len(result['cases'])} killed, {result['good']} as promised; the last fit the same: {result['last']}")  # noqa: T201
    return 0 if result["good"] == options.count and result["last"] else 1


if __name__ == "__main__":
    sys.exit(main())
