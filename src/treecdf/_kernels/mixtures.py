"""Mixtures of Student t and normal distributions, each component with the tail that its number in `tails` says."""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel
from treecdf._kernels.losses import TILE, exp_tile
from treecdf._kernels.tails import (
    DEGREES,
    NORMAL,
    PEAK,
    T1,
    T2,
    T3,
    T5,
    density,
    farthest,
    log_density,
    lower_tail,
    slopes,
)

_N_STEPS = 1000  # of root finding; about ten are needed, the bracket of the smallest level takes hundreds
_ROUNDING = 2e-15  # relative error of a CDF, or of 1 - CDF, at which it ends
_SHORTEST = 4e-16  # of a point: a shorter step of it ends it, too
_FAR = 1e150  # distances in scales are held here, so that squares stay finite
_NARROW = 1e-4  # of a scale: the probability of a narrower cell is its width times the density
_SMALLEST_DENSITY = 1e-200  # in scales: far below the smallest sum of parts that keeps its digits
_SMALLEST_MASS = 1e-290  # below, logarithms of probabilities come from densities
_WIDE = 4.0  # scales: cells that are wider tell as little as this
_LEAST_CURVATURE = 1e-3  # of log scales and logits where a component has no share in a row


@ordered_kernel
def mixture_forward(y, location, log_scale, log_weight, tails, lower, upper, log_densities):
    """CDF, 1 - CDF and log density (n, m) of points y (n, m); the components' parameters are (n, J), tails (J,)."""
    n_components = location.shape[1]
    narrowness, weight = np.empty(n_components), np.empty(n_components)
    for i in range(y.shape[0]):
        for j in range(n_components):
            narrowness[j], weight[j] = math.exp(-log_scale[i, j]), math.exp(log_weight[i, j])
        for k in range(y.shape[1]):
            below, above, largest, total = 0.0, 0.0, -np.inf, 0.0
            for j in range(n_components):
                if log_weight[i, j] == -np.inf:
                    continue
                t = (y[i, k] - location[i, j]) * narrowness[j]
                tail = lower_tail(-abs(t), tails[j])
                below += weight[j] * (tail if t <= 0 else 1.0 - tail)
                above += weight[j] * (1.0 - tail if t <= 0 else tail)
                part = log_weight[i, j] + log_density(t, tails[j]) - log_scale[i, j]
                if part > largest:
                    total = total * math.exp(largest - part) + 1.0
                    largest = part
                elif part > -np.inf:
                    total += math.exp(part - largest)
            lower[i, k], upper[i, k] = below, above
            log_densities[i, k] = largest + math.log(total)


@ordered_kernel
def mixture_densities(y, location, log_scale, log_weight, tails, lower, upper, densities):
    """What `mixture_forward` gives, but densities, not their logarithms, which is faster; far out they are 0."""
    n_components = location.shape[1]
    narrowness, weight = np.empty(n_components), np.empty(n_components)
    for i in range(y.shape[0]):
        for j in range(n_components):
            narrowness[j], weight[j] = math.exp(-log_scale[i, j]), math.exp(log_weight[i, j])
        for k in range(y.shape[1]):
            below, above, total = 0.0, 0.0, 0.0
            for j in range(n_components):
                if weight[j] == 0.0:
                    continue
                t = (y[i, k] - location[i, j]) * narrowness[j]
                tail = lower_tail(-abs(t), tails[j])
                below += weight[j] * (tail if t <= 0 else 1.0 - tail)
                above += weight[j] * (1.0 - tail if t <= 0 else tail)
                total += weight[j] * narrowness[j] * density(t, tails[j])
            lower[i, k], upper[i, k], densities[i, k] = below, above, total


