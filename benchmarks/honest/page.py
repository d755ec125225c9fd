"""The page of `python -m benchmarks honest`: for each question its figures, then its targets and which are met."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from benchmarks.comparisons import figure_of, markdown_table, metric
from benchmarks.honest.cases import CASES, METHODS, Case, Target
from benchmarks.honest.measures import FRESH
from benchmarks.honest.questions import QUESTIONS, Column, Question
from benchmarks.honest.run import NAME
from benchmarks.rows import Run, Store, latest

Cells = dict[tuple[str, str], list[dict]]  # rows by case and method, failed ones among them


def honest_page() -> list[str]:
    """Lines of the page, none where there are no rows."""
    stored = Store(NAME).read()
    now, before = latest(stored), latest(reversed(stored))
    older = {run: row for run, row in before.items() if row.get("commit") != now[run].get("commit")}
    cells, first = _cells(now), _cells(older)
    if not cells:
        return []
    checks = {question: _checks(question, cells, first) for question in QUESTIONS}
    return [
        "# Known truths: is the uncertainty honest?",
        "",
        f"Models are fitted to rows drawn from known densities and judged on {FRESH:,} fresh rows: the coverage of 50, "
        "90 and 99 % intervals, and the gap, the mean of the true log density minus the model's in nats per row. The "
        "simple method is a model of the right form for each truth, such as least squares for linear normal rows; "
        '"simple gap" is its gap. Every figure is a mean over seeds; seconds are processor seconds on one thread. '
        "Targets were set before the work on them began. The last column of the tables of targets has the first "
        "measurement, if a later commit replaced it.",
        "",
        *_summary(checks),
        "",
        *(line for name, question in QUESTIONS.items() for line in _section(name, question, cells, checks[name])),
        *_missing(cells),
        _made_by(now),
    ]


def _cells(rows: dict[Run, dict]) -> Cells:
    """Rows by case and method, in the order of the cases."""
    found = defaultdict(list)
    for run, row in rows.items():
        found[run.dataset, run.method].append(row)
    methods = dict.fromkeys([*METHODS, *(method for _, method in found)])
    return {(case, method): found[case, method] for case in CASES for method in methods if (case, method) in found}


def _good(rows: Iterable[dict]) -> list[dict]:
    return [row for row in rows if "error" not in row]


def _section(name: str, question: Question, cells: Cells, checks: list[list[str]]) -> list[str]:
    """Heading, figures and targets of one question, nothing where it has no rows."""
    own = {key: rows for key, rows in cells.items() if CASES[key[0]].question == name}
    if not own:
        return []
    columns = [column for column in question.columns if any(_mean(rows, column) for rows in own.values())]
    beside = any(CASES[case].beside for case, _ in own)
    header = ["truth", "rows", "method", "seeds", *(column.heading for column in columns)]
    lines = []
    for (case_name, method), rows in own.items():
        case = CASES[case_name]
        cells_of_line = [_mean(rows, column) for column in columns]
        line = [case.words, f"{case.n:,}", method, str(len(_good(rows))), *cells_of_line]
        lines.append([*line, case.beside] if beside else line)
    return [
        f"## {question.title}",
        "",
        question.words,
        "",
        *markdown_table([*header, "simple method"] if beside else header, lines),
        "",
        *_failures(own),
        *_targets(checks),
    ]


def _mean(rows: list[dict], column: Column) -> str:
    """Text of a table's cell: the means of its metrics over the seeds, empty where there are none."""
    values = [metric(_good(rows), key) for key in column.keys]
    return " / ".join(f"{np.mean(value):{column.form}}" for value in values if len(value))


def _targets(checks: list[list[str]]) -> list[str]:
    if not checks:
        return ["No target was set for what is measured here.", ""]
    has_first = any(line[-1] for line in checks)
    header = ["truth", "rows", "method", "figure", "measured", "target", "met", "first measured"]
    cut = slice(None) if has_first else slice(-1)
    return [*markdown_table(header[cut], [line[cut] for line in checks]), ""]


def _checks(question: str, cells: Cells, first: Cells) -> list[list[str]]:
    """A line for each target of a question that has rows."""
    return [
        _check(CASES[name], method, target, rows, first.get((name, method), []))
        for (name, method), rows in cells.items()
        if CASES[name].question == question
        for target in CASES[name].targets
        if method in target.methods
    ]


def _check(case: Case, method: str, target: Target, rows: list[dict], first: list[dict]) -> list[str]:
    values = metric(_good(rows), target.key)
    met = bool(len(values)) and target.is_met(float(np.mean(values)))
    was = _measured(first, target.key) if first else ""
    told = [_measured(rows, target.key), _limits(target), "yes" if met else "**no**", was]
    return [case.words, f"{case.n:,}", method, target.words, *told]


def _measured(rows: list[dict], key: str) -> str:
    """Mean and standard error over the seeds, or that all failed."""
    values = metric(_good(rows), key)
    if not len(values):
        return "failed"
    mean, error = figure_of(values)
    form = ".1e" if 0 < abs(mean) < 1e-3 or abs(mean) >= 1e4 else ".3f"
    return f"{mean:{form}}" if error is None else f"{mean:{form}} ± {error:{form}}"


def _limits(target: Target) -> str:
    if target.low is None:
        return f"at most {target.high:g}"
    return f"at least {target.low:g}" if target.high is None else f"{target.low:g} to {target.high:g}"


def _summary(checks: dict[str, list[list[str]]]) -> list[str]:
    """How many targets of each question are met, by method."""
    every = [line for lines in checks.values() for line in lines]
    methods = list(dict.fromkeys(line[2] for line in every))
    titles = {name: question.title for name, question in QUESTIONS.items()}
    counted = [(titles[name], lines) for name, lines in checks.items() if lines] + [("**all**", every)]
    return markdown_table(
        ["targets met", *methods], [[title, *(_count(lines, method) for method in methods)] for title, lines in counted]
    )


def _count(lines: list[list[str]], method: str) -> str:
    own = [line for line in lines if line[2] == method]
    return f"{sum(line[6] == 'yes' for line in own)} of {len(own)}" if own else ""


def _failures(cells: Cells) -> list[str]:
    """Runs without figures, with their reasons."""
    seeds = defaultdict(list)
    for (name, method), rows in cells.items():
        for row in rows:
            if "error" in row:
                seeds[CASES[name].words, method, row["error"]].append(str(row["seed"]))
    lines = [
        f"- {words}, {method}, seed {', '.join(some)}: {reason}" for (words, method, reason), some in seeds.items()
    ]
    return ["Failed runs, not in the means:", "", *lines, ""] if lines else []


def _missing(cells: Cells) -> list[str]:
    names = [name for name in CASES if (name, METHODS[0]) not in cells]
    return [f"Not measured with `{METHODS[0]}` yet: {', '.join(names)}.", ""] if names else []


def _made_by(rows: dict[Run, dict]) -> str:
    good = _good(rows.values())
    commits = ", ".join(dict.fromkeys(row["commit"] for row in good))
    return (
        f"Made by `python -m benchmarks {NAME}`: {len(rows)} runs, commit {commits}. Every run is a row of "
        f"`benchmarks/rows/{NAME}.jsonl`."
    )
