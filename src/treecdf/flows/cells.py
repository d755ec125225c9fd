"""Outcomes that were rounded to a grid: the values that are recorded, and the probabilities of their cells."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import qmc

from treecdf._common.typing import Array, Bools
from treecdf.data.recording import AnyGrid, ClosedGrid, Grid, ListedValues
from treecdf.flows.chain import Chain
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.mixture import Flow, Mixture
from treecdf.flows.moments import one_sided, root_mean_square

# Cells are counted one by one between the quantiles of this level and of one minus it.
_TAIL = 1e-4
# Cells that are counted at most, on each side of the median.
_MOST_CELLS = 128
# Nodes that stand for all cells beyond, on each side.
_N_TAIL = 32
# Rows whose counted cells hold less mass are on a fine grid: they take the integrals of the continuous outcome.
_MOST_OF_THE_MASS = 0.5
# Points of a cell of several outcomes: of a chain, which has exact conditional CDFs, and of a flow of all outcomes.
_N_POINTS_OF_CHAIN = 16
_N_POINTS = 64
# Rows, points and members of a cell that are worked on together.
_CHUNK_POINTS = 16_384
# The probability of a cell below this is better taken from the density than from a difference of CDF values.
FEW_DIGITS = 1e-9


# One outcome


def cell_quadrature(latent: ConditionalDistribution, grid: AnyGrid) -> tuple[Array, Array]:
    """Recorded values and masses (n, k) of an outcome whose continuous distribution is `latent`."""
    values, masses, is_fine = _of_cells(latent, grid)
    if is_fine.any():
        fine = latent[is_fine].quadrature()
        k = max(values.shape[1], fine[0].shape[1])
        values, masses = _padded(values, masses, k)
        values[is_fine], masses[is_fine] = _padded(grid.round(fine[0][..., None])[..., 0], fine[1], k)
    return values, masses


def _padded(values: Array, masses: Array, k: int) -> tuple[Array, Array]:
    """Values and masses (n, k): the last value is repeated without mass."""
    missing = ((0, 0), (0, k - values.shape[1]))
    return np.pad(values, missing, mode="edge"), np.pad(masses, missing)


def cell_moments(latent: ConditionalDistribution, grid: AnyGrid) -> tuple[Array, Array]:
    """Mean and standard deviation (n,) of the recorded values; on fine grids those of the continuous outcome."""
    values, masses, is_fine = _of_cells(latent, grid)
    mean = (values * masses).sum(axis=1)
    std = root_mean_square(values - mean[:, None], masses)
    if is_fine.any():
        fine = latent[is_fine]
        mean[is_fine], std[is_fine] = fine.mean(), fine.std()
    return mean, std


def _of_cells(latent: ConditionalDistribution, grid: AnyGrid) -> tuple[Array, Array, Bools]:
    """Recorded values and masses (n, k), and whether the grid of a row (n,) is too fine to count cells.

    Cells about the median are counted by differences of the CDF; a few nodes stand for those beyond. With heavy tails
    the central cells may hold all but a little of the mass and yet be few of those between the far quantiles.
    """
    if isinstance(grid, ListedValues):
        return _of_listed(latent, grid)
    origin, step = grid.origin[0], grid.step[0]
    with np.errstate(over="ignore", invalid="ignore"):
        low, middle, high = np.round((latent.icdf([_TAIL, 0.5, 1 - _TAIL]) - origin) / step).T
    is_huge = ~np.isfinite(low + middle + high)
    low, middle, high = (np.where(is_huge, 0.0, end) for end in (low, middle, high))
    ends = -np.inf, np.inf
    if isinstance(grid, ClosedGrid):
        ends = tuple(np.round((grid.ends - origin) / step))
        low, middle, high = (np.clip(end, *ends) for end in (low, middle, high))
    first = np.maximum(low, middle - _MOST_CELLS)
    count = np.minimum(high, middle + _MOST_CELLS) - first + 1
    # Rows with fewer cells than others repeat their last edge: such cells have no mass.
    number = np.minimum(np.arange(count.max(initial=1) + 1), count[:, None])
    cdf = latent.cdf(origin + step * (first[:, None] + number - 0.5))
    # What is beyond the ends of the grid is in its last cells.
    cdf = np.where((number == 0) & (first == ends[0])[:, None], 0.0, cdf)
    cdf = np.where((number == count[:, None]) & (first + count - 1 == ends[1])[:, None], 1.0, cdf)
    values = origin + step * (first[:, None] + np.minimum(number[:, :-1], count[:, None] - 1))
    nodes, weights = one_sided(_N_TAIL)
    below, above = cdf[:, :1], 1 - cdf[:, -1:]
    beyond = latent.icdf(np.hstack([below * nodes, 1 - above * nodes]))
    outermost = np.repeat(values[:, [0, -1]], _N_TAIL, axis=1)
    beyond = np.where(np.isfinite(beyond), grid.round(beyond[..., None])[..., 0], outermost)  # infinite without mass
    masses = np.hstack([np.diff(cdf, axis=1), below * weights, above * weights])
    return np.hstack([values, beyond]), masses, is_huge | ((below + above)[:, 0] > 1 - _MOST_OF_THE_MASS)


def _of_listed(latent: ConditionalDistribution, grid: ListedValues) -> tuple[Array, Array, Bools]:
    """What `_of_cells` gives, for values at uneven distances."""
    n = len(latent)
    inner = latent.cdf(np.tile(grid.edge(grid.values[:-1]), (n, 1)))
    masses = np.diff(np.hstack([np.zeros((n, 1)), inner, np.ones((n, 1))]), axis=1)
    return np.tile(grid.values, (n, 1)), masses, np.zeros(n, bool)


# Several outcomes


def log_mean_density(mixture: Mixture, x: Array, center: Array, grid: Grid) -> Array:
    """Log of the mean density (n,) in the cells about `center` (n, d), one at each row of x.

    The cells of a chain sum to one: the probability of an outcome's cell is exact given the outcomes before it, and
    is averaged over points of their cells. Flows of all outcomes have the mean of the density at quasi-random points.
    """
    found = np.empty(len(x))
    size = max(1, _CHUNK_POINTS // _N_POINTS)
    for i in range(0, len(x), size):
        rows = slice(i, i + size)
        log_weights = mixture.log_weights_at(x[rows])
        parts = [_of_member(member, x[rows], center[rows], grid) for member in mixture.members]
        found[rows] = logsumexp(log_weights + np.column_stack(parts), axis=1)
    return found


def _of_member(member: Flow, x: Array, center: Array, grid: Grid) -> Array:
    """Log of the mean density (n,) of one member in the cells about `center` (n, d)."""
    m = _N_POINTS_OF_CHAIN if isinstance(member, Chain) else _N_POINTS
    inside = qmc.Sobol(center.shape[1], rng=np.random.default_rng(0)).random(m) - 0.5
    points = center[:, None, :] + inside * grid.step
    if isinstance(member, Chain):
        return _of_chain(member, x, center, points, grid)
    return np.asarray(logsumexp(member.forward_and_log_det(points, x)[1], axis=1)) - np.log(m)


def _of_chain(chain: Chain, x: Array, center: Array, points: Array, grid: Grid) -> Array:
    """Log of the mean density (n,) of a chain in cells: link by link, over points (n, m, d) inside them."""
    n, m, _ = points.shape
    total, log_share = np.zeros(n), np.full((n, m), -np.log(m))
    for k, link in enumerate(chain.links):
        j = chain.order[k]
        half = grid.step[j] / 2
        ends = center[:, [j]] + np.array([-half, half])
        if k == 0:
            cdf, log_density = link._forward(np.hstack([ends, points[..., j]])[..., None], x)
            mass, log_density = np.repeat(cdf[:, 1] - cdf[:, 0], m, axis=1), log_density[:, 2:]
        else:
            own = np.column_stack([np.repeat(ends, m, axis=0), points[..., j].ravel()])
            cdf, log_density = link._forward(own[..., None], chain.covariates(x, k, points))
            mass, log_density = ((part.reshape(n, m)) for part in (cdf[:, 1] - cdf[:, 0], log_density[:, 2]))
        if half > 0:
            log_mass = np.where(mass > FEW_DIGITS, np.log(np.maximum(mass, 1e-300) / (2 * half)), log_density)
        else:
            log_mass = log_density
        total += logsumexp(log_share + log_mass, axis=1)
        log_share = _normalised(log_share + log_density)
    return total


def _normalised(log_share: Array) -> Array:
    """Log shares (n, m) of sum one; equal ones where all are impossible."""
    whole = logsumexp(log_share, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(whole), log_share - whole, -np.log(log_share.shape[1]))
