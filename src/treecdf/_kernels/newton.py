"""Newton's method turned inside out: told loss, gradient and Hessian at trial points, it answers with the next ones.

As in lbfgs.py, the passes over the rows stay outside and all nodes of a level are minimised side by side.
"""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel

STEP = np.dtype(
    [
        ("iterations", "i8"),
        ("tries", "i8"),  # halvings of the current step
        ("value", "f8"),  # penalised loss at the current point
        ("slope", "f8"),  # its derivative along the direction
        ("length", "f8"),  # of the step, in directions
    ]
)
_MAX_TRIES = 30
_ARMIJO = 1e-4


@ordered_kernel
def solve(hessian, gradient, direction):
    """direction <- -hessian^-1 gradient by Cholesky, in place on the hessian's lower triangle; the slope along it."""
    n = gradient.size
    for i in range(n):
        for j in range(i + 1):
            rest = hessian[i, j]
            for k in range(j):
                rest -= hessian[i, k] * hessian[j, k]
            if i == j:
                hessian[i, i] = np.sqrt(max(rest, 1e-300))
            else:
                hessian[i, j] = rest / hessian[j, j]
    for i in range(n):
        rest = -gradient[i]
        for k in range(i):
            rest -= hessian[i, k] * direction[k]
        direction[i] = rest / hessian[i, i]
    slope = 0.0
    for i in range(n - 1, -1, -1):
        rest = direction[i]
        for k in range(i + 1, n):
            rest -= hessian[k, i] * direction[k]
        direction[i] = rest / hessian[i, i]
        slope += direction[i] * gradient[i]
    return slope


@ordered_kernel
def newton_advance(active, step, point, direction, trial, loss, gradient, hessian, ridge, weight, tol, limit):
    """Take loss (k,), gradient (k, P) and Hessian (k, P, P) at trial (k, P); move to the next trial points.

    The objective of a node is loss + ridge |slopes|^2 / 2, the first parameter being a free intercept. A step
    that does not lower it enough is halved. A node becomes inactive when its largest derivative is at most
    tol * weight, or after `limit` iterations.
    """
    n_nodes, n_parameters = point.shape
    for node in range(n_nodes):
        if not active[node]:
            continue
        state = step[node]
        for i in range(1, n_parameters):
            loss[node] += 0.5 * ridge * trial[node, i] ** 2
            gradient[node, i] += ridge * trial[node, i]
            hessian[node, i, i] += ridge
        if not (loss[node] <= state.value + _ARMIJO * state.length * state.slope):
            state.tries += 1
            state.length *= 0.5
            if state.tries > _MAX_TRIES:  # rounding hides any further progress
                active[node] = 0
            for i in range(n_parameters):
                trial[node, i] = point[node, i] + state.length * direction[node, i]
            continue
        largest = 0.0
        for i in range(n_parameters):
            point[node, i] = trial[node, i]
            largest = max(largest, abs(gradient[node, i]))
        state.value = loss[node]
        state.iterations += 1
        if largest <= tol * weight[node] or state.iterations >= limit:
            active[node] = 0
            continue
        state.slope = solve(hessian[node], gradient[node], direction[node])
        state.length = 1.0
        state.tries = 0
        for i in range(n_parameters):
            trial[node, i] = point[node, i] + direction[node, i]
