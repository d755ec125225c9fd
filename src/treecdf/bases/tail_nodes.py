"""Nodes that stand for a component in integrals: sums over them take the place of its CDF."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats

from treecdf._common.typing import Array
from treecdf._kernels.tails import DEGREES

_STEP = 0.3  # between nodes, in the inverse sinh of their distance: variances are within 1e-5
_END = 14.0  # of it: distances of 6e5 scales
_SMALLEST = 1e-12  # nodes that have less of the second moment are left out


@cache
def nodes_of_tail(tail: int) -> tuple[Array, Array]:
    """Distances (k,) from the location, in scales, and their masses, of sum one, for a tail with a variance."""
    s = _STEP * np.arange(-round(_END / _STEP), round(_END / _STEP) + 1)
    nodes = np.sinh(s)
    density = stats.norm.pdf(nodes) if np.isinf(DEGREES[tail]) else stats.t.pdf(nodes, DEGREES[tail])
    masses = density * np.cosh(s)
    masses /= masses.sum()
    share = masses * (1 + nodes**2)
    kept = share > _SMALLEST * share.sum()
    return nodes[kept], masses[kept] / masses[kept].sum()
