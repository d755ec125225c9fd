"""README's table of figures, which stands between two marks of that page: ours, the best library, the paper, TabPFN."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import paper_tables
from benchmarks.comparisons import Groups, Score, fit_seconds, markdown_table, metric
from benchmarks.generations import is_old
from benchmarks.peers import PEERS
from benchmarks.tables import EXPERIMENTS, groups_of

BEGIN = "<!-- Written by `python -m benchmarks report` from the rows. -->"
END = "<!-- End of what is written from the rows. -->"

OURS, FAST, TIMED = "treecdf", "treecdf_fast", "ngboost_early"
LIKELIHOOD = Score("log_lik", "log-likelihood")
CELLS = Score("cell_log_lik", "log-likelihood by the cell")
CRPS = Score("crps", "CRPS", higher_is_better=False)
# Outcomes on few values: the plain likelihood has no upper bound there, and ours are probabilities of cells.
OF_CELLS = ("naval", "wine")
# Runs of TabPFN on the published splits in a public collection of 2025 (protein: four folds).
TABPFN = {"concrete": -2.21, "energy": -0.15, "yacht": 0.73, "power": -2.28, "protein": -1.73}


def write_readme(page: Path) -> None:
    """Write the table into README; the rest of it stays."""
    page.write_text(rebuilt(page.read_text()))


def rebuilt(page: str) -> str:
    """The text of README with its table made of the rows."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + "\n".join([BEGIN, "", *markdown_table(*_table()), "", *_notes(), "", END]) + after


def _table() -> tuple[list[str], list[list[str]]]:
    """A line for each set: likelihoods, CRPS and seconds of ours and of others."""
    groups = groups_of("univariate") | {
        key: rows for key, rows in groups_of("peers").items() if key[1] in PEERS or key[0] == "wine"
    }
    header = ["set", "splits", "treecdf", "fast", "best library", "the paper", "TabPFN", "CRPS", "best library", "s"]
    return header, [_line(name, groups) for name in EXPERIMENTS["peers"].datasets if (name, OURS) in groups]


def _line(name: str, groups: Groups) -> list[str]:
    ours, fast = groups[name, OURS], groups.get((name, FAST), [])
    score = CELLS if name in OF_CELLS else LIKELIHOOD
    seconds = [fit_seconds(rows) for rows in (ours, fast, groups.get((name, TIMED), [])) if rows]
    mark = "†" if any(map(is_old, ours)) else ""
    told = paper_tables.UNIVARIATE["Ours"].get(name)
    return [
        f"{name}{' (by the cell)' if name in OF_CELLS else ''}",
        str(len(ours)),
        *_beside(name, groups, score, mark),
        "" if told is None or name in OF_CELLS else f"{told[0]:.2f}",
        f"{TABPFN[name]:.2f}" if name in TABPFN else "",
        *(cell for k, cell in enumerate(_beside(name, groups, CRPS, mark)) if k != 1),
        " / ".join(f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in seconds),
    ]


def _beside(name: str, groups: Groups, score: Score, mark: str) -> tuple[str, str, str]:
    """Our mean, that of a fast fit, and that of the best library; bold is who is surely ahead."""
    ours, fast = groups[name, OURS], groups.get((name, FAST), [])
    best = _best_library(name, groups, score)
    values = metric(ours, score.key)
    text = f"{_mean(values)}{mark}" if len(values) else ""
    quick = f"{_mean(metric(fast, score.key))}{'†' if any(map(is_old, fast)) else ''}" if fast else ""
    if best is None:
        return text, quick, ""
    common = {row["split"] for row in groups[name, best]}
    there = metric([row for row in ours if row["split"] in common], score.key)
    other = f"{best} {_mean(metric(groups[name, best], score.key))}"
    if len(there) < len(values):
        other += f" (ours {_mean(there)})"
    ahead = _surely_ahead(ours, groups[name, best], score)
    return (f"**{text}**" if ahead == 1 else text), quick, (f"**{other}**" if ahead == -1 else other)


def _best_library(name: str, groups: Groups, score: Score) -> str | None:
    """The library with the best mean on a set."""
    sign = 1.0 if score.higher_is_better else -1.0
    means = {
        method: sign * float(np.mean(values))
        for (dataset, method), rows in groups.items()
        if dataset == name and method in PEERS and len(values := metric(rows, score.key))
    }
    return max(means, key=lambda method: means[method]) if means else None


def _surely_ahead(ours: Sequence[dict], other: Sequence[dict], score: Score) -> int:
    """1 if ours is better on common splits by more than a standard error of the difference, -1 if worse, else 0."""
    values = [
        {row["split"]: row["metrics"][score.key] for row in rows if len(metric([row], score.key))}
        for rows in (ours, other)
    ]
    common = sorted(values[0].keys() & values[1].keys())
    if len(common) < 2:
        return 0
    gain = np.array([values[0][k] - values[1][k] for k in common]) * (1.0 if score.higher_is_better else -1.0)
    error = float(np.std(gain, ddof=1) / np.sqrt(len(common)))
    return int(np.sign(np.mean(gain))) if abs(np.mean(gain)) > error else 0


def _mean(values: np.ndarray) -> str:
    return f"{np.mean(values):.3g}"


def _notes() -> list[str]:
    """What the columns are, how many libraries stand behind "best library", and which figures are old."""
    rows = [row for group in groups_of("univariate").values() for row in group]
    old = any(is_old(row) for row in rows if row["method"] in (OURS, FAST))
    notes = [
        "Mean test log-likelihood (higher is better) and CRPS (lower is better) on the published splits. By the cell: "
        "the outcome has few values, and the likelihood is the probability of the recorded value's cell over its "
        "width. Bold: ahead of the other (treecdf or the best library) by more than one standard error of the paired "
        "difference, on the splits that both were run on; where the library was run on fewer, the bracket has our "
        f"mean on those. Libraries ([all figures](docs/results/peers.md); some not on every set): {', '.join(PEERS)}. "
        "TabPFN's figures are copied from a public collection; it needs a GPU beyond about 1,000 rows, and its "
        "weights are not free for commercial use. Last column: processor seconds of a fit on one thread, without "
        "compilation, of treecdf / fast / NGBoost with early stopping.",
    ]
    if old:
        notes += ["", "† Measured with an older model than today's; to be measured again."]
    return notes
