"""Compositions as one covariate runs over its range: stacked mean abundances, and how often taxa are present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecdf._common.typing import Array
from treecdf._common.validation import check_setting, is_int
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.flows.composition.functionals import shares
from treecdf.plots._style import GREY, axes, colours, lay_out, paler, pyplot
from treecdf.plots._tables import Covariates, Dates, Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False, "fontsize": "small"}


class AbundanceDisplay:
    """Stacked mean abundances of the most abundant taxa along one covariate; the other covariates are held fixed.

    Attributes
    ----------
    values : (m,) array, or list of names
        Values of the covariate.
    taxa : list of str
        The taxa shown, the most abundant first, and "others".
    abundance : (m, len(taxa)) array
        Means over draws; each row sums to one.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import CompositionalFlow, plots
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
    >>> model = CompositionalFlow(random_state=0).fit(x, y)
    >>> plots.AbundanceDisplay.from_estimator(model, x, 0, n_taxa=2, n_grid=5).abundance.shape
    (5, 3)
    """

    def __init__(self, values: Array | Dates | list[str], taxa: list[str], abundance: Array, name: str = "x") -> None:
        self.values, self.taxa, self.abundance, self.name = values, taxa, abundance, name

    @classmethod
    def from_estimator(
        cls,
        model: CompositionalFlow,
        X: ArrayLike,
        feature: int | str,
        *,
        at: Mapping[int | str, float | str] | None = None,
        n_taxa: int = 8,
        n_grid: int = 12,
        n_draws: int = 200,
        random_state: Any = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Compute mean abundances along a covariate and draw them.

        Parameters
        ----------
        model : CompositionalFlow
            The fitted model.
        X : array or frame of shape (n, q)
            Rows that give the range of the covariate and typical values of the others.
        feature : int or str
            The covariate on the x-axis, by number or name.
        at : dict, default None
            Values at which other covariates are held, by name or number. None: medians, and the commonest category.
        n_taxa : int, default 8
            Taxa with a colour of their own, the most abundant over that range; all others share one.
        n_grid : int, default 12
            Values of the covariate.
        n_draws : int, default 200
            Draws at each value.
        random_state : int, Generator, RandomState or None, default 0
            Seed of the draws.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        AbundanceDisplay
            The display, already drawn.
        """
        check_setting("n_taxa", n_taxa, is_int(n_taxa) and n_taxa >= 1, "an integer of at least 1")
        covariates = Covariates(model, X)
        j = covariates.find(feature)
        grid, rows = _rows(covariates, j, n_grid, at)
        drawn = np.asarray(model.sample(rows, n_draws, random_state)).reshape(-1, model.n_taxa_)
        mean = grid.mean(shares(drawn).reshape(-1, n_draws, model.n_taxa_).mean(axis=1))
        shown = np.argsort(-mean.mean(axis=0), kind="stable")[:n_taxa]
        others = np.setdiff1d(np.arange(model.n_taxa_), shown)
        abundance = np.column_stack([mean[:, shown], mean[:, others].sum(axis=1)])
        names = _names(model)
        return cls(grid.shown, [*(names[k] for k in shown), "others"], abundance, covariates.names[j]).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        AbundanceDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (7.0, 3.8))
        place = lay_out(self.ax_, self.values)
        width = 0.9 * (float(np.diff(place).min()) if len(place) > 1 else 1.0)
        palette = [*_shades(len(self.taxa) - 1), paler(GREY, 0.4)]
        bottom = np.zeros(len(place))
        for name, part, colour in zip(self.taxa, self.abundance.T, palette, strict=True):
            self.ax_.bar(place, part, width, bottom=bottom, color=colour, linewidth=0, label=name)
            bottom = bottom + part
        self.ax_.set(xlabel=self.name, ylabel="mean abundance", ylim=(0, 1))
        self.ax_.set_title(f"composition given {self.name}")
        handles, labels = self.ax_.get_legend_handles_labels()
        self.ax_.legend(handles[::-1], labels[::-1], **_BESIDE)
        return self


