"""Is the model right about its own uncertainty? Two pictures of the probability integral transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, kstest

from treecdf._common.typing import Array
from treecdf.estimators.pipelines import predict_distribution
from treecdf.flows.recorded import RecordedDistribution
from treecdf.plots._outcomes import Model, Outcome, one_outcome, truth
from treecdf.plots._style import BLUE, GREY, INK, axes, paler

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = (0.025, 0.975)  # ends of the band that holds 95 % of what a perfect model gives
_LEVELS = tuple(np.arange(1, 20) / 20)


class PITDisplay:
    """Histogram of the PIT (probability integral transform), the CDF at the true outcomes: flat if the model is right.

    A U shape means that distributions are too narrow, a hump that they are too wide, a slope that they are shifted.

    Attributes
    ----------
    pit : (n,) array
        CDF of each row at its true outcome. Where that value has a probability, such as a count or an atom, a number
        drawn uniformly between P(Y < y) and P(Y <= y): the randomised PIT.
    edges, height : (bins + 1,) and (bins,) arrays
        Histogram; a perfect model's bars are 1 high on average.
    band : (low, high)
        95 % of the bars of a perfect model are between these heights.
    ks, p_value : float
        Kolmogorov-Smirnov distance from the uniform distribution, and its p-value.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 60)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.PITDisplay.from_estimator(model, x, x[:, 0] ** 2).pit.shape
    (60,)
    """

    def __init__(self, pit: Array, n_bins: int | None = None) -> None:
        self.pit = np.asarray(pit, dtype=np.float64)
        n = len(self.pit)
        bins = int(np.clip(n // 20, 5, 20)) if n_bins is None else n_bins
        counts, self.edges = np.histogram(self.pit, bins=bins, range=(0.0, 1.0))
        self.height: Array = counts * bins / n
        low, high = binom.ppf(_BAND, n, 1 / bins) * bins / n
        self.band = (float(low), float(high))
        test = kstest(self.pit, "uniform")
        self.ks, self.p_value = float(test.statistic), float(test.pvalue)

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_bins: int | None = None,
        outcome: Outcome = None,
        ax: Axes | None = None,
    ) -> Self:
        """Compute the PIT of rows and draw it.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            Covariates of rows that the model was not trained on.
        y : array, series or frame of shape (n,) or (n, d)
            Their true outcomes.
        n_bins : int, default None
            Bins of the histogram. None: chosen by the number of rows.
        outcome : int or str, default None
            Which of several outcomes, by number or name.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        PITDisplay
            The display, already drawn.
        """
        return cls(_pit(model, X, y, outcome), n_bins).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        PITDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (5.4, 3.4))
        width = np.diff(self.edges)
        self.ax_.bar(self.edges[:-1], self.height, width, align="edge", color=paler(BLUE, 0.6), edgecolor="white")
        self.ax_.axhspan(*self.band, color=GREY, alpha=0.3, linewidth=0, label="95 % of a perfect model's bars")
        self.ax_.axhline(1.0, color=INK, linewidth=1, linestyle="--")
        self.ax_.set(xlabel="PIT: CDF at the true outcome", ylabel="density", xlim=(0, 1))
        self.ax_.set_ylim(0, 1.25 * max(self.height.max(), self.band[1]))
        self.ax_.set_title(f"KS {self.ks:.3f} (p = {self.p_value:.2g}), {len(self.pit)} rows")
        self.ax_.legend(loc="upper right", frameon=False)
        return self


class CalibrationDisplay:
    """Coverage of central intervals: the share of true outcomes inside, against the level.

    For counts, grades and atoms, intervals between values of the outcome would cover more than their level; a true
    outcome at the end of an interval counts as inside as often as its randomised PIT is (see `PITDisplay`), so that a
    perfect model is on the diagonal.

    Attributes
    ----------
    levels, coverage : (m,) arrays
        Levels, and the share of outcomes inside.
    low, high : (m,) arrays
        95 % of perfect models have a coverage between these, level by level.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 61)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.CalibrationDisplay.from_estimator(model, x, x[:, 0] ** 2, levels=[0.5, 0.9]).coverage.shape
    (2,)
    """

    def __init__(self, pit: Array, levels: Sequence[float] = _LEVELS) -> None:
        self.levels = np.asarray(levels, dtype=np.float64)
        if self.levels.ndim != 1 or not ((self.levels > 0) & (self.levels < 1)).all():
            raise ValueError(f"Expected levels between 0 and 1; got {levels!r}.")
        off_centre = np.abs(2 * np.asarray(pit, dtype=np.float64) - 1)
        self.n_rows = len(off_centre)
        self.coverage: Array = (off_centre[:, None] <= self.levels).mean(axis=0)
        self.low, self.high = (binom.ppf(end, self.n_rows, self.levels) / self.n_rows for end in _BAND)

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: ArrayLike,
        y: ArrayLike,
        *,
        levels: Sequence[float] = _LEVELS,
        outcome: Outcome = None,
        ax: Axes | None = None,
    ) -> Self:
        """Compute the coverage of central intervals and draw it.

        Parameters
        ----------
        model : TreeFlowRegressor, or Pipeline or search with one inside
            The fitted model.
        X : array or frame of shape (n, q)
            Covariates of rows that the model was not trained on.
        y : array, series or frame of shape (n,) or (n, d)
            Their true outcomes.
        levels : sequence of float
            Levels of the intervals, between 0 and 1.
        outcome : int or str, default None
            Which of several outcomes, by number or name.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        CalibrationDisplay
            The display, already drawn.
        """
        return cls(_pit(model, X, y, outcome), levels).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        CalibrationDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (4.6, 4.4))
        ends = np.concatenate([[0.0], self.levels, [1.0]])
        low, high = np.concatenate([[0.0], self.low, [1.0]]), np.concatenate([[0.0], self.high, [1.0]])
        self.ax_.fill_between(ends, low, high, color=GREY, alpha=0.25, linewidth=0, label="95 % of perfect models")
        self.ax_.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--")
        self.ax_.plot(self.levels, self.coverage, color=BLUE, marker="o", markersize=4, label="model")
        self.ax_.set(xlabel="level of the central interval", ylabel="share of outcomes inside", xlim=(0, 1))
        self.ax_.set(ylim=(0, 1), aspect="equal", title=f"Coverage of {self.n_rows} rows")
        for axis in (self.ax_.xaxis, self.ax_.yaxis):
            axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        self.ax_.legend(loc="upper left", frameon=False)
        return self


def _pit(model: Model, X: ArrayLike, y: ArrayLike, outcome: Outcome) -> Array:
    """PIT (n,) of each row: the CDF at its true outcome.

    Where the outcome has a probability the CDF has a step, and a place in the step is drawn at random; otherwise the
    PIT of a perfect model would not be uniform.
    """
    distribution = predict_distribution(model, X)
    values = truth(y, outcome, distribution)
    one = one_outcome(distribution, outcome)
    pit = np.asarray(one.cdf(values))
    if isinstance(one, RecordedDistribution):
        below = one.cdf_below(values)
        pit = below + (pit - below) * np.random.default_rng(0).random(len(pit))
    return pit
