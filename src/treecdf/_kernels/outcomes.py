"""Outcomes on the scale of a conditional base, and back; `bases/transform.py` says what that scale is."""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_FAR = 1e300  # distances are held here, as everywhere: see FAR in `_common/numerics.py`
_LARGEST = 1e307  # outcomes beyond are held there where they are averaged


@ordered_kernel
def transform_outcomes(y, curve, ends, lines, g, slope):
    """g, slope (k,) <- transformed outcomes y (k,) and the derivative.

    curve: center, scale, power, origin and unit of the transform. With a unit outcomes are logarithms of distances from
    the origin, else Yeo-Johnson's powers. Beyond the two `ends` lines (2, 2) go on, each given by an outcome and its
    rise: the derivative of the outcome by g.
    """
    center, scale, power, origin, unit = curve
    for k in range(y.size):
        if unit > 0.0:
            part = min(max((y[k] - origin) / unit, -_FAR), _FAR)
            found, steep = (math.asinh(part) - center) / scale, 1.0 / math.hypot(1.0, part) / unit / scale
        else:
            z = min(max((y[k] - center) / scale, -_FAR), _FAR)
            own = power if z >= 0.0 else 2.0 - power
            grown = math.log1p(abs(z))
            steep = math.exp((own - 1.0) * grown) / scale
            if own != 0.0:
                grown = math.expm1(own * grown) / own
            found = min(grown, _FAR) if z >= 0.0 else -min(grown, _FAR)
        for side in range(2):
            if found < ends[0] if side == 0 else found > ends[1]:
                steep = 1.0 / lines[side, 1]
                found = min(max(ends[side] + (y[k] - lines[side, 0]) * steep, -_FAR), _FAR)
                break
        g[k], slope[k] = found, steep


@inlined_kernel
def _outcome(g, curve, ends, lines):
    """The outcome of a transformed one; see `OutcomeTransform.inverse`, whose numbers these are."""
    if g < ends[0]:
        return lines[0, 0] + (g - ends[0]) * lines[0, 1]
    if g > ends[1]:
        return lines[1, 0] + (g - ends[1]) * lines[1, 1]
    center, scale, power, origin, unit = curve
    if unit > 0:
        return origin + unit * math.sinh(center + scale * g)
    if power != 1:
        own, size = power if g >= 0 else 2 - power, abs(g)
        grown = math.exp(math.log(1.0 + own * size) / own if own > 0 else size) - 1.0
        g = grown if g >= 0 else -grown
    return center + scale * g


@ordered_kernel
def component_moments(location, log_scale, nodes, masses, curve, ends, lines, means, deviations):
    """Means and standard deviations (n,) of outcomes of components: sums over nodes (k,) in scales, with masses (k,).

    The transform (curve, ends, lines) is that of `transform_outcomes`.
    """
    y = np.empty(nodes.size)
    for i in range(location.size):
        scale, mean, unit, square = math.exp(log_scale[i]), 0.0, 0.0, 0.0
        for t in range(nodes.size):
            own = _outcome(location[i] + scale * nodes[t], curve, ends, lines)
            y[t] = min(max(own, -_LARGEST), _LARGEST)
            mean += masses[t] * y[t]
        for t in range(nodes.size):
            unit = max(unit, abs(y[t] - mean))
        for t in range(nodes.size):
            share = (y[t] - mean) / unit if unit > 0 else 0.0
            square += masses[t] * share * share
        means[i], deviations[i] = mean, unit * math.sqrt(square)
