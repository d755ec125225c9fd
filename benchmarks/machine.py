"""What a measurement says of the machine and the code: threads, memory, version, commit. No numpy here."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def use_one_thread() -> None:
    """Hold this process and its children to one thread; call it before numpy is imported."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))


def seconds_of(call: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Least time of `repeats` calls by the clock, which is the wall's unless another is given."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def reset_peak_memory() -> None:
    """Start a new high-water mark, so that a run does not report its predecessor's (Linux only)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory_mib() -> float:
    """Peak resident memory of this process in MiB."""
    # ru_maxrss survives exec: a child would report the peak of the parent that started it. VmHWM does not.
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def commit() -> str:
    """Commit of the working tree, or "unknown" outside a repository."""
    try:
        out = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return out.stdout.strip()


def provenance() -> dict:
    """Version, commit and generations of the models, as every row carries them."""
    import treecdf
    from benchmarks.generations import GENERATIONS

    return {"version": treecdf.__version__, "commit": commit(), "generation": GENERATIONS}
