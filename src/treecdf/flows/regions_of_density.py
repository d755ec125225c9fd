"""Highest-density regions and modes of a distribution of one outcome.

Both are computed from cells between neighbouring quantiles; the mean density of a cell, or of several side by side, is
their probability divided by their width.
"""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array

Intervals = list[tuple[float, float]]
N_CELLS = 400  # of a highest-density region: its probability is exact, and at most so much above the level
N_MODE_CELLS = 240  # of modes
_WINDOW = 4  # neighbouring cells whose mean density is looked at for modes: fewer would show the cuts of trees as modes
_LEAST_DIP = 0.2  # share of a mode's density that has to be missing between it and a higher one


def levels_of_cells(n_cells: int) -> Array:
    """Levels (n_cells + 1,) of the ends of cells of equal probability; the far tails are left out."""
    return np.linspace(0.5 / n_cells, 1 - 0.5 / n_cells, n_cells + 1)


def densest_cells(ends: Array, levels: Array, level: float) -> tuple[Intervals, float]:
    """The fewest densest cells with at least the probability `level`, joined to intervals, and their probability.

    ends (k + 1,) are quantiles at levels (k + 1,), in order.
    """
    mass = np.diff(levels)
    order = np.argsort(-_densities(ends, levels), kind="stable")
    total = np.cumsum(mass[order])
    n_chosen = min(int(np.searchsorted(total, level - 1e-12)) + 1, len(mass))
    chosen = np.zeros(len(mass) + 2, bool)
    chosen[1 + order[:n_chosen]] = True
    turns = np.flatnonzero(chosen[1:] != chosen[:-1])
    intervals = [(float(ends[a]), float(ends[b])) for a, b in turns.reshape(-1, 2)]
    return intervals, float(total[n_chosen - 1])


def find_modes(ends: Array, levels: Array) -> Array:
    """Middles of the windows where the density has a peak, in order; peaks that hardly stand out are left out.

    Windows overlap, so that a mode with the probability of a window plus a cell is never divided between two windows.
    """
    density = _densities(ends, levels, _WINDOW)
    padded = np.pad(density, 1, constant_values=-np.inf)
    highest = np.flatnonzero((density >= padded[:-2]) & (density >= padded[2:]))
    found: list[int] = []
    for k in highest[np.argsort(-density[highest], kind="stable")]:
        between = (density[min(k, other) : max(k, other) + 1].min() for other in found)
        if all(dip < (1 - _LEAST_DIP) * density[k] for dip in between):
            found.append(int(k))
    peaks = np.sort(np.array(found, np.int64))
    return ends[peaks] / 2 + ends[peaks + _WINDOW] / 2


def _densities(ends: Array, levels: Array, n: int = 1) -> Array:
    """Mean densities of each n neighbouring cells; infinite where quantiles are the same."""
    with np.errstate(divide="ignore"):
        return (levels[n:] - levels[:-n]) / np.maximum(ends[n:] - ends[:-n], 0.0)
