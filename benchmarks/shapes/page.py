"""The page of `python -m benchmarks shapes`: gaps by truth and rows with a verdict, then coverage, CRPS and seconds."""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from benchmarks.comparisons import markdown_table, metric
from benchmarks.rows import Run, Store, latest
from benchmarks.shapes.cases import CASES, METHODS, OURS, PEERS, Case, shapes_runs
from benchmarks.shapes.run import CRPS_ROWS, FRESH, NAME, REGION_ROWS

ALLOWED = 0.01  # nats behind the best peer that still count as level with it
LARGEST_SHOWN = 99.0  # gaps beyond are told as such
Cells = dict[str, dict[str, list[dict]]]  # good rows by case and method

METHOD_NOTES = (
    "`mdn` is a mixture density network of five normals with early stopping; `mdn_folds` is the equal mixture of five "
    "such networks of eight normals, each trained without one fold; `nsf` is zuko's neural spline flow; "
    "`lightgbmlss_mixture` and `lightgbmlss_spline` are the mixture of normals and the spline flow of LightGBMLSS; "
    "`ngboost_early` is NGBoost's normal with early stopping; `quantile_forest` has no density and is only in the "
    "table of CRPS; `paper` is our own flow with the paper's settings. Methods without a column, and empty cells, were "
    "not run."
)


def shapes_page() -> list[str]:
    """Lines of the page, none where there are no rows."""
    stored = latest(Store(NAME).read())
    cells = _cells(stored)
    if not cells:
        return []
    return [
        "# Shapes: many modes that move, part and cross",
        "",
        f"Models are fitted to rows drawn from known densities and compared with the truth on {FRESH:,} fresh rows. "
        "The gap is the mean of the true log density minus the model's, in nats per row: 0 is the truth itself. "
        "Figures are means over seeds; seconds are processor seconds on one thread.",
        "",
        *_summary(cells),
        _done(cells),
        "",
        METHOD_NOTES,
        "",
        "![True and learnt densities](shapes.png)",
        "",
        "True densities p(y | x) and densities learnt from 3,000 rows; x is horizontal and y vertical. For two "
        "outcomes (`ring`, `moons`) their joint density at x = 0.5. Drawn by `python -m benchmarks shapes --picture`.",
        "",
        "## Gap to the truth",
        "",
        "The smallest gap is bold. The verdict compares `treecdf` with the best peer: ahead, level (at most "
        f"{ALLOWED:g} nats behind) or behind.",
        "",
        *_table(cells, _gap, bold_lowest=True, verdicts=True),
        "",
        "## 90 % highest-density region: share of outcomes inside",
        "",
        f"Computed on {REGION_ROWS:,} of the fresh rows. A perfect model has 0.9, or by chance 0.88 to 0.92.",
        "",
        *_table(cells, _mean_of("hdr_coverage", ".3f")),
        "",
        "## CRPS divided by the CRPS of the truth",
        "",
        f"Computed on {CRPS_ROWS:,} of the fresh rows, for one outcome. 1 is as good as the truth; the smallest is "
        "bold.",
        "",
        *_table(cells, _mean_of("crps_ratio", ".3f"), bold_lowest=True),
        "",
        "## Processor seconds of a fit / of 10,000 log densities",
        "",
        *_table(cells, _seconds),
        "",
        *_failures(stored),
        _made_by(stored),
    ]


def _cells(rows: dict[Run, dict]) -> Cells:
    """Good rows by case and method, in the order of the truths."""
    found: dict = defaultdict(lambda: defaultdict(list))
    for run, row in rows.items():
        if "error" not in row and run.dataset in CASES:
            found[run.dataset][run.method].append(row)
    order = list(dict.fromkeys(case.truth for case in CASES.values()))
    names = sorted(found, key=lambda name: (order.index(CASES[name].truth), CASES[name].n))
    return {name: dict(found[name]) for name in names}


def gap(cells: Cells, name: str, method: str) -> float | None:
    """Mean gap over the seeds, None where there is none."""
    values = metric(cells[name].get(method, []), "gap")
    return float(np.mean(values)) if len(values) else None


def behind(cells: Cells, name: str, method: str) -> float | None:
    """Nats that a method of ours is behind the best peer of a case, negative where it is ahead of all."""
    own = gap(cells, name, method)
    others = [found for peer in PEERS if (found := gap(cells, name, peer)) is not None]
    return None if own is None or not others else own - min(others)


def verdict(nats: float | None) -> str:
    """In words."""
    if nats is None:
        return ""
    if nats <= 0:
        return f"ahead by {-nats:.3f}"
    return f"level, {nats:.3f} behind" if nats <= ALLOWED else f"**behind by {nats:.3f}**"


