"""The conditional distributions at some rows of covariates: what can be asked of every kind of them.

Accuracy: logpdf, pdf, pit, cdf and icdf are exact. Of one outcome, mean and crps are within 0.005 standard deviations
of the exact ones and std is within 1 %; on a grid they are of the cells' own probabilities. Of several outcomes mean,
std and marginals come from 512 quasi-random points: the mean is within about 0.02 standard deviations, std within 10 %.
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

# Rows whose integrals are worked out together: their points take about 4 MB an array, whatever the number of all rows.
_CHUNK_ROWS = 4096


class ConditionalDistribution(ABC):
    """p(y | x) at n rows of covariates; what `predict_distribution` returns.

    Of one outcome, y is (n,), or (n, m) for m points at each row. Of d outcomes, y is (n, d) or (n, m, d). Rows are
    chosen as in an array: `d[3]`, `d[:10]`, `d[mask]` are distributions again, and `len(d)` is n.

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {self.n_outcomes} outcome(s))"

    # Densities and probabilities

    def logpdf(self, y: ArrayLike) -> Array:
        """Log density in the outcome's own unit, exactly.

        Parameters
        ----------
        y : array of shape (n,) or (n, m); of several outcomes (n, d) or (n, m, d)
            Outcomes, m at each row.

        Returns
        -------
        array of shape (n,) or (n, m)
            At an atom its log probability; on a grid that of the cell over its volume.
        """
        points, shape = read_points(y, len(self), self.n_outcomes)
        return self._logpdf(points).reshape(shape)

    def pdf(self, y: ArrayLike) -> Array:
        """Density in the outcome's own unit, infinite where it is beyond the range of float64; see `logpdf`."""
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(y))

    def pit(self, y: ArrayLike) -> Array:
        """The flow's own u: independent uniforms if the model is right. One outcome: the CDF.

        Parameters
        ----------
        y : array of shape (n,) or (n, m); of several outcomes (n, d) or (n, m, d)
            Outcomes, m at each row.

        Returns
        -------
        array of the shape of y
            A mixture of flows of several outcomes has no such u and raises a ValueError.
        """
        points, shape = read_points(y, len(self), self.n_outcomes)
        return self._pit(points).reshape(shape if self.n_outcomes == 1 else (*shape, self.n_outcomes))

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y) of one outcome, exactly: (n,) or (n, m), as y."""
        expect_one_outcome("cdf", self.n_outcomes)
        return self.pit(y)

    def icdf(self, p: ArrayLike) -> Array:
        """Quantiles of one outcome, exactly: the smallest value whose CDF is at least the level.

        Parameters
        ----------
        p : number, or array of shape (m,) or (n, m)
            Levels between 0 and 1: one, m for all rows, or m for each. 0 and 1 give the ends of the support.

        Returns
        -------
        array of shape (n,) for a number, else (n, m)
        """
        return self._quantiles("icdf", p)

    def ppf(self, p: ArrayLike) -> Array:
        """Another name of `icdf`, as in scipy."""
        return self.icdf(p)

    def median(self) -> Array:
        """The 50 % quantile (n,) of one outcome."""
        return self._quantiles("median", 0.5)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Ends of the central interval of one outcome.

        Parameters
        ----------
        level : float, default 0.9
            Probability inside, between 0 and 1.

        Returns
        -------
        low, high : arrays of shape (n,)
        """
        low, high = self._quantiles("interval", interval_levels(level)).T
        return low, high

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Independent draws.

        Parameters
        ----------
        n_samples : int, default 1
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Where random numbers come from; None: others every time.

        Returns
        -------
        array of shape (n, n_samples), of several outcomes (n, n_samples, d)
        """
        draws = self._sample(read_n_samples(n_samples), as_generator(random_state))
        return draws[..., 0] if self.n_outcomes == 1 else draws

    # Integrals

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score (n,) of outcomes y (n,), in their unit; lower is better."""
        expect_one_outcome("crps", self.n_outcomes)
        truth = read_truth(y, len(self))
        return np.concatenate([crps_of_points(*part._quadrature(), truth[rows]) for rows, part in self._parts()])

    def quadrature(self) -> tuple[Array, Array]:
        """Points that stand for the distribution of one outcome in integrals.

        Returns
        -------
        values, masses : arrays of shape (n, k)
            The mean of g(Y) is about the sum of masses * g(values). Atoms are among the values with their own
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

    def marginal(self, j: int) -> ConditionalDistribution:
        """Distribution of outcome j alone: of one outcome it is the distribution itself.

        Parameters
        ----------
        j : int
            Number of the outcome; negative ones count from the last.

        Returns
        -------
        ConditionalDistribution of one outcome
            Of several outcomes a `SampledMarginal`, from quasi-random draws of the joint distribution.
        """
        j = read_outcome(j, self.n_outcomes)
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

    @abstractmethod
    def _moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation, (n,) or (n, d)."""

    @abstractmethod
    def _marginal(self, j: int) -> ConditionalDistribution:
        """Outcome j of several."""

    # What is derived

    @cached_property
    def _mean_and_std(self) -> tuple[Array, Array]:
        """Mean and standard deviation, worked out once."""
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
