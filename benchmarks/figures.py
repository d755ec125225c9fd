"""`python -m benchmarks figures`: docs/results/NAME.png of each simulation: truth, one flow and 12 rotations."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.machine import RESULTS
from benchmarks.methods import METHODS
from benchmarks.scoring import N_SIMULATED
from benchmarks.simulations import GRID, SIMULATIONS, X_VALUES, grid_points

SEED = 0
SHOWN = {"one flow": "paper", "12 rotations": "rotated"}  # label and method


def write_figures(names: Iterable[str], jobs: int = 1) -> list[str]:
    """Fit and draw those simulations; returns the names drawn."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name in names:
        draw(name, fitted_densities(name, jobs), RESULTS / f"{name}.png")
        drawn.append(name)
    return drawn


def fitted_densities(name: str, jobs: int = 1) -> dict[str, np.ndarray]:
    """Densities (x values, grid, grid) of each method shown, learnt from one simulated set."""
    x, y = SIMULATIONS[name].sample(N_SIMULATED, np.random.default_rng(SEED))
    found = {}
    for label, method in SHOWN.items():
        model = METHODS[method](SEED, y.shape[1]).set_params(n_jobs=jobs).fit(x, y)
        points = np.broadcast_to(grid_points(), (len(X_VALUES), len(GRID) ** 2, 2))
        density = model.predict_distribution(np.array(X_VALUES)[:, None]).pdf(points)
        found[label] = density.reshape(-1, len(GRID), len(GRID))
    return found


def true_density(name: str) -> np.ndarray:
    """The benchmark's truth as (x values, grid, grid)."""
    values = [SIMULATIONS[name].density(x0, grid_points()) for x0 in X_VALUES]
    return np.reshape(values, (-1, len(GRID), len(GRID)))


def draw(name: str, densities: dict[str, np.ndarray], path: Path) -> None:
    """Heat maps of one colour scale: the truth in the first row, then each of `densities` with its SSE."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    truth = true_density(name)
    rows = {"truth": truth} | {
        f"{label}\nSSE {((density - truth) ** 2).sum(axis=(1, 2)).mean():.3f}": density
        for label, density in densities.items()
    }
    size = (8.6, 1.75 * len(rows) + 0.5)
    figure, axes = plt.subplots(len(rows), len(X_VALUES), figsize=size, sharex=True, sharey=True, layout="constrained")
    # Narrow peaks of a fit may pass the top of the scale, else they would pale the truth. Nearest keeps the file small.
    look = {"vmin": 0, "vmax": 1.2 * truth.max(), "cmap": "magma_r", "interpolation": "nearest"}
    for line, (label, density) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(label)
        for axis, values in zip(line, density, strict=True):
            image = axis.imshow(values.T, origin="lower", extent=(GRID[0], GRID[-1]) * 2, **look)
            axis.set(xticks=(-5, 0, 5), yticks=(-5, 0, 5))
    for axis, x0 in zip(axes[0], X_VALUES, strict=True):
        axis.set_title(f"x = {x0:g}", fontsize="medium")
    figure.colorbar(image, ax=axes, extend="max", shrink=0.6, aspect=30, label="density", ticks=MaxNLocator(4))
    figure.savefig(path, dpi=80)
    plt.close(figure)
