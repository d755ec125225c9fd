"""The conditional distributions at some rows of covariates: what can be asked of every kind of them.

Accuracy: logpdf, pdf, pit, cdf and icdf are exact. Of one outcome, mean and crps are within 2e-4 standard deviations of
those of the exact CDF and std is within 0.2 %; on a grid they are of the cells' own probabilities. Of two outcomes that
are modelled as a chain, mean is within 0.01 standard deviations and std within 1 % of integrals with many more nodes; a
million draws may be off by more, since with heavy tails few of them have most of the variance. Of more outcomes it is
0.03 and 5 %. The width of a marginal's 99 % interval is within 2 %, and its CDF reaches far into the tails. Of flows of
all outcomes at once 2048 quasi-random draws are taken: their std is within some 5 %, and levels below 1e-3 of their
marginals are not resolved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.protocols import Seed
from treecdf._common.random import as_generator
from treecdf._common.typing import Array
from treecdf._common.validation import check_setting, is_real
from treecdf.flows.arguments import (
    Rows,
    expect_one_outcome,
    interval_levels,
    read_levels,
    read_n_samples,
    read_outcome,
    read_points,
    read_truth,
)
from treecdf.flows.moments import crps_of_points
from treecdf.flows.regions_of_density import (
    N_CELLS,
    N_MODE_CELLS,
    Intervals,
    densest_cells,
    find_modes,
    levels_of_cells,
)

# Rows whose integrals are worked out together: their points take about 4 MB an array, whatever the number of all rows.
_CHUNK_ROWS = 4096
# The mode is looked for among this many quantiles, then so many times among points between the neighbours of the best.
_N_MODE, _N_ZOOMS, _N_BETWEEN = 256, 2, 17
# Draws that the entropy of several outcomes is a mean of.
_N_DRAWS = 512


class ConditionalDistribution(ABC):
    """p(y | x) at n rows of covariates; what `predict_distribution` returns.

    Of one outcome, y is (n,), or (n, m) for m points at each row; a number is for all rows, and so are m points with
    `grid=True`. Of d outcomes, y is (n, d), (n, m, d), (d,) for all rows, or (m, d) with `grid=True`. Rows are chosen
    as in an array: `d[3]`, `d[:10]`, `d[mask]` are distributions again, and `len(d)` is n.

    All arguments are checked here. A kind of distribution says how it answers checked ones, in the methods that begin
    with an underscore: outcomes (n, m, d) without NaN, levels (n, m) inside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> y = x[:, 0] + 0.1 * np.random.default_rng(0).normal(size=80)
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, y)
    >>> d = model.predict_distribution([[-0.5], [0.5]])
    >>> d
    FlowDistribution(2 rows, 1 outcome(s))
    >>> bool((d.mean()[0] < 0) & (d.mean()[1] > 0))
    True
    >>> d.icdf([0.1, 0.5, 0.9]).shape
    (2, 3)
    >>> d.cdf(0.0).shape, d.pdf([-0.5, 0.0, 0.5], grid=True).shape
    ((2,), (2, 3))
    >>> d.cdf(d.median()).round(6).tolist()
    [0.5, 0.5]
    >>> low, high = d[1].interval(0.8)
    >>> bool(low[0] < 0.5 < high[0])
    True
    """

    @property
    @abstractmethod
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: Rows) -> ConditionalDistribution: ...

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Names of the outcomes, which `marginal` knows: those of y in training, else y, or y0, y1, ..."""
        return ("y",) if self.n_outcomes == 1 else tuple(f"y{j}" for j in range(self.n_outcomes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.n_outcomes} outcome(s))"

    # Densities and probabilities

    def logpdf(self, y: ArrayLike, grid: bool = False) -> Array:
        """Log density in the outcome's own unit, exactly.

        Parameters
        ----------
        y : number, or array of shape (n,) or (n, m); of several outcomes (d,), (n, d) or (n, m, d)
            Outcomes: one for all rows, or one or m at each row.
        grid : bool, default False
            Whether y are m outcomes for all rows, of shape (m,) or (m, d).

        Returns
        -------
        array of shape (n,) or (n, m)
            Nats. At an atom its log probability; on a grid the log of the cell's probability divided by its volume.
        """
        points, shape = read_points(y, len(self), self.n_outcomes, grid)
        return self._logpdf(points).reshape(shape)

    def pdf(self, y: ArrayLike, grid: bool = False) -> Array:
        """Density in the outcome's own unit, the exponential of `logpdf`; infinite where it is beyond float64.

        Parameters
        ----------
        y : number, or array of shape (n,) or (n, m); of several outcomes (d,), (n, d) or (n, m, d)
            Outcomes: one for all rows, or one or m at each row.
        grid : bool, default False
            Whether y are m outcomes for all rows, of shape (m,) or (m, d).

        Returns
        -------
        array of shape (n,) or (n, m)
            Densities.
        """
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(y, grid))

    def pit(self, y: ArrayLike, grid: bool = False) -> Array:
        """The images of outcomes in the unit cube: independent uniforms if the model is right. For one outcome the CDF.

        Parameters
        ----------
        y : number, or array of shape (n,) or (n, m); of several outcomes (d,), (n, d) or (n, m, d)
            Outcomes: one for all rows, or one or m at each row.
        grid : bool, default False
            Whether y are m outcomes for all rows, of shape (m,) or (m, d).

        Returns
        -------
        array of shape (n,) or (n, m); of several outcomes (n, d) or (n, m, d)
            Numbers between 0 and 1. A mixture of several flows of several outcomes has no such images and raises a
            ValueError.
        """
        points, shape = read_points(y, len(self), self.n_outcomes, grid)
        return self._pit(points).reshape(shape if self.n_outcomes == 1 else (*shape, self.n_outcomes))

    def cdf(self, y: ArrayLike, grid: bool = False) -> Array:
        """P(Y <= y) of one outcome, exactly.

        Parameters
        ----------
        y : number, or array of shape (n,) or (n, m)
            Outcomes: one for all rows, or one or m at each row.
        grid : bool, default False
            Whether y are m outcomes for all rows, of shape (m,).

        Returns
        -------
        array of shape (n,) or (n, m)
            Probabilities.
        """
        expect_one_outcome("cdf", self.n_outcomes)
        return self.pit(y, grid)

    def sf(self, y: ArrayLike, grid: bool = False) -> Array:
        """P(Y > y) of one outcome: one minus the CDF.

        Parameters
        ----------
        y : number, or array of shape (n,) or (n, m)
            Outcomes: one for all rows, or one or m at each row.
        grid : bool, default False
            Whether y are m outcomes for all rows, of shape (m,).

        Returns
        -------
        array of shape (n,) or (n, m)
            Probabilities.
        """
        expect_one_outcome("sf", self.n_outcomes)
        return 1 - self.pit(y, grid)

    def icdf(self, p: ArrayLike) -> Array:
        """Quantiles of one outcome, exactly: the smallest value whose CDF is at least the level.

        Parameters
        ----------
        p : number, or array of shape (m,) or (n, m)
            Levels between 0 and 1: one, m for all rows, or m for each. 0 and 1 give the ends of the support.

        Returns
        -------
        array of shape (n,) for a number, else (n, m)
            Values of the outcome.
        """
        return self._quantiles("icdf", p)

    def ppf(self, p: ArrayLike) -> Array:
        """Another name of `icdf`, as in SciPy."""
        return self.icdf(p)

    def median(self) -> Array:
        """Medians (n,) of one outcome."""
        return self._quantiles("median", 0.5)

    def interval(self, level: ArrayLike = 0.9) -> tuple[Array, Array]:
        """Ends of the central interval of one outcome, with as much probability below it as above.

        If there are several modes the interval includes the values between them, however unlikely; the regions of `hdr`
        leave these out.

        Parameters
        ----------
        level : float or array of shape (k,), default 0.9
            Probability inside, between 0 and 1, or several.

        Returns
        -------
        low, high : arrays of shape (n,), or (n, k) for k levels
            Ends of the intervals, in the unit of the outcome.
        """
        levels = interval_levels(level)
        low, high = self._quantiles("interval", levels.ravel()).reshape(len(self), *levels.shape).swapaxes(0, 1)
        return low, high

    def hdr(self, level: float = 0.9) -> tuple[list[Intervals], Array]:
        """Highest-density regions of one outcome: the smallest sets with the probability `level`, as intervals.

        Parameters
        ----------
        level : float, default 0.9
            Probability inside, between 0 and 0.995.

        Returns
        -------
        regions : list of n lists of pairs of float
            Ends of the intervals of each row, in order; several where there are several modes.
        probability : array of shape (n,)
            What the regions hold, exactly: at least the level, and at most 0.0025 more.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import TreeFlowRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(size=(400, 1))
        >>> y = np.where(rng.random(400) < 0.5, -2, 2) + 0.1 * rng.normal(size=400)
        >>> model = TreeFlowRegressor(effort="fast", random_state=0).fit(x, y)
        >>> regions, probability = model.predict_distribution([[0.5]]).hdr(0.8)
        >>> len(regions[0])
        2
        """
        levels = levels_of_cells(N_CELLS)
        check_setting("level", level, is_real(level) and 0 < level <= 0.995, "a number above 0, at most 0.995")
        found = [densest_cells(row, levels, level) for row in self._quantiles("hdr", levels)]
        return [intervals for intervals, _ in found], np.array([mass for _, mass in found])

    def modes(self) -> list[Array]:
        """Modes of one outcome: where its density has peaks.

        Peaks are those of the mean density over windows that hold 1.7 % of the probability, so rarer modes are not
        found. A peak counts if the density falls by a fifth of its height before it rises to a higher peak.

        Returns
        -------
        list of n arrays
            The modes of each row, in ascending order.
        """
        levels = levels_of_cells(N_MODE_CELLS)
        return [find_modes(row, levels) for row in self._quantiles("modes", levels)]

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Independent draws.

        Parameters
        ----------
        n_samples : int, default 1
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Seed of the draws; None: different draws every time.

        Returns
        -------
        array of shape (n, n_samples), of several outcomes (n, n_samples, d)
            The draws, in the unit of the outcomes.
        """
        draws = self._sample(read_n_samples(n_samples), as_generator(random_state))
        return draws[..., 0] if self.n_outcomes == 1 else draws

    # Integrals

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score of one outcome; lower is better.

        Parameters
        ----------
        y : number or array of shape (n,)
            True outcomes.

        Returns
        -------
        array of shape (n,)
            Scores in the unit of the outcome.
        """
        expect_one_outcome("crps", self.n_outcomes)
        truth = read_truth(y, len(self))
        return np.concatenate([part._crps(truth[rows, 0]) for rows, part in self._parts()])

    def quadrature(self) -> tuple[Array, Array]:
        """Values with masses that replace the distribution of one outcome in integrals.

        Returns
        -------
        values, masses : arrays of shape (n, k)
            The expectation of g(Y) is about the sum of masses * g(values). Atoms are among the values with their own
            probabilities; on a grid all values are on it.
        """
        expect_one_outcome("quadrature", self.n_outcomes)
        return self._quadrature()

    def mean(self) -> Array:
        """Conditional mean, (n,) or (n, d)."""
        return self._mean_and_std[0].copy()

    def std(self) -> Array:
        """Conditional standard deviation of each outcome, (n,) or (n, d)."""
        return self._mean_and_std[1].copy()

    def var(self) -> Array:
        """Conditional variance of each outcome, (n,) or (n, d)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.std() ** 2

    def mode(self) -> Array:
        """The most likely value (n,) of one outcome: where its density is highest.

        On a grid it is the most probable cell. An atom is the mode if it is more probable than an interval of a tenth
        of a standard deviation around the highest density.
        """
        expect_one_outcome("mode", self.n_outcomes)
        return np.concatenate([part._mode() for _, part in self._parts()])

    def entropy(self) -> Array:
        """Entropies (n,): the expectation of -logpdf, in nats.

        Of one outcome they are integrals over `quadrature`, of several means over 512 draws.
        """
        return np.concatenate([part._entropy() for _, part in self._parts()])

    def marginal(self, j: int | str) -> ConditionalDistribution:
        """Distribution of outcome j alone; of one outcome the distribution itself.

        Parameters
        ----------
        j : int or str
            Number of the outcome (negative numbers count from the last), or its name.

        Returns
        -------
        ConditionalDistribution of one outcome
            Of several outcomes a `Marginal`, whose CDF is computed on a grid; see the accuracy at the top of this
            module.
        """
        j = read_outcome(j, self.outcome_names)
        return self if self.n_outcomes == 1 else self._marginal(j)

    # What a kind of distribution answers

    @abstractmethod
    def _logpdf(self, points: Array) -> Array:
        """Log densities (n, m) of outcomes (n, m, d)."""

    @abstractmethod
    def _pit(self, points: Array) -> Array:
        """Images (n, m, d) of outcomes (n, m, d) in the unit cube; the CDF of one outcome."""

    @abstractmethod
    def _icdf(self, levels: Array) -> Array:
        """Quantiles (n, m) of one outcome at levels (n, m)."""

    @abstractmethod
    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draws (n, n_samples, d)."""

    @abstractmethod
    def _quadrature(self) -> tuple[Array, Array]:
        """Values and masses (n, k) of one outcome."""

    def _crps(self, truth: Array) -> Array:
        """CRPS (n,) of one outcome at truth (n,)."""
        return crps_of_points(*self._quadrature(), truth[:, None])

    @abstractmethod
    def _moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation, (n,) or (n, d)."""

    @abstractmethod
    def _marginal(self, j: int) -> ConditionalDistribution:
        """Outcome j of several."""

    # What is derived

    def _mode(self) -> Array:
        """Where the density of one continuous outcome is highest, (n,): among quantiles, then between them."""
        points = self._icdf(np.tile((np.arange(_N_MODE) + 0.5) / _N_MODE, (len(self), 1)))
        for _ in range(_N_ZOOMS):
            best = self._logpdf(points[..., None]).argmax(axis=1)[:, None]
            low = np.take_along_axis(points, np.maximum(best - 1, 0), 1)
            high = np.take_along_axis(points, np.minimum(best + 1, points.shape[1] - 1), 1)
            points = low + (high - low) * np.linspace(0, 1, _N_BETWEEN)
        best = self._logpdf(points[..., None]).argmax(axis=1)[:, None]
        return np.take_along_axis(points, best, 1)[:, 0]

    def _entropy(self) -> Array:
        """The mean (n,) of -logpdf."""
        if self.n_outcomes > 1:
            draws = self._sample(_N_DRAWS, as_generator(0))
            return -self._logpdf(draws).mean(axis=1)
        values, masses = self._quadrature()
        log_density = self._logpdf(values[..., None])
        return -np.where(masses > 0, masses * log_density, 0.0).sum(axis=1)

    @cached_property
    def _mean_and_std(self) -> tuple[Array, Array]:
        """Mean and standard deviation, computed once."""
        mean, std = zip(*(part._moments() for _, part in self._parts()), strict=True)
        return np.concatenate(mean), np.concatenate(std)

    def _parts(self) -> Iterator[tuple[slice, ConditionalDistribution]]:
        """Slices of the rows and their distributions, one after the other, so that integrals need little memory."""
        if len(self) <= _CHUNK_ROWS:
            yield slice(None), self
            return
        for i in range(0, len(self), _CHUNK_ROWS):
            rows = slice(i, i + _CHUNK_ROWS)
            yield rows, self[rows]

    def _quantiles(self, name: str, p: ArrayLike) -> Array:
        """Quantiles (n,) or (n, m) for the method of that name; they ascend with their levels."""
        expect_one_outcome(name, self.n_outcomes)
        levels, is_scalar = read_levels(p, len(self))
        y = self._icdf(levels)
        order = np.argsort(levels, axis=1)  # in which rounding must not let quantiles descend
        np.put_along_axis(y, order, np.maximum.accumulate(np.take_along_axis(y, order, 1), axis=1), 1)
        return y[:, 0] if is_scalar else y