@ordered_kernel
def mixture_inverse(u, order, location, log_scale, log_weight, tails, y):
    """Points y (n, m) with CDF u (n, m), by Newton steps inside a bracket.

    order (n, m): numbers of the levels of each row from the smallest on; a step from the point before is a good start.
    """
    n_components = location.shape[1]
    narrowness, weight = np.empty(n_components), np.empty(n_components)
    for i in range(u.shape[0]):
        for j in range(n_components):
            narrowness[j], weight[j] = math.exp(-log_scale[i, j]), math.exp(log_weight[i, j])
        start, before, rise = np.nan, -np.inf, 0.0
        for a in range(u.shape[1]):
            k = order[i, a]
            level = u[i, k]
            low, high, point = np.inf, -np.inf, 0.0
            for j in range(n_components):
                if weight[j] > 0:
                    far = farthest(min(level, 1.0 - level), tails[j]) / narrowness[j]
                    low = min(low, location[i, j] - far)
                    high = max(high, location[i, j] + far)
                    point += weight[j] * location[i, j]
            last = high - low
            if a > 0:
                start = before + (level - u[i, order[i, a - 1]]) / rise
            if low < start < high:
                point = start
            for _ in range(_N_STEPS):
                below, above, rise = 0.0, 0.0, 0.0
                for j in range(n_components):
                    if weight[j] == 0.0:
                        continue
                    t = (point - location[i, j]) * narrowness[j]
                    tail = weight[j] * lower_tail(-abs(t), tails[j])
                    below += tail if t <= 0 else weight[j] - tail
                    above += weight[j] - tail if t <= 0 else tail
                    rise += weight[j] * narrowness[j] * density(t, tails[j])
                gap = below - level if level <= 0.5 else (1.0 - level) - above
                if gap > 0:
                    high = point
                else:
                    low = point
                step = gap / rise
                # Below the rounding of the CDF or of the point steps are noise, and dozens of halvings would follow.
                if abs(gap) <= _ROUNDING * min(level, 1.0 - level) or abs(step) <= _SHORTEST * abs(point):
                    break
                following = point - step
                # Steps that do not halve may go on for ever.
                if not (low < following < high and abs(following - point) <= 0.5 * last):
                    following = 0.5 * low + 0.5 * high
                last = abs(following - point)
                if last <= 0.5 * _SHORTEST * abs(point):
                    break
                point = following
            before = max(point, before)  # rounding must not let it descend
            y[i, k] = before


@ordered_kernel
def mixture_loss(y, location, scores, tail, floor, loss, gradient, curvature):
    """Negative log-likelihood (n,) of outcomes y (n,), its gradient and a positive curvature (n, 2 J) or (n, 3 J).

    scores (n, 2 J): log scales, held at `floor`, and logits of the weights; all components have the same tail.
    With 3 J columns the last J are those of the locations (n, J). Rows go through in tiles, component by component, so
    that the loops over rows run in vector units.
    """
    n, n_components = location.shape
    has_locations = gradient.shape[1] == 3 * n_components
    narrowness, distance, weight, part = np.empty((4, n_components, TILE))
    largest, total, sum_of_parts = np.empty((3, TILE))
    bits = np.empty(TILE, np.int64)
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        for r in range(size):
            largest[r] = scores[first + r, n_components]
        for j in range(1, n_components):
            for r in range(size):
                largest[r] = max(largest[r], scores[first + r, n_components + j])
        total[:size] = 0.0
        sum_of_parts[:size] = 0.0
        for j in range(n_components):
            narrow, far, prior, joint = narrowness[j], distance[j], weight[j], part[j]
            for r in range(size):
                narrow[r] = -max(scores[first + r, j], floor)
                prior[r] = scores[first + r, n_components + j] - largest[r]
            exp_tile(narrow, size, bits)
            exp_tile(prior, size, bits)
            for r in range(size):
                far[r] = min(max((y[first + r] - location[first + r, j]) * narrow[r], -_FAR), _FAR)
            _densities(far, size, tail, joint, bits)
            for r in range(size):
                joint[r] *= prior[r] * narrow[r]
                total[r] += prior[r]
                sum_of_parts[r] += joint[r]
        for r in range(size):
            if sum_of_parts[r] > _SMALLEST_DENSITY:
                loss[first + r] = math.log(total[r] / sum_of_parts[r])
            else:  # so far out that densities vanish
                loss[first + r] = math.log(total[r]) + _far_out(
                    scores[first + r], largest[r], distance[:, r], tail, floor, part[:, r]
                )
                sum_of_parts[r] = 1.0
        for j in range(n_components):
            narrow, far, prior, joint = narrowness[j], distance[j], weight[j], part[j]
            for r in range(size):
                share, own = joint[r] / sum_of_parts[r], prior[r] / total[r]
                pull, stretch, of_location, of_scale = slopes(far[r], tail)
                slope = share * (1.0 - stretch)
                gradient[first + r, j] = 0.0 if scores[first + r, j] < floor and slope > 0 else slope
                curvature[first + r, j] = share * of_scale + _LEAST_CURVATURE
                gradient[first + r, n_components + j] = own - share
                curvature[first + r, n_components + j] = own * (1.0 - own) + _LEAST_CURVATURE
                if has_locations:
                    known = share * narrow[r]
                    gradient[first + r, 2 * n_components + j] = -known * pull
                    curvature[first + r, 2 * n_components + j] = known * narrow[r] * of_location + _LEAST_CURVATURE


