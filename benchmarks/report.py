"""`python -m benchmarks report`: docs/results/NAME.md from the rows, ours beside the paper's figures."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from benchmarks.against_paper import SCORES, VERDICT_NOTE, count_of_verdicts, figures_in_dots, table_of_runs
from benchmarks.big_page import big_page
from benchmarks.comparisons import Groups, Score, fit_seconds, label, markdown_table, side_by_side, win_tie_loss
from benchmarks.complexity import complexity_page
from benchmarks.flights import flights_page
from benchmarks.generations import note_on_age
from benchmarks.honest.page import honest_page
from benchmarks.literal import literal_page
from benchmarks.microbiome.page import microbiome_page
from benchmarks.more.page import more_page
from benchmarks.pictures import draw_dots, draw_pits, draw_times
from benchmarks.readme import OF_CELLS
from benchmarks.rows import Run, Store, latest
from benchmarks.scaling import scaling_page
from benchmarks.shapes.page import shapes_page
from benchmarks.simulations import SIMULATIONS
from benchmarks.speed.run import figure, latest_parts
from benchmarks.speed.scaling import draw
from benchmarks.tables import EXPERIMENTS, Experiment, groups_of, stored
from benchmarks.without.page import without_page

LIBRARY_SCORES = (
    Score("log_lik", SCORES["log_lik"]),
    Score("cell_log_lik", "cell score"),
    Score("crps", "CRPS", higher_is_better=False),
    Score("energy_score", "energy score", higher_is_better=False),
)

CELL_NOTE = (
    "The cell score is the log of the probability of the cell in which an outcome was recorded, divided by the cell's "
    "size. Unlike the plain log-likelihood it has an upper bound if outcomes are on a coarse grid."
)


COPIED = ("KMN+", "MDN+")  # peers that the paper's authors ran themselves


def write_reports(names: Iterable[str], directory: Path) -> list[str]:
    """Write the pages of those experiments that have rows, and their pictures; returns the names written."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        page = OTHER_PAGES.get(name)
        lines = page(directory) if page else experiment_page(name, directory)
        if lines:
            lines[2:2] = _age(name)
            (directory / f"{name}.md").write_text("\n".join(lines) + "\n")
            written.append(name)
    return written


def _age(name: str) -> list[str]:
    """What a page says below its title of figures that are older than today's model."""
    if name not in (*EXPERIMENTS, *OTHER_PAGES_OF_MODELS):
        return []
    rows = stored(name) if name in EXPERIMENTS else latest(Store(name).read())
    return note_on_age(row for row in rows.values() if "error" not in row)


