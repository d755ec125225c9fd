"""Conditional distributions of outcomes as they were recorded: with atoms, on a grid, or both."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array, Ints
from treecdf.bases.atoms import Atoms
from treecdf.data.recording import AnyGrid, Grid
from treecdf.flows.arguments import Rows, read_points, read_rows
from treecdf.flows.cells import FEW_DIGITS, cell_moments, cell_quadrature
from treecdf.flows.continuous import FlowDistribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.marginal import Marginal
from treecdf.flows.moments import moments_of_mixture

# What an outcome beyond the ends of a grid keeps of its density: it was not foreseen, but a score should outlive it.
_LOG_LEAK = np.log(1e-3)
# Of the continuous part, so that levels can be divided by it.
_SMALLEST_SHARE = 1e-300


def as_recorded(
    latent: FlowDistribution, x: Array, atoms: Atoms | None, grid: AnyGrid | None
) -> ConditionalDistribution:
    """The distributions of recorded outcomes at covariates x (n, q): `latent` itself without atoms and grid."""
    if atoms is None and grid is None:
        return latent
    if atoms is None:
        return RecordedDistribution(latent, np.empty(0), np.ones((len(latent), 1)), grid)
    return RecordedDistribution(latent, atoms.values, np.exp(atoms.log_prob(x)), grid)


class RecordedDistribution(ConditionalDistribution):
    """p(y | x) of outcomes that have atoms or were rounded; see ConditionalDistribution for its methods.

    logpdf is the log probability of an atom at an atom, and elsewhere the log density, so that the density integrates
    to the probability of no atom. On a grid it is the log of the recorded cell's probability over its volume: of one
    outcome exactly; of several the cells of a chain sum to one, and flows of all outcomes have the mean of the density
    at 64 quasi-random points of the cell. Quantiles, draws, moments, CRPS and marginals are of the recorded values.
    All that is beyond the end of a grid counts as its last value; beyond, a thousandth of the density stays.

    Parameters
    ----------
    latent : FlowDistribution or Marginal
        The continuous part: outcomes that are no atom, before they were rounded.
    atoms : array of shape (K,)
        Values with a probability of their own, ascending; only of one outcome.
    shares : array of shape (n, 1 + K)
        Probabilities of no atom and of each atom.
    grid : Grid, ListedValues or None, default None
        Where outcomes were rounded to.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> y = np.maximum(x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=80), 0.0)
    >>> model = TreeFlowRegressor(atoms=[0.0], effort="fast", max_trees=5, random_state=0).fit(x, y)
    >>> d = model.predict_distribution([[-0.8], [0.8]])
    >>> d.atoms.tolist(), d.atom_probs.shape
    ([0.0], (2, 1))
    >>> bool(d.atom_probs[0, 0] > 0.5 > d.atom_probs[1, 0])
    True
    """

    def __init__(
        self, latent: FlowDistribution | Marginal, atoms: Array, shares: Array, grid: AnyGrid | None = None
    ) -> None:
        self._latent, self._atoms, self._shares, self._grid = latent, atoms, shares, grid

    def __len__(self) -> int:
        return len(self._latent)

    def __getitem__(self, rows: Rows) -> RecordedDistribution:
        chosen = read_rows(rows, len(self))
        return RecordedDistribution(self._latent[chosen], self._atoms, self._shares[chosen], self._grid)

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self._latent.n_outcomes

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return self._latent.outcome_names

    @property
    def weights(self) -> Array:
        """Weights (n, members) of the flows at each row; a marginal has a single weight of 1."""
        return self._latent.weights if isinstance(self._latent, FlowDistribution) else np.ones((len(self), 1))

    def support(self) -> tuple[Ints, int] | None:
        """How many training rows are similar to each row, and of how many; see `FlowDistribution.support`."""
        return self._latent.support() if isinstance(self._latent, FlowDistribution) else None

    @property
    def atoms(self) -> Array:
        """Values (K,) with a probability of their own."""
        return self._atoms

    @property
    def atom_probs(self) -> Array:
        """Probabilities (n, K) of the atoms."""
        return self._shares[:, 1:]

    def cdf_below(self, y: ArrayLike) -> Array:
        """P(Y < y | x) of one outcome at y (n,), (n,): less than the CDF by the probability of y itself."""
        points = read_points(y, len(self), 1)[0]
        lower = points if self._grid is None else self._grid.edge_below(points)
        below = (self._shares[:, None, 1:] * (self._atoms < points)).sum(axis=-1)
        return np.asarray(np.minimum(self._shares[:, :1] * self._latent._pit(lower)[..., 0] + below, 1.0)[:, 0])

    def values_between(self, low: float, high: float, most: int) -> Array | None:
        """Values (K,) of one outcome on a grid from low to high.

        None without a grid, or if there are more than `most` values.
        """
        if self._grid is None or len(self._atoms):
            return None
        return self._grid.values_between(low, high, most)

    def _logpdf(self, points: Array) -> Array:
        log_density = self._continuous(points)
        if not len(self._atoms):
            return log_density
        with np.errstate(divide="ignore"):
            log_share = np.log(self._shares)
        is_atom = points[..., 0, None] == self._atoms  # (n, m, K)
        at_atoms = np.where(is_atom, log_share[:, None, 1:], -np.inf).max(axis=-1)
        return np.where(is_atom.any(axis=-1), at_atoms, log_share[:, :1] + log_density)

    def _pit(self, points: Array) -> Array:
        if self.n_outcomes > 1:
            return self._latent._pit(points)
        upper = points if self._grid is None else self._grid.edge(points)
        below = (self._shares[:, None, 1:] * (self._atoms <= points)).sum(axis=-1)
        return np.minimum(self._shares[:, :1] * self._latent._pit(upper)[..., 0] + below, 1.0)[..., None]

    def _icdf(self, levels: Array) -> Array:
        share, before = self._shares[:, :1], np.zeros((len(self), 1))
        inside = np.full(levels.shape, np.nan)  # level of the continuous part; NaN at atoms
        at_atom = np.zeros(levels.shape)
        rest = np.ones(levels.shape, bool)  # levels above all atoms so far
        for value, own in zip(self._atoms, self.atom_probs.T, strict=True):
            edge = value if self._grid is None else self._grid.edge_below(np.array([value]))[0]
            left = share * self._latent.cdf(np.full((len(self), 1), edge)) + before
            is_below = rest & (levels < left)
            inside[is_below] = ((levels - before) / np.maximum(share, _SMALLEST_SHARE))[is_below]
            rest &= ~is_below
            is_here = rest & (levels <= left + own[:, None])
            at_atom[is_here] = value
            rest &= ~is_here
            before = before + own[:, None]
        if len(self._atoms):  # sums of probabilities of one may be a little below it
            at_atom[rest & (share == 0)] = self._atoms[-1]
            rest &= share > 0
        inside[rest] = ((levels - before) / np.maximum(share, _SMALLEST_SHARE))[rest]
        is_atom = np.isnan(inside)
        latent = self._latent.icdf(np.clip(np.where(is_atom, 0.5, inside), 0.0, 1.0))
        y = np.where(is_atom, at_atom, self._rounded(latent[..., None])[..., 0])
        return self._with_ends(y, levels) if len(self._atoms) else y

    def _with_ends(self, y: Array, levels: Array) -> Array:
        """Quantiles y (n, m), with the ends of the support at levels 0 and 1.

        They are set here because probabilities add up to 1 only up to rounding.
        """
        if not ((levels == 0) | (levels == 1)).any():
            return y
        low, high = self._rounded(self._latent.icdf([0.0, 1.0])[..., None])[..., 0].T[..., None]
        is_more = self._shares[:, :1] > 0  # than atoms
        y = np.where((levels == 0) & is_more, np.minimum(low, self._atoms[0]), y)
        return np.where((levels == 1) & is_more, np.maximum(high, self._atoms[-1]), y)

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        draws = self._rounded(self._latent._sample(n_samples, rng))
        if not len(self._atoms):
            return draws
        ends = np.cumsum(self._shares, axis=1)
        which = (rng.random((len(self), n_samples, 1)) > ends[:, None, :-1]).sum(axis=-1)[..., None]
        return np.where(which == 0, draws, self._atoms[np.maximum(which - 1, 0)])

    def _quadrature(self) -> tuple[Array, Array]:
        values, masses = self._latent.quadrature() if self._grid is None else cell_quadrature(self._latent, self._grid)
        atoms = np.broadcast_to(self._atoms, self.atom_probs.shape)
        return np.hstack([values, atoms]), np.hstack([self._shares[:, :1] * masses, self.atom_probs])

    def _moments(self) -> tuple[Array, Array]:
        if self.n_outcomes > 1:
            parts = [self._marginal(j)._moments() for j in range(self.n_outcomes)]
            joint_mean, joint_std = (np.column_stack(part) for part in zip(*parts, strict=True))
            return joint_mean, joint_std
        if self._grid is None:
            mean, std = self._latent.mean(), self._latent.std()
        else:
            mean, std = cell_moments(self._latent, self._grid)
        if not len(self._atoms):
            return mean, std
        atoms = np.broadcast_to(self._atoms, self.atom_probs.shape)
        deviations = np.hstack([std[:, None], np.zeros(atoms.shape)])
        return moments_of_mixture(self._shares, np.hstack([mean[:, None], atoms]), deviations)

    def _mode(self) -> Array:
        if self._grid is not None:
            values, masses = self._quadrature()
            return np.take_along_axis(values, masses.argmax(axis=1)[:, None], 1)[:, 0]
        densest = self._latent.mode()
        nearby = self._shares[:, 0] * self._latent.pdf(densest) * self._latent.std() / 10
        best = self.atom_probs.argmax(axis=1)
        return np.where(self.atom_probs.max(axis=1) > nearby, self._atoms[best], densest)

    def _marginal(self, j: int) -> ConditionalDistribution:
        marginal = self._latent._marginal(j)
        own = None if self._grid is None else self._grid.of(j)
        if own is None or (isinstance(own, Grid) and own.step[0] == 0):
            return marginal
        return RecordedDistribution(marginal, np.empty(0), np.ones((len(self), 1)), own)

    def _continuous(self, points: Array) -> Array:
        """Log density (n, m) of the part that is no atom; on a grid its mean over the cell."""
        if self._grid is None or not points.size:
            return self._latent._logpdf(points)
        log_density = self._of_cells(points, self._grid)
        impossible = np.isneginf(log_density)
        if impossible.any():  # a cell that bounds cut may have its outcome inside and all that is looked at outside
            log_density = np.where(impossible, self._latent._logpdf(points), log_density)
        return log_density

    def _of_cells(self, points: Array, grid: AnyGrid) -> Array:
        """Log of the mean density (n, m) in the cells of outcomes (n, m, d)."""
        center, m = grid.round(points), points.shape[1]
        if isinstance(self._latent, FlowDistribution) and self.n_outcomes > 1:
            assert isinstance(grid, Grid)
            return self._latent.log_mean_density(center, grid)
        lower, upper = (end[..., 0] for end in grid.cell(center))
        first, last = (end[..., 0] for end in grid.sides(center))
        ends = self._latent.cdf(np.concatenate([lower, upper], axis=1))
        mass = ends[:, m:] - ends[:, :m]
        at_center = self._latent._logpdf(center)
        log_density = np.where(mass > FEW_DIGITS, np.log(np.maximum(mass, 1e-300) / (last - first)), at_center)
        is_beyond = grid.is_beyond(points)[..., 0]
        if is_beyond.any():
            log_density = np.where(is_beyond, _LOG_LEAK + self._latent._logpdf(points), log_density)
        return log_density

    def _rounded(self, y: Array) -> Array:
        """Outcomes (..., d) rounded to the grid."""
        return y if self._grid is None else self._grid.round(y)
