"""Predictions of Gaussian processes."""

import numpy as np

from treecdf._kernels.compiling import kernel
from treecdf._kernels.losses import exp_tile

_TILE = 256  # inducing rows that are worked on together


@kernel
def add_process(x, inducing, weights, mean):
    """Add sums of Matern-5/2 kernels of rows x (n, q) and inducing rows (q, m), times weights (m,), to the mean (n,).

    Rows are in units of the length scales, and the kernel is 1 at distance 0.
    """
    n, q = x.shape
    root5 = np.sqrt(5.0)
    distance, decay, bits = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE, np.int64)
    for i in range(n):
        for begin in range(0, weights.size, _TILE):
            own = weights[begin : begin + _TILE]
            away, fading = distance[: own.size], decay[: own.size]
            away[:] = 0.0
            for j in range(q):
                value, others = x[i, j], inducing[j][begin : begin + _TILE]
                for t in range(own.size):
                    away[t] += (value - others[t]) * (value - others[t])
            for t in range(own.size):
                away[t] = root5 * np.sqrt(away[t])
                fading[t] = -away[t]
            exp_tile(decay, own.size, bits)
            total = 0.0
            for t in range(own.size):
                total += (1.0 + away[t] + away[t] * away[t] / 3.0) * fading[t] * own[t]
            mean[i] += total
