"""The plain routes: rows under the model's own names in, answers under the names of the outcomes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecdf._common.typing import Array
from treecdf.serving import answers
from treecdf.serving.bodies import check_fields, read_object
from treecdf.serving.limits import Refusal
from treecdf.serving.served import Served, TableOfRequest

# Fields that every question has.
_ROWS = ("rows", "columns")


def _density(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Log density and density at the outcomes, all of them together."""
    points, is_single = served.read_outcomes(given.get("outcomes"), len(table))
    log_density = answers.log_density(served.distribution(table), points)
    log_density = log_density[:, 0] if is_single else log_density
    with np.errstate(over="ignore"):
        return {"log_density": log_density, "density": np.exp(log_density)}


def _cdf(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """P(Y <= y) of each outcome by itself."""
    points, is_single = served.read_outcomes(given.get("outcomes"), len(table))
    cdf = answers.cdf(served.distribution(table), points)
    return {"cdf": _by_name(served, cdf[:, 0] if is_single else cdf)}


def _quantiles(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Quantiles of each outcome."""
    levels = answers.read_levels(given.get("levels", list(answers.DEFAULT_LEVELS)), served.limits)
    answers.check_size(served.limits, len(table) * len(levels) * len(served.outcomes))
    found = answers.quantiles(served.distribution(table), levels)
    return {"levels": levels, "quantiles": _by_name(served, found)}


def _intervals(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Ends of the central interval of each outcome."""
    level = answers.read_level(given.get("level", answers.DEFAULT_LEVEL))
    return {"level": level, "intervals": _by_name(served, answers.intervals(served.distribution(table), level))}


def _mean(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and standard deviation of each outcome."""
    mean, std = answers.mean_and_std(served.distribution(table))
    return {"mean": _by_name(served, mean), "std": _by_name(served, std)}


def _samples(served: Served, table: TableOfRequest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Draws of the outcomes; those with the same number belong together."""
    n_draws = answers.read_draws(given.get("draws", answers.DEFAULT_DRAWS), served.limits)
    seed = answers.read_seed(given.get("seed"))
    answers.check_size(served.limits, len(table) * n_draws * len(served.outcomes))
    return {"samples": _by_name(served, answers.samples(served.distribution(table), n_draws, seed))}


def _by_name(served: Served, values: Array) -> dict[str, Array]:
    """Values (..., d) by the names of the outcomes."""
    return {name: values[..., j] for j, name in enumerate(served.outcomes)}


@dataclass(frozen=True)
class Question:
    """The answer of a route, and the fields that it reads besides the rows."""

    answer: Callable[[Served, TableOfRequest, Mapping[str, Any]], dict[str, Any]]
    fields: tuple[str, ...] = ()


QUESTIONS = {
    "density": Question(_density, ("outcomes",)),
    "cdf": Question(_cdf, ("outcomes",)),
    "quantiles": Question(_quantiles, ("levels",)),
    "intervals": Question(_intervals, ("level",)),
    "mean": Question(_mean),
    "samples": Question(_samples, ("draws", "seed")),
}


def answer_question(served: Served, question: Question, body: bytes) -> dict[str, Any]:
    """The answer to a body, and notes on its rows."""
    given = read_object(body)
    check_fields(given, (*_ROWS, *question.fields))
    if ("rows" in given) == ("columns" in given):
        raise Refusal("expected either rows, a list of objects, or columns, an object of lists")
    table = served.table_of_rows(given["rows"]) if "rows" in given else served.table_of_columns(given["columns"])
    return {**question.answer(served, table, given), "notes": served.notes(table)}


def describe(served: Served, version: str) -> dict[str, Any]:
    """The description of the server: the model's columns and outcomes, routes and limits."""
    columns = [{"name": name, "kind": kind} for name, kind in zip(served.columns, served.kinds, strict=True)]
    limits = served.limits
    return {
        "treecdf": version,
        "model": served.name,
        "columns": columns,
        "outcomes": list(served.outcomes),
        "questions": {f"/{name}": [*_ROWS, *question.fields] for name, question in QUESTIONS.items()},
        "limits": {
            "bytes": limits.body,
            "rows": limits.rows,
            "draws": limits.draws,
            "levels": limits.levels,
            "values": limits.values,
        },
    }


def try_out(served: Served) -> None:
    """Answer every question about one typical row, so that compilation is done before requests arrive."""
    table = served.typical_table()
    median = answers.quantiles(served.distribution(table), np.array([0.5]))[0, 0]
    outcome = dict(zip(served.outcomes, median.tolist(), strict=True))
    for question in QUESTIONS.values():
        question.answer(served, table, {"outcomes": [outcome], "draws": 1} if question.fields else {})
