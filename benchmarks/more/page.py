"""The page of tables of many kinds."""

from collections import defaultdict

import numpy as np

from benchmarks.comparisons import Groups, Score, fit_seconds, markdown_table, mean_se, metric, verdict
from benchmarks.more.run import LIBRARIES, NAME, OURS
from benchmarks.more.tables import TASKS
from benchmarks.rows import Store, latest

CRPS = Score("crps", "CRPS", higher_is_better=False)
LIKELIHOOD = Score("log_lik", "log-likelihood")
METHODS = (*OURS, *LIBRARIES)


def more_page() -> list[str]:
    """Lines of the page, none without rows."""
    stored = latest(Store(NAME).read()).values()
    rows = [row for row in stored if "error" not in row]
    groups: Groups = defaultdict(list)
    for row in rows:
        groups[row["dataset"], row["method"]].append(row)
    names = [name for name in TASKS if (name, OURS[0]) in groups]
    if not names:
        return []
    return [
        "# Tables of many kinds",
        "",
        "Tables with few rows, text, missing values, dates, atoms, outcomes of few values, copies of rows, or "
        "outcomes over orders of magnitude. Mean ± standard error over splits (a tenth of the rows is the test set), "
        "one thread. The model was developed while looking at these tables. NGBoost has early stopping, the forest "
        "has its defaults, LightGBM has 500 trees for each of 20 levels; these three get categories as numbers, and "
        "medians for missing values.",
        "",
        f"CRPS of `treecdf`, beyond two standard errors of the paired difference: {_counts(names, groups)}.",
        "",
        "## CRPS",
        "",
        *markdown_table(*_table(names, groups, CRPS)),
        "",
        "## Log-likelihood, where the outcome is not on few values",
        "",
        *markdown_table(*_table([name for name in names if not TASKS[name].few], groups, LIKELIHOOD)),
        "",
        "## 90 % intervals cover, and processor seconds of a fit",
        "",
        *markdown_table(*_coverage(names, groups)),
        "",
        *_failures(stored),
        f"Made by `python -m benchmarks {NAME}`: {len(rows)} runs, commit "
        f"{', '.join(dict.fromkeys(row['commit'] for row in rows))}. Every run is a row of "
        f"`benchmarks/rows/{NAME}.jsonl`.",
    ]


def _counts(names: list[str], groups: Groups) -> str:
    """On how many tables ours is better than each library, as good, and worse."""
    told = []
    for other in LIBRARIES:
        found = [verdict(groups[name, OURS[0]], groups.get((name, other)), CRPS) for name in names]
        kinds = [
            f"{kind} on {found.count(word)}" for kind, word in (("better", "win"), ("level", "tie"), ("worse", "loss"))
        ]
        told.append(f"{', '.join(kinds)} beside {other}")
    return "; ".join(told)


def _table(names: list[str], groups: Groups, score: Score) -> tuple[list[str], list[list[str]]]:
    """Tables down, methods across; the best mean is bold."""
    methods = [one for one in METHODS if any(len(metric(groups.get((name, one), []), score.key)) for name in names)]
    lines = []
    for name in names:
        values = {one: metric(groups.get((name, one), []), score.key) for one in methods}
        means = {one: float(np.mean(found)) for one, found in values.items() if len(found)}
        best = (max if score.higher_is_better else min)(means.values())
        cells = [mean_se(values[one]) if len(values[one]) else "" for one in methods]
        lines.append([name, *(f"**{c}**" if means.get(m) == best else c for m, c in zip(methods, cells, strict=True))])
    return ["table", *methods], lines


def _coverage(names: list[str], groups: Groups) -> tuple[list[str], list[list[str]]]:
    def cell(name: str, method: str) -> str:
        rows = groups.get((name, method), [])
        return f"{np.mean(metric(rows, 'coverage_90')):.2f}, {fit_seconds(rows):.2g} s" if rows else ""

    return ["table", *METHODS], [[name, *(cell(name, one) for one in METHODS)] for name in names]


def _failures(rows) -> list[str]:
    lines = [
        f"- {row['dataset']}, {row['method']}, split {row['split']}: {row['error']}" for row in rows if "error" in row
    ]
    return ["Failed runs, not in the means:", "", *lines, ""] if lines else []
