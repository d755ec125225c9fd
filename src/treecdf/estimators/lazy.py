"""Conditional distributions at the rows of a Dask collection, computed partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import dask.array as da
import numpy as np
from dask import delayed
from dask.delayed import Delayed
from numpy.typing import ArrayLike

from treecdf._common.protocols import Seed
from treecdf._common.random import as_generator
from treecdf._common.typing import Array
from treecdf._common.validation import is_int
from treecdf.data.table import is_dask
from treecdf.flows.arguments import (
    Rows,
    expect_one_outcome,
    interval_levels,
    read_levels,
    read_n_samples,
    read_outcome,
    read_points,
)
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.regions_of_density import Intervals
from treecdf.training.sources.dask import partitions

Ask = Callable[[ConditionalDistribution], Array]
AskAt = Callable[..., Array]


class DaskCollection(Protocol):
    """A Dask Array, DataFrame or Series."""

    @property
    def ndim(self) -> int:
        """Number of axes, rows included."""
        ...

    def __dask_graph__(self) -> object: ...

    def __getitem__(self, rows: object, /) -> DaskCollection: ...


class Model(Protocol):
    """A fitted model of rows in memory."""

    n_outcomes_: int
    outcome_names_: tuple[str, ...]

    def predict_distribution(self, X: ArrayLike) -> ConditionalDistribution:
        """The conditional distributions at covariates X (n, q)."""
        ...


class LazyDistribution:
    """p(y | x) at the rows of a Dask collection: the methods of ConditionalDistribution, but each gives a Dask Array.

    Nothing is worked out before `compute()`, and then partition by partition. Outcomes y are a Dask collection that is
    divided as X is, or an array if the lengths of the partitions of X are known (those of a Dask Array are). One
    outcome may be a column (n, 1), which counts as (n,). Draws depend on how X is divided.

    Parameters
    ----------
    model : Model
        The fitted model.
    X : Dask Array or DataFrame of shape (n, q)
        Covariates.
    outcome : int or None, default None
        Of several outcomes only this one, as in `marginal`.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> d = model.predict_distribution(da.from_array(x, chunks=(40, 1)))
    >>> d
    LazyDistribution(2 partitions, 1 outcome(s))
    >>> d.icdf([0.1, 0.9]).compute().shape
    (80, 2)
    """

    def __init__(self, model: Model, X: DaskCollection, outcome: int | None = None) -> None:
        self._model, self._X, self._outcome = model, X, outcome
        self._on_workers = delayed(model, pure=False)
        self._parts = partitions(X)
        self._lengths = _lengths(X, len(self._parts))

    def __len__(self) -> int:
        if np.isnan(self._lengths).any():
            raise TypeError(
                "The lengths of the partitions of X are known only after reading them: expected a Dask Array with "
                "known chunks, such as X.to_dask_array(lengths=True)."
            )
        return int(sum(self._lengths))

    def __getitem__(self, rows: Rows | DaskCollection) -> LazyDistribution:
        if isinstance(self._X, da.Array):
            return LazyDistribution(self._model, self._X[self._as_slice(rows)], self._outcome)
        if not is_dask(rows) or isinstance(rows, da.Array):
            raise TypeError(
                "Rows of a Dask DataFrame have no positions: expected a Dask Series of booleans divided as X is; got "
                f"{type(rows).__name__}. Of X.to_dask_array(lengths=True) rows can be chosen by number."
            )
        return LazyDistribution(self._model, self._X[rows], self._outcome)

    def __repr__(self) -> str:
        return f"LazyDistribution({len(self._parts)} partitions, {self.n_outcomes} outcome(s))"

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self._model.n_outcomes_ if self._outcome is None else 1

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        names = self._model.outcome_names_
        return names if self._outcome is None else (names[self._outcome],)

    # Densities and probabilities

    def logpdf(self, y: ArrayLike | DaskCollection, grid: bool = False) -> da.Array:
        """Log densities (n,) or (n, m) of outcomes y."""
        return self._each_at(ConditionalDistribution.logpdf, y, grid)

    def pdf(self, y: ArrayLike | DaskCollection, grid: bool = False) -> da.Array:
        """Densities (n,) or (n, m) of outcomes y."""
        return self._each_at(ConditionalDistribution.pdf, y, grid)

    def pit(self, y: ArrayLike | DaskCollection, grid: bool = False) -> da.Array:
        """The CDF of one outcome; of several outcomes the flow's images in the unit cube, in the shape of y."""
        return self._each_at(ConditionalDistribution.pit, y, grid, self._tail)

    def cdf(self, y: ArrayLike | DaskCollection, grid: bool = False) -> da.Array:
        """P(Y <= y) of one outcome, (n,) or (n, m)."""
        expect_one_outcome("cdf", self.n_outcomes)
        return self._each_at(ConditionalDistribution.cdf, y, grid)

    def sf(self, y: ArrayLike | DaskCollection, grid: bool = False) -> da.Array:
        """P(Y > y) of one outcome, (n,) or (n, m)."""
        expect_one_outcome("sf", self.n_outcomes)
        return self._each_at(ConditionalDistribution.sf, y, grid)

    def icdf(self, p: ArrayLike | DaskCollection) -> da.Array:
        """Quantiles of one outcome: (n,) for a number p, (n, m) for m levels, or levels (n, m) divided as X is."""
        expect_one_outcome("icdf", self.n_outcomes)
        if is_dask(p) or np.ndim(p) > 1:  # type: ignore[arg-type]
            parts, tail = self._divide("p", p)
            return self._array(self._asked_at(ConditionalDistribution.icdf, parts, tail), tail)
        levels = np.asarray(p, dtype=np.float64)
        read_levels(levels, 1)
        return self._each(partial(ConditionalDistribution.icdf, p=levels), levels.shape)

    def ppf(self, p: ArrayLike | DaskCollection) -> da.Array:
        """Another name of `icdf`, as in scipy."""
        return self.icdf(p)

    def median(self) -> da.Array:
        """The 50 % quantile (n,) of one outcome."""
        expect_one_outcome("median", self.n_outcomes)
        return self._each(ConditionalDistribution.median)

    def interval(self, level: ArrayLike = 0.9) -> tuple[da.Array, da.Array]:
        """Ends of the central interval of one outcome that holds `level` of the probability: (n,), or (n, k) of k."""
        expect_one_outcome("interval", self.n_outcomes)
        low, high = interval_levels(level)
        return self.icdf(low), self.icdf(high)

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> da.Array:
        """Draws (n, n_samples), of several outcomes (n, n_samples, d)."""
        tail = (read_n_samples(n_samples), *self._tail)
        seeds = as_generator(random_state).integers(2**63, size=(len(self._parts), 4))
        asks = (partial(_sample, n_samples=n_samples, seed=[int(word) for word in seed]) for seed in seeds)
        return self._array(self._asked(asks, tail), tail)

    # Integrals

    def crps(self, y: ArrayLike | DaskCollection) -> da.Array:
        """Continuous ranked probability score (n,) of outcomes y (n,)."""
        expect_one_outcome("crps", self.n_outcomes)
        return self._each_at(ConditionalDistribution.crps, y)

    def quadrature(self) -> tuple[da.Array, da.Array]:
        """Not for Dask collections: partitions differ in the number of values."""
        raise NotImplementedError(
            "quadrature is for rows in memory, because partitions may differ in the number of values: expected mean, "
            "std or crps, or predict_distribution of a part that was computed."
        )

    def hdr(self, level: float = 0.9) -> tuple[list[Intervals], da.Array]:
        """Not for Dask collections: rows differ in the number of intervals."""
        raise NotImplementedError(
            "hdr is for rows in memory: expected predict_distribution of a part that was computed."
        )

    def modes(self) -> list[Array]:
        """Not for Dask collections: rows differ in the number of modes."""
        raise NotImplementedError(
            "modes is for rows in memory: expected predict_distribution of a part that was computed."
        )

    def mean(self) -> da.Array:
        """Conditional mean, (n,) or (n, d)."""
        return self._each(ConditionalDistribution.mean, self._tail)

    def std(self) -> da.Array:
        """Conditional standard deviation of each outcome, (n,) or (n, d)."""
        return self._each(ConditionalDistribution.std, self._tail)

    def var(self) -> da.Array:
        """Conditional variance of each outcome, (n,) or (n, d)."""
        return self._each(ConditionalDistribution.var, self._tail)

    def mode(self) -> da.Array:
        """The most likely value (n,) of one outcome."""
        expect_one_outcome("mode", self.n_outcomes)
        return self._each(ConditionalDistribution.mode)

    def entropy(self) -> da.Array:
        """The mean (n,) of -logpdf."""
        return self._each(ConditionalDistribution.entropy)

    def marginal(self, j: int | str) -> LazyDistribution:
        """Distribution of outcome j, a number or a name, alone."""
        j = read_outcome(j, self.outcome_names)
        return self if self.n_outcomes == 1 else LazyDistribution(self._model, self._X, j)

    # Partitions

    @property
    def _tail(self) -> tuple[int, ...]:
        """Axes of an answer that has a number for each outcome: () for one outcome, else (d,)."""
        return () if self.n_outcomes == 1 else (self.n_outcomes,)

    def _each(self, ask: Ask, tail: tuple[int, ...] = ()) -> da.Array:
        """The results of `ask` for every partition's distribution, as an array (n, *tail)."""
        return self._array(self._asked([ask] * len(self._parts), tail), tail)

    def _each_at(
        self, ask: AskAt, y: ArrayLike | DaskCollection, grid: bool = False, more: tuple[int, ...] = ()
    ) -> da.Array:
        """The results of `ask` for every partition at its own outcomes, (n, *more) or (n, m, *more)."""
        if not is_dask(y) and (grid or np.shape(y) == self._tail):  # type: ignore[arg-type]  # the same for all rows
            _, (_, *m) = read_points(y, 2, self.n_outcomes, grid)  # type: ignore[arg-type]
            same = partial(ask, y=y, grid=True) if grid else partial(ask, y=y)
            return self._each(same, (*m, *more))
        parts, given = self._divide("y", y)
        if self.n_outcomes > 1 and (not given or given[-1] != self.n_outcomes):
            expected = f"(n, {self.n_outcomes}) or (n, m, {self.n_outcomes})"
            raise ValueError(f"Expected y of shape {expected}; got (n, {', '.join(map(str, given))}).")
        tail = given[:-1] if self.n_outcomes > 1 else () if given == (1,) else given
        return self._array(self._asked_at(ask, parts, (*tail, *more)), (*tail, *more))

    def _asked(self, asks: Iterable[Ask], tail: tuple[int, ...]) -> list[Delayed]:
        """Delayed results for every partition."""
        lazy = delayed(_answer, pure=False)
        pairs = zip(self._parts, asks, strict=True)
        return [lazy(self._on_workers, part, self._outcome, ask, tail) for part, ask in pairs]

    def _asked_at(self, ask: AskAt, values: Sequence[Delayed | Array], tail: tuple[int, ...]) -> list[Delayed]:
        """Delayed results for every partition at its own values."""
        lazy = delayed(_answer_at, pure=False)
        pairs = zip(self._parts, values, strict=True)
        return [lazy(self._on_workers, part, self._outcome, ask, own, tail) for part, own in pairs]

    def _array(self, parts: Iterable[Delayed], tail: tuple[int, ...]) -> da.Array:
        """Delayed results of the partitions as one Dask Array (n, *tail)."""
        shapes = [(length, *tail) for length in self._lengths]
        made = [da.from_delayed(part, shape, dtype=np.float64) for part, shape in zip(parts, shapes, strict=True)]
        return da.concatenate(made, allow_unknown_chunksizes=True)

    def _divide(
        self, name: str, values: ArrayLike | DaskCollection
    ) -> tuple[Sequence[Delayed | Array], tuple[int, ...]]:
        """The values that belong to every partition of X, and the shape of their axes after the rows."""
        if is_dask(values):
            return self._divided_alike(name, values)  # type: ignore[arg-type]
        array = np.asarray(values, dtype=np.float64)
        if np.isnan(self._lengths).any():
            raise TypeError(
                f"Expected {name} to be a Dask collection divided as X is, because the lengths of the partitions of X "
                f"are not known; got {type(values).__name__}. Of X.to_dask_array(lengths=True) they are known."
            )
        if not array.ndim or len(array) != len(self):
            raise ValueError(f"Expected {name} with {len(self)} rows, as X has; got shape {array.shape}.")
        ends = np.cumsum(self._lengths)[:-1].astype(np.int64)
        return np.split(array, ends), array.shape[1:]

    def _divided_alike(self, name: str, values: DaskCollection) -> tuple[list[Delayed], tuple[int, ...]]:
        """Partitions of a Dask collection that must be divided as X is, and its axes after the rows."""
        if isinstance(values, da.Array):
            given, whole_rows = values.shape[1:], values.rechunk({axis: -1 for axis in range(1, values.ndim)})
            parts = partitions(whole_rows)
        else:
            given = () if values.ndim == 1 else (len(getattr(values, "columns", ())),)
            parts = partitions(values)
        if len(parts) != len(self._parts):
            raise ValueError(
                f"X has {len(self._parts)} partitions and {name} has {len(parts)}: they must be divided alike."
            )
        for k, (own, other) in enumerate(zip(self._lengths, _lengths(values, len(parts)), strict=True)):
            if own != other and not np.isnan(own + other):
                raise ValueError(
                    f"Partition {k} of X has {own} rows and that of {name} has {other}: they must be divided alike."
                )
        return parts, given

    def _as_slice(self, rows: Rows | DaskCollection) -> Rows | DaskCollection:
        """A single row as a slice of length one; anything else unchanged."""
        if not is_int(rows):
            return rows
        row, n = int(rows), len(self)  # type: ignore[arg-type]
        if not -n <= row < n:
            raise IndexError(f"Expected a row below {n}; got {row}.")
        return slice(row % n, row % n + 1)


