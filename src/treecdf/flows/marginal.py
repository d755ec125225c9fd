"""One outcome of a joint distribution, known through draws."""

from __future__ import annotations

from typing import Literal

import numpy as np

from treecdf._common.typing import Array
from treecdf.flows.arguments import Rows, read_rows
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.moments import moments_of_draws


class SampledMarginal(ConditionalDistribution):
    """One outcome of a joint distribution at n rows, known through m draws each: an approximation.

    A level of the CDF is off by about 1 / m. It has no density: ask the joint distribution for that.

    Parameters
    ----------
    draws : array of shape (n, m)
        Draws of the outcome.
    is_on_grid : bool, default False
        Whether quantiles must be draws themselves, not values between them.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf.flows.marginal import SampledMarginal
    >>> d = SampledMarginal(np.array([[3.0, 1.0, 2.0], [5.0, 5.0, 8.0]]))
    >>> d.median().tolist(), d.cdf([1.0, 5.0]).round(2).tolist()
    ([2.0, 5.0], [0.33, 0.67])
    """

    def __init__(self, draws: Array, is_on_grid: bool = False) -> None:
        self._draws, self._is_on_grid = np.sort(draws, axis=1), is_on_grid

    def __len__(self) -> int:
        return len(self._draws)

    def __getitem__(self, rows: Rows) -> SampledMarginal:
        return SampledMarginal(self._draws[read_rows(rows, len(self))], self._is_on_grid)

    @property
    def n_outcomes(self) -> int:
        """1: the marginal of one outcome."""
        return 1

    def _logpdf(self, points: Array) -> Array:
        raise NotImplementedError(
            "A marginal of several outcomes is known through draws and has no density: see logpdf of the joint "
            "distribution, or cdf."
        )

    def _pit(self, points: Array) -> Array:
        share = [np.searchsorted(own, y, side="right") for own, y in zip(self._draws, points[..., 0], strict=True)]
        return np.reshape(share, points.shape) / self._draws.shape[1]

    def _icdf(self, levels: Array) -> Array:
        method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if self._is_on_grid else "linear"
        if not levels.size:
            return levels
        if (levels == levels[0]).all():
            return np.quantile(self._draws, levels[0], axis=1, method=method).T.copy()
        return np.stack(
            [np.quantile(own, level, method=method) for own, level in zip(self._draws, levels, strict=True)]
        )

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        chosen = rng.integers(self._draws.shape[1], size=(len(self), n_samples))
        return np.take_along_axis(self._draws, chosen, axis=1)[..., None]

    def _quadrature(self) -> tuple[Array, Array]:
        return self._draws.copy(), np.full(self._draws.shape, 1 / self._draws.shape[1])

    def _moments(self) -> tuple[Array, Array]:
        mean, std = moments_of_draws(self._draws[..., None])
        return mean[:, 0], std[:, 0]

    def _marginal(self, j: int) -> SampledMarginal:
        return self
