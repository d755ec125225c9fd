"""What all pictures share: colours that colour-blind people can tell apart, and axes without junk."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import ColorType

# Okabe and Ito's colours, the darker ones first.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
INK, GREY = "#333333", "#8c8c8c"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK, GREY)
DENSITY_MAP = "magma_r"
_MOST_CHARACTERS = 60  # of all names on an axis; more are written at an angle


def pyplot() -> ModuleType:
    """matplotlib.pyplot, or a complaint that says how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Pictures need matplotlib: pip install 'treecdf[plots]'.") from None
    return plt


def axes(ax: Axes | None, size: tuple[float, float] = (6.0, 3.8)) -> tuple[Figure, Axes]:
    """Figure and axes to draw on: those of `ax`, or new ones."""
    if ax is None:
        figure, ax = pyplot().subplots(figsize=size, layout="constrained")
    else:
        figure = cast("Figure", ax.figure)  # or a part of a figure, which is drawn on in the same way
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def lay_out(ax: Axes, values: Array | NDArray[np.datetime64] | list[str]) -> Array:
    """Positions (m,) on the axis of values (m,) of a covariate: numbers, dates, or names side by side."""
    if isinstance(values, list):
        place = np.arange(len(values), dtype=np.float64)
        is_long = sum(map(len, values)) > _MOST_CHARACTERS
        ax.set_xticks(place, values, rotation=45 if is_long else 0, ha="right" if is_long else "center")
        return place
    if values.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

        ticks = AutoDateLocator()
        ax.xaxis.set_major_locator(ticks)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(ticks))
        return np.asarray(date2num(values), dtype=np.float64)
    return np.asarray(values, dtype=np.float64)


def paler(colour: str, strength: float) -> tuple[float, float, float]:
    """The colour mixed with white: 0 is white, 1 the colour itself."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def colours(n: int) -> list[ColorType]:
    """n colours that can be told apart, from a scale of colours if there are many."""
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    return list(pyplot().get_cmap("viridis")([k / n for k in range(n)]))
