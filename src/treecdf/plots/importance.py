"""Importances of the covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from treecdf._common.typing import Array
from treecdf.plots._style import BLUE, axes
from treecdf.plots._tables import feature_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class WithImportances(Protocol):
    """A fitted model with importances of its covariates."""

    @property
    def feature_importances_(self) -> Array:
        """Importances (q,) of the covariates."""
        ...


class ImportanceDisplay:
    """Bars of the feature importances, the largest on top.

    Attributes
    ----------
    importances : (k,) array
        Largest first.
    names : list of str
        The covariates' names in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 66)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.ImportanceDisplay.from_estimator(model).names
    ['x0']
    """

    def __init__(self, importances: Array, names: list[str]) -> None:
        order = np.argsort(-np.asarray(importances), kind="stable")
        self.importances: Array = np.asarray(importances, dtype=np.float64)[order]
        self.names = [names[j] for j in order]

    @classmethod
    def from_estimator(cls, model: WithImportances, *, max_features: int = 20, ax: Axes | None = None) -> Self:
        """Draw the importances of a fitted model.

        Parameters
        ----------
        model : TreeFlowRegressor
            The fitted model.
        max_features : int, default 20
            Bars to draw at most, the largest importances.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        ImportanceDisplay
            The display, already drawn.
        """
        check_is_fitted(model)
        importances = model.feature_importances_
        return cls(importances, feature_names(model, None, len(importances))).plot(ax, max_features=max_features)

    def plot(self, ax: Axes | None = None, *, max_features: int = 20) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.
        max_features : int, default 20
            Bars to draw at most, the largest importances.

        Returns
        -------
        ImportanceDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        shown = self.importances[:max_features]
        self.figure_, self.ax_ = axes(ax, (5.4, 0.9 + 0.32 * len(shown)))
        bars = self.ax_.barh(self.names[:max_features], shown, color=BLUE, height=0.7)
        self.ax_.bar_label(bars, [f"{100 * value:.0f} %" for value in shown], padding=4, fontsize="small")
        self.ax_.invert_yaxis()
        self.ax_.spines[["bottom", "left"]].set_visible(False)
        self.ax_.tick_params(left=False, bottom=False, labelbottom=False)
        self.ax_.set_xlim(0, 1.12 * max(float(shown.max(initial=0.0)), 1e-9))
        left = len(self.names) - len(shown)
        self.ax_.set_title("Importance" + (f" ({left} smaller ones not shown)" if left else ""))
        self.ax_.set_xlabel("share of the log-likelihood lost when shuffled")
        return self
