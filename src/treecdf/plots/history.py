"""The training history of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from treecdf._common.typing import Array, Ints
from treecdf.plots._style import COLOURS, GREY, INK, axes, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType


class WithHistory(Protocol):
    """A fitted model with a training history."""

    history_: Mapping[str, Array | Ints]


class HistoryDisplay:
    """Mean log-likelihood of training and validation rows after every tree.

    A stage ends a few trees after its best one; the trees after the best are dropped (drawn pale), and the next stage
    starts from the best one.

    Attributes
    ----------
    member, stage, train, validation, kept : (trees,) arrays
        As in the model's `history_`.
    n_trees : (trees,) array
        Number of trees of the member at that time, without those dropped before.
    best : dict of int
        For each member that kept trees, the index in these arrays of its last tree kept.

    Examples
    --------
    >>> import numpy as np
    >>> from treecdf import TreeFlowRegressor, plots
    >>> x = np.linspace(0, 1, 65)[:, None]
    >>> model = TreeFlowRegressor(effort="fast", max_trees=5, random_state=0).fit(x, x[:, 0] ** 2)
    >>> plots.HistoryDisplay.from_estimator(model).n_trees[0].item()
    1
    """

    def __init__(self, history: Mapping[str, Array | Ints]) -> None:
        self.member, self.stage, self.kept = history["member"], history["stage"], history["kept"].astype(bool)
        self.train, self.validation = history["train"], history["validation"]
        self.n_trees = np.zeros(len(self.member), dtype=np.int64)
        self.best: dict[int, int] = {}
        for member in np.unique(self.member):
            before = 0
            for rows in self._stages(member):
                self.n_trees[rows] = before + np.arange(1, len(rows) + 1)
                before += int(self.kept[rows].sum())
                if self.kept[rows].any():
                    self.best[int(member)] = int(rows[self.kept[rows]][-1])

    @classmethod
    def from_estimator(cls, model: WithHistory, *, ax: Axes | None = None) -> Self:
        """Draw the training history of a fitted model.

        Parameters
        ----------
        model : TreeFlowRegressor
            The fitted model; without any tree there is nothing to draw, and a ValueError says so.
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        HistoryDisplay
            The display, already drawn.
        """
        check_is_fitted(model)
        if not len(model.history_["member"]):
            raise ValueError("The model has grown no trees: there is no history to draw.")
        return cls(model.history_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on the given axes or on a new figure.

        Parameters
        ----------
        ax : Axes, default None
            Where to draw. None: a new figure.

        Returns
        -------
        HistoryDisplay
            The display itself; `figure_` and `ax_` are what was drawn on.
        """
        self.figure_, self.ax_ = axes(ax, (6.4, 3.8))
        members = np.unique(self.member)
        for member, colour in zip(members, colours(len(members)), strict=True):
            self._draw_member(int(member), colour, len(members))
        for label, style in (("validation", "-"), ("training", "--")):
            if label == "training" or np.isfinite(self.validation).any():
                self.ax_.plot([], [], color=INK, linestyle=style, label=label)
        if len(members) > 1 and len(np.unique(self.stage)) > 1:
            self.ax_.plot([], [], color=INK, linestyle="", marker="|", markersize=12, label="next stage")
        self.ax_.plot([], [], color=INK, linestyle="", marker="o", label="best, later trees dropped")
        self.ax_.set(xlabel="trees", ylabel="mean log-likelihood", title="Training")
        self.ax_.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # of the AutoLocator
        self.ax_.set_xlim(left=0)
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(members) > 1 else {"loc": "best"}
        self.ax_.legend(frameon=False, **beside)
        return self

    def _draw_member(self, member: int, colour: ColorType, n_members: int) -> None:
        scores = {"--": self.train, "-": self.validation}
        start: Ints = np.zeros(0, dtype=np.int64)
        label = f"member {member}" if 1 < n_members <= len(COLOURS) else None
        if label:
            self.ax_.plot([], [], color=colour, linewidth=4, label=label)
        stages = self._stages(member)
        for number, rows in enumerate(stages):
            kept = np.concatenate([start, rows[self.kept[rows]]])
            dropped = np.concatenate([kept[-1:], rows[~self.kept[rows]]])
            for style, score in scores.items():
                width = 1.8 if style == "-" else 1.1
                self.ax_.plot(self.n_trees[kept], score[kept], color=colour, linestyle=style, linewidth=width)
                self.ax_.plot(self.n_trees[dropped], score[dropped], color=colour, linestyle=style, alpha=0.3)
            if len(stages) > 1 and n_members == 1:
                self._draw_boundary(number, int(self.n_trees[rows[0]]) - 1)
            elif len(start):
                self.ax_.plot(self.n_trees[start], self.validation[start], "|", color=colour, markersize=12)
            start = kept[-1:]
        if member in self.best:
            best = self.best[member]
            score_at = self.validation[best] if np.isfinite(self.validation[best]) else self.train[best]
            self.ax_.plot(self.n_trees[best], score_at, marker="o", color=colour, markeredgecolor="white", zorder=4)

    def _draw_boundary(self, number: int, place: int) -> None:
        if number:
            self.ax_.axvline(place, color=GREY, linewidth=1, linestyle=":")
        self.ax_.annotate(
            f"stage {number + 1}",
            (place, 0),
            (4, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=INK,
            fontsize="small",
        )

    def _stages(self, member: int) -> list[Ints]:
        """Indices of the member's trees, stage by stage."""
        own = np.flatnonzero(self.member == member)
        return [own[self.stage[own] == stage] for stage in np.unique(self.stage[own])]
