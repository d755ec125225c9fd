"""Pictures of a comparison: time against a score, one panel a set, and histograms of PIT values."""

import io
from pathlib import Path

import numpy as np

from benchmarks.comparisons import Groups, Score, fit_seconds, metric
from benchmarks.peers import PEERS

COLORS = 48  # of the palette; keeps a picture small
GAP = 0.062  # between the labels of a panel, as a share of its height


def draw_times(groups: Groups, score: Score, path: Path) -> bool:
    """Mean seconds of a fit (log scale) against the mean score, better is up; False where nothing has the score."""
    panels = {}
    for (dataset, method), rows in groups.items():
        values = metric(rows, score.key)
        if len(values):
            panels.setdefault(dataset, {})[method] = (fit_seconds(rows), float(np.mean(values)))
    if not panels:
        return False
    plt = _pyplot()
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    size = (4.2 * columns, 3.3 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis, (dataset, points) in zip(axes.flat, panels.items(), strict=False):
        _time_panel(axis, points, score)
        axis.set_title(dataset, fontsize="medium")
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    figure.supxlabel("processor seconds of a fit (log scale)")
    figure.supylabel(f"{score.label}, better is up")
    _save(figure, path)
    return True


def _time_panel(axis, points: dict[str, tuple[float, float]], score: Score) -> None:
    seconds, values = np.array(list(points.values())).T
    low, high = shown_range(values, score.higher_is_better)
    axis.set_xscale("log")
    axis.set_xlim(seconds.min() / 2, seconds.max() * 25)  # room for the labels
    axis.set_ylim((low, high) if score.higher_is_better else (high, low))
    shown = np.clip(values, low, high)
    heights = axis.transLimits.transform([(0.0, value) for value in shown])[:, 1]
    for k, height in zip(np.argsort(heights), spread(np.sort(heights), GAP), strict=True):
        method, ours = list(points)[k], list(points)[k] not in PEERS
        color = "C3" if ours else "C0"
        beyond = values[k] != shown[k]
        axis.plot(seconds[k], shown[k], "v" if beyond else "o", color=color, markersize=5, clip_on=False)
        text = axis.annotate(
            f"{method} ({values[k]:.3g})" if beyond else method,
            (seconds[k], shown[k]),
            xytext=(1.0, height),
            textcoords="axes fraction",
            ha="right",
            va="center",
            color=color,
            fontsize=7.5,
            weight="bold" if ours else "normal",
            arrowprops={"arrowstyle": "-", "color": "0.8", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        )
        text.set_in_layout(False)  # else the layout measures every label again and again


def shown_range(values: np.ndarray, higher_is_better: bool) -> tuple[float, float]:
    """Ends of an axis that a few very bad values, or infinite ones, do not stretch: they are drawn at its bad end."""
    sign = 1.0 if higher_is_better else -1.0
    gains = np.sort(sign * np.asarray(values)[np.isfinite(values)])
    middle = np.median(gains)
    low = max(gains[0], gains[-1] - 3.0 * max(gains[-1] - middle, 1e-6))
    margin = 0.08 * max(gains[-1] - low, 1e-6)
    ends = sign * (low - margin), sign * (gains[-1] + margin)
    return min(ends), max(ends)


def spread(heights: np.ndarray, gap: float) -> np.ndarray:
    """Increasing heights in (0, 1) pushed up, then down from the top, until neighbours are `gap` apart."""
    gap = min(gap, 1.0 / len(heights))
    moved = np.array(heights, dtype=float)
    floor = gap / 2
    for k in range(len(moved)):
        moved[k] = floor = max(moved[k], floor)
        floor += gap
    ceiling = 1.0 - gap / 2
    for k in reversed(range(len(moved))):
        moved[k] = ceiling = min(moved[k], ceiling)
        ceiling -= gap
    return moved


def draw_pits(groups: Groups, path: Path) -> bool:
    """Histograms of PIT values, methods down and sets across, flat where calibrated; False where no row has any."""
    counts = {key: np.sum(found, axis=0) for key, rows in groups.items() if len(found := metric(rows, "pit_counts"))}
    if not counts:
        return False
    datasets = list(dict.fromkeys(dataset for dataset, _ in counts))
    methods = list(dict.fromkeys(method for _, method in counts))
    plt = _pyplot()
    size = (1.15 * len(datasets) + 1.3, 0.62 * len(methods) + 0.6)
    figure, axes = plt.subplots(len(methods), len(datasets), figsize=size, layout="constrained", squeeze=False)
    for line, method in zip(axes, methods, strict=True):
        line[0].set_ylabel(method, rotation=0, ha="right", va="center", fontsize=8)
        for axis, dataset in zip(line, datasets, strict=True):
            _pit_panel(axis, counts.get((dataset, method)))
    for axis, dataset in zip(axes[0], datasets, strict=True):
        axis.set_title(dataset, fontsize=8)
    _save(figure, path)
    return True


def _pit_panel(axis, counts: np.ndarray | None) -> None:
    """Density of the PIT values and, in grey, two standard errors about the flat one."""
    axis.set(xticks=(), yticks=(), xlim=(0, 1), ylim=(0, 2.5))
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    if counts is None:
        return
    bins, n = len(counts), counts.sum()
    error = 2 * np.sqrt((bins - 1) / n)
    axis.axhspan(1 - error, 1 + error, color="0.88", linewidth=0)
    axis.stairs(counts * bins / n, np.linspace(0, 1, bins + 1), fill=True, color="C0", alpha=0.7)
    axis.axhline(1, color="0.3", linewidth=0.6)


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure, path: Path) -> None:
    """As a PNG of few colours."""
    from PIL import Image

    content = io.BytesIO()
    figure.savefig(content, dpi=90, format="png")
    _pyplot().close(figure)
    picture = Image.open(content).convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
