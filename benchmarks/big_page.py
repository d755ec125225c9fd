"""The page of large tables: seconds, memory and bytes of stored runs, and what they mean for more rows and workers."""

from benchmarks.big import N_COVARIATES, TREES
from benchmarks.comparisons import markdown_table
from benchmarks.histograms import N_OUTPUTS
from benchmarks.histograms import TREES as N_BOOSTED
from benchmarks.rows import Store, latest
from benchmarks.speed.scaling import slope

_NETWORK = 1.25e9  # bytes a second of the 10 Gbit/s that machines of a cluster have between them
_MODEL_ROWS = (10**7, 10**8, 10**9)
_MODEL_WORKERS = (1, 10, 100, 1000)
_MODELS = {"memory": ("default", 10), "memory, fast": ('effort="fast"', 2)}  # name, and target of the ratio
_STEEPEST = 1.05


def big_page() -> list[str]:
    """Lines of the page, none where runs are missing."""
    stored = {(run.dataset, run.method): row for run, row in latest(Store("big").read()).items()}
    files = {int(n): row for (n, method), row in stored.items() if method == "parquet"}
    one, two = (stored.get(("2000000", f"dask, {name}")) for name in ("1 worker", "2 workers"))
    network = stored.get(("none", "network"))
    if len(files) < 2 or one is None or two is None or network is None:
        return []
    sizes = sorted(files)
    steepness = slope(sizes, [files[n]["seconds"]["cpu"] for n in sizes])
    faster = one["seconds"]["fit"] / two["seconds"]["fit"]
    return [
        "# Large tables",
        "",
        f"{N_COVARIATES} covariates, one outcome, one thread per process. Made by `python -m benchmarks big`; rows in "
        "`benchmarks/rows/big.jsonl`.",
        "",
        *_beside_lightgbm(stored),
        *_histograms(stored),
        *_default_models(stored),
        "## One flow from Parquet files",
        "",
        f"{TREES // 2} logistic trees of depth 6 and {TREES // 2} with boosted trees at the nodes.",
        "",
        *markdown_table(["rows", "seconds", "processor seconds", "rows x trees per second", "peak memory, MiB"], [
            [f"{n:,}", *_figures(files[n], "rows_a_second", "peak_mib")] for n in sizes
        ]),
        "",
        f"Slope of log processor seconds against log rows: {steepness:.2f}.",
        "",
        "## On Dask workers",
        "",
        f"2,000,000 rows. Two workers are {faster:.2f} times as fast as one.",
        "",
        *markdown_table(
            ["workers", "seconds", "processor seconds", "of these in workers", "passes per tree",
             "MB to the workers per tree", "MB from the workers per tree", "peak memory of a worker, MiB"],
            [[str(k), *_of_workers(row)] for k, row in ((1, one), (2, two))],
        ),
        "",
        *_profile(stored.get(("2000000", "dask, 2 workers, 10 trees"))),
        "## What that means for more rows and workers",
        "",
        *_model(one, two, network),
    ]  # fmt: skip


def _default_models(stored: dict[tuple[str, str], dict]) -> list[str]:
    """The default model from files, as far as there are such runs."""
    lines = [
        [f"{int(n):,}", *_figures(row, "peak_mib"), f"{row['metrics']['log_lik']:.4f}"]
        for (n, method), row in sorted(stored.items(), key=lambda item: int(item[0][0].replace("none", "0")))
        if method == "default"
    ]
    if not lines:
        return []
    header = ["rows", "seconds", "processor seconds", "peak memory, MiB", "log-likelihood of fresh rows"]
    return ["## The default model from Parquet files", "", *markdown_table(header, lines), ""]


