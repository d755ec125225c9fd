"""The conditional density at some rows of covariates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from treecdf._common.typing import Array, Bools
from treecdf.data.table import read_outcomes
from treecdf.estimators.pipelines import predict_distribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.recorded import RecordedDistribution
from treecdf.flows.regions_of_density import Intervals
from treecdf.plots._outcomes import Model, Outcome, choose, one_outcome, outcome_names, values_of
from treecdf.plots._style import DENSITY_MAP, GREY, INK, axes, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TAIL = 0.001  # probability beyond each end of the grid
_TAIL_OF_DRAWS = 0.003  # the same of two outcomes, whose range is known through draws
_MARGIN = 0.05  # of the grid's length, at each end
_FAINT = 0.01  # of the highest density; what is fainter at the edge of a picture is not shown
_IN_WINDOW = 0.1  # probability in the window over which the density of a curve is averaged, at most
_WIDEST_WINDOW = 0.04  # half the width of this window at most, as a share of the central 90 % interval
_OFFSETS = (-0.5, 0.0, 0.5)  # of three such windows, in their half width, whose mean has no corners
_MOST_ROWS = 8
_ROOM_FOR_A_LABEL = 0.09  # of the highest density, above it, for each line of the legend
_WIDTH_OF_BARS = 0.8  # of all rows' bars at a value, as a share of the distance to the next one
_REGIONS = (0.5, 0.9)  # probabilities of the regions of highest density that get a contour


class ConditionalDensityDisplay:
    """One outcome: curves of p(y | x) at a few rows, or bars for grades and counts. Two: a map of p(y | x) at one row.

    Each row says how many training rows are like it, of those that the model remembers (500 at most): a curve that few
    rows support is a guess from rows further off. Models without a conditional base remember none.

    Attributes
    ----------
    y_grid : tuple of arrays
        Points of each outcome that is shown.
    density : (rows, m) or (m0, m1) array
        Of one outcome at the points for every row, or of two at all pairs of points. Of few values: probabilities.
    labels : list of str
        Of the rows.
    regions : None, or list of lists of pairs
        Of every row the intervals of its region of highest density, if it is shaded.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 62)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.ConditionalDensityDisplay.from_estimator(model, x[:2]).density.shape[0]
    2
    """

    regions: list[Intervals] | None = None

    def __init__(
        self,
        y_grid: tuple[Array, ...],
        density: Array,
        labels: list[str],
        names: Sequence[str] = ("y",),
        points: Array | None = None,
        is_discrete: bool = False,
    ) -> None:
        self.y_grid, self.density, self.labels, self.names, self.points = y_grid, density, labels, names, points
        self.is_discrete = is_discrete

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        *,
        y: ArrayLike | None = None,
        labels: Sequence[str] | None = None,
        n_grid: int | None = None,
        outcome: Outcome = None,
        hdr: float | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Compute densities at some rows and draw them.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            The rows to show: a single one for the joint density of two outcomes, else at most eight.
        y : array, series or frame, default None
            True outcomes to mark: for one outcome that of each row, for two outcomes any number of points.
        labels : list of str, default None
            Labels of the rows.
        n_grid : int, default None
            Points of the curves, or of each axis of the map.
        outcome : int or str, default None
            Show only this one of several outcomes, by number or name; its density is then computed from draws.
        hdr : float, default None
            Shade the highest-density region with this probability, such as 0.9, under each curve. The map of two
            outcomes always has the contours of the 50 % and 90 % regions.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        ConditionalDensityDisplay
            The display, already drawn.
        """
        distribution = predict_distribution(model, X)
        d, names = distribution.n_outcomes, outcome_names(model, y, distribution.n_outcomes)
        points = None if y is None else read_outcomes(y, d)
        if d == 2 and outcome is None:
            grid, density = _joint(distribution, n_grid or 150)
            return cls(grid, density, _with_support(_labels(labels, 1), distribution), names, points).plot(ax)
        if d > 2 and outcome is None:
            raise ValueError(f"The model has {d} outcomes and a joint density is drawn of two: pass outcome=0, ....")
        if len(distribution) > _MOST_ROWS:
            raise ValueError(f"Expected at most {_MOST_ROWS} rows in X; got {len(distribution)}: choose some, X[:3].")
        j = choose(outcome, distribution)
        if points is not None and len(points) != len(distribution):
            raise ValueError(f"X has {len(distribution)} rows and y has {len(points)}: they must have the same number.")
        shown = None if points is None else points[:, j]
        told = _with_support(_labels(labels, len(distribution)), distribution)
        bars = _bars(distribution) if d == 1 else None
        if bars is not None:
            return cls(*bars, told, names[j : j + 1], shown, is_discrete=True).plot(ax)
        grid, density = _curves(distribution, n_grid or 400) if d == 1 else _curves_of_draws(distribution.marginal(j))
        display = cls(grid, density, told, names[j : j + 1], shown)
        if hdr is not None:
            display.regions = one_outcome(distribution, outcome).hdr(hdr)[0]
        return display.plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        ConditionalDensityDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        if self.is_discrete:
            self._plot_bars(ax)
        elif len(self.y_grid) == 1:
            self._plot_curves(ax)
        else:
            self._plot_map(ax)
        return self

    def _plot_curves(self, ax: Axes | None) -> None:
        self.figure_, self.ax_ = axes(ax)
        (y,) = self.y_grid
        for k, colour in enumerate(colours(len(self.density))):
            self.ax_.plot(y, self.density[k], color=colour, linewidth=1.8, label=self.labels[k])
            self.ax_.fill_between(y, self.density[k], color=colour, alpha=0.1, linewidth=0)
            for low, high in self.regions[k] if self.regions is not None else ():
                inside = np.concatenate([[low], y[(y > low) & (y < high)], [high]])
                height = np.interp(inside, y, self.density[k])
                self.ax_.fill_between(inside, height, color=colour, alpha=0.35, linewidth=0)
            if self.points is not None:
                height = np.interp(self.points[k], y, self.density[k])
                self.ax_.plot(self.points[k], height, "o", color=colour, markeredgecolor="white", markersize=8)
        seen = (self.density >= _FAINT * self.density.max(axis=1, keepdims=True)).any(axis=0)
        self.ax_.set(xlabel=self.names[0], ylabel="density", title=f"p({self.names[0]} | x)")
        self.ax_.set(xlim=_widen(*_ends(y, seen, self.points)))
        self._add_legend()

    def _add_legend(self) -> None:
        """Add a legend above the curves: it is too wide for a place beside them."""
        if self.points is not None:
            self.ax_.plot([], [], "o", color=GREY, markersize=8, label="true outcome")
        n_lines = len(self.labels) + (self.points is not None)
        self.ax_.set(ylim=(0, (1.05 + _ROOM_FOR_A_LABEL * n_lines) * self.density.max()))
        self.ax_.legend(frameon=False, loc="upper left", fontsize="small", borderaxespad=0)

    def _plot_bars(self, ax: Axes | None) -> None:
        self.figure_, self.ax_ = axes(ax)
        (y,) = self.y_grid
        width = _WIDTH_OF_BARS * (float(np.diff(y).min()) if len(y) > 1 else 1.0) / len(self.density)
        for k, colour in enumerate(colours(len(self.density))):
            left = (k - (len(self.density) - 1) / 2) * width
            self.ax_.bar(y + left, self.density[k], width, color=colour, label=self.labels[k])
            if self.points is not None:
                height = self.density[k][np.abs(y - self.points[k]).argmin()]
                self.ax_.plot(self.points[k] + left, height, "o", color=colour, markeredgecolor="white", markersize=8)
        self.ax_.set(xlabel=self.names[0], ylabel="probability", title=f"p({self.names[0]} | x)")
        self._add_legend()

    def _plot_map(self, ax: Axes | None) -> None:
        self.figure_, self.ax_ = axes(ax, (5.6, 4.4))
        first, second = self.y_grid
        colours_of = self.ax_.pcolormesh(first, second, self.density.T, cmap=DENSITY_MAP, vmin=0, rasterized=True)
        self.figure_.colorbar(colours_of, ax=self.ax_, label="density").outline.set_visible(False)
        heights = self._region_heights()
        for height, share, style in zip(heights, _REGIONS, ("-", "--"), strict=True):
            self.ax_.contour(first, second, self.density.T, levels=[height], colors=INK, linestyles=style, linewidths=1)
            self.ax_.plot([], [], color=INK, linestyle=style, linewidth=1, label=f"holds {100 * share:g} %")
        if self.points is not None:
            first_true, second_true = self.points.T
            self.ax_.scatter(first_true, second_true, s=14, color="white", edgecolors=INK, linewidths=0.7, zorder=3)
        seen = self.density >= _FAINT * self.density.max()
        self.ax_.set(xlim=_ends(first, seen.any(axis=1)), ylim=_ends(second, seen.any(axis=0)))
        self.ax_.legend(frameon=False, loc="best", fontsize="small")
        self.ax_.set(xlabel=self.names[0], ylabel=self.names[1], title=f"p({', '.join(self.names)} | {self.labels[0]})")

    def _region_heights(self) -> list[float]:
        """Densities at the border of the regions of highest density."""
        ordered = np.sort(self.density.ravel())[::-1]
        inside = np.cumsum(ordered) / ordered.sum()
        return [float(ordered[np.searchsorted(inside, share)]) for share in _REGIONS]


