"""Conditional distributions of outcomes as they were recorded: with atoms, on a grid, or both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from scipy.stats import qmc

from treecdf._common.random import as_generator
from treecdf._common.typing import Array
from treecdf.bases.atoms import Atoms
from treecdf.data.recording import Grid
from treecdf.flows.distribution import ConditionalDistribution, crps_of_atoms

_N_CELL_POINTS = 16  # of the cell of several outcomes, at which the density is averaged
_FEW_DIGITS = 1e-9  # a difference of CDF values below this is better taken from the density


class RecordedDistribution(ConditionalDistribution):
    """As ConditionalDistribution, of outcomes that have atoms or were rounded.

    logpdf is the log probability of an atom at an atom, and elsewhere the log density, so that the density integrates
    to the probability of no atom. On a grid it is the log of the recorded cell's probability over its volume: of one
    outcome exactly, of several as the mean of the density at 16 quasi-random points of the cell.
    """

    def __init__(self, latent: ConditionalDistribution, atoms: Atoms | None, grid: Grid | None) -> None:
        super().__init__(latent._mixture, latent._x, latent._n_threads)
        self._latent, self._atoms, self._grid = latent, atoms, grid
        # Of no atom, then of each: (n, 1 + K)
        self._share = np.ones((len(latent), 1)) if atoms is None else np.exp(atoms.log_prob(latent._x))
        self._values = np.empty(0) if atoms is None else atoms.values

    def __getitem__(self, rows: Any) -> RecordedDistribution:
        return RecordedDistribution(self._latent[rows], self._atoms, self._grid)

    @property
    def atoms(self) -> Array:
        """Values (K,) with a probability of their own."""
        return self._values

    @property
    def atom_probs(self) -> Array:
        """Probabilities (n, K) of the atoms."""
        return self._share[:, 1:]

    def logpdf(self, y: ArrayLike) -> Array:
        """Log probability at atoms, log density elsewhere; see the class for grids."""
        points, shape = self._points(y)
        log_density = self._continuous(points)
        if not len(self._values):
            return log_density.reshape(shape)
        with np.errstate(divide="ignore"):
            log_share = np.log(self._share)
        is_atom = points[..., 0, None] == self._values  # (n, m, K)
        at_atoms = np.where(is_atom, log_share[:, None, 1:], -np.inf).max(axis=-1)
        return np.where(is_atom.any(axis=-1), at_atoms, log_share[:, :1] + log_density).reshape(shape)

    def pit(self, y: ArrayLike) -> Array:
        """The CDF of one outcome; of several the flow's own u."""
        if self.n_outcomes > 1:
            return self._latent.pit(y)
        points, shape = self._points(y)
        upper = (points if self._grid is None else self._grid.edge(points))[..., 0]
        below = (self._share[:, None, 1:] * (self._values <= points)).sum(axis=-1)
        return np.minimum(self._share[:, :1] * self._latent.cdf(upper) + below, 1.0).reshape(shape)

    def icdf(self, p: ArrayLike) -> Array:
        """Quantiles: the smallest value whose CDF is at least the level."""
        self._one_outcome("icdf")
        levels, is_scalar = self._read_levels(p)
        share, before = self._share[:, :1], np.zeros((len(self), 1))
        inside = np.full(levels.shape, np.nan)  # level of the continuous part; NaN at atoms
        at_atom = np.zeros(levels.shape)
        rest = np.ones(levels.shape, bool)  # levels above all atoms so far
        for value, own in zip(self._values, self._share[:, 1:].T, strict=True):
            edge = value if self._grid is None else self._grid.edge_below(np.array([value]))[0]
            left = share * self._latent.cdf(np.full((len(self), 1), edge)) + before
            is_below = rest & (levels < left)
            inside[is_below] = ((levels - before) / share)[is_below]
            rest &= ~is_below
            is_here = rest & (levels <= left + own[:, None])
            at_atom[is_here] = value
            rest &= ~is_here
            before = before + own[:, None]
        inside[rest] = ((levels - before) / share)[rest]
        is_atom = np.isnan(inside)
        latent = self._latent.icdf(np.clip(np.where(is_atom, 0.5, inside), 0.0, 1.0))
        y = np.where(is_atom, at_atom, self._rounded(latent[..., None])[..., 0])
        return y[:, 0] if is_scalar else y

    ppf = icdf

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws as they would be recorded."""
        rng = as_generator(random_state)
        draws = self._latent.sample(n_samples, rng)
        if self._grid is not None:
            draws = self._rounded(draws.reshape(len(self), n_samples, -1)).reshape(draws.shape)
        if not len(self._values):
            return draws
        ends = np.cumsum(self._share, axis=1)
        which = (rng.random((len(self), n_samples, 1)) > ends[:, None, :-1]).sum(axis=-1)
        return np.where(which == 0, draws, self._values[np.maximum(which - 1, 0)])

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of outcomes y (n,); rounding counts as continuous."""
        if not len(self._values):
            return self._latent.crps(y)
        self._one_outcome("crps")
        atoms, mass = self._latent.quadrature()
        values = np.broadcast_to(self._values, self.atom_probs.shape)
        return crps_of_atoms(
            np.hstack([atoms, values]),
            np.hstack([self._share[:, :1] * mass, self.atom_probs]),
            np.asarray(y, dtype=np.float64)[:, None],
        )

    def mean(self) -> Array:
        """Conditional mean, (n,) or (n, d)."""
        if not len(self._values):
            return self._latent.mean()
        return self._share[:, 0] * self._latent.mean() + self.atom_probs @ self._values

    def std(self) -> Array:
        """Conditional standard deviation of each outcome, (n,) or (n, d)."""
        if not len(self._values):
            return self._latent.std()
        mean = self.mean()
        within = self._share[:, 0] * (self._latent.std() ** 2 + (self._latent.mean() - mean) ** 2)
        return np.sqrt(within + (self.atom_probs * (self._values - mean[:, None]) ** 2).sum(axis=1))

    def _continuous(self, points: Array) -> Array:
        """Log density (n, m) of the part that is no atom, spread over the cells of a grid."""
        if self._grid is None:
            return self._mixture.log_prob(points, self._x, self._n_threads)
        log_density = self._of_cells(points, self._grid)
        impossible = np.isneginf(log_density)
        if impossible.any():  # a cell that bounds cut may have its outcome inside and all that is looked at outside
            log_density = np.where(impossible, self._mixture.log_prob(points, self._x, self._n_threads), log_density)
        return log_density

    def _of_cells(self, points: Array, grid: Grid) -> Array:
        n, m, d = points.shape
        center = grid.round(points)
        if d > 1:
            cell = qmc.Sobol(d, rng=np.random.default_rng(0)).random(_N_CELL_POINTS) - 0.5
            inside = (center[:, :, None, :] + cell * grid.step).reshape(n, -1, d)
            log_density = self._mixture.log_prob(inside, self._x, self._n_threads).reshape(n, m, -1)
            return np.asarray(logsumexp(log_density, axis=-1)) - np.log(_N_CELL_POINTS)
        half = grid.step[0] / 2
        ends = self._latent.cdf(np.concatenate([center[..., 0] - half, center[..., 0] + half], axis=1))
        mass = ends[:, m:] - ends[:, :m]
        at_center = self._mixture.log_prob(center, self._x, self._n_threads)
        return np.where(mass > _FEW_DIGITS, np.log(np.maximum(mass, 1e-300) / grid.step[0]), at_center)

    def _rounded(self, y: Array) -> Array:
        return y if self._grid is None else self._grid.round(y)