def _lengths(X: DaskCollection, n: int) -> Sequence[float]:
    """Numbers of rows of every partition, NaN where they are not known without reading."""
    return X.chunks[0] if isinstance(X, da.Array) else [np.nan] * n


def _distribution(model: Model, X: ArrayLike, outcome: int | None) -> ConditionalDistribution:
    """Distributions at the rows of one partition."""
    whole = model.predict_distribution(X)
    return whole if outcome is None else whole.marginal(outcome)


def _answer(model: Model, X: Array, outcome: int | None, ask: Ask, tail: tuple[int, ...]) -> Array:
    """The result for one partition; empty for a partition without rows, which models do not take."""
    return ask(_distribution(model, X, outcome)) if len(X) else np.empty((0, *tail))


def _answer_at(
    model: Model, X: Array, outcome: int | None, ask: AskAt, values: ArrayLike, tail: tuple[int, ...]
) -> Array:
    """The result for one partition at values of its rows; a column (n, 1) counts as (n,)."""
    if not len(X):
        return np.empty((0, *tail))
    array = np.asarray(values, dtype=np.float64)
    distribution = _distribution(model, X, outcome)
    is_column = distribution.n_outcomes == 1 and array.shape[1:] == (1,) and not tail
    return ask(distribution, array[:, 0] if is_column else array)


def _sample(distribution: ConditionalDistribution, n_samples: int, seed: Sequence[int]) -> Array:
    """Draws of one partition from its own seed."""
    return distribution.sample(n_samples, np.random.default_rng(seed))
