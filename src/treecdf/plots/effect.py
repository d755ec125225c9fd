"""What one covariate does to the distribution of an outcome, averaged over the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.protocols import Seed
from treecdf._common.random import as_generator
from treecdf._common.typing import Array
from treecdf._common.validation import check_setting
from treecdf.estimators.pipelines import predict_distribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.plots._outcomes import Model, Outcome, choose, outcome_names, values_of
from treecdf.plots._style import BLUE, DENSITY_MAP, axes, lay_out
from treecdf.plots._tables import Covariates, Dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = ("density", "quantiles")
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_TAIL = 0.005  # probability beyond each end of the grid, at most
_N_RANGE_ROWS = 20  # rows at each value that say how far the outcome goes
_N_DRAWS = 16  # at each row, if there are several outcomes


class CovariateEffectDisplay:
    """The mean over rows of p(y | x with one covariate set to a value), for every value of a grid.

    As in partial dependence, but of the whole distribution.

    Attributes
    ----------
    values : (m,) array, or list of names
        Of the covariate.
    y_edges : (k + 1,) array
        Edges of the cells of y.
    cdf : (m, k + 1) array
        Mean CDF at the edges.
    density : (m, k) array
        Mean density in the cells.
    points : None, or (k,) array
        Values that the outcome is recorded in, one in each cell, if they are few.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 63)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.CovariateEffectDisplay.from_estimator(model, x, 0, n_grid=5, n_cells=20).density.shape
    (5, 20)
    """

    def __init__(
        self,
        values: Array | Dates | list[str],
        y_edges: Array,
        cdf: Array,
        names: tuple[str, str] = ("x", "y"),
        points: Array | None = None,
    ) -> None:
        self.values, self.y_edges, self.cdf, self.names, self.points = values, y_edges, cdf, names, points
        self.density: Array = np.diff(cdf, axis=1) / np.diff(y_edges)

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        feature: int | str,
        *,
        kind: str = "density",
        levels: Sequence[float] = _LEVELS,
        max_rows: int = 100,
        n_grid: int = 24,
        n_cells: int = 80,
        outcome: Outcome = None,
        random_state: Seed = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Compute mean distributions along a covariate and draw them.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            Rows to average over; they also give the range of the covariate.
        feature : int or str
            The covariate on the x-axis, by number or name.
        kind : {"density", "quantiles"}, default "density"
            A map of the mean density, or curves of quantiles.
        levels : sequence of float
            Levels of the quantiles.
        max_rows : int, default 100
            Rows to average over at most, drawn at random.
        n_grid : int, default 24
            Values of the covariate.
        n_cells : int, default 80
            Cells of the outcome.
        outcome : int or str, default None
            Which of several outcomes, by number or name; its distribution is then computed from draws.
        random_state : int, Generator, RandomState or None, default 0
            Seed of the rows and draws.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        CovariateEffectDisplay
            The display, already drawn.
        """
        check_setting("kind", kind, kind in _KINDS, "'density' or 'quantiles'")
        covariates = Covariates(model, X)
        j = covariates.find(feature)
        grid = covariates.grid(j, n_grid)
        n, m = min(len(covariates), max_rows), len(grid.column)
        rows = as_generator(random_state).permutation(len(covariates))[:n]
        columns = covariates.take(np.tile(rows, m))
        columns[j] = grid.column[np.repeat(np.arange(m), n)]
        distribution = predict_distribution(model, covariates.table(columns))
        k = choose(outcome, distribution)
        mean_cdf = _mean_cdf if distribution.n_outcomes == 1 else _mean_cdf_of_draws
        names = covariates.names[j], outcome_names(model, None, distribution.n_outcomes)[k]
        points = values_of(distribution, _TAIL) if distribution.n_outcomes == 1 else None
        if points is None:
            edges, cdf = mean_cdf(distribution, m, n_cells, k)
        else:
            edges, cdf = _mean_cdf_of_values(distribution, m, points)
        return cls(grid.shown, edges, grid.mean(cdf), names, points).plot(ax, kind=kind, levels=levels)

    def quantiles(self, levels: Sequence[float] = _LEVELS) -> Array:
        """Quantiles of the mean distributions.

        Parameters
        ----------
        levels : sequence of float
            Levels between 0.01 and 0.99.

        Returns
        -------
        array of shape (levels, m)
            By linear interpolation between the edges; for outcomes of few values these values.
        """
        for level in levels:
            check_setting("levels", level, 0.01 <= level <= 0.99, "between 0.01 and 0.99")
        if self.points is not None:
            last = len(self.points) - 1
            found = [self.points[np.minimum(np.searchsorted(row[1:], levels), last)] for row in self.cdf]
            return np.column_stack(found)
        return np.column_stack([np.interp(levels, row, self.y_edges) for row in self.cdf])

    def plot(self, ax: Axes | None = None, *, kind: str = "density", levels: Sequence[float] = _LEVELS) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.
        kind : {"density", "quantiles"}, default "density"
            A map of the mean density, or curves of quantiles.
        levels : sequence of float
            Levels of the quantiles.

        Returns
        -------
        CovariateEffectDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        check_setting("kind", kind, kind in _KINDS, "'density' or 'quantiles'")
        self.figure_, self.ax_ = axes(ax)
        place = lay_out(self.ax_, self.values)
        if kind == "density":
            self._draw_map(place)
        else:
            self._draw_quantiles(place, levels)
        x, y = self.names
        self.ax_.set(xlabel=x, ylabel=y, title=f"Effect of {x} on {y}, mean over rows")
        return self

    def _draw_map(self, place: Array) -> None:
        middle = (place[1:] + place[:-1]) / 2
        first, last = (place[0], place[-1]) if len(place) > 1 else (place[0] - 0.5, place[0] + 0.5)
        if isinstance(self.values, list):
            first, last = place[0] - 0.5, place[-1] + 0.5
        edges = np.concatenate([[first], middle, [last]])
        ends = self.quantiles([0.01, 0.99])
        cells = self.ax_.pcolormesh(edges, self.y_edges, self.density.T, cmap=DENSITY_MAP, vmin=0, rasterized=True)
        if self.points is None:
            self.ax_.set_ylim(ends.min(), ends.max())
        self.figure_.colorbar(cells, ax=self.ax_, label="density").outline.set_visible(False)

    def _draw_quantiles(self, place: Array, levels: Sequence[float]) -> None:
        style = "o" if isinstance(self.values, list) else "-"
        ordered = sorted(levels, reverse=True)
        for level, curve in zip(ordered, self.quantiles(ordered), strict=True):
            strength = 1.0 - 1.4 * abs(level - 0.5)
            width = 2.2 if level == 0.5 else 1.5
            self.ax_.plot(place, curve, style, color=BLUE, alpha=strength, linewidth=width)
            self.ax_.annotate(
                f"{100 * level:g} %",
                (place[-1], curve[-1]),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )


