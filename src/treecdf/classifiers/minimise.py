"""Minimise the penalised cross entropy of all nodes of a level, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._kernels.lbfgs import LINE, MEMORY, advance
from treecdf.classifiers.protocol import NodeFits, Splits, share_log_lik
from treecdf.rows import Rows

Array = NDArray[np.float64]


def minimise(
    rows: Rows,
    splits: Splits,
    loss_kernel: Callable[..., None],
    theta: Array,
    penalty: Array,
    *,
    extra: tuple[Any, ...] = (),
    preconditioner: Array | None = None,
    tol: float,
    max_iter: int,
) -> NodeFits:
    """Fit from the starting values theta (k, P); nodes with an empty child keep theirs.

    The objective of a node is (cross entropy + sum(penalty * theta^2) / 2) / weight, as scikit-learn's.
    """
    k, n_parameters = theta.shape
    line = np.zeros(k, LINE)
    line["active"] = splits.has_both
    point, trial = theta.copy(), theta.copy()
    gradient, direction = np.zeros_like(theta), np.zeros_like(theta)
    steps = np.zeros((k, MEMORY, n_parameters))
    changes = np.zeros((k, MEMORY, n_parameters))
    scale = 1 / splits.weight
    if preconditioner is None:
        preconditioner = np.empty((0, 0, 0))
    while (active := np.ascontiguousarray(line["active"])).any():
        loss, slope = rows.sum(loss_kernel, "node", (active, trial, *extra), [(k,), (k, n_parameters)])
        drag = penalty * trial
        loss = scale * (loss + 0.5 * np.einsum("kp,kp->k", drag, trial))
        slope = scale[:, None] * (slope + drag)
        advance(
            line, point, gradient, direction, trial, steps, changes, preconditioner, loss, slope, tol, max_iter
        )
    fitted = 0.5 * (point**2) @ penalty - splits.weight * line["value"]
    return NodeFits(point, np.where(splits.has_both, fitted, share_log_lik(splits.left_weight, splits.weight)))
