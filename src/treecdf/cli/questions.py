"""What a model is asked about the rows of a table: scores, predictions, quantiles and draws.

Every result has the row's number in the file, counted from 0, and the columns that `--id` carries over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from treecdf._common.typing import Array
from treecdf.cli.compositions import sample_composition, score_composition
from treecdf.cli.inputs import STANDARD
from treecdf.cli.models import Asked, read_model, refuse_options_of_compositions, standard_error, stream_beside
from treecdf.cli.output import TABLES, check_memory, check_output, free_name, write_table
from treecdf.cli.terminal import printable
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.flows.distribution import ConditionalDistribution

# Probabilities of the intervals whose coverage `score` tells.
_COVERAGES = (0.5, 0.9)


def score(args: argparse.Namespace) -> None:
    """Say how well the model predicts the outcomes of a table; write each row's log density."""
    if args.out is not None:
        check_output(args.out, [args.model, args.table], TABLES)
    model = load_model(args.model)
    if isinstance(model, CompositionalFlow):
        score_composition(model, args)
        return
    asked = Asked(model, args, with_outcomes=True)
    distribution = model.predict_distribution(asked.covariates, asked.exposure)
    values = asked.outcomes
    log_prob = distribution.logpdf(values)
    lowest = int(log_prob.argmin())
    lines = [
        f"rows                          {len(asked):10d}",
        f"mean log density              {log_prob.mean():10.4f}{standard_error(log_prob)}",
        f"lowest log density            {log_prob[lowest]:10.4f}  (row {asked.rows[lowest]} of the file, from 0)",
    ]
    for (name, own), truth in zip(_outcomes(model, distribution), values.reshape(len(asked), -1).T, strict=True):
        if model.n_outcomes_ > 1:
            lines.append(f"{printable(name)}")
        lines += _scores_of_outcome(own, truth)
    if model.atoms_ is not None or model.grid_ is not None:
        lines.append("the log density is in units of its own (atoms, grid): compare models by CRPS")
    if args.out is not None:
        write_table(args.out, asked.labelled({"log_density": log_prob}))
        lines.append(_written(args))
    _say(args, "\n".join(lines))


def predict(args: argparse.Namespace) -> None:
    """Write mean, standard deviation and a central interval of every outcome for every row of a table."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = read_model(args.model)
    asked = Asked(model, args)
    distribution = model.predict_distribution(asked.covariates, asked.exposure)
    levels = [round((1 - args.interval) / 2, 10), 0.5, round((1 + args.interval) / 2, 10)]
    mean, std = (part.reshape(len(asked), -1) for part in (distribution.mean(), distribution.std()))
    columns: dict[str, Array] = {}
    for j, (name, own) in enumerate(_outcomes(model, distribution)):
        columns[free_name(f"{name} mean", columns)] = mean[:, j]
        columns[free_name(f"{name} std", columns)] = std[:, j]
        columns |= _quantiles(name, own, levels, columns)
    write_table(args.out, asked.labelled(columns))
    _say(args, f"predictions of {len(asked)} rows: {_written(args)}")


def quantiles(args: argparse.Namespace) -> None:
    """Write quantiles of every outcome for every row of a table."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = read_model(args.model)
    levels = list(dict.fromkeys(args.levels))
    asked = Asked(model, args)
    columns: dict[str, Array] = {}
    for name, own in _outcomes(model, model.predict_distribution(asked.covariates, asked.exposure)):
        columns |= _quantiles(name, own, levels, columns)
    write_table(args.out, asked.labelled(columns))
    _say(args, f"{len(levels)} quantiles for each of {len(asked)} rows {_written(args)}")


def sample(args: argparse.Namespace) -> None:
    """Draw outcomes for every row of a table: one line for each draw."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = load_model(args.model)
    if isinstance(model, CompositionalFlow):
        sample_composition(model, args)
        return
    refuse_options_of_compositions(args)
    asked = Asked(model, args)
    check_memory(len(asked), args.n, 2 + model.n_outcomes_ + len(asked.ids))
    draws = model.sample(asked.covariates, args.n, args.seed, asked.exposure).reshape(len(asked), args.n, -1)
    # Outcomes keep their names; the column that counts draws gives way.
    columns = {free_name("draw", [*model.outcome_names_, *asked.ids]): np.tile(np.arange(args.n), len(asked))}
    for j, name in enumerate(model.outcome_names_):
        columns[free_name(name, columns)] = draws[..., j].ravel()
    result = asked.labelled(columns, args.n)
    write_table(args.out, result)
    names = ", ".join(map(printable, result))
    _say(args, f"{args.n} draws for each of {len(asked)} rows {_written(args)}, columns {names}")


def _outcomes(
    model: TreeFlowRegressor, distribution: ConditionalDistribution
) -> Iterator[tuple[str, ConditionalDistribution]]:
    """Name and distribution of every outcome."""
    for j, name in enumerate(model.outcome_names_):
        yield name, distribution.marginal(j)


def _quantiles(
    name: str, own: ConditionalDistribution, levels: list[float], taken: dict[str, Array]
) -> dict[str, Array]:
    """Quantiles of an outcome as columns that are named by their levels."""
    # Different levels print differently, and none has a space in it: no two columns have the same name.
    return {
        free_name(f"{name} {level!r}", taken): values for level, values in zip(levels, own.icdf(levels).T, strict=True)
    }


def _scores_of_outcome(own: ConditionalDistribution, truth: Array) -> Iterator[str]:
    """CRPS and coverage of one outcome, in lines of text."""
    yield f"CRPS                          {own.crps(truth).mean():10.4f}"
    for level in _COVERAGES:
        low, high = own.interval(level)
        inside = 100 * float(((low <= truth) & (truth <= high)).mean())
        width = f"(mean width {(high - low).mean():.4g})"
        yield f"{100 * level:.0f} % interval holds            {inside:10.1f} %  {width}"


def _written(args: argparse.Namespace) -> str:
    """Where the result went."""
    return "written to the standard output" if str(args.out) == STANDARD else f"written to {args.out}"


def _say(args: argparse.Namespace, text: str) -> None:
    """Print what a person should know, beside the result if that goes to the standard output."""
    print(text, file=stream_beside(args.out))
