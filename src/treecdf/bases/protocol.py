"""What a base is: the first map of a flow, from outcomes in the user's unit into the unit cube."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.bases.rotation import Rotation

Bound = tuple[float | None, float | None]


class Base(Protocol):
    """What brings outcomes into the cube before the trees: a Support, a Student or a Conditional."""

    @property
    def rotation(self) -> Rotation | None:
        """What comes first, if anything."""
        ...

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        ...

    def parameters(self, x: Array) -> Array:
        """What the base knows (n, P) of rows with standardised covariates x (n, q)."""
        ...

    def seen(self, parameters: Array) -> Array:
        """Covariates (n, k) of the trees besides x."""
        ...

    def to_box(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """Where the trees see outcomes y (n, m, d), and the log-determinants (n, m) of the base."""
        ...

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Whether the trees act on points v (..., d)."""
        ...

    def to_unit(self, v: Array) -> Array:
        """After the trees, into the unit cube."""
        ...

    def from_unit(self, u: Array) -> Array:
        """Inverse of `to_unit`."""
        ...

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Inverse of `to_box`."""
        ...


class Unconditional:
    """A base that is the same for every x: it has no parameters, and the trees see nothing of it."""

    def parameters(self, x: Array) -> Array:
        """None (n, 0)."""
        return np.empty((len(x), 0))

    def seen(self, parameters: Array) -> Array:
        """Nothing (n, 0)."""
        return parameters


class Everywhere:
    """A base that maps onto the whole cube: the trees act on every point."""

    def inside(self, v: Array) -> NDArray[np.bool_]:
        """Every point is."""
        return np.ones(v.shape[:-1], bool)

    def to_unit(self, v: Array) -> Array:
        """There is nothing left to do."""
        return v

    def from_unit(self, u: Array) -> Array:
        """There is nothing to do yet."""
        return u