class PrevalenceDisplay:
    """The probability that taxa are present along one covariate; the other covariates are held fixed.

    Attributes
    ----------
    values : (m,) array, or list of names
        Values of the covariate.
    taxa : list of str
        The taxa shown.
    prevalence : (m, len(taxa)) array
        Probabilities of presence; for counts, of at least one read.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import CompositionalFlow, plots
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
    >>> model = CompositionalFlow(random_state=0).fit(x, y)
    >>> plots.PrevalenceDisplay.from_estimator(model, x, 0, taxa=[0, 2], n_grid=5).prevalence.shape
    (5, 2)
    """

    def __init__(self, values: Array | Dates | list[str], taxa: list[str], prevalence: Array, name: str = "x") -> None:
        self.values, self.taxa, self.prevalence, self.name = values, taxa, prevalence, name

    @classmethod
    def from_estimator(
        cls,
        model: CompositionalFlow,
        X: ArrayLike,
        feature: int | str,
        *,
        taxa: Sequence[int | str] | None = None,
        at: Mapping[int | str, float | str] | None = None,
        depth: ArrayLike | None = None,
        n_grid: int = 40,
        n_draws: int = 200,
        random_state: Any = 0,
        ax: Axes | None = None,
    ) -> Self:
        """Compute probabilities of presence along a covariate and draw them.

        Parameters
        ----------
        model : CompositionalFlow
            The fitted model.
        X : array or frame of shape (n, q)
            Rows that give the range of the covariate and typical values of the others.
        feature : int or str
            The covariate on the x-axis, by number or name.
        taxa : list of int or str, default None
            Taxa to show, by number or name. None: the eight whose presence depends most on the covariate.
        at : dict, default None
            Values at which other covariates are held, by name or number. None: medians, and the commonest category.
        depth : int, default None
            For models of counts: reads per sample. None: depths like those of the training samples.
        n_grid : int, default 40
            Values of the covariate.
        n_draws : int, default 200
            Drawn presences that the probabilities are means over.
        random_state : int, Generator, RandomState or None, default 0
            Seed of these draws.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        PrevalenceDisplay
            The display, already drawn.
        """
        covariates = Covariates(model, X)
        j = covariates.find(feature)
        grid, rows = _rows(covariates, j, n_grid, at)
        present = grid.mean(1 - np.asarray(model.zero_prob(rows, n_draws, random_state, depth=depth)))
        names = _names(model)
        chosen = np.argsort(-np.ptp(present, axis=0), kind="stable")[:8] if taxa is None else _find(taxa, names)
        return cls(grid.shown, [names[k] for k in chosen], present[:, chosen], covariates.names[j]).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        PrevalenceDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (7.0, 3.8))
        place = lay_out(self.ax_, self.values)
        style = "o" if isinstance(self.values, list) else "-"
        for name, part, colour in zip(self.taxa, self.prevalence.T, colours(len(self.taxa)), strict=True):
            self.ax_.plot(place, part, style, color=colour, linewidth=1.8, label=name)
        self.ax_.set(xlabel=self.name, ylabel="probability of presence", ylim=(0, 1.02))
        self.ax_.set_title(f"prevalence given {self.name}")
        self.ax_.legend(**_BESIDE)
        return self


def _rows(
    covariates: Covariates, j: int, n_grid: int, at: Mapping[int | str, float | str] | None
) -> tuple[Grid, ArrayLike]:
    """The values that column j runs over, and rows with these and typical other values."""
    grid = covariates.grid(j, n_grid)
    columns = covariates.typical(len(grid.column), at or {})
    columns[j] = grid.column
    return grid, covariates.table(columns)


def _names(model: CompositionalFlow) -> list[str]:
    """Names of the taxa, or their numbers."""
    return list(getattr(model, "taxa_", [f"taxon {k}" for k in range(model.n_taxa_)]))


def _find(taxa: Sequence[int | str], names: list[str]) -> list[int]:
    """Numbers of the taxa that are given by name or number."""
    found = []
    for taxon in taxa:
        if isinstance(taxon, str) and taxon in names:
            found.append(names.index(taxon))
        elif is_int(taxon) and 0 <= int(taxon) < len(names):
            found.append(int(taxon))
        else:
            raise ValueError(f"Expected taxa to be numbers below {len(names)} or names of taxa; got {taxon!r}.")
    return found


def _shades(n: int) -> list[Any]:
    """n colours for stacked bars; neighbouring ones are easy to tell apart."""
    return colours(n) if n <= 6 else list(pyplot().get_cmap("tab20")([k % 20 for k in range(n)]))
