"""`python -m benchmarks big`: fits to Parquet files and on Dask workers: seconds, rows a second, memory, bytes sent.

The rows are made, fitted and deleted again; every run has a process of its own, so that its peak memory is its own.
"""

import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.histograms import DEPTH, N_BINS, rates_of_trees
from benchmarks.machine import peak_memory_mib, provenance
from benchmarks.rows import Run, Store, latest

N_COVARIATES = 10
TREES = 50  # half of them logistic, half with boosted trees at the nodes
RUNS = [
    Run("none", 0, "network", 0),
    *(Run(str(n), 0, "histograms", 0) for n in (100_000, 1_000_000)),
    *(Run(str(n), 0, "parquet", 0) for n in (100_000, 1_000_000)),
    *(Run("2000000", 0, f"dask, {workers}", 0) for workers in ("1 worker", "2 workers", "2 workers, 10 trees")),
    *(Run(str(n), 0, name, 0) for n in (100_000, 300_000, 1_000_000) for name in ("memory, fast", "memory")),
    *(Run(str(n), 0, "default", 0) for n in (100_000, 1_000_000, 10_000_000)),
]
METHODS = ("network", "histograms", "parquet", "dask", "memory", "default")
_CHUNK = 250_000
_FRESH = 20_000  # rows that the default is scored on
_PASSES, _BIG = 200, 2**20  # of the network: how many, and numbers in a large answer


def run_big(names: list[str]) -> None:
    """The runs whose method begins with one of the names and that are not stored yet."""
    store = Store("big")
    done = latest(store.read())
    for run in RUNS:
        if run.method.split(",")[0] in names and run not in done:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                row = process.submit(_MEASURES[run.method.split(",")[0]], run).result()
            store.append(vars(run) | row | provenance())
            print(run.dataset, run.method, row["seconds"], row["metrics"], flush=True)


def measure_run(run: Run) -> dict:
    """One fit of a fixed number of trees."""
    n, trees = int(run.dataset), 10 if run.method.endswith("10 trees") else TREES
    model(1).fit(*_chunk(0, 500))  # kernels are compiled beforehand
    with tempfile.TemporaryDirectory() as directory:
        write_rows(n, Path(directory))
        load = os.getloadavg()[0]
        fit = _fit_parquet if run.method == "parquet" else _fit_dask
        wall, cpu, metrics = fit(run, directory, trees)
    metrics |= {"rows_a_second": n * trees / wall, "load_before": load, "load_after": os.getloadavg()[0]}
    return {"settings": {"trees": trees, "q": N_COVARIATES}, "seconds": {"fit": wall, "cpu": cpu}, "metrics": metrics}


def measure_default(run: Run) -> dict:
    """One fit of the default model, or of `effort="fast"`, and its log-likelihood of fresh rows.

    The rows are in files, or in memory if the method says so. LightGBM has the same rows in the same process, when the
    peak memory is known: a machine that others work on too is as slow for it.
    """
    import pandas as pd

    from treecdf import TreeFlowRegressor

    fitted = TreeFlowRegressor(effort="fast" if run.method.endswith("fast") else "default", random_state=0)
    fitted.fit(*_chunk(0, 3000))  # kernels are compiled beforehand
    with tempfile.TemporaryDirectory() as directory:
        write_rows(int(run.dataset), Path(directory))
        table = pd.read_parquet(directory) if run.method.startswith("memory") else None
        load, start, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
        if table is None:
            fitted.fit_parquet(directory, outcomes="y", directory=directory)
        else:
            fitted.fit(table.drop(columns="y"), table["y"])
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    seconds, peak = {"fit": wall, "cpu": cpu}, peak_memory_mib()
    x, y = _chunk(10**6, _FRESH)
    log_lik = fitted.score(pd.DataFrame(x, columns=fitted.feature_names_in_), y)
    if table is not None:
        seconds["lightgbm"] = _seconds_of_lightgbm(table)
    metrics = {"log_lik": log_lik, "trees": fitted.n_trees_, "peak_mib": peak, "load_before": load}
    return {"settings": {"q": N_COVARIATES}, "seconds": seconds, "metrics": metrics}


def _seconds_of_lightgbm(table) -> float:
    """Processor seconds of 500 trees of LightGBM on one thread, the mean of two fits."""
    from lightgbm import LGBMRegressor

    x, y = table.drop(columns="y"), table["y"]
    cpu = time.process_time()
    for _ in range(2):
        LGBMRegressor(n_estimators=500, n_jobs=1, verbose=-1).fit(x, y)
    return (time.process_time() - cpu) / 2


