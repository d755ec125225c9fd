"""The commands that ask a model about the rows of a table: scores, predictions, quantiles and draws.

Every result has the row's number in the file, counted from 0, and the columns of `--id`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.cli.compositions import sample_composition, score_composition
from treecdf.cli.inputs import STANDARD
from treecdf.cli.models import Asked, read_model, refuse_options_of_compositions, stream_beside
from treecdf.cli.output import TABLES, check_memory, check_output, free_name, write_pieces
from treecdf.cli.scores import Scores
from treecdf.cli.terminal import printable
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor
from treecdf.flows.distribution import ConditionalDistribution

# Rows of a table that are read, asked and written together: what is in memory at once does not grow with the table.
ROWS_OF_PIECE = 16_384
# Numbers of draws and their labels that are in memory at once.
_MOST_CELLS = 4_000_000


def score(args: argparse.Namespace) -> None:
    """Print how well the model predicts the outcomes of a table; write each row's log density."""
    if args.out is not None:
        check_output(args.out, [args.model, args.table], TABLES)
    model = load_model(args.model)
    if isinstance(model, CompositionalFlow):
        score_composition(model, args)
        return
    told = Scores(model.outcome_names_)

    def answers() -> Iterator[dict[str, NDArray[np.generic]]]:
        for asked in Asked.pieces(model, args, ROWS_OF_PIECE, with_outcomes=True):
            distribution = model.predict_distribution(asked.covariates, asked.exposure)
            log_prob = distribution.logpdf(asked.outcomes)
            told.add(asked.rows, log_prob, asked.outcomes, [own for _, own in _outcomes(model, distribution)])
            yield asked.labelled({"log_density": log_prob})

    if args.out is None:
        for _ in answers():
            pass
    else:
        write_pieces(args.out, answers())
    lines = list(told.lines())
    if model.atoms_ is not None or model.grid_ is not None:
        lines.append("the log density is in units of its own (atoms, grid): compare models by CRPS")
    if args.out is not None:
        lines.append(_written(args))
    _say(args, "\n".join(lines))


def predict(args: argparse.Namespace) -> None:
    """Write mean, standard deviation and a central interval of every outcome for every row of a table."""
    levels = [round((1 - args.interval) / 2, 10), 0.5, round((1 + args.interval) / 2, 10)]

    def answer(model: TreeFlowRegressor, distribution: ConditionalDistribution) -> dict[str, Array]:
        mean, std = (part.reshape(len(distribution), -1) for part in (distribution.mean(), distribution.std()))
        columns: dict[str, Array] = {}
        for j, (name, own) in enumerate(_outcomes(model, distribution)):
            columns[free_name(f"{name} mean", columns)] = mean[:, j]
            columns[free_name(f"{name} std", columns)] = std[:, j]
            columns |= _quantiles(name, own, levels, columns)
        return columns

    n = _ask(args, answer)
    _say(args, f"predictions of {n} rows: {_written(args)}")


def quantiles(args: argparse.Namespace) -> None:
    """Write quantiles of every outcome for every row of a table."""
    levels = list(dict.fromkeys(args.levels))

    def answer(model: TreeFlowRegressor, distribution: ConditionalDistribution) -> dict[str, Array]:
        columns: dict[str, Array] = {}
        for name, own in _outcomes(model, distribution):
            columns |= _quantiles(name, own, levels, columns)
        return columns

    n = _ask(args, answer)
    _say(args, f"{len(levels)} quantiles for each of {n} rows {_written(args)}")


def _ask(
    args: argparse.Namespace, answer: Callable[[TreeFlowRegressor, ConditionalDistribution], dict[str, Array]]
) -> int:
    """Write the answers of a model about the rows of a table, piece by piece; returns the number of rows."""
    check_output(args.out, [args.model, args.table], TABLES)
    model, n = read_model(args.model), 0

    def answers() -> Iterator[dict[str, NDArray[np.generic]]]:
        nonlocal n
        for asked in Asked.pieces(model, args, ROWS_OF_PIECE):
            n += len(asked)
            yield asked.labelled(answer(model, model.predict_distribution(asked.covariates, asked.exposure)))

    write_pieces(args.out, answers())
    return n


def sample(args: argparse.Namespace) -> None:
    """Draw outcomes for every row of a table: one line for each draw."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = load_model(args.model)
    if isinstance(model, CompositionalFlow):
        sample_composition(model, args)
        return
    refuse_options_of_compositions(args)
    n_columns = 2 + model.n_outcomes_ + len(args.id)
    check_memory(1, args.n, n_columns)
    rng, n, names = np.random.default_rng(args.seed), 0, list[str]()

    def answers() -> Iterator[dict[str, NDArray[np.generic]]]:
        nonlocal n, names
        for asked in Asked.pieces(model, args, max(1, min(ROWS_OF_PIECE, _MOST_CELLS // (args.n * n_columns)))):
            n += len(asked)
            draws = model.sample(asked.covariates, args.n, rng, asked.exposure).reshape(len(asked), args.n, -1)
            # Outcomes keep their names; the column that counts draws gives way.
            columns = {free_name("draw", [*model.outcome_names_, *args.id]): np.tile(np.arange(args.n), len(asked))}
            for j, name in enumerate(model.outcome_names_):
                columns[free_name(name, columns)] = draws[..., j].ravel()
            result = asked.labelled(columns, args.n)
            names = list(result)
            yield result

    write_pieces(args.out, answers())
    listed = ", ".join(map(printable, names))
    _say(args, f"{args.n} draws for each of {n} rows {_written(args)}, columns {listed}")


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


def _written(args: argparse.Namespace) -> str:
    """The path of the result, for a message."""
    return "written to the standard output" if str(args.out) == STANDARD else f"written to {args.out}"


def _say(args: argparse.Namespace, text: str) -> None:
    """Print a message, not on the standard output if the result goes there."""
    print(text, file=stream_beside(args.out))
