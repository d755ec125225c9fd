"""The fitted flow: outcomes in the user's unit -> box -> trees -> unit cube, and back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array
from treecdf.bases.protocol import Base
from treecdf.data.scaling import Standardizer
from treecdf.flows.tree import TreeSequence

BELOW_ONE = 1 - 2.0**-53  # the largest number below 1
ABOVE_ZERO = 1e-300  # trees see no smaller coordinate: their logarithms stay finite
CHUNK_POINTS = 8192  # points that are worked on together

# For bases that several flows share: id of the base -> covariates the trees see, parameters of the base
Conditions = dict[int, tuple[Array, Array]]


@dataclass(frozen=True)
class TreeFlow:
    """One fitted flow: forward maps outcomes to the unit cube, where they are uniform; inverse maps uniforms to draws.

    Covariates x (n, q) are always an argument. `known`, if given, keeps the parameters of bases at x, for flows that
    share a base.
    """

    standardize: Standardizer
    base: Base
    stages: tuple[TreeSequence, ...]  # one for each stage of the training

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self.base.n_outcomes

    def forward_and_log_det(self, y: Array, x: Array, known: Conditions | None = None) -> tuple[Array, Array]:
        """Images in the cube of outcomes y (n, m, d), m at each row of x, and log-determinants (n, m)."""
        z, parameters = self.condition(x, known)
        return self.forward_from_box(y, self.base.to_box(y, parameters), z)

    def forward_from_box(self, y: Array, box: tuple[Array, Array], z: Array) -> tuple[Array, Array]:
        """What `forward_and_log_det` returns, from the base's `to_box` of y and the covariates z of the trees.

        Flows that share a base share both arguments.
        """
        v, base_log_det = box
        inside = self.base.inside(v)
        moved = np.clip(v, ABOVE_ZERO, 1.0)
        log_det = np.zeros(v.shape[:2])
        for stage in self.stages:
            moved, step = stage.forward_and_log_det(moved, z)
            log_det += step
        u = self.base.to_unit(np.where(inside[..., None], moved, v))
        log_det = np.where(inside, log_det, 0.0) + base_log_det
        return u, np.where(np.isinf(y).any(axis=-1), -np.inf, log_det)

    def inverse(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Outcomes (n, m, d) of points u of the cube, m at each row of x."""
        return self._inverse(u, x, known, 1.0)

    def draw(self, u: Array, x: Array, known: Conditions | None = None) -> Array:
        """Outcomes (n, m, d) as by `inverse`, but finite: points are kept below the upper end of the cube."""
        return self._inverse(np.clip(u, ABOVE_ZERO, BELOW_ONE), x, known, BELOW_ONE)

    def _inverse(self, u: Array, x: Array, known: Conditions | None, largest: float) -> Array:
        """Outcomes (n, m, d) of points u; coordinates that leave the trees are at most `largest`."""
        z, parameters = self.condition(x, known)
        v = self.base.from_unit(u)
        inside = self.base.inside(v)
        moved = np.clip(v, ABOVE_ZERO, 1.0)
        for stage in reversed(self.stages):
            moved = stage.inverse(moved, z)
        moved = np.where(v > 0, np.minimum(moved, largest), v)  # the lower end stays where it is
        return self.base.from_box(np.where(inside[..., None], moved, v), parameters)

    def tree_flows(self) -> list[TreeFlow]:
        """A list of this flow alone."""
        return [self]

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows; None if the base cannot tell."""
        return self.base.novelty(self.standardize(x))

    @property
    def knows_rows(self) -> bool:
        """Whether the base can tell how far covariates are beyond the training rows."""
        return self.base.knows_rows

    def learn_conditions(self, x: Array, known: Conditions) -> None:
        """Put the covariates of the trees and the parameters of the base at rows x (n, q) into `known`."""
        self.condition(x, known)

    def condition(self, x: Array, known: Conditions | None) -> tuple[Array, Array]:
        """Covariates of the trees and parameters of the base at covariates x; kept in `known` if that is given."""
        if known is not None and id(self.base) in known:
            return known[id(self.base)]
        found = condition(self.standardize, self.base, x)
        if known is not None:
            known[id(self.base)] = found
        return found


def condition(standardize: Standardizer, base: Base, x: Array) -> tuple[Array, Array]:
    """Covariates (n, q + k) of the trees and parameters (n, P) of the base at covariates x (n, q).

    Missing values (NaN) are replaced by the mean of the training rows for the trees.
    """
    z = standardize(x)
    parameters = base.parameters(z)
    return tree_covariates(np.nan_to_num(z), base, parameters), parameters


def tree_covariates(z: Array, base: Base, parameters: Array) -> Array:
    """Standardised covariates with those that the base adds (n, q + k), as contiguous rows."""
    extra = base.seen(parameters)
    return np.ascontiguousarray(np.hstack([z, extra])) if extra.shape[1] else z


def by_chunks(task: Callable[[slice], None], points: Array, n_threads: int) -> None:
    """Run `task` on slices of the rows of points (n, m, d).

    The slices do not depend on the threads: matrix products round differently in slices of another size.
    """
    n, m, _ = points.shape
    by_blocks(task, n, max(1, CHUNK_POINTS // max(m, 1)), n_threads)


def by_blocks(task: Callable[[slice], None], n: int, size: int, n_threads: int) -> None:
    """Run `task` on slices of `size` of n rows, the last of which may be shorter."""
    slices = [slice(i, min(i + size, n)) for i in range(0, n, size)]
    if n_threads == 1 or len(slices) == 1:
        for rows in slices:
            task(rows)
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(task, slices))
