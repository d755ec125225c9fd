"""Methods side by side: means with the best in bold, ranks, and who wins on how many sets."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.paper_tables import Figure, Table
from benchmarks.peers import PEERS

Groups = dict[tuple[str, str], list[dict]]  # rows by set and method


@dataclass(frozen=True)
class Score:
    """A metric of the rows, how it is called and which way is up."""

    key: str
    label: str
    higher_is_better: bool = True


def label(method: str) -> str:
    """Name of a method in tables of ours, the peers and the paper."""
    return method if method in PEERS else f"ours: {method}"


def metric(rows: Sequence[dict], key: str) -> np.ndarray:
    """Values of a metric in those rows that have it; NaN, the CRPS of a Student t without a mean, is not having it."""
    values = [row["metrics"][key] for row in rows if key in row["metrics"]]
    return np.array([value for value in values if not np.isnan(value).any()])


def fit_seconds(rows: Sequence[dict]) -> float:
    """Mean processor seconds of a fit on one thread; early rows have wall time alone."""
    return float(np.mean([row["seconds"].get("fit_cpu", row["seconds"]["fit"]) for row in rows]))


def figure_of(values: np.ndarray) -> Figure:
    """Mean and standard error; the standard error needs two values, all finite, and is None without them."""
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(values).all():
        return mean, None
    return mean, float(np.std(values, ddof=1) / np.sqrt(len(values)))


def mean_se(values: np.ndarray) -> str:
    """Mean and standard error as text."""
    mean, se = figure_of(values)
    digits = ".3f" if 0.01 <= abs(mean) < 1e4 or mean == 0 or not np.isfinite(mean) else ".1e"
    return f"{mean:{digits}}" if se is None else f"{mean:{digits}} ± {se:{digits}}"


def compared(ours: Figure, other: Figure, higher_is_better: bool = True) -> str:
    """ "better" or "worse" where ours differs by more than one standard error of the difference, else "within".

    The errors of the two are independent; a figure without a standard error counts as exact.
    """
    error = math.hypot(ours[1] or 0.0, other[1] or 0.0)
    gain = (ours[0] - other[0]) * (1.0 if higher_is_better else -1.0)
    if gain > error:
        return "better"
    return "worse" if gain < -error else "within"


def published(figure: Figure) -> str:
    """A figure of the paper as text."""
    value, se = figure
    return f"{value:g}" if se is None else f"{value:g} ± {se:g}"


def side_by_side(groups: Groups, score: Score, paper: Table | None = None) -> tuple[list[str], list[list[str]]]:
    """Methods down, sets across, the mean rank at the end: ours and the peers, then the paper's."""
    means, texts = defaultdict(dict), defaultdict(dict)
    for (dataset, method), rows in groups.items():
        values = metric(rows, score.key)
        if len(values):
            means[label(method)][dataset] = float(np.mean(values))
            texts[label(method)][dataset] = mean_se(values)
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups if any(dataset in row for row in means.values())))
    for method, row in (paper or {}).items():
        for dataset, figure in row.items():
            if dataset in datasets:
                means[f"paper: {method}"][dataset] = figure[0]
                texts[f"paper: {method}"][dataset] = published(figure)
    ranks = mean_ranks(means, datasets, score.higher_is_better)
    best = {dataset: _best(means, dataset, score.higher_is_better) for dataset in datasets}
    lines = []
    for method, row in texts.items():
        cells = [_bold(row.get(name, ""), means[method].get(name) == best[name]) for name in datasets]
        lines.append([method, *cells, f"{ranks[method]:.1f} ({len(row)})"])
    return ["method", *datasets, "mean rank (sets)"], lines


def mean_ranks(means: dict[str, dict[str, float]], datasets: Sequence[str], higher_is_better: bool) -> dict[str, float]:
    """Mean over the sets that a method has of its rank there; 1 is best, equals share their mean rank."""
    sign = -1.0 if higher_is_better else 1.0
    found = defaultdict(list)
    for dataset in datasets:
        values = {method: sign * row[dataset] for method, row in means.items() if dataset in row}
        for method, value in values.items():
            before = sum(other < value for other in values.values())
            equal = sum(other == value for other in values.values())
            found[method].append(before + (equal + 1) / 2)
    return {method: float(np.mean(ranks)) for method, ranks in found.items()}


def win_tie_loss(groups: Groups, score: Score) -> tuple[list[str], list[list[str]]]:
    """Sets on which the method of a line wins, ties and loses against that of a column."""
    methods = [name for name in dict.fromkeys(method for _, method in groups) if _has(groups, name, score.key)]
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    lines = []
    for one in methods:
        cells = []
        for other in methods:
            outcomes = [verdict(groups.get((name, one)), groups.get((name, other)), score) for name in datasets]
            told = [outcome for outcome in outcomes if outcome is not None]
            text = "/".join(str(told.count(kind)) for kind in ("win", "tie", "loss"))
            cells.append("" if one == other or not told else text)
        lines.append([label(one), *cells])
    return ["wins/ties/losses against", *(label(method) for method in methods)], lines


def verdict(one: Sequence[dict] | None, other: Sequence[dict] | None, score: Score) -> str | None:
    """Whether one beats the other by more than two standard errors of the paired difference over common splits."""
    values = [
        {row["split"]: row["metrics"][score.key] for row in rows or () if len(metric([row], score.key))}
        for rows in (one, other)
    ]
    common = sorted(values[0].keys() & values[1].keys())
    if len(common) < 2:
        return None
    with np.errstate(invalid="ignore"):
        difference = np.array([values[0][split] - values[1][split] for split in common])
    if np.isnan(difference).any():  # both are infinitely bad
        return None
    gain = float(np.mean(difference)) * (1.0 if score.higher_is_better else -1.0)
    se = float(np.std(difference, ddof=1)) / np.sqrt(len(common)) if np.isfinite(difference).all() else 0.0
    if abs(gain) <= 2 * se:
        return "tie"
    return "win" if gain > 0 else "loss"


def _has(groups: Groups, method: str, key: str) -> bool:
    return any(key in row["metrics"] for (_, name), rows in groups.items() if name == method for row in rows)


def _best(means: dict[str, dict[str, float]], dataset: str, higher_is_better: bool) -> float:
    values = [row[dataset] for row in means.values() if dataset in row]
    return max(values) if higher_is_better else min(values)


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *lines)]