def _summary(cells: Cells) -> list[str]:
    """A line for each of our methods: how many cases it is ahead, level and behind, and its largest distance."""
    lines = []
    for method in OURS:
        for words, chosen in (("shapes", False), ("unimodal controls", True)):
            found = {name: behind(cells, name, method) for name in cells if CASES[name].shape.is_control == chosen}
            found = {name: nats for name, nats in found.items() if nats is not None}
            if found:
                lines.append([method, words, *_counts(found)])
    header = ["method", "cases", "number", "ahead of every peer", "level with the best", "behind", "furthest behind"]
    demo = [f"{method} {value:.3f}" for method in METHODS if (value := _demo(cells, method)) is not None]
    told = [f"README's demo, 3,000 rows, gap in nats per row: {', '.join(demo)}.", ""] if demo else []
    return [*markdown_table(header, lines), "", *told]


def _done(cells: Cells) -> str:
    """How much was run: a verdict on few peers says little."""
    every = {(run.dataset, run.method) for run in shapes_runs(1)}
    done = sum(name in cells and method in cells[name] for name, method in every)
    told = f"{done} of {len(every)} pairs of a case and a method have been measured"
    return f"{told}; verdicts compare with the peers that were run on a case."


def _counts(found: dict[str, float]) -> list[str]:
    ahead = sum(nats <= 0 for nats in found.values())
    level = sum(0 < nats <= ALLOWED for nats in found.values())
    worst = max(found, key=lambda name: found[name])
    told = f"{_words(CASES[worst])}: {found[worst]:.3f}" if found[worst] > 0 else ""
    return [*(str(count) for count in (len(found), ahead, level, len(found) - ahead - level)), told]


def _demo(cells: Cells, method: str) -> float | None:
    return gap(cells, "demo_3000", method) if "demo_3000" in cells else None


def _words(case: Case) -> str:
    return f"{case.truth}, {case.n:,} rows"


Value = Callable[[list[dict]], tuple[float, str] | None]


def _table(cells: Cells, value: Value, bold_lowest: bool = False, verdicts: bool = False) -> list[str]:
    """Cases down, methods across; `value` gives a number and its text from the rows of a cell."""
    methods = [method for method in METHODS if any(value(own.get(method, [])) for own in cells.values())]
    lines, before = [], ""
    for name, own in cells.items():
        case = CASES[name]
        found = {method: value(own.get(method, [])) for method in methods}
        if not any(found.values()):
            continue
        least = min((one[0] for one in found.values() if one), default=None)
        texts = [_bold(one[1], bold_lowest and one[0] == least) if one else "" for one in found.values()]
        said = [verdict(behind(cells, name, OURS[0]))] if verdicts else []
        words = "" if case.truth == before else f"`{case.truth}`: {case.shape.words}"
        lines.append([words, f"{case.n:,}", *texts, *said])
        before = case.truth
    return markdown_table(["truth", "rows", *methods, *(["verdict"] if verdicts else [])], lines)


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text


def _mean_of(key: str, form: str) -> Value:
    def value(rows):
        values = metric(rows, key)
        return (float(np.mean(values)), f"{np.mean(values):{form}}") if len(values) else None

    return value


def _gap(rows: list[dict]) -> tuple[float, str] | None:
    found = _mean_of("gap", ".3f")(rows)
    return found if found is None or found[0] <= LARGEST_SHOWN else (found[0], f"above {LARGEST_SHOWN:g}")


def _seconds(rows: list[dict]) -> tuple[float, str] | None:
    if not rows:
        return None
    fit = float(np.mean([row["seconds"]["fit_cpu"] for row in rows]))
    densities = metric(rows, "densities_cpu")
    return fit, f"{fit:.3g}" + (f" / {np.mean(densities):.2g}" if len(densities) else "")


def _failures(rows: dict[Run, dict]) -> list[str]:
    """Runs without figures, with their reasons."""
    lines = [
        f"- {_words(CASES[run.dataset])}, {run.method}, seed {run.seed}: {row['error']}"
        for run, row in rows.items()
        if "error" in row and run.dataset in CASES
    ]
    return ["Failed runs, not in the means:", "", *lines, ""] if lines else []


def _made_by(rows: dict[Run, dict]) -> str:
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows.values() if "error" not in row))
    return (
        f"Made by `python -m benchmarks {NAME}`: {len(rows)} runs, commit {commits}. Every run is a row of "
        f"`benchmarks/rows/{NAME}.jsonl`."
    )
