"""The scores of `treecdf score`, added up piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.cli.terminal import printable
from treecdf.flows.distribution import ConditionalDistribution

# Probabilities of the intervals whose coverage is told.
_COVERAGES = (0.5, 0.9)


class Scores:
    """Sums over the rows so far."""

    def __init__(self, outcomes: Sequence[str]) -> None:
        self._names = list(outcomes)
        self._n, self._mean, self._squares = 0, 0.0, 0.0  # of log densities; squares are around their mean
        self._lowest, self._row_of_lowest = np.inf, -1
        # CRPS, then rows inside of and width of each interval
        self._sums = np.zeros((len(self._names), 1 + 2 * len(_COVERAGES)))

    def add(
        self, rows: NDArray[np.int64], log_prob: Array, truth: Array, each: Sequence[ConditionalDistribution]
    ) -> None:
        """Add rows of these numbers (m,), log densities (m,), outcomes (m,) or (m, d) and distributions of each."""
        lowest = int(log_prob.argmin())
        if log_prob[lowest] < self._lowest:
            self._lowest, self._row_of_lowest = float(log_prob[lowest]), int(rows[lowest])
        self._add_log_prob(log_prob)
        for j, (own, values) in enumerate(zip(each, truth.reshape(len(rows), -1).T, strict=True)):
            self._sums[j, 0] += own.crps(values).sum()
            for k, level in enumerate(_COVERAGES):
                low, high = own.interval(level)
                self._sums[j, 1 + 2 * k] += ((low <= values) & (values <= high)).sum()
                self._sums[j, 2 + 2 * k] += (high - low).sum()

    def _add_log_prob(self, log_prob: Array) -> None:
        """Combine means and sums of squares of two parts without cancellation."""
        n, m = self._n, len(log_prob)
        with np.errstate(invalid="ignore"):  # a density of 0 makes the mean infinite
            mean = float(log_prob.mean())
            away = mean - self._mean
            self._squares += float(((log_prob - mean) ** 2).sum()) + away**2 * n * m / (n + m)
            self._mean = mean if n == 0 else self._mean + away * m / (n + m)
        self._n = n + m

    def lines(self) -> Iterator[str]:
        """The lines to print."""
        n = self._n
        error = ""
        if n > 1 and np.isfinite(self._mean):
            error = f"  (standard error {np.sqrt(self._squares / (n - 1) / n):.4f})"
        yield f"rows                          {n:10d}"
        yield f"mean log density              {self._mean:10.4f}{error}"
        yield f"lowest log density            {self._lowest:10.4f}  (row {self._row_of_lowest} of the file, from 0)"
        for name, sums in zip(self._names, self._sums / n, strict=True):
            if len(self._names) > 1:
                yield printable(name)
            yield f"CRPS                          {sums[0]:10.4f}"
            for k, level in enumerate(_COVERAGES):
                inside, width = 100 * sums[1 + 2 * k], f"(mean width {sums[2 + 2 * k]:.4g})"
                yield f"{100 * level:.0f} % interval holds            {inside:10.1f} %  {width}"
