"""`python -m benchmarks report`: docs/results/NAME.md from the rows, ours beside the paper's figures."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from benchmarks.machine import RESULTS
from benchmarks.microbiome_page import microbiome_page
from benchmarks.rows import Run
from benchmarks.speed.run import figure, latest_parts
from benchmarks.speed.scaling import draw
from benchmarks.tables import EXPERIMENTS, Experiment, stored

EXTRA_COLUMNS = {
    "cell_log_lik": "cell score",
    "sse_exact": "SSE, sampler's law",
    "crps": "CRPS",
    "energy_score": "energy score",
    "coverage_50": "50 % covers",
    "coverage_90": "90 % covers",
    "pit_ks": "PIT-KS",
    "trees": "trees",
}

CELL_NOTE = (
    "The cell score is the log of the probability of the cell in which an outcome was recorded over the "
    "cell's size: where outcomes lie on a coarse grid the plain log-likelihood has no upper bound, this has."
)


def write_reports(names: Iterable[str]) -> list[str]:
    """Write the pages of those experiments that have rows; returns the names written."""
    written = []
    for name in names:
        lines = OTHER_PAGES[name]() if name in OTHER_PAGES else experiment_page(name)
        if lines:
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
            written.append(name)
    return written


def experiment_page(name: str) -> list[str]:
    """Lines of an experiment's page, none if it has no rows yet."""
    experiment = EXPERIMENTS[name]
    rows = stored(name)
    good = {run: row for run, row in rows.items() if "error" not in row}
    if not good:
        return []
    groups = _by_dataset_and_method(experiment, good)
    better = "higher" if experiment.higher_is_better else "lower"
    commits = ", ".join(dict.fromkeys(row["commit"] for row in good.values()))
    hours = sum(value for row in good.values() for name, value in row["seconds"].items() if name != "fit_cpu") / 3600
    return [
        f"# {experiment.title}",
        "",
        f"Mean ± standard error over runs, {better} is better; one thread a fit. The verdict compares our "
        "mean with the paper's: better, within one of its standard errors, or worse."
        + (f" {CELL_NOTE}" if any("cell_log_lik" in row["metrics"] for row in good.values()) else ""),
        "",
        *_table(*_against_paper(experiment, groups)),
        "",
        "## Beside all methods the paper lists",
        "",
        *_table(*_beside_all(experiment, groups)),
        "",
        *_figures(experiment),
        *_failures(rows),
        f"Made by `python -m benchmarks {name}`: {len(good)} runs, {hours:.2f} h of fitting and scoring on "
        f"one core, commit {commits}. Every run is a row of "
        f"{' or '.join(f'`benchmarks/rows/{one}.jsonl`' for one in (name, *experiment.shares))}.",
    ]


def _by_dataset_and_method(experiment: Experiment, rows: dict[Run, dict]) -> dict[tuple[str, str], list[dict]]:
    found = defaultdict(list)
    for run, row in rows.items():
        found[run.dataset, run.method].append(row)
    # In the experiment's order; sets and methods that were asked for besides come last.
    datasets = dict.fromkeys([*experiment.datasets, *(dataset for dataset, _ in found)])
    methods = dict.fromkeys([*experiment.methods, *(method for _, method in found)])
    return {key: found[key] for key in product(datasets, methods) if key in found}


def _against_paper(experiment: Experiment, groups) -> tuple[list[str], list[list[str]]]:
    """One line for every set and method: ours, the paper's, the verdict, times and calibration."""
    details = [key for key in EXTRA_COLUMNS if any(key in row["metrics"] for row in _all(groups))]
    header = ["set", "method", "runs", "ours", "paper", "difference", "verdict", "fit s"]
    lines = []
    for (dataset, method), rows in groups.items():
        values = _metric(rows, experiment.metric)
        published = experiment.paper.get(experiment.reference.get(method), {}).get(dataset)
        line = [dataset, method, str(len(rows)), _mean_se(values), *_compared(experiment, values, published)]
        line.append(f"{np.mean([row['seconds']['fit'] for row in rows]):.2f}")
        lines.append(line + [_mean_or_blank(_metric(rows, key)) for key in details])
    return header + [EXTRA_COLUMNS[key] for key in details], lines


