"""Prediction intervals compared with true outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting
from treecdf.estimators.pipelines import predict_distribution
from treecdf.plots._outcomes import Model, Outcome, choose, one_outcome, outcome_names, truth
from treecdf.plots._style import BLUE, INK, VERMILION, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ORDERS = ("median", "truth")


class IntervalDisplay:
    """Central prediction intervals and true outcomes of rows, those inside and outside in two colours.

    Attributes
    ----------
    lower, median, upper, truth : (n,) arrays
        Rows in the order of X.
    hit : (n,) array of bool
        Whether the true outcome is inside the interval.
    level : float
        Level of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 67)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.IntervalDisplay.from_estimator(model, x, x[:, 0] ** 2, level=0.8).hit.shape
    (67,)
    """

    def __init__(self, lower: Array, median: Array, upper: Array, truth: Array, level: float, name: str = "y") -> None:
        self.lower, self.median, self.upper, self.truth = lower, median, upper, truth
        self.hit = (lower <= truth) & (truth <= upper)
        self.level, self.name = level, name

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        y: ArrayLike,
        *,
        level: float = 0.9,
        sort_by: str = "median",
        max_rows: int = 150,
        outcome: Outcome = None,
        ax: Axes | None = None,
    ) -> Self:
        """Compute intervals of rows and draw them with the true outcomes.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            Covariates of rows that the model was not trained on.
        y : array, series or frame of shape (n,) or (n, d)
            Their true outcomes.
        level : float, default 0.9
            Probability inside the intervals.
        sort_by : {"median", "truth"}, default "median"
            Order of the rows on the x-axis.
        max_rows : int, default 150
            Rows to draw at most, evenly chosen in this order.
        outcome : int or str, default None
            Which of several outcomes, by number or name.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        IntervalDisplay
            The display, already drawn.
        """
        check_setting("sort_by", sort_by, sort_by in _ORDERS, "'median' or 'truth'")
        check_setting("level", level, 0 < level < 1, "between 0 and 1")
        distribution = predict_distribution(model, X)
        values = truth(y, outcome, distribution)
        name = outcome_names(model, y, distribution.n_outcomes)[choose(outcome, distribution)]
        lower, median, upper = one_outcome(distribution, outcome).icdf([(1 - level) / 2, 0.5, (1 + level) / 2]).T
        return cls(lower, median, upper, values, level, name).plot(ax, sort_by=sort_by, max_rows=max_rows)

    def plot(self, ax: Axes | None = None, *, sort_by: str = "median", max_rows: int = 150) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.
        sort_by : {"median", "truth"}, default "median"
            Order of the rows on the x-axis.
        max_rows : int, default 150
            Rows to draw at most, evenly chosen in this order.

        Returns
        -------
        IntervalDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        check_setting("sort_by", sort_by, sort_by in _ORDERS, "'median' or 'truth'")
        self.figure_, self.ax_ = axes(ax, (7.0, 3.8))
        order = np.argsort(self.median if sort_by == "median" else self.truth, kind="stable")
        if len(order) > max_rows:
            order = order[np.linspace(0, len(order) - 1, max_rows).round().astype(int)]
        place = np.arange(len(order))
        for hit, colour, word in ((True, BLUE, "inside"), (False, VERMILION, "outside")):
            at = self.hit[order] == hit
            rows = order[at]
            marker, size, alpha = ("o", 9, 0.4) if hit else ("D", 18, 0.8)
            self.ax_.vlines(place[at], self.lower[rows], self.upper[rows], color=colour, alpha=alpha, linewidth=1.6)
            self.ax_.scatter(place[at], self.truth[rows], s=size, marker=marker, color=colour, label=word, zorder=3)
        self.ax_.plot(place, self.median[order], color=INK, linewidth=1, label="median")
        rows_of = f"{len(order)} of {len(self.hit)} rows" if len(order) < len(self.hit) else "rows"
        self.ax_.set(xlabel=f"{rows_of}, by {'predicted median' if sort_by == 'median' else 'truth'}", ylabel=self.name)
        self.ax_.set_xlim(-1, len(order))
        share = f"{100 * self.hit.mean():.0f} % of {len(self.hit)} outcomes inside"
        self.ax_.set_title(f"{100 * self.level:g} % intervals, {share}")
        self.ax_.legend(frameon=False, loc="upper left", markerscale=1.4)
        return self
