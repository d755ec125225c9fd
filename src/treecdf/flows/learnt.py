"""A fitted model as the base of a flow, so that trees can be grown on other rows where it ended."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.bases.protocol import WholeCube
from treecdf.data.scaling import Standardizer
from treecdf.flows.flow import Conditions, TreeFlow, by_blocks
from treecdf.flows.mixture import Mixture

_ROWS_AT_ONCE = 4096  # rows whose parameters are worked out together, which bounds memory


@dataclass(frozen=True)
class Learnt(WholeCube):
    """A base of one outcome that is a fitted mixture of flows: its CDF maps outcomes to the unit interval.

    Its parameters at a row are the covariates in their own unit and the parameters of all bases of the mixture, so that
    these are computed once per row. The trees use the covariates alone.
    """

    mixture: Mixture
    unit: Array  # (q,): powers of two; covariates come divided by them
    widths: Ints  # (bases, 2): columns of what each base of the mixture gives its trees to see, and of its parameters
    rotation: None = None

    @staticmethod
    def of(mixture: Mixture, q: int) -> tuple[Standardizer, Learnt]:
        """The base of a mixture, and the scaling of its q covariates.

        Covariates are divided by powers of two near their largest training value, which changes no digit: the learners
        of the mixture see exactly the numbers that they were trained with.
        """
        unit = np.exp2(np.ceil(np.log2(mixture.tree_flows()[0].standardize.unit)))
        return Standardizer(unit, np.zeros(q), np.ones(q)), Learnt(mixture, unit, widths_of(mixture, q))

    @property
    def n_outcomes(self) -> int:
        """1: mixtures of several outcomes have no CDF."""
        return 1

    def parameters(self, x: Array) -> Array:
        """Covariates in their own unit and the parameters of the mixture's bases, (n, P)."""
        found: list[Array] = []
        # Missing values take more columns: a block has as many as one with such a row if there is one anywhere.
        like = [np.full((1, x.shape[1]), np.nan)] if np.isnan(x).any() else []

        def task(rows: slice) -> None:
            own = np.ascontiguousarray(np.vstack([x[rows] * self.unit, *like]))
            known: Conditions = {}
            for flow in flows_of_bases(self.mixture):
                flow.condition(own, known)
            found.append(np.hstack([own, *(part for pair in known.values() for part in pair)])[: len(own) - len(like)])

        by_blocks(task, len(x), _ROWS_AT_ONCE, 1)
        return np.concatenate(found) if found else np.empty((0, len(self.unit) + int(self.widths.sum())))

    @property
    def knows_rows(self) -> bool:
        """Whether the mixture can tell how far covariates are beyond its training rows."""
        return self.mixture.knows_rows

    def novelty(self, x: Array) -> Array | None:
        """How far (n,) covariates x (n, q) are beyond the training rows of the mixture."""
        return self.mixture.novelty(x * self.unit)

    def seen(self, parameters: Array) -> Array:
        """No covariates, as an array (n, 0)."""
        return parameters[:, :0]

    def to_box(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """Values (n, m, 1) of the mixture's CDF at outcomes y (n, m, 1), and its log densities (n, m)."""
        u, log_density = np.empty_like(y), np.empty(y.shape[:2])

        def task(rows: slice) -> None:
            given = parameters[rows]
            u[rows], log_density[rows] = self.mixture._forward(y[rows], self._own(given), self._known(given))

        by_blocks(task, len(y), _ROWS_AT_ONCE, 1)
        return u, log_density

    def from_box(self, v: Array, parameters: Array) -> Array:
        """Quantiles (n, m, 1) of the mixture at levels v (n, m, 1)."""
        y = np.empty_like(v)

        def task(rows: slice) -> None:
            given = parameters[rows]
            y[rows] = self.mixture._inverse(v[rows], self._own(given), self._known(given))

        by_blocks(task, len(v), _ROWS_AT_ONCE, 1)
        return y

    def to_box_and_density(self, y: Array, parameters: Array) -> tuple[Array, Array]:
        """The mixture's CDF and density (n, m) at outcomes y (n, m)."""
        return self.mixture.at(self._own(parameters), self._known(parameters)).cdf_and_density(y)

    def moments(self, parameters: Array) -> tuple[Array, Array]:
        """Mean and standard deviation (n,) of the mixture."""
        return self.mixture.moments(self._own(parameters), self._known(parameters))

    def knots(self, parameters: Array) -> Array:
        """Outcomes (n, k) between which the mixture's CDF is smooth."""
        return self.mixture.at(self._own(parameters), self._known(parameters)).knots()

    def _own(self, parameters: Array) -> Array:
        """Covariates (n, q) in their own unit."""
        return np.ascontiguousarray(parameters[:, : len(self.unit)])

    def _known(self, parameters: Array) -> Conditions:
        """The parameters of the mixture's bases, by base, cut out of the parameters (n, P)."""
        q = len(self.unit)
        widths = self.widths if parameters.shape[1] == q + self.widths.sum() else widths_of(self.mixture, q, np.nan)
        ends = np.cumsum([q, *widths.ravel()])
        parts = [np.ascontiguousarray(parameters[:, a:b]) for a, b in pairwise(ends)]
        flows = flows_of_bases(self.mixture)
        return {id(flow.base): (parts[2 * k], parts[2 * k + 1]) for k, flow in enumerate(flows)}


def flows_of_bases(mixture: Mixture) -> list[TreeFlow]:
    """The flows of a mixture; of flows that share a base only the first."""
    return list({id(flow.base): flow for flow in reversed(mixture.tree_flows())}.values())[::-1]


def widths_of(mixture: Mixture, q: int, value: float = 0.0) -> Ints:
    """Columns (bases, 2) of what the bases of a mixture give their trees to see, and of their parameters.

    value: of all covariates; NaN if some of them are missing.
    """
    x = np.full((1, q), value)
    return np.array([[part.shape[1] for part in flow.condition(x, None)] for flow in flows_of_bases(mixture)])


def flows_inside(mixture: Mixture) -> list[TreeFlow]:
    """The flows of a mixture; those of a model that is a base stand for the flow on it."""
    return [
        inner
        for flow in mixture.tree_flows()
        for inner in (flow.base.mixture.tree_flows() if isinstance(flow.base, Learnt) else [flow])
    ]


def count_trees(mixture: Mixture) -> int:
    """Trees of all flows of a mixture, those of a model that is a base included."""
    flows = {id(flow): flow for flow in (*mixture.tree_flows(), *flows_inside(mixture))}
    return sum(len(stage) for flow in flows.values() for stage in flow.stages)
