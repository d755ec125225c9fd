"""Types of arrays that stand in most signatures."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Hard ends (low, high) of an outcome's support; None: no bound on this side.
Bound = tuple[float | None, float | None]
