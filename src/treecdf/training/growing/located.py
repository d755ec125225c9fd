"""Rows in the form in which trees act on them, and their log densities before the first tree."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from treecdf._common.typing import Array, Bools, Ints
from treecdf.bases.protocol import Base
from treecdf.data.blocks import sum_over_blocks
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table, check_sum_of_weights
from treecdf.flows.flow import tree_covariates
from treecdf.training.sources.rows import Rows, Source, locate_blocks

# The probability of a cell below this is better taken from the density than from a difference of CDF values.
_FEW_DIGITS = 1e-9


@dataclass(frozen=True)
class Located:
    """Rows in memory after standardisation of the covariates and the base's map of the outcomes."""

    z: Array  # (n, q + k) standardised covariates, and k that the base adds
    v: Array  # (n, d) outcomes in the box
    weight: Array  # (n,)
    log_density: Array  # (n,) of the outcomes, by the base alone
    inside: Bools  # (n,) whether the trees act on the row

    def take(self, rows: Ints | Bools) -> Located:
        """The rows with these numbers, or those where a mask (n,) is true."""
        return Located(self.z[rows], self.v[rows], self.weight[rows], self.log_density[rows], self.inside[rows])

    @property
    def total(self) -> float:
        """Sum of the weights of all rows."""
        return sum_over_blocks(self.weight)

    @property
    def mean(self) -> float:
        """Weighted mean log density of the outcomes by the base alone."""
        return sum_over_blocks(self.weight, self.log_density) / self.total

    @property
    def share_inside(self) -> float:
        """Share of the weight on rows inside the box, between 0 and 1."""
        return sum_over_blocks(self.weight[self.inside]) / self.total

    def rows(self, pool: Executor | None) -> Rows:
        """The rows inside the box, which the trees act on; the threads of the pool work on them."""
        inside = self.inside
        return Rows(self.z[inside], np.clip(self.v[inside], 1e-300, 1.0), self.weight[inside], pool)

    def left_out(self, rows: Rows, score: float) -> Array:
        """Log density (n,) of the outcomes after the trees moved the rows; the score is not used."""
        log_density = self.log_density.copy()
        log_density[self.inside] += rows.log_density()
        return log_density


@dataclass(frozen=True)
class Streamed:
    """The same as `Located` for rows in files or on workers, which stay there."""

    source: Source  # the rows inside the box
    shape: tuple[int, int, int]  # rows inside the box, covariates, outcomes
    total: float  # sum of the weights of all rows
    mean: float  # weighted mean log density of the outcomes by the base alone
    share_inside: float  # share of the weight on rows inside the box
    weight_inside: float  # sum of the weights of the rows inside the box

    @staticmethod
    def locate(source: Source, standardize: Standardizer, base: Base) -> Streamed:
        """Standardise the tables of a source and bring their outcomes into the box."""
        found = locate_blocks(source, standardize, base)
        check_sum_of_weights(found.weight)
        shape = (found.n_inside, len(standardize.mean), base.n_outcomes)
        shares = found.log_det / found.weight, found.weight_inside / found.weight
        return Streamed(source, shape, found.weight, *shares, found.weight_inside)

    def rows(self, pool: Executor | None) -> Rows:
        """The rows inside the box, which the trees act on; the source has a pool of its own."""
        return Rows.of(self.source, self.shape, self.weight_inside)

    def left_out(self, rows: Rows, score: float) -> Array:
        """The score, which is the mean log density of the rows, as an array (1,)."""
        return np.array([score])


@dataclass(frozen=True)
class FoldRows:
    """The training rows of a flow, and its validation rows, if any."""

    train: Located | Streamed
    validation: Located | Streamed | None = None


def locate(
    table: Table, standardize: Standardizer, base: Base, parameters: Array | None = None, by_cell: bool = False
) -> Located:
    """The rows of a table, with standardised covariates and outcomes mapped into the box.

    parameters: those (n, P) of the base for each row, if they are not `base.parameters` (out-of-fold ones). by_cell: an
    outcome that is known by its cell is put where the base maps it, given the cell: between the images of the cell's
    ends, where it is uniform. Its density is the cell's probability divided by its width.
    """
    z = standardize(table.x)
    if parameters is None:
        parameters = base.parameters(z)
    v, log_det = base.to_box(table.y[:, None, :], parameters)
    cells = table.cells.of(0) if by_cell and table.cells is not None else None
    if cells is not None:
        ends, _ = base.to_box(np.stack([cells.lower, cells.upper], axis=1), parameters)
        mass = ends[:, 1:] - ends[:, :1]
        is_known = mass > _FEW_DIGITS
        v = np.where(is_known, ends[:, :1] + cells.share[..., None] * mass, v)
        with np.errstate(divide="ignore"):
            log_det = np.where(is_known[..., 0], np.log(mass[..., 0] / cells.width), log_det)
    return Located(tree_covariates(z, base, parameters), v[:, 0], table.weight, log_det[:, 0], base.inside(v)[:, 0])


def average(parts: Sequence[Located | Streamed]) -> tuple[float, float]:
    """Mean log density by the base, and share of the weight inside the box, over the rows of all parts."""
    weight = np.array([part.total for part in parts])
    weight /= weight.sum()
    return float(weight @ [part.mean for part in parts]), float(weight @ [part.share_inside for part in parts])
