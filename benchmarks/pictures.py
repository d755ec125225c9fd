"""Pictures of a comparison, one panel a set: time against a score, dots with error bars, histograms of PIT values."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.comparisons import Groups, Score, compared, fit_seconds, metric
from benchmarks.paper_tables import Figure, Table
from benchmarks.peers import PEERS

COLORS = 48  # of the palette; keeps a picture small
GAP = 0.062  # between the labels of a panel, as a share of its height
LETTER = 0.0165  # width of a letter of these labels, as a share of the panel's width
VERDICT_COLORS = {"better": "#1f5fc4", "within": "black", "worse": "#cc2222"}


def draw_times(groups: Groups, score: Score, path: Path) -> bool:
    """Mean seconds of a fit (log scale) against the mean score, better is up; False where nothing has the score."""
    panels = {}
    for (dataset, method), rows in groups.items():
        values = metric(rows, score.key)
        if len(values):
            panels.setdefault(dataset, {})[method] = (fit_seconds(rows), float(np.mean(values)))
    if not panels:
        return False
    plt = pyplot()
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
    save(figure, path)
    return True


def _time_panel(axis, points: dict[str, tuple[float, float]], score: Score) -> None:
    seconds, values = np.array(list(points.values())).T
    low, high = shown_range(values, score.higher_is_better)
    axis.set_xscale("log")
    axis.set_ylim((low, high) if score.higher_is_better else (high, low))
    shown = np.clip(values, low, high)
    longest = max(len(_label(*one)) for one in zip(points, values, shown, strict=True))
    room = LETTER * longest + 0.06  # of the panel's width, for the labels
    decades = np.log10(4 * seconds.max() / seconds.min())
    axis.set_xlim(seconds.min() / 2, 2 * seconds.max() * 10 ** (decades * room / (1 - room)))
    heights = axis.transLimits.transform([(0.0, value) for value in shown])[:, 1]
    for k, height in zip(np.argsort(heights), spread(np.sort(heights), GAP), strict=True):
        method, ours = list(points)[k], list(points)[k] not in PEERS
        color = "C3" if ours else "C0"
        beyond = values[k] != shown[k]
        axis.plot(seconds[k], shown[k], "v" if beyond else "o", color=color, markersize=5, clip_on=False)
        text = axis.annotate(
            _label(method, values[k], shown[k]),
            (seconds[k], shown[k]),
            xytext=(0.985, height),
            textcoords="axes fraction",
            ha="right",
            va="center",
            color=color,
            fontsize=7.5,
            weight="bold" if ours else "normal",
            arrowprops={"arrowstyle": "-", "color": "0.8", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3},
        )
        text.set_in_layout(False)  # else the layout measures every label again and again


def _label(method: str, value: float, shown: float) -> str:
    """Name of a method, with its value if that is beyond the panel."""
    return method if value == shown else f"{method} ({value:.3g})"


def shown_range(values: np.ndarray, higher_is_better: bool, reach: float = 3.0) -> tuple[float, float]:
    """Ends of an axis that a few very bad values, or infinite ones, do not stretch: they are drawn at its bad end.

    It goes from the best value `reach` times as far as to the median, or to the worst value if that is nearer.
    """
    sign = 1.0 if higher_is_better else -1.0
    gains = np.sort(sign * np.asarray(values)[np.isfinite(values)])
    middle = np.median(gains)
    low = max(gains[0], gains[-1] - reach * max(gains[-1] - middle, 1e-6))
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


def draw_dots(figures: Table, subject: str, path: Path) -> bool:
    """Means with standard errors, methods down, one panel a set, coloured by how `subject` compares with each of them.

    Higher is better. False, and no picture, where there is nothing of the subject.
    """
    datasets = list(figures.get(subject, {}))
    if not datasets:
        return False
    columns = min(4, len(datasets))
    lines = -(-len(datasets) // columns)
    size = (2.75 * columns + 1.2, (0.2 * len(figures) + 0.65) * lines + 0.6)
    canvas, axes = pyplot().subplots(lines, columns, figsize=size, sharey=True, layout="constrained", squeeze=False)
    for axis, dataset in zip(axes.flat, datasets, strict=False):
        _dot_panel(axis, [row.get(dataset) for row in figures.values()], list(figures).index(subject))
        axis.set_title(dataset, fontsize="medium")
    for axis in axes.flat[len(datasets) :]:
        axis.axis("off")
    axes[0, 0].set_ylim(len(figures) - 0.4, -0.6)
    axes[0, 0].set_yticks(range(len(figures)), figures)
    for text in (text for axis in axes[:, 0] for text in axis.get_yticklabels()):
        text.set_weight("bold" if text.get_text().startswith("ours: ") else "normal")
    dots = [axes[0, 0].plot([], [], "o", color=color, markersize=5)[0] for color in VERDICT_COLORS.values()]
    words = [f'"{subject}" is {verdict}' for verdict in ("better", "within one standard error", "worse")]
    canvas.suptitle("Test log-likelihood, mean and standard error; further right is better", fontsize=10)
    canvas.legend(dots, words, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(canvas, path)
    return True


def _dot_panel(axis, figures: Sequence[Figure | None], subject: int) -> None:
    """One line for each figure from top to bottom; those far off are triangles at the edge with their mean."""
    low, high = shown_range(np.array([one[0] for one in figures if one]), True, reach=2.0)
    axis.set_xlim(low, high)
    axis.tick_params(axis="both", labelsize=8, length=0)
    axis.grid(axis="y", color="0.93", linewidth=0.8)
    axis.set_axisbelow(True)
    mean, se = figures[subject]
    axis.axvspan(mean - (se or 0.0), mean + (se or 0.0), color="0.87", linewidth=0.8)
    for line, one in enumerate(figures):
        if one is None:
            continue
        color = VERDICT_COLORS[compared(figures[subject], one)]
        if one[0] < low:
            axis.plot(low, line, "<", color=color, markersize=5, clip_on=False)
            place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axis.annotate(
                f"{one[0]:.3g}".replace("-", "\N{MINUS SIGN}"), (low, line), fontsize=7.5, color=color, **place
            )
            continue
        marker, size = ("D", 5) if line == subject else ("o", 4)
        axis.errorbar(one[0], line, xerr=one[1], fmt=marker, color=color, markersize=size, elinewidth=1, capsize=1.5)


def draw_pits(groups: Groups, path: Path) -> bool:
    """Histograms of PIT values, methods down and sets across, flat where calibrated; False where no row has any."""
    counts = {key: np.sum(found, axis=0) for key, rows in groups.items() if len(found := metric(rows, "pit_counts"))}
    if not counts:
        return False
    datasets = list(dict.fromkeys(dataset for dataset, _ in counts))
    methods = list(dict.fromkeys(method for _, method in counts))
    plt = pyplot()
    size = (1.15 * len(datasets) + 1.3, 0.62 * len(methods) + 0.6)
    figure, axes = plt.subplots(len(methods), len(datasets), figsize=size, layout="constrained", squeeze=False)
    for line, method in zip(axes, methods, strict=True):
        line[0].set_ylabel(method, rotation=0, ha="right", va="center", fontsize=8)
        for axis, dataset in zip(line, datasets, strict=True):
            _pit_panel(axis, counts.get((dataset, method)))
    for axis, dataset in zip(axes[0], datasets, strict=True):
        axis.set_title(dataset, fontsize=8)
    save(figure, path)
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


def pyplot():
    """matplotlib.pyplot, drawing into files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, path: Path) -> None:
    """As a PNG of few colours."""
    from PIL import Image

    content = io.BytesIO()
    figure.savefig(content, dpi=90, format="png")
    pyplot().close(figure)
    picture = Image.open(content).convert("RGB").quantize(COLORS, method=Image.Quantize.MEDIANCUT)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, optimize=True)
