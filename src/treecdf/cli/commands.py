"""What the command line does with tables and model files.

Each command checks its arguments before it works, and writes its files before it prints: what was computed is not lost
if the terminal has gone.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treecdf._common.typing import Array
from treecdf.cli.output import PICTURES, TABLES, check_memory, check_output, free_name, write_picture, write_table
from treecdf.cli.tables import Choose, Kind, check_columns, kind_of_levels, read_file
from treecdf.cli.terminal import printable, quoted
from treecdf.data.columns import Category
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# Covariates that the description of a model lists.
_MOST_COVARIATES = 10
# Rows whose density is drawn unless the user names some.
_N_DRAWN = 3


# Commands


def fit(args: argparse.Namespace) -> None:
    """Learn a model from a table and write it to a file."""
    check_output(args.out, [args.table])
    bounds = [_bound(text) for text in args.bounds]
    table = _with_outcomes(read_file(args.table, _columns_to_learn(args)), args.outcome)
    x = table.drop(columns=[*args.outcome, *([args.weight] if args.weight else [])])
    y = table[args.outcome[0]] if len(args.outcome) == 1 else table[args.outcome]
    model = TreeFlowRegressor(
        effort=args.effort,
        bounds=bounds or None,
        categorical_features=args.categorical or None,
        random_state=args.seed,
        n_jobs=args.jobs,
        checkpoint=args.checkpoint,
        verbose=1,
    )
    start = time.perf_counter()
    model.fit(x, y, sample_weight=table[args.weight].to_numpy(dtype=np.float64) if args.weight else None)
    seconds = time.perf_counter() - start
    model.save(args.out)
    print(f"{len(table)} rows, {x.shape[1]} covariates, fitted in {seconds:.1f} s")
    print(describe(model))
    print(f"written to {args.out}, {os.path.getsize(args.out) / 1e3:.0f} kB")


def score(args: argparse.Namespace) -> None:
    """Say how well the model predicts the outcomes of a table; write each row's log density."""
    if args.out is not None:
        check_output(args.out, [args.model, args.table], TABLES)
    model = _read_model(args.model)
    table = _with_outcomes(read_file(args.table, _columns_to_ask(model, with_outcomes=True)), model.outcome_names_)
    distribution = model.predict_distribution(_covariates(model, table))
    values = _outcomes(model, table)
    log_prob = distribution.logpdf(values)
    lines = [
        f"rows                          {len(table):10d}",
        f"mean log density              {log_prob.mean():10.4f}  (standard error {_standard_error(log_prob):.4f})",
        f"lowest log density            {log_prob.min():10.4f}  (row {int(log_prob.argmin())})",
    ]
    if model.n_outcomes_ == 1:
        lines.append(f"CRPS                          {distribution.crps(values).mean():10.4f}")
        for level in (0.5, 0.9):
            low, high = distribution.interval(level)
            inside = 100 * float(((low <= values) & (values <= high)).mean())
            width = f"(mean width {(high - low).mean():.4g})"
            lines.append(f"{100 * level:.0f} % interval holds            {inside:10.1f} %  {width}")
    if args.out is not None:
        write_table(args.out, {"log_density": log_prob})
        lines.append(f"written to {args.out}")
    print("\n".join(lines))


