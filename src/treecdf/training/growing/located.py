"""Rows as the trees meet them, and what is known of them before the first tree."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.bases.protocol import Base
from treecdf.data.blocks import sum_over_blocks
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table
from treecdf.flows.flow import tree_covariates
from treecdf.training.sources.rows import Rows, Source, locate_blocks


@dataclass(frozen=True)
class Located:
    """Rows as the trees meet them: covariates z (n, q + k), place v (n, d) in the box, log density (n,) so far."""

    z: Array
    v: Array
    weight: Array
    log_density: Array
    inside: NDArray[np.bool_]

    def take(self, rows: NDArray[Any]) -> Located:
        """Some of the rows."""
        return Located(self.z[rows], self.v[rows], self.weight[rows], self.log_density[rows], self.inside[rows])

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return sum_over_blocks(self.weight)

    @property
    def mean(self) -> float:
        """Mean log density."""
        return sum_over_blocks(self.weight, self.log_density) / self.total

    @property
    def share_inside(self) -> float:
        """Of the weight."""
        return sum_over_blocks(self.weight[self.inside]) / self.total

    def rows(self, pool: Executor | None) -> Rows:
        """The rows the trees act on."""
        inside = self.inside
        return Rows(self.z[inside], np.clip(self.v[inside], 1e-300, 1.0), self.weight[inside], pool)

    def left_out(self, rows: Rows, score: float) -> Array:
        """Log density (n,) after the trees moved the rows."""
        log_density = self.log_density.copy()
        log_density[self.inside] += rows.log_density()
        return log_density


@dataclass(frozen=True)
class Streamed:
    """As Located, of rows that stay where they are."""

    source: Source
    shape: tuple[int, int, int]
    total: float
    mean: float
    share_inside: float
    weight_inside: float

    @staticmethod
    def locate(source: Source, standardize: Standardizer, base: Base) -> Streamed:
        """Bring the tables of a source into the box."""
        n, total, inside, log_density = locate_blocks(source, standardize, base)
        shape = (n, len(standardize.mean), base.n_outcomes)
        return Streamed(source, shape, total, log_density / total, inside / total, inside)

    def rows(self, pool: Executor | None) -> Rows:
        """The rows the trees act on; the source has its own pool."""
        return Rows.of(self.source, self.shape, self.weight_inside)

    def left_out(self, rows: Rows, score: float) -> Array:
        """Mean log density (1,)."""
        return np.array([score])


@dataclass(frozen=True)
class Fold:
    """What a flow is trained on, and what stops it."""

    train: Located | Streamed
    validation: Located | Streamed | None = None


def locate(table: Table, standardize: Standardizer, base: Base, parameters: Array | None = None) -> Located:
    """The rows of a table; with parameters (n, P) of the base if they are known."""
    z = standardize(table.x)
    if parameters is None:
        parameters = base.parameters(z)
    v, log_det = base.to_box(table.y[:, None, :], parameters)
    return Located(tree_covariates(z, base, parameters), v[:, 0], table.weight, log_det[:, 0], base.inside(v)[:, 0])


def average(parts: Sequence[Located | Streamed]) -> tuple[float, float]:
    """Mean log density, and the share of the weight inside the box, over all parts."""
    weight = np.array([part.total for part in parts])
    weight /= weight.sum()
    return float(weight @ [part.mean for part in parts]), float(weight @ [part.share_inside for part in parts])
