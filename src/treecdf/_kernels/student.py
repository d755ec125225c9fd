"""Mixtures of Student t distributions with five degrees of freedom, whose CDF has a closed form."""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_ROOT5 = math.sqrt(5.0)
_PEAK = 8.0 / (3.0 * math.pi * _ROOT5)  # density at zero
_LOG_PEAK = math.log(_PEAK)
_TAIL = 8.0 / (15.0 * math.pi) * 5.0**2.5
_SERIES = tuple(
    (-1) ** k * (16.0**k - 4.0 * 4.0**k) / (3.0 * math.factorial(2 * k) * (2 * k + 1)) for k in range(2, 11)
)
_N_STEPS = 1000  # of root finding; about ten are needed, the bracket of the smallest level takes hundreds


@inlined_kernel
def _log_density(t):
    return _LOG_PEAK - 6.0 * math.log(math.hypot(1.0, t / _ROOT5))


@inlined_kernel
def _lower_tail(t):
    """CDF at t <= 0, to full relative accuracy."""
    angle = math.atan2(_ROOT5, -t)
    if angle < 0.25:  # the integral of the series of 8 / 3 sin^4: the closed form would lose digits
        a, series = angle * angle, 0.0
        for k in range(len(_SERIES) - 1, -1, -1):
            series = series * a + _SERIES[k]
        return angle**5 * series / math.pi
    share = 1.0 / (1.0 + t * t / 5.0)  # squared sine of the angle; its cosine is -t / sqrt(5) of the sine
    return (angle + t / _ROOT5 * share * (1.0 + 2.0 / 3.0 * share)) / math.pi


@ordered_kernel
def mixture_forward(y, location, log_scale, log_weight, lower, upper, log_density):
    """CDF, 1 - CDF and log density (n, m) of points y (n, m); the components' parameters are (n, J)."""
    n_components = location.shape[1]
    for i in range(y.shape[0]):
        for k in range(y.shape[1]):
            below, above, largest, total = 0.0, 0.0, -np.inf, 0.0
            for j in range(n_components):
                t = (y[i, k] - location[i, j]) * math.exp(-log_scale[i, j])
                weight = math.exp(log_weight[i, j])
                tail = _lower_tail(-abs(t))
                below += weight * (tail if t <= 0 else 1.0 - tail)
                above += weight * (1.0 - tail if t <= 0 else tail)
                part = log_weight[i, j] + _log_density(t) - log_scale[i, j]
                if part > largest:
                    total = total * math.exp(largest - part) + 1.0
                    largest = part
                elif part > -np.inf:
                    total += math.exp(part - largest)
            lower[i, k], upper[i, k] = below, above
            log_density[i, k] = largest + math.log(total)


@ordered_kernel
def mixture_inverse(u, location, log_scale, log_weight, y):
    """Points y (n, m) with CDF u (n, m), by Newton steps inside a bracket."""
    n_components = location.shape[1]
    narrowness, weight = np.empty(n_components), np.empty(n_components)
    for i in range(u.shape[0]):
        for j in range(n_components):
            narrowness[j], weight[j] = math.exp(-log_scale[i, j]), math.exp(log_weight[i, j])
        for k in range(u.shape[1]):
            level = u[i, k]
            # No quantile of a t is further out: its tail is below _TAIL / |t|^5.
            far = (_TAIL / min(level, 1.0 - level)) ** 0.2
            low, high, point = np.inf, -np.inf, 0.0
            for j in range(n_components):
                if weight[j] > 0:
                    low = min(low, location[i, j] - far / narrowness[j])
                    high = max(high, location[i, j] + far / narrowness[j])
                    point += weight[j] * location[i, j]
            last = high - low
            for _ in range(_N_STEPS):
                below, above, density = 0.0, 0.0, 0.0
                for j in range(n_components):
                    t = (point - location[i, j]) * narrowness[j]
                    tail = weight[j] * _lower_tail(-abs(t))
                    below += tail if t <= 0 else weight[j] - tail
                    above += weight[j] - tail if t <= 0 else tail
                    share = 1.0 / (1.0 + t * t / 5.0)
                    density += weight[j] * narrowness[j] * share * share * share
                gap = below - level if level <= 0.5 else (1.0 - level) - above
                if gap > 0:
                    high = point
                else:
                    low = point
                following = point - gap / (_PEAK * density)
                # Steps that do not halve may go on for ever.
                if not (low < following < high and abs(following - point) <= 0.5 * last):
                    following = 0.5 * low + 0.5 * high
                last = abs(following - point)
                if last <= 2e-16 * abs(point):
                    break
                point = following
            y[i, k] = point


@ordered_kernel
def mixture_loss(y, location, scores, floor, loss, gradient, curvature):
    """Negative log-likelihood (n,) of outcomes y (n,), its gradient and a positive curvature (n, 2 J).

    scores (n, 2 J): log scales, held at `floor`, and logits of the weights.
    """
    n, n_components = location.shape
    weight, part, square = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    for i in range(n):
        largest = -np.inf
        for j in range(n_components):
            largest = max(largest, scores[i, n_components + j])
        total = 0.0
        for j in range(n_components):
            weight[j] = math.exp(scores[i, n_components + j] - largest)
            total += weight[j]
        density = 0.0
        for j in range(n_components):
            weight[j] /= total
            narrowness = math.exp(-max(scores[i, j], floor))
            t = (y[i] - location[i, j]) * narrowness
            square[j] = t * t / 5.0
            share = 1.0 / (1.0 + square[j])
            part[j] = weight[j] * narrowness * share * share * share
            density += part[j]
        density = max(density, 1e-300)
        loss[i] = -_LOG_PEAK - math.log(density)
        for j in range(n_components):
            share = part[j] / density
            gradient[i, j] = share * (1.0 - 6.0 * square[j] / (1.0 + square[j]))
            if scores[i, j] < floor and gradient[i, j] > 0:
                gradient[i, j] = 0.0
            curvature[i, j] = share * 1.25 + 1e-3
            gradient[i, n_components + j] = weight[j] - share
            curvature[i, n_components + j] = weight[j] * (1.0 - weight[j]) + 1e-3