def _mean_cdf(distribution: ConditionalDistribution, m: int, n_cells: int, outcome: int) -> tuple[Array, Array]:
    """Edges of cells, and means over rows of the exact CDFs there, for m values with equally many rows each."""
    n = len(distribution) // m
    some = np.concatenate([k * n + np.arange(min(n, _N_RANGE_ROWS)) for k in range(m)])
    ends = distribution[some].icdf([_TAIL, 1 - _TAIL])
    edges = np.linspace(ends.min(), ends.max(), n_cells + 1)
    cdf = distribution.cdf(np.tile(edges, (len(distribution), 1)))
    return edges, cdf.reshape(m, n, -1).mean(axis=1)


def _mean_cdf_of_values(distribution: ConditionalDistribution, m: int, points: Array) -> tuple[Array, Array]:
    """What `_mean_cdf` returns, for an outcome of few values (k,): with a cell around each."""
    middle = (points[1:] + points[:-1]) / 2
    first, last = (2 * points[0] - middle[0], 2 * points[-1] - middle[-1]) if len(middle) else points[0] + [-0.5, 0.5]
    edges = np.concatenate([[first], middle, [last]])
    cdf = distribution.cdf(edges, grid=True)
    return edges, cdf.reshape(m, -1, len(edges)).mean(axis=1)


def _mean_cdf_of_draws(
    distribution: ConditionalDistribution, m: int, n_cells: int, outcome: int
) -> tuple[Array, Array]:
    """What `_mean_cdf` returns, for one of several outcomes, from draws."""
    draws = np.sort(distribution.sample(_N_DRAWS, random_state=0)[..., outcome].reshape(m, -1), axis=1)
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    edges = np.linspace(low, high, min(n_cells, 40) + 1)
    return edges, np.stack([np.searchsorted(row, edges, side="right") for row in draws]) / draws.shape[1]
