"""`python -m benchmarks report`: docs/results/NAME.md from the rows, ours beside the paper's figures."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import product

import numpy as np

from benchmarks.big_page import big_page
from benchmarks.comparisons import (
    Groups,
    Score,
    fit_seconds,
    label,
    markdown_table,
    mean_se,
    metric,
    published,
    side_by_side,
    win_tie_loss,
)
from benchmarks.literal import literal_page
from benchmarks.machine import RESULTS
from benchmarks.microbiome_page import microbiome_page
from benchmarks.pictures import draw_pits, draw_times
from benchmarks.rows import Run
from benchmarks.scaling import scaling_page
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

SCORES = {"log_lik": "test log-likelihood", "sse": "SSE"}
LIBRARY_SCORES = (
    Score("log_lik", SCORES["log_lik"]),
    Score("cell_log_lik", "cell score"),
    Score("crps", "CRPS", higher_is_better=False),
    Score("energy_score", "energy score", higher_is_better=False),
)

CELL_NOTE = (
    "The cell score is the log of the probability of the cell in which an outcome was recorded over the "
    "cell's size: where outcomes lie on a coarse grid the plain log-likelihood has no upper bound, this has."
)


def write_reports(names: Iterable[str]) -> list[str]:
    """Write the pages of those experiments that have rows; returns the names written."""
    written = []
    for name in names:
        page = OTHER_PAGES.get(name)
        lines = page() if page else experiment_page(name)
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
    verdicts = (
        " The verdict compares our mean with the paper's: better, within one of its standard errors, or worse."
        if experiment.reference
        else ""
    )
    note = f" {CELL_NOTE}" if any("cell_log_lik" in row["metrics"] for row in good.values()) else ""
    return [
        f"# {experiment.title}",
        "",
        f"Mean ± standard error over runs, {better} is better; one thread a fit.{verdicts}{note}",
        "",
        *(_compared_libraries(name, experiment, groups) if experiment.compares_libraries else []),
        *markdown_table(*_against_paper(experiment, groups)),
        "",
        *_beside_paper(experiment, groups),
        *_figures(experiment),
        *_failures(rows),
        _made_by(name, experiment, good),
    ]


def _made_by(name: str, experiment: Experiment, rows: dict[Run, dict]) -> str:
    """The command, what it cost and where its rows are."""
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows.values()))
    seconds = sum(value for row in rows.values() for part, value in row["seconds"].items() if part != "fit_cpu")
    files = " or ".join(f"`benchmarks/rows/{one}.jsonl`" for one in (name, *experiment.shares))
    return (
        f"Made by `python -m benchmarks {name}`: {len(rows)} runs, {seconds:.0f} s of fitting and scoring on "
        f"one core, commit {commits}. Every run is a row of {files}."
    )


def _beside_paper(experiment: Experiment, groups: Groups) -> list[str]:
    """Ours and the paper's methods by set, and who of ours wins where."""
    score = Score(experiment.metric, SCORES.get(experiment.metric, experiment.metric), experiment.higher_is_better)
    if experiment.compares_libraries:
        return []
    return ["## Beside all methods the paper lists", "", *_score_tables(groups, score, experiment.paper)]


def _score_tables(groups: Groups, score: Score, paper=None) -> list[str]:
    """Means with ranks, then the matrix of wins where methods share splits."""
    lines = [
        *markdown_table(*side_by_side(groups, score, paper)),
        "",
        "Best mean in bold; rank 1 is best, over the sets a method has.",
        "",
    ]
    header, matrix = win_tie_loss(groups, score)
    if any(cell for line in matrix for cell in line[1:]):
        lines += [
            "Sets on which the method of a line wins, ties and loses against that of a column; a tie is a mean "
            "difference within two standard errors of the paired difference over common splits.",
            "",
            *markdown_table(header, matrix),
            "",
        ]
    return lines


def _compared_libraries(name: str, experiment: Experiment, groups: Groups) -> list[str]:
    """Tables and pictures of each score that ours and the peers have."""
    lines = []
    for score in LIBRARY_SCORES:
        if not any(score.key in row["metrics"] for row in _all(groups)):
            continue
        paper = experiment.paper if score.key == experiment.metric else None
        lines += [f"## {score.label[0].upper()}{score.label[1:]}", "", *_score_tables(groups, score, paper)]
        if score.key != "cell_log_lik" and draw_times(groups, score, RESULTS / f"{name}_{score.key}.png"):
            lines += [f"![Time against {score.label}]({name}_{score.key}.png)", ""]
    lines += ["## Processor seconds of a fit", "", *markdown_table(*_seconds(groups)), ""]
    if draw_pits(groups, RESULTS / f"{name}_pit.png"):
        lines += [
            "## Calibration",
            "",
            "Histograms of the PIT values of the test rows, all splits together; flat is calibrated, the grey band is "
            "two standard errors about flat, a hill is too wide and a valley too narrow a distribution.",
            "",
            f"![PIT histograms]({name}_pit.png)",
            "",
        ]
    return [*lines, "## All measures", ""]


