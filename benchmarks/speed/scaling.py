"""Part c: time of a fit against rows, outcomes and covariates, and the picture of it."""

from pathlib import Path

import numpy as np

from benchmarks.machine import seconds_of
from benchmarks.speed.measure import TREES_PER_FIT, fixed_trees, linear_data, measure

SIZES = {
    "n": [1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000],
    "d": [1, 2, 4, 8, 16],
    "q": [2, 4, 8, 16, 32, 64],
}
FIXED = {"n": 10_000, "q": 10, "d": 1}
LABELS = {"n": "rows n", "d": "outcomes d", "q": "covariates q"}
SLOPE_TARGET = 1.1


def scaling() -> tuple[list[dict], dict]:
    """Slope of log time against log size, one of n, d, q varied at a time."""
    fixed_trees(0, 1).fit(*linear_data(200, 2))
    measures, raw = [], {}
    for name, sizes in SIZES.items():
        times = [_seconds_of_fit(FIXED | {name: size}) for size in sizes]
        raw[name] = {"sizes": sizes, "seconds": times, "slope": slope(sizes, times)}
        held = ", ".join(f"{key} = {value}" for key, value in FIXED.items() if key != name)
        what = f"log-log slope of fit time against {LABELS[name]}, {sizes[0]} to {sizes[-1]} ({held})"
        measures.append(measure(what, raw[name]["slope"], "", at_most=SLOPE_TARGET))
        # The cost of a fit of no rows flattens the whole line; the last step shows where it is heading.
        measures.append(measure(f"the same over the last step, to {sizes[-1]}", slope(sizes[-2:], times[-2:]), ""))
    return measures, raw


def _seconds_of_fit(size: dict) -> float:
    x, y = linear_data(**size)

    def fit():
        fixed_trees(0, TREES_PER_FIT).fit(x, y)

    first = seconds_of(fit)
    return min(first, seconds_of(fit, repeats=2)) if first < 2.0 else first


def slope(sizes: list, times: list) -> float:
    """Least-squares slope in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def draw(raw: dict, path: Path) -> None:
    """One panel each for n, d and q, with the fitted slope and a line of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(raw), figsize=(10, 3.4), sharey=True, layout="constrained")
    for axis, (name, series) in zip(axes, raw.items(), strict=True):
        sizes, times = np.array(series["sizes"]), np.array(series["seconds"])
        axis.loglog(sizes, times, "o-", color="C0", label=f"measured, slope {series['slope']:.2f}")
        axis.loglog(sizes, times[-1] * sizes / sizes[-1], ":", color="0.4", label="slope 1")
        axis.set_xlabel(LABELS[name])
        axis.minorticks_off()
        if name != "n":
            axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.legend(frameon=False)
    axes[0].set_ylabel(f"seconds, {TREES_PER_FIT} logistic trees")
    figure.savefig(path, dpi=120)
    plt.close(figure)
