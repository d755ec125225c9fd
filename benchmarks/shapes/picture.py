"""One picture: the true density beside the learnt one, for every truth with one covariate."""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from benchmarks.methods import METHODS
from benchmarks.pictures import pyplot, save
from benchmarks.shapes.truths import SHAPES, Shape

N = 3_000  # rows that are fitted
AT = 0.5  # x at which two outcomes are drawn
STEPS = 120  # of a panel's axes
COLUMNS = 3  # pairs of panels in a line
BRIGHTEST = 0.99  # quantile of the true densities that has the darkest colour


def draw_shapes(path: Path, names: Sequence[str] | None = None, method: str = "treecdf") -> None:
    """Fit the method to rows of each truth with one covariate and draw both densities in one file."""
    shown = {name: shape for name, shape in SHAPES.items() if shape.window and (names is None or name in names)}
    lines = -(-len(shown) // COLUMNS)
    figure, axes = pyplot().subplots(
        lines, 2 * COLUMNS, figsize=(2.1 * 2 * COLUMNS, 2.1 * lines), layout="constrained", squeeze=False
    )
    pairs = axes.reshape(-1, 2)
    for (left, right), (name, shape) in zip(pairs, shown.items(), strict=False):
        rng = np.random.default_rng([0, crc32(name.encode())])
        model = METHODS[method](0, shape.d).fit(*shape.sample(N, rng))
        _pair(left, right, shape, densities(shape, shape.log_density), densities(shape, model.log_prob))
        left.set_title(f"{name}, true", fontsize=8)
        right.set_title(f"learnt, {method}", fontsize=8)
    for axis in pairs[len(shown) :].flat:
        axis.axis("off")
    save(figure, path)


def grid(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Points of both axes of a panel: x and y, or the two outcomes."""
    ends = shape.window if shape.d == 1 else (shape.window[1], shape.window[1])
    return tuple(_middles(*end) for end in ends)


def densities(shape: Shape, log_density) -> np.ndarray:
    """The density (STEPS, STEPS) at the points of the grid, the first axis down."""
    first, second = (part.ravel() for part in np.meshgrid(*grid(shape), indexing="ij"))
    if shape.d == 1:
        found = log_density(first[:, None], second)
    else:
        found = log_density(np.full((len(first), 1), AT), np.column_stack([first, second]))
    return np.exp(found).reshape(STEPS, STEPS)


def _middles(low: float, high: float) -> np.ndarray:
    """Middles of STEPS equal pieces, so that no point is on an end."""
    return low + (high - low) * (np.arange(STEPS) + 0.5) / STEPS


def _pair(left, right, shape: Shape, true: np.ndarray, learnt: np.ndarray) -> None:
    """Two panels of the same colours."""
    for axis, values in ((left, true), (right, learnt)):
        axis.pcolormesh(*grid(shape), values.T, vmin=0, vmax=np.quantile(true, BRIGHTEST), cmap="magma_r")
        axis.tick_params(labelsize=6)
    right.set_yticklabels([])
