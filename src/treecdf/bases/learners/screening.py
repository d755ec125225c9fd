"""Which of many covariates a learner should look at."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array, Ints


def most_correlated(x: Array, y: Array, weight: Array, most: int) -> Ints:
    """Indices, ascending, of at most `most` columns of x (n, q) that are most correlated with y (n,).

    The rows must not include those that the learner is judged on: columns chosen with these would look better than they
    are.
    """
    q = x.shape[1]
    if q <= most:
        return np.arange(q)
    share = weight / weight.sum()
    mean = share @ x
    covariance = (share * (y - share @ y)) @ x
    spread = np.sqrt(np.maximum(share @ x**2 - mean**2, 0.0))
    strength = np.abs(covariance) / np.where(spread > 1e-9, spread, np.inf)
    return np.sort(np.argsort(-strength, kind="stable")[:most])
