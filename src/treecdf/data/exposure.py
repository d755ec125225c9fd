"""Exposures, such as the time at risk in which events were counted: read, and taken out of the outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array, Bound
from treecdf.data.table import Table, read_one_for_each

# Weight of a row grows with this power of its exposure: 1 is right for the rate of a Poisson count, whose variance is
# that of one unit over the exposure, and 0 where rates differ by themselves (ADR 35).
_POWER_OF_WEIGHT = 0.5


def read_exposure(exposure: ArrayLike, n: int) -> Array:
    """Exposures (n,), all above 0; a number is that of all rows."""
    values = read_one_for_each(np.ravel(exposure) if np.shape(exposure) == (n, 1) else exposure, "exposure", n)
    good = np.isfinite(values) & (values > 0)
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"exposure of row {row} is {values[row]}: exposures must be finite and above 0.")
    return values


def check_exposure(bounds: Sequence[Bound], with_validation: bool) -> None:
    """Complain about what cannot go with an exposure."""
    if len(bounds) > 1:
        raise ValueError(f"exposure is for one outcome; y has {len(bounds)}.")
    if any(end not in (None, 0.0) for end in bounds[0]):
        raise ValueError(f"With exposure the only bound of an outcome can be 0; got bounds={bounds[0]}.")
    if with_validation:
        raise ValueError("exposure goes with rows that are set aside, not with X_val and y_val.")


def as_rates(table: Table) -> Table:
    """The table of rates: outcomes divided by the exposure, whose logarithm is the last covariate.

    Rows with long exposures get larger weights.
    """
    exposure = np.exp(table.x[:, -1])
    share = exposure**_POWER_OF_WEIGHT
    weight = table.weight * share
    cells = None if table.cells is None else table.cells.over(exposure[:, None])
    weight = weight * (table.weight.sum() / weight.sum())
    return replace(table, y=table.y / exposure[:, None], weight=weight, cells=cells)