def sample(args: argparse.Namespace) -> None:
    """Draw outcomes for every row of a table: one line for each draw."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = _read_model(args.model)
    table = read_file(args.table, _columns_to_ask(model))
    check_memory(len(table), args.n, 2 + model.n_outcomes_)
    draws = model.sample(_covariates(model, table), args.n, random_state=args.seed).reshape(len(table), args.n, -1)
    # Outcomes keep their names; the columns that count rows and draws give way.
    columns = {
        free_name("row", model.outcome_names_): np.repeat(np.arange(len(table)), args.n),
        free_name("draw", model.outcome_names_): np.tile(np.arange(args.n), len(table)),
    }
    for j, name in enumerate(model.outcome_names_):
        columns[free_name(name, columns)] = draws[..., j].ravel()
    write_table(args.out, columns)
    names = ", ".join(map(printable, columns))
    print(f"{args.n} draws for each of {len(table)} rows written to {args.out}, columns {names}")


def quantiles(args: argparse.Namespace) -> None:
    """Write quantiles of every outcome for every row of a table."""
    check_output(args.out, [args.model, args.table], TABLES)
    model = _read_model(args.model)
    levels = list(dict.fromkeys(args.levels))
    distribution = model.predict_distribution(_covariates(model, read_file(args.table, _columns_to_ask(model))))
    columns: dict[str, Array] = {}
    for j, name in enumerate(model.outcome_names_):
        own = distribution if model.n_outcomes_ == 1 else distribution.marginal(j)
        for level, values in zip(levels, own.icdf(levels).T, strict=True):
            # Different levels print differently, and none has a space in it: no two columns have the same name.
            columns[free_name(f"{name} {level!r}", columns)] = values
    write_table(args.out, columns)
    print(f"{len(levels)} quantiles for each of {len(distribution)} rows written to {args.out}")


def plot(args: argparse.Namespace) -> None:
    """Draw what the model says about the rows of a table."""
    check_output(args.out, [args.model, args.table], PICTURES)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from treecdf import plots

    model = _read_model(args.model)
    if args.kind == "importance":
        figure = plots.ImportanceDisplay.from_estimator(model).figure_
    elif args.kind == "history":
        figure = plots.HistoryDisplay.from_estimator(model).figure_
    elif args.table is None:
        raise ValueError(f"--kind {args.kind} draws rows of a table: name one after the model.")
    elif args.kind in ("density", "fan"):
        figure = _plot_of_covariates(model, args)
    else:
        figure = _plot_of_outcomes(model, args)
    try:
        write_picture(args.out, figure)
    finally:
        pyplot.close(figure)
    print(f"written to {args.out}")


def info(args: argparse.Namespace) -> None:
    """Say what is in a model file."""
    start = time.perf_counter()
    model = _read_model(args.model)
    seconds = time.perf_counter() - start
    print(f"{args.model}: {os.path.getsize(args.model) / 1e3:.0f} kB, loaded in {seconds:.2f} s")
    print(describe(model))


def describe(model: TreeFlowRegressor) -> str:
    """A fitted model in words: outcomes, covariates by importance, flows."""
    names = getattr(model, "feature_names_in_", [f"column {j}" for j in range(model.n_features_in_)])
    kinds, shares = model.covariates_.kinds, model.feature_importances_
    order = np.argsort(-shares, kind="stable")
    outcomes = ", ".join(map(printable, model.outcome_names_))
    lines = [f"outcome: {outcomes}", "covariates by importance:"]
    lines += [f"  {printable(names[j]):<24} {shares[j]:6.1%}  {kinds[j]}" for j in order[:_MOST_COVARIATES]]
    if len(order) > _MOST_COVARIATES:
        lines.append(f"  and {len(order) - _MOST_COVARIATES} more")
    return "\n".join([*lines, model.summary()])


# Pictures


def _plot_of_covariates(model: TreeFlowRegressor, args: argparse.Namespace) -> Figure:
    """A picture of the distributions at some rows, or as one covariate runs over its range."""
    from treecdf import plots

    x = _covariates(model, read_file(args.table, _columns_to_ask(model)))
    if args.kind == "density":
        rows = list(range(min(len(x), _N_DRAWN))) if args.rows is None else args.rows
        outside = [row for row in rows if not 0 <= row < len(x)]
        if outside:
            raise ValueError(f"expected --rows from 0 to {len(x) - 1}, as the table has {len(x)}; got {outside[0]}")
        return plots.ConditionalDensityDisplay.from_estimator(model, x.iloc[rows]).figure_
    if args.covariate is None:
        raise ValueError("--kind fan draws the outcome against one covariate: name it with --covariate.")
    check_columns(list(x.columns), [args.covariate])
    return plots.FanChartDisplay.from_estimator(model, x, args.covariate).figure_


def _plot_of_outcomes(model: TreeFlowRegressor, args: argparse.Namespace) -> Figure:
    """A picture of how well the distributions agree with the outcomes of a table."""
    from treecdf import plots

    table = _with_outcomes(read_file(args.table, _columns_to_ask(model, with_outcomes=True)), model.outcome_names_)
    x, y = _covariates(model, table), _outcomes(model, table)
    if args.kind == "pit":
        return plots.PITDisplay.from_estimator(model, x, y).figure_
    if args.kind == "calibration":
        return plots.CalibrationDisplay.from_estimator(model, x, y).figure_
    return plots.IntervalDisplay.from_estimator(model, x, y).figure_


# Tables and models


def _read_model(path: Path) -> TreeFlowRegressor:
    """The regressor in a model file."""
    model = load_model(path)
    if not isinstance(model, TreeFlowRegressor):
        raise ValueError(f"{path} holds a {type(model).__name__}; the command line is for TreeFlowRegressor only")
    return model


def _columns_to_learn(args: argparse.Namespace) -> Choose:
    """How `fit` reads the columns of a table."""

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        weights = [args.weight] if args.weight else []
        check_columns(names, [*args.outcome, *args.drop, *args.categorical, *weights])
        kinds = {name: Kind.ANY for name in names if name not in args.drop}
        _give_roles(kinds, "--categorical", args.categorical, Kind.LEVELS)
        _give_roles(kinds, "--outcome", args.outcome, Kind.NUMBER)
        _give_roles(kinds, "--weight", weights, Kind.WEIGHT)
        if not any(kind in (Kind.ANY, Kind.LEVELS) for kind in kinds.values()):
            raise ValueError("no column is left to predict the outcome from")
        return kinds

    return choose


def _give_roles(kinds: dict[str, Kind], option: str, names: Sequence[str], kind: Kind) -> None:
    """Set the kind of the columns that an option names; complain if one has another role already."""
    for name in names:
        if kinds.get(name) is not Kind.ANY:
            raise ValueError(f"{option} names {quoted(name)}, which is dropped or named already")
        kinds[name] = kind


def _columns_to_ask(model: TreeFlowRegressor, with_outcomes: bool = False) -> Choose:
    """How the model's covariates are read, and its outcomes if they are needed; other columns are not."""
    if not hasattr(model, "feature_names_in_"):
        raise ValueError("the model was fitted on an array: the command line needs one that knows its columns by name")
    kinds = {
        str(name): kind_of_levels(part.levels) if isinstance(part, Category) else Kind.NUMBER
        for name, part in zip(model.feature_names_in_, model.covariates_.columns, strict=True)
    }
    if with_outcomes:
        kinds |= dict.fromkeys(model.outcome_names_, Kind.NUMBER)

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        check_columns(names, list(kinds))
        return kinds

    return choose


