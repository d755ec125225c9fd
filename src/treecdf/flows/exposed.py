"""Conditional distributions of outcomes that grow with an exposure, such as counts per time at risk."""

from __future__ import annotations

import numpy as np

from treecdf._common.typing import Array
from treecdf.flows.arguments import Rows, read_rows
from treecdf.flows.continuous import FlowDistribution


class ExposedDistribution(FlowDistribution):
    """p(y | x, exposure) of outcomes whose rate, y over the exposure, the flows have learnt.

    Outcomes, quantiles and draws are in the unit of y at the row's exposure; the log density has the term for the
    change of unit.

    Parameters
    ----------
    rate : FlowDistribution
        The distributions of the rate.
    exposure : array of shape (n,)
        Exposure of each row, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x, exposure = np.linspace(0, 1, 60)[:, None], np.tile([1.0, 2.0, 3.0], 20)
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0)
    >>> d = model.fit(x, exposure * (1 + x[:, 0]), exposure=exposure).predict_distribution(x[:3], exposure=2.0)
    >>> type(d).__name__, len(d)
    ('ExposedDistribution', 3)
    """

    def __init__(self, rate: FlowDistribution, exposure: Array) -> None:
        super().__init__(rate._mixture, rate._x, rate._n_threads, rate._names)
        self._exposure = exposure

    def __getitem__(self, rows: Rows) -> ExposedDistribution:
        chosen = read_rows(rows, len(self))
        return ExposedDistribution(super().__getitem__(chosen), self._exposure[chosen])

    def _logpdf(self, points: Array) -> Array:
        return super()._logpdf(self._as_rate(points)) - np.log(self._exposure)[:, None]

    def _pit(self, points: Array) -> Array:
        return super()._pit(self._as_rate(points))

    def _icdf(self, levels: Array) -> Array:
        return super()._icdf(levels) * self._exposure[:, None]

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        return super()._sample(n_samples, rng) * self._exposure[:, None, None]

    def _crps(self, truth: Array) -> Array:
        return super()._crps(truth / self._exposure) * self._exposure

    def _moments(self) -> tuple[Array, Array]:
        mean, std = super()._moments()
        return mean * self._exposure, std * self._exposure

    def _as_rate(self, points: Array) -> Array:
        """Rates (n, m, 1): outcomes divided by the exposure."""
        return points / self._exposure[:, None, None]
