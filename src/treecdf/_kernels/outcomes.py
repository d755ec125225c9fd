"""Moments of components of a mixture in the outcome's own unit, where a transform has straightened it."""

import math

import numpy as np

from treecdf._kernels.compiling import inlined_kernel, ordered_kernel

_LARGEST = 1e307  # outcomes beyond are held there where they are averaged


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

    curve: center, scale, power, origin and unit of the transform, which is a straight line beyond `ends` (2,), with an
    outcome and a slope for each in lines (2, 2).
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
