"""Parts e and f: what only a fresh process can tell, its peak memory and its cold start.

Run as `python -m benchmarks.speed.fresh TASK` it is that process and prints one JSON line.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from benchmarks.machine import ROOT, peak_memory_mib, use_one_thread

N_BIG = 1_000_000


def peak_memory() -> tuple[list[dict], dict]:
    """Peak resident memory of a logistic fit on 10^6 rows, the data and the interpreter included."""
    from benchmarks.speed.measure import measure

    child = _run("big_fit")
    what = f"peak resident memory, logistic fit, {N_BIG} rows, q = 10, d = 1"
    return [measure(what, child["peak_mib"] * 2**20 / 1e9, "GB", at_most=1.5)], child


def cold_start(repeats: int = 3) -> tuple[list[dict], dict]:
    """The default fit on 200 rows in a process without and with compiled kernels on disk."""
    from benchmarks.speed.measure import measure

    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as copy:
        # A copy without the kernels that earlier parts have left beside the source, where they would be found.
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("*.nbi", "*.nbc"), dirs_exist_ok=True)
        # An installation has bytecode, whatever a setting forbids here: no process is to compile the modules anew.
        cache = {"PYTHONPATH": copy, "NUMBA_CACHE_DIR": empty, "PYTHONDONTWRITEBYTECODE": ""}
        cold = _run("small_fit", cache)
        warm = min((_run("small_fit", cache) for _ in range(repeats)), key=lambda child: child["process"])
        bare = min((_run("imports", cache) for _ in range(repeats)), key=lambda child: child["process"])
    over = warm["process"] - bare["process"]
    measures = [
        measure("process that only imports numpy, scipy, sklearn, numba", bare["process"]),
        measure("process of the default fit, 200 rows, empty cache", cold["process"], at_most=12.0),
        measure("the same with a warm cache, over the bare imports", over, at_most=1.0),
        measure("of which the fit itself, nothing left to load", warm["second_fit"]),
    ]
    return measures, {"cold": cold, "warm": warm, "imports": bare}


def _run(task: str, environment: dict[str, str] | None = None) -> dict:
    """What a fresh process tells of a task, and its wall time without the second fit."""
    command = [sys.executable, "-m", "benchmarks.speed.fresh", task]
    start = time.perf_counter()
    child = subprocess.run(
        command, cwd=ROOT, env=os.environ | (environment or {}), stdout=subprocess.PIPE, text=True, check=True
    )
    wall = time.perf_counter() - start
    told = json.loads(child.stdout.splitlines()[-1])
    return told | {"process": wall - told.get("second_fit", 0.0)}


def _big_fit() -> dict:
    from benchmarks.speed.measure import TREES_PER_FIT, fixed_trees, linear_data

    x, y = linear_data(N_BIG, 10)
    before = peak_memory_mib()
    fixed_trees(0, TREES_PER_FIT).fit(x, y)
    return {"peak_mib": peak_memory_mib(), "before_fit_mib": before}


def _small_fit() -> dict:
    start = time.perf_counter()
    from benchmarks.speed.measure import linear_data
    from treecdf import TreeFlowRegressor

    x, y = linear_data(200, 5)
    model = TreeFlowRegressor(random_state=0)
    imported = time.perf_counter()
    model.fit(x, y)
    fitted = time.perf_counter()
    model.fit(x, y)
    return {
        "import": imported - start,
        "first_fit": fitted - imported,
        "second_fit": time.perf_counter() - fitted,
    }


def _imports() -> dict:
    for name in ("numpy", "scipy", "sklearn", "numba"):
        importlib.import_module(name)
    return {}


TASKS = {"big_fit": _big_fit, "small_fit": _small_fit, "imports": _imports}

if __name__ == "__main__":
    use_one_thread()
    print(json.dumps(TASKS[sys.argv[1]]()))
