"""`python -m benchmarks scaling`: processor seconds of a fit against n d q, made-up rows and the paper's sets."""

import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.comparisons import fit_seconds
from benchmarks.datasets import DATASETS
from benchmarks.machine import provenance, seconds_of
from benchmarks.rows import Run, Store, latest
from benchmarks.speed.measure import TREES_PER_FIT, fixed_trees, linear_data
from benchmarks.speed.scaling import SLOPE_TARGET, slope

SIZES = [  # n, d, q
    (1_000, 1, 5),
    (1_000, 2, 10),
    (3_000, 1, 10),
    (1_000, 4, 20),
    (10_000, 1, 10),
    (3_000, 4, 20),
    (30_000, 1, 10),
    (10_000, 2, 40),
    (100_000, 1, 10),
    (30_000, 4, 20),
    (100_000, 2, 20),
    (300_000, 1, 20),
    (1_000_000, 1, 10),
]
REPEATS = 3
METHOD = "logistic_trees"
PAPERS_SETS = ("boston", "concrete", "power", "yacht", "naval", "kin8nm", "protein", "air", "skillcraft")
PAPERS_ROWS = ("univariate", "c0gamma", "multivariate")


def scaling_runs() -> list[Run]:
    """One run for every size and repeat; the name of a set is its n,d,q."""
    return [Run(_name(size), k, METHOD, seed=k) for k in range(REPEATS) for size in SIZES]


def _name(size: tuple[int, int, int]) -> str:
    return "{},{},{}".format(*size)


def score_scaling(run: Run) -> dict:
    """Seconds of a fixed number of logistic trees on synthetic rows."""
    n, d, q = map(int, run.dataset.split(","))
    fixed_trees(0, 1).fit(*linear_data(200, 2, d))
    x, y = linear_data(n, q, d, seed=run.seed)
    start = time.process_time()
    seconds = seconds_of(lambda: fixed_trees(0, TREES_PER_FIT).fit(x, y))
    times = {"fit": seconds, "fit_cpu": time.process_time() - start}
    return {"settings": {"trees": TREES_PER_FIT}, "seconds": times, "metrics": {}} | provenance()


def synthetic_times() -> dict[tuple[int, int, int], float]:
    """Least processor seconds of the repeats by (n, d, q)."""
    rows = latest(Store("scaling").read())
    times = defaultdict(list)
    for run, row in rows.items():
        if "error" not in row:
            times[tuple(map(int, run.dataset.split(",")))].append(row["seconds"]["fit_cpu"])
    return {size: min(found) for size, found in times.items()}


def uci_times() -> dict[str, tuple[tuple[int, int, int], float]]:
    """(n, d, q) and mean processor seconds of the paper's own settings on those of its nine sets that have rows."""
    rows = latest(row for name in PAPERS_ROWS for row in Store(name).read())
    found = {}
    for name in PAPERS_SETS:
        mine = [r for run, r in rows.items() if (run.dataset, run.method) == (name, "paper") and "error" not in r]
        if mine:
            size = (mine[0]["n_train"], DATASETS[name].d, DATASETS[name].q)
            found[name] = (size, fit_seconds(mine))
    return found


def products(sizes) -> np.ndarray:
    """n d q of sizes (n, d, q)."""
    return np.array([np.prod(size, dtype=float) for size in sizes])


def scaling_page(directory: Path) -> list[str]:
    """Lines of the page, none where there are no rows; draws the picture beside it."""
    synthetic, real = synthetic_times(), uci_times()
    if len(synthetic) < 2:
        return []
    steepness = slope(products(synthetic), list(synthetic.values()))
    draw(synthetic, real, directory / "ndq.png")
    lines = [f"| {n} | {d} | {q} | {n * d * q:.3g} | {synthetic[n, d, q]:.3g} |" for n, d, q in sorted(synthetic)]
    real_lines = [
        f"| {name} | {size} | {np.prod(size):.3g} | {seconds:.3g} |" for name, (size, seconds) in real.items()
    ]
    total = sum(row["seconds"]["fit"] for row in Store("scaling").read() if "error" not in row)
    met = "met" if steepness <= SLOPE_TARGET else "missed"
    return [
        "# Processor seconds of a fit against n d q",
        "",
        "The paper claims a time of order n d q. The slope of log time against log ndq, by least squares over "
        f"synthetic tables with {TREES_PER_FIT} logistic trees of depth 6 on one thread, is **{steepness:.2f}** "
        f"(target: at most {SLOPE_TARGET}, {met}).",
        "",
        "![Fit time against n d q](ndq.png)",
        "",
        "| n | d | q | ndq | seconds |",
        "| --- | --- | --- | --- | --- |",
        *lines,
        "",
        "The sets of the paper's figure with the paper's settings, means over the stored splits. Early stopping "
        "chooses the number of trees, so these points scatter.",
        "",
        "| set | (n, d, q) | ndq | seconds |",
        "| --- | --- | --- | --- |",
        *real_lines,
        "",
        f"Made by `python -m benchmarks scaling` in {total:.0f} s of fitting; rows in `benchmarks/rows/scaling.jsonl` "
        f"and, of the sets, in {', '.join(f'`{name}.jsonl`' for name in PAPERS_ROWS)} beside it.",
    ]


def draw(synthetic: dict, real: dict, path: Path) -> None:
    """Synthetic sizes and the paper's sets, each point with its (n, d, q), and a line of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = {f"synthetic, {TREES_PER_FIT} logistic trees": list(synthetic.items())}
    if len(real) > 1:
        panels["the paper's sets and settings"] = list(real.values())
    figure, axes = plt.subplots(1, len(panels), figsize=(5.6 * len(panels), 4.4), layout="constrained", squeeze=False)
    for axis, (title, points) in zip(axes[0], panels.items(), strict=True):
        sizes, seconds = zip(*points, strict=True)
        ndq, seconds = products(sizes), np.array(seconds)
        middle = np.exp(np.mean(np.log(seconds)) - np.mean(np.log(ndq)))
        ends = np.array([ndq.min(), ndq.max()])
        axis.loglog(ends, middle * ends, color="0.6", label="slope 1")
        axis.loglog(ndq, seconds, "o", color="C0", label=f"measured, slope {slope(ndq, seconds):.2f}")
        for k, (size, x, y) in enumerate(zip(sizes, ndq, seconds, strict=True)):
            offset, side = ((5, -8), "left") if k % 2 else ((-5, 5), "right")
            text = "({},{},{})".format(*size)
            axis.annotate(text, (x, y), xytext=offset, textcoords="offset points", ha=side, fontsize=6.5)
        axis.set(title=title, xlabel="n d q", ylabel="processor seconds of a fit")
        axis.margins(x=0.2)
        axis.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
