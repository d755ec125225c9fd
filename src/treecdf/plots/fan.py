"""Intervals or regions of an outcome as one covariate runs over its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting
from treecdf.data.table import read_outcomes
from treecdf.estimators.pipelines import predict_distribution
from treecdf.flows.regions_of_density import N_CELLS, Intervals, densest_cells, levels_of_cells
from treecdf.plots._outcomes import Model, Outcome, choose, one_outcome, outcome_names, values_of
from treecdf.plots._style import BLUE, INK, axes, lay_out, paler
from treecdf.plots._tables import Covariates, Dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = (0.5, 0.8, 0.95)
_TAIL = 0.001  # probability beyond each end of the values that are looked at
_SIDES = np.array([[-1.0], [1.0]])  # of an interval


class FanChartDisplay:
    """Bands of an outcome and its median along one covariate; the other covariates are held fixed.

    Bands are central intervals or highest-density regions. Between two modes a central interval includes values that
    are not likely at all, and the median may be one of them; the regions leave such values out.

    Attributes
    ----------
    values : (m,) array, or list of names
        Values of the covariate; of more than 20 names the most common, and the others together.
    levels : (k,) array
        Probabilities of the bands, smallest first.
    lower, upper : (k, m) arrays
        Ends of the intervals, or outer ends of the regions.
    median : (m,) array
        Medians.
    regions : None, or k lists of m lists of pairs
        Intervals of the highest-density regions, if these are shown; several where there are several modes.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 64)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.FanChartDisplay.from_estimator(model, x, 0, levels=[0.5, 0.9], n_grid=10).lower.shape
    (2, 10)
    """

    regions: list[list[Intervals]] | None = None
    half_step: float = 0.0  # of an outcome that is recorded in few values: bands reach to the ends of their cells

    def __init__(
        self,
        values: Array | Dates | list[str],
        levels: Array,
        lower: Array,
        median: Array,
        upper: Array,
        names: tuple[str, str] = ("x", "y"),
        held: str = "",
        points: tuple[Array | Dates, Array] | None = None,
    ) -> None:
        self.values, self.levels, self.lower, self.median, self.upper = values, levels, lower, median, upper
        self.names, self.held, self.points = names, held, points

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        feature: int | str,
        *,
        y: ArrayLike | None = None,
        at: Mapping[int | str, float | str] | None = None,
        levels: Sequence[float] = _LEVELS,
        region: str = "central",
        n_grid: int = 80,
        outcome: Outcome = None,
        ax: Axes | None = None,
    ) -> Self:
        """Compute bands along a covariate and draw them.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            Rows that give the range of the covariate and typical values of the others.
        feature : int or str
            The covariate on the x-axis, by number or name.
        y : array, series or frame, default None
            Outcomes of the rows, drawn as points.
        at : dict, default None
            Values at which other covariates are held, by name or number. None: medians, and the commonest category.
        levels : sequence of float
            Probabilities of the bands.
        region : {"central", "hdr"}, default "central"
            Central intervals, with as much probability below as above, or highest-density regions.
        n_grid : int, default 80
            Values of the covariate.
        outcome : int or str, default None
            Which of several outcomes, by number or name.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        FanChartDisplay
            The display, already drawn.
        """
        check_setting("region", region, region in ("central", "hdr"), "'central' or 'hdr'")
        level = np.sort(np.asarray(levels, dtype=np.float64))
        check_setting("levels", levels, bool(((level > 0) & (level < 1)).all()), "numbers between 0 and 1")
        covariates = Covariates(model, X)
        j = covariates.find(feature)
        grid = covariates.grid(j, n_grid)
        columns = covariates.typical(len(grid.column), at or {})
        columns[j] = grid.column
        distribution = predict_distribution(model, covariates.table(columns))
        k = choose(outcome, distribution)
        wanted = np.concatenate([[0.5], (1 - level) / 2, (1 + level) / 2])
        one = one_outcome(distribution, outcome)
        quantiles = grid.quantiles(one, wanted).T
        points = None
        if y is not None:
            points = covariates.places(j, grid), read_outcomes(y, distribution.n_outcomes)[:, k]
        lower, upper = quantiles[1 : 1 + len(level)], quantiles[1 + len(level) :]
        names = covariates.names[j], outcome_names(model, y, distribution.n_outcomes)[k]
        held = "" if len(columns) == 1 else "others as given" if at else "others at their medians"
        display = cls(grid.shown, level, lower, quantiles[0], upper, names, held, points)
        few = values_of(one, _TAIL)
        if few is not None and len(few) > 1:
            display.half_step = float(np.diff(few).min()) / 2
        if region == "hdr":
            display._show_regions(grid.quantiles(one, levels_of_cells(N_CELLS)))
        return display.plot(ax)

    def _show_regions(self, quantiles: Array) -> None:
        """Show highest-density regions, from quantiles (m, cells + 1), in place of central intervals."""
        cells = levels_of_cells(quantiles.shape[1] - 1)
        self.regions = [[densest_cells(own, cells, level)[0] for own in quantiles] for level in self.levels]
        self.lower = np.array([[own[0][0] for own in regions] for regions in self.regions])
        self.upper = np.array([[own[-1][1] for own in regions] for regions in self.regions])

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        FanChartDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax)
        place = lay_out(self.ax_, self.values)
        if self.points is not None:
            x, y = self.points
            x = lay_out(self.ax_, x)
            if isinstance(self.values, list):  # spread points that would hide each other
                x = x + np.random.default_rng(0).uniform(-0.2, 0.2, len(x))
            self.ax_.scatter(x, y, s=7, color=INK, alpha=0.5, linewidths=0, zorder=4)
        if self.regions is not None:
            self._draw_regions(place, self.regions)
        else:
            draw = self._draw_bars if isinstance(self.values, list) else self._draw_bands
            draw(place)
        self.ax_.set(xlabel=self.names[0], ylabel=self.names[1])
        self.ax_.set_title(f"{self.names[1]} given {self.names[0]}" + (f", {self.held}" if self.held else ""))
        handles, labels = self.ax_.get_legend_handles_labels()
        # Between bars there is no place for a legend.
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        place_of_legend = beside if isinstance(self.values, list) else {}
        self.ax_.legend(handles[::-1], labels[::-1], frameon=False, **place_of_legend)
        return self

    def _draw_bands(self, place: Array) -> None:
        for k in reversed(range(len(self.levels))):
            low, high = self.lower[k] - self.half_step, self.upper[k] + self.half_step
            self.ax_.fill_between(place, low, high, zorder=2, step="mid" if self.half_step else None, **self._band(k))
        drawn: dict[str, Any] = {"drawstyle": "steps-mid"} if self.half_step else {}
        self.ax_.plot(place, self.median, color=BLUE, linewidth=2, label="median", zorder=3, **drawn)
        if place[-1] > place[0]:
            self.ax_.set_xlim(place[0], place[-1])

    def _draw_bars(self, place: Array) -> None:
        for k in reversed(range(len(self.levels))):
            low, high = self.lower[k] - self.half_step, self.upper[k] + self.half_step
            self.ax_.bar(place, high - low, 0.6, bottom=low, zorder=2, **self._band(k))
        self.ax_.hlines(self.median, place - 0.3, place + 0.3, color=BLUE, linewidth=2, label="median", zorder=3)
        self.ax_.use_sticky_edges = False  # bars begin where they begin, not at the frame
        self.ax_.set_xlim(-0.6, len(place) - 0.4)

    def _draw_regions(self, place: Array, regions: list[list[Intervals]]) -> None:
        """Draw a rectangle for each interval, as wide as its share of the axis.

        No median is drawn: it may lie between modes.
        """
        names = isinstance(self.values, list)
        middles = (place[1:] + place[:-1]) / 2
        edges = np.concatenate([place[:1], middles, place[-1:]])
        left, right = (place - 0.3, place + 0.3) if names else (edges[:-1], edges[1:])
        for k in reversed(range(len(self.levels))):
            row = np.repeat(np.arange(len(place)), [len(own) for own in regions[k]])
            low, high = np.array([ends for own in regions[k] for ends in own]).T + self.half_step * _SIDES
            style = self._band(k) | {"antialiased": False}  # else neighbours leave a pale line between them
            self.ax_.bar(left[row], high - low, (right - left)[row], low, align="edge", zorder=2, **style)
        self.ax_.use_sticky_edges = False
        if names:
            self.ax_.set_xlim(-0.6, len(place) - 0.4)
        elif place[-1] > place[0]:
            self.ax_.set_xlim(place[0], place[-1])

    def _band(self, k: int) -> dict[str, Any]:
        strength = 0.55 - 0.4 * k / max(len(self.levels) - 1, 1)
        return {"color": paler(BLUE, strength), "linewidth": 0, "label": f"{100 * self.levels[k]:g} %"}