def _compared(experiment: Experiment, values: np.ndarray, published) -> list[str]:
    """The paper's figure, our difference from it, and the verdict."""
    if published is None:
        return ["", "", ""]
    value, se = published
    difference = float(np.mean(values)) - value
    gain = difference if experiment.higher_is_better else -difference
    if gain >= 0:
        verdict = "better"
    elif gain >= -(se or 0.0):
        verdict = "within one s.e."
    else:
        verdict = "worse"
    return [_published(published), f"{difference:+.3f}", verdict]


def _beside_all(experiment: Experiment, groups) -> tuple[list[str], list[list[str]]]:
    """Methods down, sets across: ours first, then the paper's table."""
    ours = defaultdict(dict)
    for (dataset, method), rows in groups.items():
        ours[f"**treecdf, {method}**"][dataset] = _mean_se(_metric(rows, experiment.metric))
    theirs = {
        f"paper: {method}": {name: _published(figure) for name, figure in row.items()}
        for method, row in experiment.paper.items()
    }
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    lines = [[method, *(row.get(name, "") for name in datasets)] for method, row in (ours | theirs).items()]
    return ["method", *datasets], lines


def _figures(experiment: Experiment) -> list[str]:
    """The pictures of an experiment's sets that `python -m benchmarks figures` has drawn."""
    drawn = [name for name in experiment.datasets if (RESULTS / f"{name}.png").is_file()]
    lines = [f"![{name}: truth, one flow and 12 rotations]({name}.png)" for name in drawn]
    heading = ["## Densities", "", "One set of rows (seed 0), drawn by `python -m benchmarks figures`.", ""]
    return [*heading, *(line for image in lines for line in (image, ""))] if drawn else []


def speed_page() -> list[str]:
    """Lines of the speed page; draws the scaling picture beside it."""
    parts = latest_parts()
    if not parts:
        return []
    lines = [
        [letter, record["what"], figure(record), record.get("target", ""), _met(record), row["commit"]]
        for letter, row in parts.items()
        for record in row["measures"]
    ]
    page = [
        "# Speed and memory",
        "",
        "One thread, in part g two processes. The latest measurement of every part.",
        "",
        *_table(["part", "what", "measured", "target", "met", "commit"], lines),
        "",
    ]
    if "c" in parts:
        RESULTS.mkdir(parents=True, exist_ok=True)
        draw(parts["c"]["raw"], RESULTS / "scaling.png")
        page += ["![Fit time against n, d and q](scaling.png)", ""]
    return [*page, "Made by `python -m benchmarks speed`; rows in `benchmarks/rows/speed.jsonl`."]


OTHER_PAGES = {"speed": speed_page, "microbiome": microbiome_page}


def _met(record: dict) -> str:
    return {True: "yes", False: "no", None: ""}[record.get("met")]


def _failures(rows: dict[Run, dict]) -> list[str]:
    failed = [(run, row["error"]) for run, row in rows.items() if "error" in row]
    lines = [f"- {run.dataset}, split {run.split}, {run.method}: {reason}" for run, reason in failed]
    return ["Failed runs, not in the means:", "", *lines, ""] if lines else []


def _all(groups) -> list[dict]:
    return [row for rows in groups.values() for row in rows]


def _metric(rows: Sequence[dict], key: str) -> np.ndarray:
    return np.array([row["metrics"][key] for row in rows if key in row["metrics"]])


def _mean_or_blank(values: np.ndarray) -> str:
    return f"{np.mean(values):.3g}" if len(values) else ""


def _mean_se(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{np.mean(values):.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def _published(figure: tuple[float, float | None]) -> str:
    value, se = figure
    return f"{value:g}" if se is None else f"{value:g} ± {se:g}"


def _table(header: list[str], lines: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *lines)]
