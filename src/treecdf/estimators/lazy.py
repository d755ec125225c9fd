"""Conditional distributions at the rows of a Dask collection, worked out partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask import delayed

from treecdf._common.random import as_generator
from treecdf.training.sources.dask import partitions

# Predictions


class LazyDistribution:
    """p(y | x) at the rows of a Dask collection; every method gives a Dask Array, worked out partition by partition.

    Takes and returns what ConditionalDistribution does; y is divided as X is. Draws depend on the partitions.
    """

    def __init__(self, model: Any, X: Any) -> None:
        self._model, self._d = delayed(model, pure=False), model.n_outcomes_
        self._parts = partitions(X)
        self._lengths = _lengths(X, len(self._parts))

    def logpdf(self, y: Any) -> Any:
        """Log density of outcomes y."""
        return self._each("logpdf", (), partitions(y))

    def pdf(self, y: Any) -> Any:
        """Density of outcomes y."""
        return self._each("pdf", (), partitions(y))

    def cdf(self, y: Any) -> Any:
        """CDF of one outcome."""
        return self._each("cdf", (), partitions(y))

    def pit(self, y: Any) -> Any:
        """The CDF of one outcome; of several the flow's own u."""
        return self._each("pit", () if self._d == 1 else (self._d,), partitions(y))

    def icdf(self, p: Any) -> Any:
        """Quantiles of one outcome: of a number (n,), of m levels (n, m)."""
        return self._each("icdf", np.shape(p), [p] * len(self._parts))

    ppf = icdf

    def mean(self) -> Any:
        """Mean, (n,) or (n, d)."""
        return self._each("mean", self._tail)

    def std(self) -> Any:
        """Standard deviation, (n,) or (n, d)."""
        return self._each("std", self._tail)

    def median(self) -> Any:
        """Median of one outcome."""
        return self._each("median", ())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draws (n, n_samples) or (n, n_samples, d)."""
        seeds = as_generator(random_state).integers(2**63, size=(len(self._parts), 4))
        sampled = [
            delayed(_sample)(self._model, part, n_samples, seed) for part, seed in zip(self._parts, seeds, strict=True)
        ]
        return self._array(sampled, (n_samples, *self._tail))

    @property
    def _tail(self) -> tuple[int, ...]:
        return () if self._d == 1 else (self._d,)

    def _each(self, method: str, tail: tuple[int, ...], values: Sequence[Any] | None = None) -> Any:
        if values is not None and len(values) != len(self._parts):
            raise ValueError(
                f"X has {len(self._parts)} partitions and y has {len(values)}: they must be divided alike."
            )
        given = [()] * len(self._parts) if values is None else [(value,) for value in values]
        asked = [
            delayed(_ask)(self._model, method, part, tail, *args) for part, args in zip(self._parts, given, strict=True)
        ]
        return self._array(asked, tail)

    def _array(self, parts: Sequence[Any], tail: tuple[int, ...]) -> Any:
        shapes = [(length, *tail) for length in self._lengths]
        made = [da.from_delayed(part, shape, dtype=np.float64) for part, shape in zip(parts, shapes, strict=True)]
        return da.concatenate(made, allow_unknown_chunksizes=True)


def _lengths(X: Any, n: int) -> Sequence[float]:
    """Rows of every partition, NaN where only reading them would tell."""
    return X.chunks[0] if isinstance(X, da.Array) else [np.nan] * n


def _ask(model: Any, method: str, X: Any, tail: tuple[int, ...], *args: Any) -> Any:
    if not len(X):
        return np.empty((0, *tail))
    distribution = model.predict_distribution(X)
    if method in ("logpdf", "pdf", "cdf", "pit"):
        args = (np.asarray(args[0]),)
        if model.n_outcomes_ == 1:
            args = (args[0].reshape(len(args[0])),)
    return np.asarray(getattr(distribution, method)(*args))


def _sample(model: Any, X: Any, n_samples: int, seed: Any) -> Any:
    if not len(X):
        return np.empty((0, n_samples) if model.n_outcomes_ == 1 else (0, n_samples, model.n_outcomes_))
    return model.predict_distribution(X).sample(n_samples, np.random.default_rng(seed))
