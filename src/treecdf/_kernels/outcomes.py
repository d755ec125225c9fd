"""Outcomes on the scale of a conditional base, and the slope of that scale; `bases/transform.py` says what it is."""

import math

from treecdf._kernels.compiling import ordered_kernel

_FAR = 1e300  # distances are held here, as everywhere: see FAR in `_common/numerics.py`


@ordered_kernel
def transform_outcomes(y, center, scale, power, origin, unit, ends, lines, g, slope):
    """g, slope (k,) <- transformed outcomes y (k,) and the derivative.

    With a `unit` they are logarithms of distances from `origin`, else Yeo-Johnson's powers. Beyond the two `ends` lines
    (2, 2) go on, each given by an outcome and its rise: the derivative of the outcome by g.
    """
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
