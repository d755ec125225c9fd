"""Conditional distributions of continuous outcomes, given by a mixture of flows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treecdf._common.typing import Array, Ints
from treecdf.bases.conditional import Conditional
from treecdf.data.recording import Grid
from treecdf.flows.arguments import Rows, read_rows
from treecdf.flows.cells import log_mean_density
from treecdf.flows.curve import Curve
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.flow import CHUNK_POINTS, Conditions, by_blocks, by_chunks
from treecdf.flows.learnt import flows_inside
from treecdf.flows.marginal import Marginal, joint_moments, marginal_curve
from treecdf.flows.mixture import Mixture, take
from treecdf.flows.moments import gauss_legendre

# `quadrature` takes the quantile function at this many levels.
_N_LEVELS = 128
# Rows that the learners of a base are asked about together.
_ROWS_OF_LEARNERS = 1024
# Rows up to which a distribution keeps what they said: some hundred numbers a row.
_MOST_KEPT = 16_384
# Rows of several outcomes that are worked on together: 96 nodes or more each, and a grid at every node.
_ROWS_OF_MARGINALS = 16
# A row counts as so many points where moments of several outcomes are asked for: 64 rows are worked on together.
_NODES_OF_MOMENTS = CHUNK_POINTS // 64


class FlowDistribution(ConditionalDistribution):
    """p(y | x) of a mixture of flows at n rows of covariates; see ConditionalDistribution for its methods.

    Parameters
    ----------
    mixture : Mixture
        The fitted flows and their weights.
    x : array of shape (n, q)
        Covariates as the flows see them.
    n_threads : int, default 1
        Threads that share the rows.
    names : tuple of str or None, default None
        Names of the outcomes.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> d = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2).predict_distribution(x)
    >>> type(d).__name__, d.weights.shape[0]
    ('FlowDistribution', 80)
    """

    def __init__(self, mixture: Mixture, x: Array, n_threads: int = 1, names: tuple[str, ...] | None = None) -> None:
        self._mixture, self._x, self._n_threads, self._names = mixture, x, n_threads, names
        self._kept: dict[int, Conditions] = {}  # what bases made of blocks of the rows, by the first row of each

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Rows) -> FlowDistribution:
        return FlowDistribution(self._mixture, self._x[read_rows(rows, len(self))], self._n_threads, self._names)

    @property
    def n_outcomes(self) -> int:
        """d, the number of outcomes."""
        return self._mixture.n_outcomes

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return super().outcome_names if self._names is None else self._names

    @property
    def weights(self) -> Array:
        """Weights (n, members) of the flows at each row."""
        return np.exp(self._mixture.log_weights_at(self._x))

    def support(self) -> tuple[Ints, int] | None:
        """How many (n,) remembered training rows are similar to each row, and how many are remembered; or None.

        Similar means nearer, in the covariates that matter, than a quarter of the distance that the training rows
        extend from their middle. Conditional bases remember at most 500 rows, other bases none.
        """
        for flow in flows_inside(self._mixture):
            if isinstance(flow.base, Conditional):
                reach = flow.base.reach
                return reach.n_like(flow.standardize(self._x)), len(reach.points)
        return None

    def log_mean_density(self, center: Array, grid: Grid) -> Array:
        """Log of the mean density (n, m) of several outcomes in the cells of a grid about `center` (n, m, d)."""
        n, m, d = center.shape
        found = np.empty((n, m))

        def task(rows: slice) -> None:
            own = center[rows].reshape(-1, d)
            x = np.repeat(self._x[rows], m, axis=0)
            found[rows] = log_mean_density(self._mixture, x, own, grid).reshape(-1, m)

        by_chunks(task, center, self._n_threads)
        return found

    def _logpdf(self, points: Array) -> Array:
        found = np.empty(points.shape[:2])

        def task(rows: slice, known: Conditions) -> None:
            found[rows] = self._mixture._forward(points[rows], self._x[rows], known)[1]

        self._each(task, points.shape[1])
        return found

    def _pit(self, points: Array) -> Array:
        if not self._mixture.is_flow:
            raise ValueError(
                f"pit is for a single flow; this is a mixture of {len(self._mixture.members)}: see marginal(j).cdf."
            )
        found = np.empty(points.shape)

        def task(rows: slice, known: Conditions) -> None:
            found[rows] = self._mixture._forward(points[rows], self._x[rows], known)[0]

        self._each(task, points.shape[1])
        return found

    def _icdf(self, levels: Array) -> Array:
        found = np.empty(levels.shape)

        def task(rows: slice, known: Conditions) -> None:
            found[rows] = self._mixture._inverse(levels[rows, :, None], self._x[rows], known)[..., 0]

        self._each(task, levels.shape[1])
        return found

    def _sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        u = rng.random((len(self), n_samples, self.n_outcomes))
        found = np.empty(u.shape)

        def task(rows: slice, known: Conditions) -> None:
            found[rows] = self._mixture._draw(u[rows], self._x[rows], known)

        self._each(task, n_samples)
        return found

    def _quadrature(self) -> tuple[Array, Array]:
        levels, weights = gauss_legendre(_N_LEVELS)
        values = self._icdf(np.tile(levels, (len(self), 1)))
        return values, np.tile(weights, (len(self), 1))

    def _crps(self, truth: Array) -> Array:
        found = np.empty(len(self))

        def task(rows: slice, known: Conditions) -> None:
            found[rows] = self._mixture.crps(truth[rows], self._x[rows], known)

        self._each(task)
        return found

    def _marginal(self, j: int) -> Marginal:
        curves: dict[int, Curve] = {}

        def task(rows: slice) -> None:
            curves[rows.start] = marginal_curve(self._mixture, self._x[rows], j)

        by_blocks(task, len(self), _ROWS_OF_MARGINALS, self._n_threads)
        return Marginal(Curve.join([curves[start] for start in sorted(curves)]))

    def _moments(self) -> tuple[Array, Array]:
        found = np.empty((2, len(self), self.n_outcomes))

        def of_all(rows: slice, known: Conditions) -> None:
            found[:, rows] = joint_moments(self._mixture, self._x[rows], known)

        def of_one(rows: slice, known: Conditions) -> None:
            found[:, rows, 0] = self._mixture.moments(self._x[rows], known)

        if self.n_outcomes == 1:
            self._each(of_one)
            return found[0, :, 0], found[1, :, 0]
        self._each(of_all, _NODES_OF_MOMENTS)
        return found[0], found[1]

    def _each(self, task: Callable[[slice, Conditions], None], n_points: int = 1) -> None:
        """Run `task` on slices of the rows with the parameters of the bases there; each row has n_points points.

        The learners of the bases always predict for the same blocks of rows, because matrix products round differently
        in blocks of another size; and only once if the rows are few enough to keep their predictions.
        """
        size = max(1, CHUNK_POINTS // max(n_points, 1))

        def block(rows: slice) -> None:
            known = self._kept.get(rows.start)
            if known is None:
                known = Conditions()
                self._mixture.learn_conditions(self._x[rows], known)
                if len(self) <= _MOST_KEPT:
                    self._kept[rows.start] = known
            for i in range(rows.start, rows.stop, size):
                few = slice(i, min(i + size, rows.stop))
                task(few, take(known, slice(few.start - rows.start, few.stop - rows.start)))

        by_blocks(block, len(self), _ROWS_OF_LEARNERS, self._n_threads)

    def __getstate__(self) -> dict[str, object]:
        """The state without the kept parameters of the bases, which are stored under memory addresses."""
        return self.__dict__ | {"_kept": {}}