def _covariates(model: TreeFlowRegressor, table: DataFrame) -> DataFrame:
    """The model's covariates out of a table that may have more columns."""
    return table[list(model.feature_names_in_)]


def _with_outcomes(table: DataFrame, outcomes: Sequence[str]) -> DataFrame:
    """The rows in which no outcome is missing, with outcomes that are numbers."""
    for name in outcomes:
        try:
            table[name] = table[name].astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {quoted(name)}: expected numbers, as it is an outcome: {error}") from None
    known = table[list(outcomes)].notna().all(axis=1)
    if not known.any():
        raise ValueError(f"every row of the table lacks an outcome ({', '.join(map(quoted, outcomes))})")
    if not known.all():
        print(f"{int((~known).sum())} rows without an outcome are left out")
    return table[known].reset_index(drop=True)


def _outcomes(model: TreeFlowRegressor, table: DataFrame) -> Array:
    """Outcomes (n,), or (n, d) if there are several."""
    y: Array = table[list(model.outcome_names_)].to_numpy(dtype=np.float64)
    return y[:, 0] if model.n_outcomes_ == 1 else y


def _bound(text: str) -> tuple[float | None, float | None]:
    """A pair like "0," or ",1" or "0,1" as numbers, None for an end that is not given."""
    ends = text.split(",")
    try:
        low, high = (float(end) if end.strip() else None for end in ends)
    except ValueError:
        raise ValueError(f"expected --bounds LOW,HIGH, an empty end for none; got {quoted(text)}") from None
    return low, high


def _standard_error(values: Array) -> float:
    """Standard error of the mean of values (n,); NaN of a single one."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