def _seconds(groups: Groups) -> tuple[list[str], list[list[str]]]:
    """Mean processor seconds of a fit, methods down and sets across."""
    found = defaultdict(dict)
    for (dataset, method), rows in groups.items():
        found[label(method)][dataset] = f"{fit_seconds(rows):.3g}"
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    return ["method", *datasets], [[name, *(row.get(one, "") for one in datasets)] for name, row in found.items()]


def _by_dataset_and_method(experiment: Experiment, rows: dict[Run, dict]) -> Groups:
    found = defaultdict(list)
    for run, row in rows.items():
        found[run.dataset, run.method].append(row)
    # In the experiment's order; sets and methods that were asked for besides come last.
    datasets = dict.fromkeys([*experiment.datasets, *(dataset for dataset, _ in found)])
    methods = dict.fromkeys([*experiment.methods, *(method for _, method in found)])
    return {key: found[key] for key in product(datasets, methods) if key in found}


def _against_paper(experiment: Experiment, groups: Groups) -> tuple[list[str], list[list[str]]]:
    """One line for every set and method: ours, the paper's and the verdict if it has one, times and calibration."""
    details = [key for key in EXTRA_COLUMNS if any(key in row["metrics"] for row in _all(groups))]
    beside = ["paper", "difference", "verdict"] if experiment.reference else []
    header = ["set", "method", "runs", "ours" if beside else SCORES[experiment.metric], *beside, "fit cpu s"]
    lines = []
    for (dataset, method), rows in groups.items():
        values = metric(rows, experiment.metric)
        line = [dataset, method, str(len(rows)), mean_se(values) if len(values) else ""]
        if beside:
            published_figure = experiment.paper.get(experiment.reference.get(method), {}).get(dataset)
            line += _compared(experiment, values, published_figure)
        line.append(f"{fit_seconds(rows):.2f}")
        lines.append(line + [_mean_or_blank(metric(rows, key)) for key in details])
    return header + [EXTRA_COLUMNS[key] for key in details], lines


def _compared(experiment: Experiment, values: np.ndarray, figure) -> list[str]:
    """The paper's figure, our difference from it, and the verdict."""
    if figure is None:
        return ["", "", ""]
    value, se = figure
    difference = float(np.mean(values)) - value
    gain = difference if experiment.higher_is_better else -difference
    if gain >= 0:
        verdict = "better"
    elif gain >= -(se or 0.0):
        verdict = "within one s.e."
    else:
        verdict = "worse"
    return [published(figure), f"{difference:+.3f}", verdict]


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
        *markdown_table(["part", "what", "measured", "target", "met", "commit"], lines),
        "",
    ]
    if "c" in parts:
        RESULTS.mkdir(parents=True, exist_ok=True)
        draw(parts["c"]["raw"], RESULTS / "scaling.png")
        page += ["![Fit time against n, d and q](scaling.png)", ""]
    timed = [row["seconds"] for row in parts.values() if "seconds" in row]
    took = f" in {sum(timed):.0f} s ({len(timed)} of {len(parts)} parts timed)" if timed else ""
    return [*page, f"Made by `python -m benchmarks speed`{took}; rows in `benchmarks/rows/speed.jsonl`."]


OTHER_PAGES = {
    "speed": speed_page,
    "scaling": lambda: scaling_page(RESULTS),
    "literal": literal_page,
    "microbiome": microbiome_page,
    "big": big_page,
}


def _met(record: dict) -> str:
    return {True: "yes", False: "no", None: ""}[record.get("met")]


def _failures(rows: dict[Run, dict]) -> list[str]:
    """Runs without figures, together where set, method and reason are the same."""
    splits = defaultdict(list)
    for run, row in rows.items():
        if "error" in row:
            splits[run.dataset, run.method, row["error"]].append(str(run.split))
    lines = [
        f"- {dataset}, split {', '.join(some)}, {method}: {reason}"
        for (dataset, method, reason), some in splits.items()
    ]
    return ["Failed runs, not in the means:", "", *lines, ""] if lines else []


def _all(groups) -> list[dict]:
    return [row for rows in groups.values() for row in rows]


def _mean_or_blank(values: np.ndarray) -> str:
    return f"{np.mean(values):.3g}" if len(values) else ""