def _beside_lightgbm(stored: dict[tuple[str, str], dict]) -> list[str]:
    """Default and fast in memory: their seconds beside those of LightGBM in the same process."""
    lines, slopes = [], []
    for method, (name, most) in _MODELS.items():
        rows = {int(n): row for (n, own), row in sorted(stored.items()) if own == method}
        for n in sorted(rows):
            seconds, metrics = rows[n]["seconds"], rows[n]["metrics"]
            ratio, peak = seconds["cpu"] / seconds["lightgbm"], metrics["peak_mib"]
            figures = [f"{seconds['cpu']:.1f}", f"{seconds['lightgbm']:.1f}", f"{ratio:.1f}", f"{most}"]
            lines.append([name, f"{n:,}", *figures, f"{peak:,.0f}", f"{metrics['log_lik']:.4f}"])
        if len(rows) > 1:
            steepness = slope(sorted(rows), [rows[n]["seconds"]["cpu"] for n in sorted(rows)])
            slopes.append(f"{name} {steepness:.2f}")
    if not lines:
        return []
    header = ["model", "rows", "processor seconds", "of LightGBM", "ratio", "target of the ratio", "peak memory, MiB",
              "log-likelihood of fresh rows"]  # fmt: skip
    told = [f"Slopes of log processor seconds against log rows (target: at most {_STEEPEST}): {', '.join(slopes)}.", ""]
    return [
        "## Default and fast beside LightGBM",
        "",
        "The table is in memory. LightGBM has 500 trees and runs on the same rows, in the same process, on one thread. "
        "Peak memory is that of the process at the end of the fit, including the table and the interpreter with all "
        "imports (target for 1,000,000 rows: 2 GB).",
        "",
        *markdown_table(header, lines),
        "",
        *(told if slopes else []),
    ]


