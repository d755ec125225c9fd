"""Integrals over distributions: nodes and weights, moments that neither overflow nor vanish, and the CRPS."""

from __future__ import annotations

import numpy as np

from treecdf._common.numerics import moments_of_mixture, root_mean_square, unit_of
from treecdf._common.typing import Array

__all__ = [
    "crps_of_points",
    "gauss_legendre",
    "moments_of_draws",
    "moments_of_mixture",
    "one_sided",
    "root_mean_square",
    "unit_of",
]


def gauss_legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1) / 2, weights / 2


def one_sided(n: int) -> tuple[Array, Array]:
    """Nodes and weights (n,) on (0, 1) that crowd at 0: Gauss-Legendre nodes to the fourth power."""
    nodes, weights = gauss_legendre(n)
    return nodes**4, 4 * nodes**3 * weights


def moments_of_draws(draws: Array) -> tuple[Array, Array]:
    """Means and standard deviations (n, d) of draws (n, m, d)."""
    unit = unit_of(draws, axis=(0, 1))
    scaled = draws / unit
    return scaled.mean(axis=1) * unit[0], scaled.std(axis=1) * unit[0]


def crps_of_points(points: Array, masses: Array, truth: Array) -> Array:
    """CRPS (n,) of distributions that sit on points (n, k) with masses (n, k), at outcomes truth (n, 1)."""
    order = np.argsort(points, axis=1)
    points, masses = np.take_along_axis(points, order, 1), np.take_along_axis(masses, order, 1)
    middle = np.cumsum(masses, axis=1) - masses / 2
    return 2 * (masses * (middle - (truth <= points)) * (truth - points)).sum(axis=1)
