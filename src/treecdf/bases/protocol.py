"""What a base is: the first map of a flow, from outcomes in the user's unit into the unit cube."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import expit

from treecdf._common.numerics import FAR
from treecdf._common.typing import Array, Bools
from treecdf.bases.rotation import Rotation

# Hard bounds of an outcome in its own unit; None where there is none
Bound = tuple[float | None, float | None]

# Levels between which CDFs are smooth enough for integrals; they reach 1e-12 from both ends.
LEVELS_OF_KNOTS = expit(np.pi * np.sinh(np.linspace(-2.85, 2.85, 65)))


class Base(Protocol):
    """What brings outcomes into the unit cube: a Support, a Student or a Conditional.

    An outcome goes through `to_box`, then through the trees if it is `inside`, then through `to_unit`; the way back is
    `from_unit`, trees, `from_box`. What a base knows of a row's covariates, `parameters`, is worked out once for a row.
    """

    @property
    def rotation(self) -> Rotation | None:
        """The rotation of the outcomes that comes first, None if there is none."""
        ...

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        ...

    def parameters(self, x: Array) -> Array:
        """Parameters (n, P) of the base at standardised covariates x (n, q); P is 0 if it does not depend on them."""
        ...

    @property
    def knows_rows(self) -> bool:
        """Whether `novelty` returns numbers, not None."""
        ...

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) standardised covariates x (n, q) are beyond the training rows; None if these are not known."""
        ...

    def seen(self, parameters: Array) -> Array:
        """Covariates (n, k) that the base adds to x for the trees."""
        ...

    def to_box(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """Points (n, m, d) that the trees see outcomes y (n, m, d) as, and log-determinants (n, m) of the base."""
        ...

    def inside(self, v: Array) -> Bools:
        """Whether the trees move points v (..., d), of shape (...)."""
        ...

    def to_unit(self, v: Array) -> Array:
        """Points (..., d) of the unit cube, from points v (..., d) that went through the trees."""
        ...

    def from_unit(self, u: Array) -> Array:
        """Inverse of `to_unit`."""
        ...

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Inverse of `to_box`."""
        ...

    def to_box_and_density(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """What `to_box` gives for outcomes y (n, m) of a base of one outcome, with densities (n, m), not their logs."""
        ...

    def knots(self, parameters: Array) -> Array:
        """Finite outcomes (n, k) of a base of one outcome, between which its CDF is smooth, far tails included."""
        ...

    def moments(self, parameters: Array) -> tuple[Array, Array] | None:
        """Mean and standard deviation (n,) of a base of one outcome; None if there is no closed form."""
        ...


class ByLogarithms:
    """Mixin of bases of which one outcome has nothing faster than what serves any number."""

    def to_box_and_density(self: Base, y: Array, parameters: Array) -> tuple[Array, Array]:
        """What `to_box` gives for outcomes y (n, m), with densities (n, m)."""
        v, log_det = self.to_box(y[..., None], parameters)
        return v[..., 0], np.exp(log_det)

    def moments(self, parameters: Array) -> None:
        """None: there is no closed form."""
        return


class Unconditional(ByLogarithms):
    """Mixin of bases that are the same for every x: they have no parameters, and the trees see nothing of them."""

    def parameters(self, x: Array) -> Array:
        """No parameters, as an array (n, 0)."""
        return np.empty((len(x), 0))

    @property
    def knows_rows(self) -> bool:
        """False: it does not know the training rows."""
        return False

    def novelty(self, x: Array) -> None:
        """None: it does not know the training rows."""
        return

    def seen(self, parameters: Array) -> Array:
        """No covariates, as an array (n, 0)."""
        return parameters

    def knots(self: Base, parameters: Array) -> Array:
        """Quantiles (n, k) of the base at levels that crowd at 0 and 1, the same at every row."""
        v = self.from_unit(LEVELS_OF_KNOTS[None, :, None])
        return np.repeat(np.clip(self.from_box(v, parameters[:1])[..., 0], -FAR, FAR), len(parameters), axis=0)


class WholeCube:
    """Mixin of bases whose `to_box` maps onto the whole unit cube: the trees move every point."""

    def inside(self, v: Array) -> Bools:
        """True for every point of v (..., d)."""
        return np.ones(v.shape[:-1], bool)

    def to_unit(self, v: Array) -> Array:
        """The same points: they are in the unit cube already."""
        return v

    def from_unit(self, u: Array) -> Array:
        """The same points."""
        return u