def model(trees: int):
    """So many trees, half of each kind, without early stopping."""
    from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor

    return TreeFlowRegressor(
        base="box",
        stages=[Stage(Logistic(), 6), Stage(BoostedTrees(), 6)],
        max_trees=max(trees // 2, 1),
        early_stopping_window=trees + 1,
        random_state=0,
    )


def write_rows(n: int, directory: Path) -> None:
    """Files of covariates x0, x1, ... and an outcome y whose shape depends on them."""
    import pandas as pd

    for k, first in enumerate(range(0, n, _CHUNK)):
        x, y = _chunk(k, min(_CHUNK, n - first))
        frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(N_COVARIATES)]).assign(y=y)
        frame.to_parquet(directory / f"{k:05d}.parquet", index=False)


def _chunk(k: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    x = rng.normal(size=(m, N_COVARIATES))
    return x, np.sin(2 * x[:, 0]) + np.exp(0.5 * x[:, 1]) * rng.normal(size=m) + (x[:, 2] > 0) * rng.exponential(size=m)


def _fit_parquet(run: Run, directory: str, trees: int) -> tuple[float, float, dict]:
    start, cpu = time.perf_counter(), time.process_time()
    fitted = model(trees).fit_parquet(directory, outcomes="y", directory=directory)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return wall, cpu, {"trees": fitted.n_trees_, "peak_mib": peak_memory_mib()}


def _fit_dask(run: Run, directory: str, trees: int) -> tuple[float, float, dict]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from treecdf.training.sources.dask_rows import traffic

    n_workers = int(run.method.split()[1])
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(_warm_up)
        frame = dd.read_parquet(directory)
        before = sum(client.run(time.process_time).values())
        start, cpu, sent = time.perf_counter(), time.process_time(), traffic()
        fitted = model(trees).fit(frame.drop(columns="y"), frame["y"])
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        on_workers = sum(client.run(time.process_time).values()) - before
        peak = max(client.run(peak_memory_mib).values())
    calls, down, up, passes, slowest, mean = (b - a for a, b in zip(sent, traffic(), strict=True))
    return wall, cpu + on_workers, {
        "trees": fitted.n_trees_,
        "calls_a_tree": calls / trees,
        "bytes_to_workers_a_tree": down / trees,
        "bytes_from_workers_a_tree": up / trees,
        "cpu_of_workers": on_workers,
        "seconds_of_passes": passes,
        "seconds_of_slowest": slowest,
        "seconds_of_mean": mean,
        "peak_mib": peak_memory_mib(),
        "peak_of_a_worker_mib": peak,
    }  # fmt: skip


def measure_histograms(run: Run) -> dict:
    """Rows x columns x trees a second, beside LightGBM's."""
    start, load = time.perf_counter(), os.getloadavg()[0]
    parts = [_chunk(k, min(_CHUNK, int(run.dataset))) for k in range(-(-int(run.dataset) // _CHUNK))]
    metrics = rates_of_trees(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    settings = {"q": N_COVARIATES, "depth": DEPTH, "bins": N_BINS}
    seconds = {"all": time.perf_counter() - start}
    return {"settings": settings, "seconds": seconds, "metrics": metrics | {"load_before": load}}


def measure_network(run: Run) -> dict:
    """Seconds of a pass over two workers that does nothing, and of a byte that a worker answers."""
    from dask import delayed
    from distributed import Client, LocalCluster

    from treecdf.training.sources.dask_rows import DaskRows
    from treecdf.training.sources.operations import Cut, Sums

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        tables = [delayed(_tiny_table)() for _ in range(2)]
        source = DaskRows(client, tables, [0, 10])
        source.open(client.compute(tables))
        source.ask_blocks(Cut(10))
        seconds = {}
        for name, size in (("empty", 1), ("big", _BIG)):
            nothing = Sums(_nothing, "level", (), [(size,)])
            source.sum_shards((), nothing)
            passes = _PASSES if name == "empty" else _PASSES // 10
            start = time.perf_counter()
            for _ in range(passes):
                source.sum_shards((), nothing)
            seconds[name] = (time.perf_counter() - start) / passes
        source.close()
    a_byte = (seconds["big"] - seconds["empty"]) / (2 * 8 * _BIG)
    metrics = {"seconds_a_pass": seconds["empty"], "seconds_a_byte": a_byte, "load_after": os.getloadavg()[0]}
    return {"settings": {"passes": _PASSES}, "seconds": seconds, "metrics": metrics}


def _tiny_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros((10, 1)), np.zeros((10, 1)), np.ones(10)


def _nothing(*rows_and_outputs: np.ndarray) -> None:
    """A kernel that adds nothing."""


def _warm_up() -> None:
    model(1).fit(*_chunk(0, 500))


_MEASURES = {
    "network": measure_network,
    "histograms": measure_histograms,
    "parquet": measure_run,
    "dask": measure_run,
    "memory": measure_default,
    "default": measure_default,
}
