"""L-BFGS turned inside out: it is told loss and gradient at its trial points and answers with the next ones.

The passes over the rows stay outside, so that a loss may be a sum over threads, files or machines. All nodes of a
level are minimised side by side, each with its own step.
"""

import numpy as np

from treecdf._kernels.compiling import ordered_kernel

LINE = np.dtype(
    [
        ("iterations", "i8"),
        ("tries", "i8"),  # evaluations of the current line search
        ("stored", "i8"),  # curvature pairs seen so far
        ("value", "f8"),  # loss at the current point
        ("slope", "f8"),  # its derivative along the direction
        ("step", "f8"),
        ("low", "f8"),  # the step sought lies in (low, high)
        ("high", "f8"),
    ]
)
MEMORY = 8
_MAX_TRIES = 25
_ARMIJO, _WOLFE = 1e-4, 0.9


@ordered_kernel
def lbfgs_advance(
    active, line, point, gradient, direction, trial, steps, changes, loss, slope, penalty, weight, tol, limit
):
    """Take loss (k,) and slope (k, P) at trial (k, P); move to the next trial points.

    The objective of a node is (loss + sum(penalty * theta^2) / 2) / weight. line (k,) has dtype LINE; steps and
    changes (k, MEMORY, P) hold the curvature pairs. Weak Wolfe conditions by bisection; a node becomes inactive when
    its largest derivative is at most tol, when a step wins no more than tol / 10, or after `limit` iterations.
    """
    n_nodes, n_parameters = point.shape
    for node in range(n_nodes):
        if not active[node]:
            continue
        state = line[node]
        first = state.iterations == 0
        for i in range(n_parameters):
            loss[node] += 0.5 * penalty[i] * trial[node, i] ** 2
            slope[node, i] = (slope[node, i] + penalty[i] * trial[node, i]) / weight[node]
        loss[node] /= weight[node]
        if not first:
            if not is_accepted(state, loss[node], slope[node], direction[node]):
                if state.tries >= _MAX_TRIES:  # rounding hides any further progress
                    active[node] = 0
                    continue
                choose_step(state, loss[node])
                for i in range(n_parameters):
                    trial[node, i] = point[node, i] + state.step * direction[node, i]
                continue
            slot = state.stored % MEMORY
            for i in range(n_parameters):
                steps[node, slot, i] = trial[node, i] - point[node, i]
                changes[node, slot, i] = slope[node, i] - gradient[node, i]
            state.stored += 1
        decrease = state.value - loss[node]
        state.value = loss[node]
        state.iterations += 1
        largest = 0.0
        for i in range(n_parameters):
            point[node, i] = trial[node, i]
            gradient[node, i] = slope[node, i]
            largest = max(largest, abs(slope[node, i]))
        if largest <= tol or state.iterations > limit or (not first and decrease <= 0.1 * tol):
            active[node] = 0
            continue
        two_loops(state, gradient[node], steps[node], changes[node], direction[node])
        begin_line(state, gradient[node], direction[node])
        for i in range(n_parameters):
            trial[node, i] = point[node, i] + state.step * direction[node, i]


@ordered_kernel
def is_accepted(state, loss, slope, direction):
    """Whether the step meets the weak Wolfe conditions; narrows the interval of the step if not."""
    along = 0.0
    for i in range(slope.size):
        along += slope[i] * direction[i]
    state.tries += 1
    if not (loss <= state.value + _ARMIJO * state.step * state.slope):
        state.high = state.step
    elif along < _WOLFE * state.slope:
        state.low = state.step
    else:
        state.low = state.high = state.step
    return state.low == state.high


@ordered_kernel
def choose_step(state, loss):
    """The next step: twice as long while there is no upper end, then halfway or at the minimum of a parabola."""
    if state.high == np.inf:
        state.step *= 2.0
        return
    middle = 0.5 * (state.low + state.high)
    state.step, last = middle, state.step
    # Or where the parabola through both values and the slope has its minimum, if that is nearer.
    bend = loss - state.value - last * state.slope
    if state.low == 0.0 and bend > 0.0:
        state.step = min(max(-0.5 * state.slope * last**2 / bend, 0.1 * last), middle)


@ordered_kernel
def two_loops(state, gradient, steps, changes, direction):
    """direction (P,) <- minus the approximate inverse Hessian times the gradient, from the curvature pairs kept."""
    n_parameters = gradient.size
    alpha, work = np.empty(MEMORY), np.empty(n_parameters)
    for i in range(n_parameters):
        work[i] = gradient[i]
    kept = min(state.stored, MEMORY)
    for back in range(kept):
        slot = (state.stored - 1 - back) % MEMORY
        curvature, dot = 0.0, 0.0
        for i in range(n_parameters):
            curvature += steps[slot, i] * changes[slot, i]
            dot += steps[slot, i] * work[i]
        alpha[slot] = dot / curvature
        for i in range(n_parameters):
            work[i] -= alpha[slot] * changes[slot, i]
    scale = 1.0
    if kept > 0:
        slot = (state.stored - 1) % MEMORY
        curvature, norm = 0.0, 0.0
        for i in range(n_parameters):
            curvature += steps[slot, i] * changes[slot, i]
            norm += changes[slot, i] * changes[slot, i]
        scale = curvature / norm
    for i in range(n_parameters):
        direction[i] = -scale * work[i]
    for back in range(kept - 1, -1, -1):
        slot = (state.stored - 1 - back) % MEMORY
        curvature, dot = 0.0, 0.0
        for i in range(n_parameters):
            curvature += steps[slot, i] * changes[slot, i]
            dot += changes[slot, i] * direction[i]
        for i in range(n_parameters):
            # direction is the negative of the recursion's vector, hence the signs
            direction[i] -= (alpha[slot] + dot / curvature) * steps[slot, i]


@ordered_kernel
def begin_line(state, gradient, direction):
    """Begin a line search along the direction, or along steepest descent if it does not go down."""
    along, norm = 0.0, 0.0
    for i in range(gradient.size):
        along += direction[i] * gradient[i]
        norm += abs(gradient[i])
    if not along < 0.0:  # curvature lost to rounding: start again from steepest descent
        state.stored = 0
        along = 0.0
        for i in range(gradient.size):
            direction[i] = -gradient[i]
            along -= gradient[i] * gradient[i]
    state.slope = along
    state.step = 1.0
    if state.stored == 0:
        state.step = min(1.0, 1.0 / norm)
    state.low = 0.0
    state.high = np.inf
    state.tries = 0
