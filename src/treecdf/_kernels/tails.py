"""Standard distributions whose tails differ, from a Cauchy to a normal; all have CDFs in closed form.

A tail is a number from 0 to 5: Student t with 1, 2, 3, 5 and 10 degrees of freedom, and the normal. Scale 1 means the
usual scale of a t, and the standard deviation of the normal.
"""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel

DEGREES = np.array([1.0, 2.0, 3.0, 5.0, 10.0, np.inf])  # of freedom, by tail
T1, T2, T3, T5, T10, NORMAL = range(6)
_LOG_PEAK = np.array(  # log density at zero
    [math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - math.log(v * math.pi) / 2 for v in DEGREES[:-1]]
    + [-math.log(2 * math.pi) / 2]
)
PEAK = np.exp(_LOG_PEAK)
_ROOT = np.sqrt(DEGREES)
_ROOT_HALF = math.sqrt(0.5)
_SMALL_ANGLE = 0.25  # below, closed forms of odd degrees of freedom lose digits to cancellation
_SMALL_SHARE = 0.25  # the same for even ones
_SERIES3 = tuple((-1) ** (k + 1) * 4.0**k / math.factorial(2 * k + 1) for k in range(1, 10))
_SERIES5 = tuple(
    (-1) ** k * (16.0**k - 4.0 * 4.0**k) / (3.0 * math.factorial(2 * k) * (2 * k + 1)) for k in range(2, 11)
)
# (1 - w)^(-1/2) as a power series of w: up to the fifth term in the CDF of t10, the others in its tail
_BINOMIAL = tuple(math.comb(2 * k, k) / 4.0**k for k in range(5))
_BEYOND = tuple(math.comb(2 * k, k) / 4.0**k for k in range(5, 30))


@inlined_kernel
def _polynomial(coefficients, z):
    total = 0.0
    for k in range(len(coefficients) - 1, -1, -1):
        total = total * z + coefficients[k]
    return total


@inlined_kernel
def log_density(t, tail):
    """Log density at t of a tail; it is finite for all |t| below 1e150."""
    if tail == NORMAL:
        return _LOG_PEAK[tail] - 0.5 * t * t
    return _LOG_PEAK[tail] - (DEGREES[tail] + 1.0) * math.log(math.hypot(1.0, t / _ROOT[tail]))


@inlined_kernel
def density(t, tail):
    """Density at t of a tail: faster than `log_density`, and 0 far out."""
    if tail == NORMAL:
        return PEAK[tail] * math.exp(-0.5 * t * t)
    share = 1.0 / (1.0 + t * t / DEGREES[tail])
    if tail == T1:
        return PEAK[tail] * share
    if tail == T2:
        return PEAK[tail] * share * math.sqrt(share)
    square = share * share
    if tail == T3:
        return PEAK[tail] * square
    if tail == T5:
        return PEAK[tail] * square * share
    return PEAK[tail] * square * square * share * math.sqrt(share)


@inlined_kernel
def _lower_tail_of_odd(t, tail):
    """CDF at t <= 0 of a t with 1, 3 or 5 degrees of freedom; its angle is 0 at minus infinity."""
    angle = math.atan2(_ROOT[tail], -t)
    if tail == T1:
        return angle / math.pi
    if angle < _SMALL_ANGLE:
        a = angle * angle
        if tail == T3:
            return angle * a * _polynomial(_SERIES3, a) / math.pi
        return angle * a * a * _polynomial(_SERIES5, a) / math.pi
    ratio = t / _ROOT[tail]
    share = 1.0 / (1.0 + ratio * ratio)  # squared sine of the angle; its cosine is -ratio times the sine
    if tail == T3:
        return (angle + ratio * share) / math.pi
    return (angle + ratio * share * (1.0 + 2.0 / 3.0 * share)) / math.pi


@inlined_kernel
def lower_tail(t, tail):
    """CDF at t <= 0, to full relative accuracy."""
    if tail == NORMAL:
        return 0.5 * math.erfc(-t * _ROOT_HALF)
    if tail == T2:
        root = math.hypot(_ROOT[T2], t)
        return 1.0 / root / (root - t)
    if tail == T10:
        ratio = math.hypot(1.0, t / _ROOT[T10])
        sine = -t / _ROOT[T10] / ratio
        share = 1.0 / ratio / ratio
        if share < _SMALL_SHARE:
            power = share * share
            return 0.5 * sine * power * power * share * _polynomial(_BEYOND, share)
        return 0.5 - 0.5 * sine * _polynomial(_BINOMIAL, share)
    return _lower_tail_of_odd(t, tail)


@inlined_kernel
def farthest(level, tail):
    """A distance from the centre beyond which either tail has less mass than `level`, which is at most 1/2."""
    if tail == NORMAL:
        return math.sqrt(-2.0 * math.log(level)) + 1.0
    degrees = DEGREES[tail]
    # The tail is below peak * degrees^((degrees + 1) / 2) / (degrees |t|^degrees).
    log_mass = _LOG_PEAK[tail] + 0.5 * (degrees - 1.0) * math.log(degrees) - math.log(level)
    return math.exp(log_mass / degrees)


@inlined_kernel
def slopes(t, tail):
    """What the derivatives of the log density are made of.

    Its derivative by the location, times the scale; its derivative by the log scale, plus 1; and positive curvatures
    of both, for Newton's method.
    """
    if tail == NORMAL:
        return t, t * t, 1.0, 1.0 + t * t  # the mean of expected and observed curvature: steps stay below 1
    degrees = DEGREES[tail]
    pull = (degrees + 1.0) * t / (degrees + t * t)
    return pull, pull * t, (degrees + 1.0) / (degrees + 3.0), 2.0 * degrees / (degrees + 3.0)