@inlined_kernel
def _densities(t, size, tail, out, bits):
    """out[:size] <- densities at t[:size] of a tail; one loop for each, so that it runs in vector units."""
    if tail == NORMAL:
        for r in range(size):
            out[r] = -0.5 * t[r] * t[r]
        exp_tile(out, size, bits)
        for r in range(size):
            out[r] *= PEAK[tail]
        return
    degrees, peak = DEGREES[tail], PEAK[tail]
    for r in range(size):
        out[r] = 1.0 / (1.0 + t[r] * t[r] / degrees)
    if tail == T1:
        for r in range(size):
            out[r] *= peak
    elif tail == T2:
        for r in range(size):
            out[r] *= peak * math.sqrt(out[r])
    elif tail == T3:
        for r in range(size):
            out[r] *= peak * out[r]
    elif tail == T5:
        for r in range(size):
            out[r] *= peak * out[r] * out[r]
    else:
        for r in range(size):
            square = out[r] * out[r]
            out[r] *= peak * square * square * math.sqrt(out[r])


@ordered_kernel
def _far_out(scores, largest, distance, tail, floor, part):
    """A row's loss by logarithms but for its weights' sum; part (J,) <- the components' shares in the row."""
    n_components = len(part)
    most, total = -np.inf, 0.0
    for j in range(n_components):
        part[j] = scores[n_components + j] - largest - max(scores[j], floor) + log_density(distance[j], tail)
        most = max(most, part[j])
    for j in range(n_components):
        part[j] = math.exp(part[j] - most)
        total += part[j]
    for j in range(n_components):
        part[j] /= total
    return -most - math.log(total)


@inlined_kernel
def _cell(low, high, tail):
    """Log probability of a tail from low to high, in scales, and its derivatives: by minus location, by log scale."""
    if low >= 0:
        mass = lower_tail(-low, tail) - lower_tail(-high, tail)
    elif high <= 0:
        mass = lower_tail(high, tail) - lower_tail(low, tail)
    else:
        mass = 1.0 - lower_tail(low, tail) - lower_tail(-high, tail)
    if mass < _SMALLEST_MASS or high - low < _NARROW:
        near = max(low, min(high, 0.0))
        if high - low < _NARROW:
            near = 0.5 * (low + high)
        pull, stretch, _, _ = slopes(near, tail)
        return log_density(near, tail) + math.log(max(min(high - low, 1.0), _SMALLEST_MASS)), -pull, 1.0 - stretch
    at_low, at_high = density(low, tail), density(high, tail)
    return math.log(mass), (at_high - at_low) / mass, (high * at_high - low * at_low) / mass


@ordered_kernel
def cell_loss(ends, location, scores, tail, floor, loss, gradient, curvature):
    """`mixture_loss` of outcomes that are known to be from ends[:, 0] to ends[:, 1], one of which may be infinite."""
    n, n_components = location.shape
    has_locations = gradient.shape[1] == 3 * n_components
    weight, part, width, near = np.empty((4, n_components))
    of_location, of_scale = np.empty((2, n_components))
    for i in range(n):
        largest, largest_part = -np.inf, -np.inf
        for j in range(n_components):
            largest = max(largest, scores[i, n_components + j])
        total, sum_of_parts = 0.0, 0.0
        for j in range(n_components):
            narrowness = math.exp(-max(scores[i, j], floor))
            weight[j] = math.exp(scores[i, n_components + j] - largest)
            total += weight[j]
            low = min(max((ends[i, 0] - location[i, j]) * narrowness, -_FAR), _FAR)
            high = min(max((ends[i, 1] - location[i, j]) * narrowness, -_FAR), _FAR)
            log_mass, of_location[j], of_scale[j] = _cell(low, high, tail)
            width[j], near[j] = min(high - low, _WIDE), max(low, min(high, 0.0))
            part[j] = scores[i, n_components + j] - largest + log_mass
            largest_part = max(largest_part, part[j])
        for j in range(n_components):
            part[j] = math.exp(part[j] - largest_part)
            sum_of_parts += part[j]
        loss[i] = math.log(total) - largest_part - math.log(sum_of_parts)
        for j in range(n_components):
            share, prior = part[j] / sum_of_parts, weight[j] / total
            _, _, bend, bend_of_scale = slopes(near[j], tail)
            gradient[i, j] = share * of_scale[j]
            if scores[i, j] < floor and gradient[i, j] > 0:
                gradient[i, j] = 0.0
            # A cell of one scale tells about as much as so much less of an outcome (Sheppard).
            curvature[i, j] = share * bend_of_scale / (1.0 + width[j] * width[j] / 6.0) + _LEAST_CURVATURE
            gradient[i, n_components + j] = prior - share
            curvature[i, n_components + j] = prior * (1.0 - prior) + _LEAST_CURVATURE
            if has_locations:
                narrowness = math.exp(-max(scores[i, j], floor))
                gradient[i, 2 * n_components + j] = share * narrowness * of_location[j]
                known = narrowness * narrowness * bend / (1.0 + width[j] * width[j] / 12.0)
                curvature[i, 2 * n_components + j] = share * known + _LEAST_CURVATURE
