"""Pictures of what a model says about the rows of a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from treecdf.cli.inputs import check_columns
from treecdf.cli.models import Asked, number_of_outcome, read_model
from treecdf.cli.output import PICTURES, check_output, write_picture
from treecdf.cli.terminal import quoted
from treecdf.estimators.regressor import TreeFlowRegressor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Rows whose density is drawn unless the user names some.
_N_DRAWN = 3


def plot(args: argparse.Namespace) -> None:
    """Draw what the model says about the rows of a table."""
    check_output(args.out, [args.model, args.table], PICTURES)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from treecdf import plots

    model = read_model(args.model)
    outcome = number_of_outcome(model, args.outcome)
    if args.kind == "importance":
        figure = plots.ImportanceDisplay.from_estimator(model).figure_
    elif args.kind == "history":
        figure = plots.HistoryDisplay.from_estimator(model).figure_
    elif args.table is None:
        raise ValueError(f"--kind {args.kind} draws rows of a table: name one after the model")
    elif args.kind == "density":
        figure = _density(model, args, outcome)
    elif args.kind in ("fan", "effect"):
        figure = _of_a_covariate(model, args, outcome)
    else:
        figure = _with_outcomes(model, args, outcome)
    try:
        write_picture(args.out, figure)
    finally:
        pyplot.close(figure)
    print(f"written to {args.out}")


def _density(model: TreeFlowRegressor, args: argparse.Namespace, outcome: int | None) -> Figure:
    """The densities at some rows; of two outcomes together at one row."""
    from treecdf import plots

    asked = Asked.whole(model, args)
    n_drawn = 1 if model.n_outcomes_ == 2 and outcome is None else _N_DRAWN
    rows = list(range(min(len(asked), n_drawn))) if args.rows is None else args.rows
    outside = [row for row in rows if not 0 <= row < len(asked)]
    if outside:
        raise ValueError(f"expected --rows from 0 to {len(asked) - 1}, as the table has {len(asked)}; got {outside[0]}")
    _need_outcome(model, outcome, most=2)
    display = plots.ConditionalDensityDisplay.from_estimator(
        model, asked.covariates.iloc[rows], outcome=outcome, labels=[f"row {row}" for row in rows]
    )
    return display.figure_


def _of_a_covariate(model: TreeFlowRegressor, args: argparse.Namespace, outcome: int | None) -> Figure:
    """The outcome as one covariate runs over its range."""
    from treecdf import plots

    if args.covariate is None:
        raise ValueError(f"--kind {args.kind} draws the outcome against one covariate: name it with --covariate")
    _need_outcome(model, outcome)
    x = Asked.whole(model, args).covariates
    check_columns(list(x.columns), [args.covariate])
    if args.kind == "fan":
        return plots.FanChartDisplay.from_estimator(model, x, args.covariate, outcome=outcome).figure_
    return plots.CovariateEffectDisplay.from_estimator(model, x, args.covariate, outcome=outcome).figure_


def _with_outcomes(model: TreeFlowRegressor, args: argparse.Namespace, outcome: int | None) -> Figure:
    """How well the distributions agree with the outcomes of a table."""
    from treecdf import plots

    _need_outcome(model, outcome)
    asked = Asked.whole(model, args, with_outcomes=True)
    x, y = asked.covariates, asked.outcomes
    if args.kind == "pit":
        return plots.PITDisplay.from_estimator(model, x, y, outcome=outcome).figure_
    if args.kind == "calibration":
        return plots.CalibrationDisplay.from_estimator(model, x, y, outcome=outcome).figure_
    return plots.IntervalDisplay.from_estimator(model, x, y, outcome=outcome).figure_


def _need_outcome(model: TreeFlowRegressor, outcome: int | None, most: int = 1) -> None:
    """Complain if the picture is of fewer outcomes than the model has and the user does not say of which."""
    if outcome is None and model.n_outcomes_ > most:
        names = ", ".join(map(quoted, model.outcome_names_))
        raise ValueError(f"the model has {model.n_outcomes_} outcomes: say which to draw with --outcome: {names}")
