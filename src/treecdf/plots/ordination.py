"""Principal coordinates of real and drawn compositions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from treecdf._common.typing import Array
from treecdf.data.compositions import check_samples, read_compositions
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.flows.composition.functionals import shares
from treecdf.plots._style import BLUE, VERMILION, axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class OrdinationDisplay:
    """Principal coordinates (PCoA) of the Bray-Curtis distances of real and drawn samples together.

    Attributes
    ----------
    real, drawn : (n, 2) arrays
        Coordinates of the samples.
    share : (2,) array
        Shares of the variance that the axes have.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import CompositionalFlow, plots
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
    >>> model = CompositionalFlow(random_state=0).fit(x, y)
    >>> plots.OrdinationDisplay.from_estimator(model, x, y).drawn.shape
    (40, 2)
    """

    def __init__(self, real: Array, drawn: Array, share: Array) -> None:
        self.real, self.drawn, self.share = real, drawn, share

    @classmethod
    def from_estimator(
        cls, model: CompositionalFlow, X: ArrayLike, Y: Any, *, random_state: Any = 0, ax: Axes | None = None
    ) -> Self:
        """Draw a sample at each row and compute principal coordinates of real and drawn samples.

        Parameters
        ----------
        model : CompositionalFlow
            The fitted model.
        X : array or frame of shape (n, q)
            Covariates.
        Y : array, frame, sparse matrix or BIOM table of shape (n, taxa)
            Real samples; for models of counts the draws have their depths.
        random_state : int, Generator, RandomState or None, default 0
            Seed of the draws.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        OrdinationDisplay
            The display, already drawn.
        """
        given = read_compositions(Y, model.normalize, model.n_taxa_, getattr(model, "taxa_", None), model.counts)
        check_samples(X, given.samples)
        drawn = model.sample(X, 1, random_state, depth=given.total if model.counts else None)
        points, share = coordinates(np.vstack([given.y, shares(np.asarray(drawn).reshape(given.y.shape))]), 2)
        return cls(points[: len(given.y)], points[len(given.y) :], share).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        OrdinationDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (5.0, 4.2))
        for points, colour, label in ((self.real, BLUE, "real"), (self.drawn, VERMILION, "drawn")):
            self.ax_.scatter(points[:, 0], points[:, 1], s=12, color=colour, alpha=0.6, linewidths=0, label=label)
        self.ax_.set(xlabel=f"axis 1 ({self.share[0]:.0%})", ylabel=f"axis 2 ({self.share[1]:.0%})")
        self.ax_.set_title("principal coordinates, Bray-Curtis")
        self.ax_.legend(frameon=False)
        return self


def coordinates(y: Array, n_axes: int) -> tuple[Array, Array]:
    """The first principal coordinates (n, n_axes) of compositions y (n, taxa), and their shares of the variance."""
    squares = -0.5 * squareform(pdist(y, "braycurtis")) ** 2
    middle = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    n = len(y)
    values, vectors = eigh(middle, subset_by_index=[n - n_axes, n - 1])
    points = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    return points, np.maximum(values[::-1], 0.0) / max(float(np.trace(middle)), 1e-300)