def _histograms(stored: dict[tuple[str, str], dict]) -> list[str]:
    """How fast boosted trees grow beside those of LightGBM, as far as there are such runs."""
    rows = {int(n): row for (n, method), row in stored.items() if method == "histograms"}
    if not rows:
        return []
    lines = []
    for n in sorted(rows):
        metrics = rows[n]["metrics"]
        rates = [metrics[name] for name in ("treecdf", "lightgbm", f"{N_OUTPUTS} outputs")]
        lines.append([f"{n:,}", *(f"{rate / 1e6:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"])
    settings = rows[max(rows)]["settings"]
    ratio = "treecdf / LightGBM (target: at least .5)"
    return [
        "## Boosted trees beside LightGBM's",
        "",
        f"Millions of rows x columns x trees per processor second, one thread: {N_BOOSTED} trees of depth "
        f"{settings['depth']} under squared error, {settings['bins']} bins, all rows and columns, from the gradients "
        f"to the new scores, without the binning (`python -m benchmarks big --methods histograms`). A tree of "
        f"{N_OUTPUTS} outputs is one of a boosted mixture of three components; LightGBM would grow {N_OUTPUTS} trees.",
        "",
        *markdown_table(["rows", "treecdf", "LightGBM", f"treecdf, {N_OUTPUTS} outputs", ratio], lines),
        "",
    ]


def _profile(row: dict | None) -> list[str]:
    if row is None:
        return []
    metrics, wall = row["metrics"], row["seconds"]["fit"]
    passes, slowest, mean = (metrics[f"seconds_of_{name}"] for name in ("passes", "slowest", "mean"))
    return [
        f"Where the time goes with two workers: a fit of {row['settings']['trees']} trees takes {wall:.1f} s. Of "
        f"these a worker computes {mean:.1f} s on average, waits {slowest - mean:.1f} s for the other one to end its "
        f"part of a pass, and waits {passes - slowest:.1f} s for messages and their processing by the driver; "
        f"{wall - passes:.1f} s are reading, the start, and the driver's own work between passes. The workers share "
        f"two cores with driver and scheduler; all together use {row['seconds']['cpu']:.0f} processor seconds.",
        "",
    ]


def _model(one: dict, two: dict, network: dict) -> list[str]:
    pass_seconds, byte_seconds = (network["metrics"][f"seconds_a_{unit}"] for unit in ("pass", "byte"))
    predicted = TREES * sum(seconds_a_tree(2_000_000, 2, one, network))
    lines = []
    for rows in _MODEL_ROWS:
        for workers in _MODEL_WORKERS:
            work, passes, transfer = seconds_a_tree(rows, workers, one, network)
            share = (passes + transfer) / (work + passes + transfer)
            parts = parts_on_the_way(rows, workers)[0]
            seconds = [f"{term:.2f}" for term in (work, passes, transfer)]
            lines.append([f"{rows:.0e}", str(workers), str(parts), *seconds, f"{share:.0%}"])
    return [
        "Estimated seconds of an average tree, not measured: work of the worker with most rows; passes "
        f"({one['metrics']['calls_a_tree']:.0f} per tree, {1e3 * pass_seconds:.1f} ms each on this machine); and the "
        f"transfer of sums, each byte of which takes {1e9 * byte_seconds:.1f} ns to pack, send and unpack here, or "
        f"{1e9 / _NETWORK:.1f} ns on a network of 10 Gbit/s if that is more. Parts: how many sums one after the other "
        "arrive in a pass on the way to the driver, which asks at most eight of more than sixteen workers itself.",
        "",
        *markdown_table(["rows", "workers", "parts", "work", "passes", "transfer", "communication"], lines),
        "",
        f"By these estimates the fit on two workers would take {predicted:.0f} s; it took {two['seconds']['fit']:.0f} "
        "s. They leave out the waiting for the slower worker, and that driver and scheduler share the cores of this "
        "machine with the workers.",
    ]


def seconds_a_tree(rows: int, workers: int, one: dict, network: dict) -> tuple[float, float, float]:
    """Seconds of work, of passes and of transfer, by the figures of one worker and of the network."""
    metrics, terms = one["metrics"], network["metrics"]
    parts, asked, hops, most_rows = parts_on_the_way(rows, workers)
    measured, _, _, all_rows = parts_on_the_way(2_000_000, 1)
    sent = metrics["bytes_from_workers_a_tree"] / measured * parts + metrics["bytes_to_workers_a_tree"] * asked
    work = metrics["cpu_of_workers"] / TREES / all_rows * most_rows
    passes = metrics["calls_a_tree"] * terms["seconds_a_pass"] * hops
    return work, passes, sent * max(terms["seconds_a_byte"], 1 / _NETWORK)


def parts_on_the_way(rows: int, workers: int, validation_fraction: float = 0.1) -> tuple[int, int, int, int]:
    """What one pass sends, along its longest way from a worker to the driver.

    The number of sums that arrive there one after the other, that of workers asked, that of hops, and the most training
    rows of a worker.
    """
    from treecdf.data.blocks import block_slices
    from treecdf.training.sources.dask_rows import branches, divide, most_asked
    from treecdf.training.sources.rows import add_halves

    slices = block_slices(int(rows * (1 - validation_fraction)))
    sites = divide(len(slices), workers)

    def way(below: dict) -> tuple[list[range], tuple[int, int, int]]:
        """Ranges of the sums that arrive from these branches, and the longest way to where they arrive."""
        arrive, ways = [], [(0, 0, 0)]
        for own, further in below.values():
            ranges, before = way(further)
            together = [range(b, b + 1) for k in own for b in sites[k]] + ranges
            arrive += [part for part, _ in add_halves([(part, []) for part in together], len(slices))]
            ways.append(before)
        parts, asked, hops = max(ways)
        return arrive, (parts + len(arrive), asked + len(below), hops + 1 if below else 0)

    _, longest = way(branches({str(k): [k] for k in range(len(sites))}, most_asked(len(sites))))
    return *longest, max(sum(slices[b].stop - slices[b].start for b in site) for site in sites)


def _figures(row: dict, *names: str) -> list[str]:
    return [f"{row['seconds'][name]:,.0f}" for name in ("fit", "cpu")] + [f"{row['metrics'][n]:,.0f}" for n in names]


def _of_workers(row: dict) -> list[str]:
    metrics = row["metrics"]
    return [
        *_figures(row, "cpu_of_workers", "calls_a_tree"),
        *(f"{metrics[f'bytes_{way}_workers_a_tree'] / 1e6:.2f}" for way in ("to", "from")),
        f"{metrics['peak_of_a_worker_mib']:,.0f}",
    ]
