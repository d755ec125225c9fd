"""Types of arrays that stand in most signatures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Numbers of 64 bits that tell rows, or groups of rows, apart.
Units = NDArray[np.uint64]

# A column of a table: float64 with NaN where a value is missing, datetime64[us] with NaT, or an object array of the
# names of levels with None.
Column = NDArray[Any]

# Hard ends (low, high) of an outcome's support; None: no bound on this side.
Bound = tuple[float | None, float | None]