def _ends(y: Array, seen: Bools, points: Array | None = None) -> tuple[float, float]:
    """First and last of the values that are visible or are points."""
    shown = np.concatenate([y[seen], [] if points is None else points])
    return float(shown.min()), float(shown.max())


def _labels(labels: Sequence[str] | None, n: int) -> list[str]:
    if labels is None:
        return ["x"] if n == 1 else [f"row {k}" for k in range(n)]
    if len(labels) != n:
        raise ValueError(f"Expected {n} label(s), one for each row; got {len(labels)}.")
    return [str(label) for label in labels]


def _bars(distribution: ConditionalDistribution) -> tuple[tuple[Array, ...], Array] | None:
    """Values (m,) of an outcome on a grid and their probabilities (rows, m); None without a grid or if too many."""
    y = values_of(distribution, _TAIL)
    if y is None:
        return None
    below = distribution.cdf(y - 1e-3 * (np.diff(y).min() if len(y) > 1 else 1.0), grid=True)
    return (y,), distribution.cdf(y, grid=True) - below


def _with_support(labels: list[str], distribution: ConditionalDistribution) -> list[str]:
    """Labels that say how many training rows are like the row, if the model remembers any."""
    support = getattr(distribution, "support", lambda: None)()
    if support is None:
        return labels
    counts, remembered = support
    return [
        f"{label} (like {count} of {remembered} training rows)" for label, count in zip(labels, counts, strict=True)
    ]