def experiment_page(name: str, directory: Path) -> list[str]:
    """Lines of an experiment's page, none if it has no rows yet; draws its pictures into the directory."""
    experiment = EXPERIMENTS[name]
    rows = stored(name)
    good = {run: row for run, row in rows.items() if "error" not in row}
    if not good:
        return []
    groups = groups_of(name)
    better = "higher" if experiment.higher_is_better else "lower"
    verdicts = f" {VERDICT_NOTE}" if experiment.reference else ""
    note = f" {CELL_NOTE}" if any("cell_log_lik" in row["metrics"] for row in good.values()) else ""
    return [
        f"# {experiment.title}",
        "",
        f"Mean ± standard error over runs, {better} is better; one thread a fit.{verdicts}{note}",
        "",
        *(_compared_libraries(name, experiment, groups, directory) if experiment.compares_libraries else []),
        *markdown_table(*table_of_runs(experiment, groups)),
        "",
        *_beside_paper(name, experiment, groups, directory),
        *_figures(groups),
        *_failures(rows),
        *count_of_verdicts(experiment, groups),
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


def _beside_paper(name: str, experiment: Experiment, groups: Groups, directory: Path) -> list[str]:
    """Ours and the paper's methods by set, and who of ours wins where."""
    score = Score(experiment.metric, SCORES.get(experiment.metric, experiment.metric), experiment.higher_is_better)
    if experiment.compares_libraries:
        return []
    heading = "Beside all methods the paper lists" if experiment.paper else "Side by side"
    return [
        f"## {heading}",
        "",
        *_dots(name, experiment, groups, directory),
        *_score_tables(groups, score, experiment.paper),
    ]


def _dots(name: str, experiment: Experiment, groups: Groups, directory: Path) -> list[str]:
    """The picture of our methods `in_dots` among the paper's, and what its colours mean."""
    if not experiment.in_dots:
        return []
    subject = label(experiment.in_dots[0])
    if not draw_dots(figures_in_dots(groups, experiment), subject, directory / f"{name}.png"):
        return []
    return [
        f"![Ours among the paper's methods]({name}.png)",
        "",
        f'Mean and standard error, one panel a set. The diamond and the grey band are "{subject}", our flow with the '
        "paper's settings. The colour of a method says how that flow compares with it: blue where it is better by "
        "more than one standard error of the difference, red where it is worse, black otherwise. A triangle at the "
        "edge stands for a method outside the panel; its mean is beside it.",
        "",
    ]


def _score_tables(groups: Groups, score: Score, paper=None) -> list[str]:
    """Means with ranks, then the matrix of wins where methods share splits."""
    lines = [
        *markdown_table(*side_by_side(groups, score, paper)),
        "",
        "The best mean is bold. The last column is the mean rank over the sets that a method was run on; 1 is best.",
        "",
    ]
    copied = [name for name in COPIED if name in (paper or {})]
    if copied:
        lines += [
            f'{" and ".join(copied)} were run by the paper\'s authors: like all lines that begin with "paper:" their '
            "figures are copied from the paper.",
            "",
        ]
    header, matrix = win_tie_loss(groups, score)
    if any(cell for line in matrix for cell in line[1:]):
        lines += [
            "Numbers of sets on which the method of a line wins, ties and loses against the method of a column. A "
            "tie: the mean difference over common splits is within two standard errors of the paired difference.",
            "",
            *markdown_table(header, matrix),
            "",
        ]
    return lines


def _compared_libraries(name: str, experiment: Experiment, groups: Groups, directory: Path) -> list[str]:
    """Tables and pictures of each score that ours and the peers have."""
    lines = []
    for score in LIBRARY_SCORES:
        if not any(score.key in row["metrics"] for row in _all(groups)):
            continue
        paper = experiment.paper if score.key == experiment.metric else None
        lines += [f"## {score.label[0].upper()}{score.label[1:]}", "", *_score_tables(groups, score, paper)]
        if score.key != "cell_log_lik" and draw_times(groups, score, directory / f"{name}_{score.key}.png"):
            lines += [f"![Time against {score.label}]({name}_{score.key}.png)", ""]
    lines += ["## Processor seconds of a fit", "", *markdown_table(*_seconds(groups)), ""]
    if draw_pits(groups, directory / f"{name}_pit.png"):
        lines += [
            "## Calibration",
            "",
            "Histograms of the PIT values of the test rows, all splits together. A flat histogram is calibrated; the "
            "grey band is two standard errors around it. A hump means that distributions are too wide, a U that they "
            f"are too narrow. An empty panel: no run, or a model without a PIT.{_few_values_note(groups)}",
            "",
            f"![PIT histograms]({name}_pit.png)",
            "",
        ]
    return [*lines, "## All measures", ""]


def _few_values_note(groups: Groups) -> str:
    """Why the PIT of outcomes of few values is not flat; empty where there are none."""
    few = [name for name in OF_CELLS if any(dataset == name for dataset, _ in groups)]
    if not few:
        return ""
    return (
        f" For outcomes of few values ({', '.join(few)}) our models give probabilities of values, and the PIT here is "
        "P(Y <= y), not randomised, so that it cannot be flat."
    )


def _seconds(groups: Groups) -> tuple[list[str], list[list[str]]]:
    """Mean processor seconds of a fit, methods down and sets across."""
    found = defaultdict(dict)
    for (dataset, method), rows in groups.items():
        found[label(method)][dataset] = f"{fit_seconds(rows):.3g}"
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    return ["method", *datasets], [[name, *(row.get(one, "") for one in datasets)] for name, row in found.items()]


def _figures(groups: Groups) -> list[str]:
    """The pictures of those simulations that have rows; `python -m benchmarks figures` draws them."""
    names = [name for name in SIMULATIONS if any(name == dataset for dataset, _ in groups)]
    lines = [f"![{name}: truth, one flow and 12 rotations]({name}.png)" for name in names]
    heading = ["## Densities", "", "One set of rows (seed 0), drawn by `python -m benchmarks figures`.", ""]
    return [*heading, *(line for image in lines for line in (image, ""))] if names else []


def speed_page(directory: Path) -> list[str]:
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
        "The latest measurement of every part, on one thread (part g: two processes). Part a: one tree, beside the "
        "literal implementation of the tests, the naive oracle; b: whole fits; c: growth with n, d and q; d: log "
        'densities; e: memory; f: the first start; g: rotations. "The paper\'s own" are the seconds of a fit that the '
        "paper reports, on its machine. An SSE is that of the timed fit, one seed, to show that the fit is a good one; "
        "[the simulations](simulations.md) compare SSEs with the paper.",
        "",
        *markdown_table(["part", "what", "measured", "target", "met", "commit"], lines),
        "",
    ]
    if "c" in parts:
        draw(parts["c"]["raw"], directory / "scaling.png")
        page += ["![Fit time against n, d and q](scaling.png)", ""]
    timed = [row["seconds"] for row in parts.values() if "seconds" in row]
    took = f" in {sum(timed):.0f} s ({len(timed)} of {len(parts)} parts timed)" if timed else ""
    return [*page, f"Made by `python -m benchmarks speed`{took}; rows in `benchmarks/rows/speed.jsonl`."]


OTHER_PAGES = {
    "speed": speed_page,
    "scaling": scaling_page,
    "complexity": complexity_page,
    "literal": lambda directory: literal_page(),  # has no picture
    "microbiome": microbiome_page,
    "big": lambda directory: big_page(),  # this and the next have no picture
    "honest": lambda directory: honest_page(),
    "flights": lambda directory: flights_page(),
    "shapes": lambda directory: shapes_page(),  # `python -m benchmarks shapes --picture` draws its picture
    "without": lambda directory: without_page(),
    "more": lambda directory: more_page(),
}
OTHER_PAGES_OF_MODELS = (
    "honest",
    "flights",
    "shapes",
    "without",
    "more",
)  # the rest are of kernels, or of compositions
PAGES = (*EXPERIMENTS, *OTHER_PAGES)


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
