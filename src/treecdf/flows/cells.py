"""One outcome that was rounded to a grid: the values that are recorded, and the probabilities of their cells."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array
from treecdf.data.recording import Grid
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.moments import one_sided, root_mean_square

# Cells are counted one by one between the quantiles of this level and of one minus it.
_TAIL = 1e-4
# Nodes that stand for all cells beyond, on each side.
_N_TAIL = 8
# Rows with more cells take the quadrature of the continuous outcome, rounded. A step is then below 0.4 % of the range
# that is counted, but with heavy tails it may still be much of the central half.
_MOST_CELLS = 256


def cell_quadrature(latent: ConditionalDistribution, grid: Grid) -> tuple[Array, Array]:
    """Recorded values and masses (n, k) of an outcome whose continuous distribution is `latent`."""
    first, count = _cells(latent, grid)
    is_coarse = count <= _MOST_CELLS
    parts = []
    if is_coarse.any():
        parts.append((is_coarse, *_of_cells(latent[is_coarse], grid, first[is_coarse], count[is_coarse])))
    if not is_coarse.all() or not len(count):
        values, masses = latent[~is_coarse].quadrature()
        parts.append((~is_coarse, grid.round(values[..., None])[..., 0], masses))
    k = max(values.shape[1] for _, values, _ in parts)
    all_values, all_masses = np.empty((len(count), k)), np.zeros((len(count), k))
    for rows, values, masses in parts:
        missing = ((0, 0), (0, k - values.shape[1]))
        all_values[rows], all_masses[rows] = np.pad(values, missing, mode="edge"), np.pad(masses, missing)
    return all_values, all_masses


def cell_moments(latent: ConditionalDistribution, grid: Grid) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of the recorded values; of fine grids those of the continuous outcome."""
    mean, std = latent.mean(), latent.std()
    first, count = _cells(latent, grid)
    rows = count <= _MOST_CELLS
    if rows.any():
        values, masses = _of_cells(latent[rows], grid, first[rows], count[rows])
        mean[rows] = (values * masses).sum(axis=1)
        std[rows] = root_mean_square(values - mean[rows, None], masses)
    return mean, std


def _cells(latent: ConditionalDistribution, grid: Grid) -> tuple[Array, Array]:
    """Number (n,) of the first cell that is counted, in steps from the origin, and how many (n,) there are."""
    ends = latent.icdf([_TAIL, 1 - _TAIL])
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.round((ends - grid.origin) / grid.step).T
        count = high - low + 1
    return low, np.where(np.isfinite(count), count, np.inf)


def _of_cells(latent: ConditionalDistribution, grid: Grid, first: Array, count: Array) -> tuple[Array, Array]:
    """Recorded values and masses (n, k): cells by differences of the CDF, and some nodes for those beyond."""
    origin, step = grid.origin[0], grid.step[0]
    # Rows with fewer cells than others repeat their last edge: such cells have no mass.
    number = np.minimum(np.arange(count.max() + 1), count[:, None])
    cdf = latent.cdf(origin + step * (first[:, None] + number - 0.5))
    values = origin + step * (first[:, None] + np.minimum(number[:, :-1], count[:, None] - 1))
    nodes, weights = one_sided(_N_TAIL)
    below, above = cdf[:, :1], 1 - cdf[:, -1:]
    beyond = latent.icdf(np.hstack([below * nodes, 1 - above * nodes]))
    ends = np.repeat(values[:, [0, -1]], _N_TAIL, axis=1)
    beyond = np.where(np.isfinite(beyond), grid.round(beyond[..., None])[..., 0], ends)  # infinite where no mass is
    return np.hstack([values, beyond]), np.hstack([np.diff(cdf, axis=1), below * weights, above * weights])