def _curves(distribution: ConditionalDistribution, n_grid: int) -> tuple[tuple[Array, ...], Array]:
    """Densities (rows, m) on one grid, which contains quantiles of every row so that no peak is missed.

    They are exact, except that for continuous outcomes they are means over narrow windows, which smooths the steps of
    trees.
    """
    levels = np.concatenate([[_TAIL, 1 - _TAIL], expit(np.linspace(-14, 14, 141))])
    quantiles = distribution.icdf(levels)
    low, high = _widen(float(quantiles[:, 0].min()), float(quantiles[:, 1].max()))
    y = np.unique(np.concatenate([np.linspace(low, high, n_grid), quantiles[(quantiles > low) & (quantiles < high)]]))
    if isinstance(distribution, RecordedDistribution):
        return (y,), distribution.pdf(y, grid=True)
    inner = np.argsort(levels)
    half = np.stack([_half_window(y, levels[inner], own) for own in quantiles[:, inner]])
    ends = distribution.icdf([0.0, 1.0])
    density = np.zeros(half.shape)
    for offset in _OFFSETS:
        middle = y + offset * half
        lower, upper = np.maximum(middle - half, ends[:, :1]), np.minimum(middle + half, ends[:, 1:])
        inside = upper > lower
        mass = distribution.cdf(np.where(inside, upper, y)) - distribution.cdf(np.where(inside, lower, y))
        density += np.where(inside, mass / np.where(inside, upper - lower, 1.0), 0.0) / len(_OFFSETS)
    return (y,), np.where((y >= ends[:, :1]) & (y <= ends[:, 1:]), density, 0.0)


def _half_window(y: Array, levels: Array, quantiles: Array) -> Array:
    """Half the widths (m,) of narrow windows around y (m,) that hold little probability, by quantiles (k,)."""
    level = np.interp(y, quantiles, levels)
    around = np.interp(level + _IN_WINDOW / 2, levels, quantiles) - np.interp(level - _IN_WINDOW / 2, levels, quantiles)
    widest = _WIDEST_WINDOW * np.diff(np.interp([0.05, 0.95], levels, quantiles))[0]
    return np.clip(around / 2, widest / 50, widest)


def _curves_of_draws(marginal: ConditionalDistribution, n_cells: int = 40) -> tuple[tuple[Array, ...], Array]:
    """Densities (rows, m) in the middle of cells, from the share of the draws in each."""
    ends = marginal.icdf([_TAIL, 1 - _TAIL])
    edges = np.linspace(*_widen(float(ends.min()), float(ends.max())), n_cells + 1)
    cdf = np.column_stack([marginal.cdf(np.full(len(marginal), edge)) for edge in edges])
    return ((edges[1:] + edges[:-1]) / 2,), np.diff(cdf, axis=1) / np.diff(edges)


def _joint(distribution: ConditionalDistribution, n_grid: int) -> tuple[tuple[Array, ...], Array]:
    """Exact joint density (m, m) of two outcomes at one row."""
    if len(distribution) != 1:
        raise ValueError(f"Expected one row in X for two outcomes; got {len(distribution)}: choose one, or an outcome.")
    ends = [distribution.marginal(j).icdf([_TAIL_OF_DRAWS, 1 - _TAIL_OF_DRAWS])[0] for j in range(2)]
    first, second = (np.linspace(*_widen(float(low), float(high)), n_grid) for low, high in ends)
    points = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1)
    return (first, second), distribution.pdf(points.reshape(1, -1, 2)).reshape(n_grid, n_grid)


def _widen(low: float, high: float) -> tuple[float, float]:
    margin = _MARGIN * (high - low) or max(abs(low), 1.0) * _MARGIN
    return low - margin, high + margin
