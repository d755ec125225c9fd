"""Quantiles of an outcome as one covariate runs over its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting
from treecdf.data.table import read_outcomes
from treecdf.estimators.pipelines import predict_distribution
from treecdf.plots._outcomes import Model, Outcome, choose, one_outcome, outcome_names
from treecdf.plots._style import BLUE, INK, axes, lay_out, paler
from treecdf.plots._tables import Covariates, Dates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = (0.5, 0.8, 0.95)


class FanChartDisplay:
    """Bands of central intervals and the median of y while one covariate runs over a grid, the others held.

    Attributes
    ----------
    values : (m,) array, or list of names
        Of the covariate; of more than 20 names the most common, and the others together.
    levels : (k,) array
        Probabilities of the central intervals, smallest first.
    lower, upper : (k, m) arrays
        Ends of the intervals.
    median : (m,) array

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 64)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.FanChartDisplay.from_estimator(model, x, 0, levels=[0.5, 0.9], n_grid=10).lower.shape
    (2, 10)
    """

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
        n_grid: int = 80,
        outcome: Outcome = None,
        ax: Axes | None = None,
    ) -> Self:
        """From a fitted model and rows X that say over what range the feature runs.

        The other covariates are held at their medians (commonest values of names) in X, or at what `at` says, such
        as {"age": 30}. With y the rows are drawn as points; `outcome` says which, if there are several.
        """
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
        quantiles = grid.quantiles(one_outcome(distribution, outcome), wanted).T
        points = None
        if y is not None:
            points = covariates.places(j, grid), read_outcomes(y, distribution.n_outcomes)[:, k]
        lower, upper = quantiles[1 : 1 + len(level)], quantiles[1 + len(level) :]
        names = covariates.names[j], outcome_names(model, y, distribution.n_outcomes)[k]
        held = "" if len(columns) == 1 else "others as given" if at else "others at their medians"
        return cls(grid.shown, level, lower, quantiles[0], upper, names, held, points).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on new ones."""
        self.figure_, self.ax_ = axes(ax)
        place = lay_out(self.ax_, self.values)
        if self.points is not None:
            x, y = self.points
            x = lay_out(self.ax_, x)
            if isinstance(self.values, list):  # spread points that would hide each other
                x = x + np.random.default_rng(0).uniform(-0.2, 0.2, len(x))
            self.ax_.scatter(x, y, s=7, color=INK, alpha=0.5, linewidths=0, zorder=4)
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
            self.ax_.fill_between(place, self.lower[k], self.upper[k], zorder=2, **self._band(k))
        self.ax_.plot(place, self.median, color=BLUE, linewidth=2, label="median", zorder=3)
        if place[-1] > place[0]:
            self.ax_.set_xlim(place[0], place[-1])

    def _draw_bars(self, place: Array) -> None:
        for k in reversed(range(len(self.levels))):
            height = self.upper[k] - self.lower[k]
            self.ax_.bar(place, height, 0.6, bottom=self.lower[k], zorder=2, **self._band(k))
        self.ax_.hlines(self.median, place - 0.3, place + 0.3, color=BLUE, linewidth=2, label="median", zorder=3)
        self.ax_.use_sticky_edges = False  # bars begin where they begin, not at the frame
        self.ax_.set_xlim(-0.6, len(place) - 0.4)

    def _band(self, k: int) -> dict[str, Any]:
        strength = 0.55 - 0.4 * k / max(len(self.levels) - 1, 1)
        return {"color": paler(BLUE, strength), "linewidth": 0, "label": f"{100 * self.levels[k]:g} %"}
