"""The range of the training rows: predictions beyond it, or with missing covariates, are less certain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student_t

from treecdf._common.typing import Array, Bools, Ints
from treecdf._kernels.distances import fill_excess
from treecdf.bases.learners.grouping import means_of_rows

_MOST_POINTS = 500  # training rows that are remembered
_N_DONORS = 64  # remembered rows whose values take the place of missing ones
_CAUTION = 50.0  # the variance between versions is taken times 1 + this / the number of remembered rows
_MOST_CAUTION = 1.5  # but not times more than this; it is the least for new levels of a category
_FEWEST_LEVELS = 3  # of a category, to be told from numbers of two values by its indicators
_LEVEL_OF_CAUTION = 0.975  # quantile of a t at which the distribution of a new level is as wide as its levels ask for
_MOST_SLOPES = 64  # covariates up to which missing values are moved by a regression on those that are known
_RIDGE = 10.0  # remembered rows that the penalty of this regression is worth
_FEW_VALUES = 20  # columns of no more values are categories or counts, and keep their values
_TYPICAL = 0.99  # share of the training rows that are nearer to another one than `near`
_MOST_BLOCKS = 64  # of covariates whose relevance is looked at, and covariates of principal components
_MATTERS = 0.02  # relevance of a block from which on its covariates are looked at one by one
_SHUFFLED_ROWS = 300  # rows on which relevance is looked at
_SHUFFLED_ROWS_OF_MANY = 100  # the same if there are more covariates than blocks
_SHUFFLED_VALUES = 2**20  # covariates that are shuffled in one call at most, to bound memory
_FEWEST_ROWS_A_COMPONENT = 2.0  # rows for each covariate that matters, or principal components tell nothing
_NARROWEST = 0.05  # of the widest principal component: narrower ones, such as columns that always agree, count as this
_TOLERATED = 0.07  # distance beyond the training rows at which nothing changes yet; 1 is half their extent
_RISE = 1.25  # share of the standard deviation of all outcomes that is added at a distance of 1 beyond that
_RISE_OF_FLOOR = 5.0  # at the inverse of this distance no component is narrower than most training rows' are
_LIKE = 0.25  # of `size`: rows that are nearer are like each other
_CHUNK_ROWS = 64  # rows whose distances are worked out together: 256 kB, which stay in the cache


@dataclass(frozen=True)
class Reach:
    """A sample of the training rows, how much each covariate matters, and how far the rows extend."""

    points: Array  # (m, q): standardised covariates of the sample, or means of them
    relevance: Array  # (q,): from 0, a covariate that does not matter, to 1
    columns: tuple[Array, Array]  # (q,): smallest and largest values of the covariates
    components: Array  # (q, c): principal components of the covariates, weighed by relevance
    scores: tuple[Array, Array]  # (c,): smallest and largest values of the components
    near: float  # the distance to the nearest other row that most rows do not exceed; covariates count by relevance
    size: float  # the distance from the middle that most rows do not exceed

    @staticmethod
    def fit(
        x: Array, response: Callable[[Array], Array], rng: np.random.Generator, may_hold_rows: bool = True
    ) -> Reach:
        """From standardised covariates x (n, q) of the training rows.

        response: of covariates (m, q), what depends on them (m, k) in units in which 1 is much. If it may not hold
        rows, means of five rows or more take their place.
        """
        chosen = np.sort(rng.permutation(len(x))[:_MOST_POINTS])
        points = np.ascontiguousarray(x[chosen])
        relevance = np.minimum(relevance_of(points, response, rng), 1.0)
        if not may_hold_rows:
            points = means_of_rows(x, _MOST_POINTS)
        weighted = relevance * points
        squared = _squared_distances(weighted, weighted)
        np.fill_diagonal(squared, np.inf)
        near = float(np.sqrt(np.quantile(squared.min(axis=1), _TYPICAL))) if len(points) > 1 else 0.0
        size = float(np.sqrt(np.quantile(((weighted - weighted.mean(axis=0)) ** 2).sum(axis=1), 0.95)))
        components = _components(weighted, relevance)
        columns, scores = (x.min(axis=0), x.max(axis=0)), _ends_of_scores(x @ components, len(points))
        return Reach(points, relevance, columns, components, scores, near, size if size > 0 else 1.0)

    @staticmethod
    def nowhere(q: int) -> Reach:
        """A reach without rows, of q covariates that do not matter: every row counts as within it."""
        zero, none = np.zeros(q), np.zeros(0)
        return Reach(np.zeros((1, q)), zero, (zero, zero), np.zeros((q, 0)), (none, none), 0.0, 1.0)

    def without_last(self) -> Reach:
        """The same, but any value of the last covariate is among those of the training rows."""
        relevance, components = self.relevance.copy(), self.components.copy()
        relevance[-1], components[-1] = 0.0, 0.0
        return replace(self, relevance=relevance, components=components)

    def excess(self, x: Array) -> Array:
        """How far (n,) rows x (n, q) are from the training rows, in units of half the extent of these; 0 among them.

        A row is outside if it leaves the range of a covariate or of a principal component, or has no training row near
        it. Missing values do not count.
        """
        excess = np.empty(len(x))
        fill_excess(np.ascontiguousarray(x), *self._known, self.near, self.size, excess)
        return excess

    @cached_property
    def _known(self) -> tuple[Array, Array, Array, Array, Array]:
        """What `fill_excess` has to know; made once."""
        ends, ends_of_scores = _with_half(self.columns), _with_half(self.scores)
        components, points = (np.ascontiguousarray(part) for part in (self.components, self._weighted.T))
        return self.relevance, ends, components, ends_of_scores, points

    @cached_property
    def _weighted(self) -> Array:
        """The remembered rows (m, q), each covariate times its relevance; made once."""
        return np.asarray(self.relevance * self.points)

    @cached_property
    def _n_values(self) -> Ints:
        """How many values (q,) each covariate of the remembered rows has; counted once."""
        return np.array([len(np.unique(column)) for column in self.points.T])

    def n_like(self, x: Array) -> Ints:
        """How many (n,) of the remembered rows are similar to rows x (n, q), in the covariates that matter."""
        found = np.empty(len(x), np.int64)
        for i in range(0, len(x), _CHUNK_ROWS):
            rows = slice(i, i + _CHUNK_ROWS)
            known = ~np.isnan(x[rows])
            asked = self.relevance * np.where(known, x[rows], 0.0)
            squared = _squared_distances(asked, self._weighted, known)
            found[rows] = (squared <= (_LIKE * self.size) ** 2).sum(axis=1)
        return found

    def filled(self, x: Array) -> tuple[Array, Array, Bools]:
        """Versions (n, k, q) of rows x (n, q), missing values taken from k remembered rows that are near otherwise.

        Values of columns with many values are moved by what the known columns of both rows say of them. The second
        array (n,) is by how much the variance between versions is to be taken larger, the third (n,) whether the level
        of a category is missing: it need not be one of those that are known.
        """
        known = ~np.isnan(x)
        squared = _squared_distances(np.where(known, x, 0.0), self.points, known)
        donors = self.points[np.argsort(squared, axis=1, kind="stable")[:, :_N_DONORS]]
        versions = np.where(known[:, None, :], x[:, None, :], donors)
        n_values = self._n_values
        caution, has_level = np.empty(len(x)), np.empty(len(x), bool)
        patterns, kind = np.unique(known, axis=0, return_inverse=True)
        for number, given in enumerate(patterns):
            rows = kind.ravel() == number
            n_levels = self._n_levels(~given)
            caution[rows], has_level[rows] = self._caution(n_levels), n_levels > 0
            moved = np.flatnonzero(~given & (n_values > _FEW_VALUES))
            if len(moved) and given.any() and x.shape[1] <= _MOST_SLOPES:
                rise = (versions[rows] - donors[rows])[..., given] @ self._slopes(given, moved)
                low, high = (end[moved] for end in self.columns)
                versions[np.ix_(rows, np.arange(versions.shape[1]), moved)] = np.clip(
                    donors[rows][..., moved] + rise, low, high
                )
        return versions, caution, has_level

    def _caution(self, n: int) -> float:
        """By how much the variance between versions is to be taken larger if one of n levels, or a number, is missing.

        A new level of a category is a further draw from what few levels were drawn from: of n normal ones it is t
        distributed with n - 1 degrees of freedom.
        """
        if n >= _FEWEST_LEVELS:
            wider = (student_t.ppf(_LEVEL_OF_CAUTION, n - 1) / norm.ppf(_LEVEL_OF_CAUTION)) ** 2
            return float(max(wider * (n + 1) / (n - 1), _MOST_CAUTION))
        return min(1 + _CAUTION / len(self.points), _MOST_CAUTION)

    def _n_levels(self, missing: Bools) -> int:
        """Levels of the category among these columns (q,) that has the fewest, 0 if there is none.

        Indicators of a category are columns of two values of which no row has the larger one twice.
        """
        columns = self.points[:, missing & (self._n_values == 2)]
        is_high = columns == columns.max(axis=0)
        if columns.shape[1] < _FEWEST_LEVELS or (is_high.sum(axis=1) > 1).any():
            return 0
        return columns.shape[1] + bool((~is_high).all(axis=1).any())

    def _slopes(self, given: Bools, moved: Ints) -> Array:
        """Slopes (k, m) of some columns on those that are given, by a ridge regression on the remembered rows."""
        centered = self.points - self.points.mean(axis=0)
        known, sought = centered[:, given], centered[:, moved]
        size = known.T @ known
        return np.asarray(np.linalg.solve(size + _RIDGE * np.eye(len(size)), known.T @ sought))


def _with_half(ends: tuple[Array, Array]) -> Array:
    """The ends (k,) of ranges, and half their lengths, as one array (3, k); lengths of 0 count as 2."""
    low, high = ends
    return np.stack([low, high, np.where(high > low, (high - low) / 2, 1.0)])


def _components(weighted: Array, relevance: Array) -> Array:
    """Principal components (q, c) of covariates that are weighed by relevance; none of too many covariates."""
    used = np.flatnonzero(relevance)
    if not 0 < len(used) <= min(_MOST_BLOCKS, len(weighted) / _FEWEST_ROWS_A_COMPONENT):
        return np.zeros((len(relevance), 0))
    vectors = np.linalg.eigh(np.cov(weighted[:, used].T, bias=True).reshape(len(used), -1))[1]
    components = np.zeros((len(relevance), len(used)))
    components[used] = relevance[used, None] * vectors
    return components


def _ends_of_scores(scores: Array, n_points: int) -> tuple[Array, Array]:
    """Ends (c,) of the range that new rows have in principal components, from training rows' scores (n, c).

    Few rows make the narrowest components look narrower than they are: if covariates do not depend on each other, by
    1 - sqrt(c / n) (Marchenko and Pastur). Components without any width, which are columns or sums that always agree,
    have some, so that rounding is no novelty.
    """
    low, high = scores.min(axis=0), scores.max(axis=0)
    half = (high - low) / 2 / (1 - np.sqrt(scores.shape[1] / n_points))
    half = np.maximum(half, _NARROWEST * half.max(initial=0.0))
    middle = (low + high) / 2
    return middle - half, middle + half


def _squared_distances(x: Array, points: Array, known: Array | None = None) -> Array:
    """Squared distances (n, m) of rows x (n, q) from points (m, q), of the known (n, q) columns if they are not all."""
    cross = x @ points.T
    if known is None or known.all():
        return np.maximum((x**2).sum(axis=1)[:, None] + (points**2).sum(axis=1) - 2 * cross, 0.0)
    return np.maximum((x**2).sum(axis=1)[:, None] + known.astype(np.float64) @ (points**2).T - 2 * cross, 0.0)


def relevance_of(points: Array, response: Callable[[Array], Array], rng: np.random.Generator) -> Array:
    """Root mean square (q,) of what shuffling a covariate of points (m, q) does to the response (m, k).

    Of many covariates blocks are shuffled first, and those of a block one by one only if it matters.
    """
    q = points.shape[1]
    few = points[: _SHUFFLED_ROWS if q <= _MOST_BLOCKS else _SHUFFLED_ROWS_OF_MANY]
    order = rng.permutation(len(few))

    before, at_once = response(few), max(1, _SHUFFLED_VALUES // few.size)

    def changes(blocks: Sequence[Ints]) -> Array:
        found = []
        for i in range(0, len(blocks), at_once):  # few calls: most of the time of one is set-up
            versions = np.tile(few, (len(blocks[i : i + at_once]), 1, 1))
            for version, columns in zip(versions, blocks[i : i + at_once], strict=True):
                version[:, columns] = few[np.ix_(order, columns)]
            responses = response(versions.reshape(-1, q)).reshape(*versions.shape[:2], -1)
            found.append(np.sqrt(((responses - before) ** 2).mean(axis=1).sum(axis=1)))
        return np.concatenate(found)

    blocks = np.array_split(np.arange(q), min(q, _MOST_BLOCKS))
    of_block = changes(blocks)
    relevance = np.repeat(of_block, [len(block) for block in blocks])
    for block, change in zip(blocks, of_block, strict=True):
        if len(block) > 1:
            relevance[block] = changes(np.split(block, len(block))) if change > _MATTERS else 0.0
    return relevance


def widened(
    parameters: Array, excess: Array, widest: float, middle: float, log_unit: float, is_line: bool = False
) -> Array:
    """Parameters (n, 3 J) of mixtures at rows that are so far (n,) beyond the training rows.

    They are locations, log scales and log weights. Beyond the rows no log scale is below `widest`, and the variance of
    all outcomes, that of a log scale `log_unit`, is added little by little; far away all locations are the `middle`.
    Where the location is a line it goes on as one beyond the rows: near them only what bends is missing.
    """
    excess = np.maximum(excess - _TOLERATED, 0.0)[:, None]
    rows = np.flatnonzero(excess)
    if not len(rows):
        return parameters
    excess, own = excess[rows], parameters[rows]
    location, log_scale, log_weight = np.split(own, 3, axis=1)
    far = np.minimum(_RISE * excess, 1.0)
    far = far**2 if is_line else far
    floor = log_scale + np.minimum(_RISE_OF_FLOOR * excess, 1.0) * np.maximum(widest - log_scale, 0.0)
    with np.errstate(divide="ignore"):
        log_scale = np.logaddexp(2 * floor, 2 * (np.log(far) + log_unit)) / 2
    found = parameters.copy()
    found[rows] = np.hstack([location + far**2 * (middle - location), log_scale, log_weight])
    return found
