"""What the command line does with tables and model files."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor

_TABLES = (".csv", ".parquet")
_PICTURES = (".png", ".pdf", ".svg", ".jpg")


# Commands


def fit(args: argparse.Namespace) -> None:
    """Learn a model from a table and write it to a file."""
    _check_can_write(args.out, ())
    table = read_table(args.table)
    _check_columns(table, [*args.outcome, *args.drop, *args.categorical, *([args.weight] if args.weight else [])])
    table = _with_outcomes(table, args.outcome)
    x = table.drop(columns=[*args.outcome, *args.drop, *([args.weight] if args.weight else [])])
    y = table[args.outcome[0]] if len(args.outcome) == 1 else table[args.outcome]
    model = TreeFlowRegressor(
        effort=args.effort,
        bounds=[_bound(text) for text in args.bounds] or None,
        categorical_features=args.categorical or None,
        random_state=args.seed,
        n_jobs=args.jobs,
        checkpoint=args.checkpoint,
        verbose=1,
    )
    start = time.perf_counter()
    model.fit(x, y, sample_weight=table[args.weight].to_numpy() if args.weight else None)
    seconds = time.perf_counter() - start
    model.save(args.out)
    print(f"{len(table)} rows, {x.shape[1]} covariates, fitted in {seconds:.1f} s")
    print(describe(model))
    print(f"written to {args.out}, {os.path.getsize(args.out) / 1e3:.0f} kB")


def score(args: argparse.Namespace) -> None:
    """Say how well the model predicts the outcomes of a table; write each row's log density."""
    model = _read_model(args.model)
    if args.out is not None:
        _check_can_write(args.out, _TABLES)
    table = _with_outcomes(read_table(args.table), model.outcome_names_)
    y = table[list(model.outcome_names_)].to_numpy(dtype=np.float64)
    distribution = model.predict_distribution(_covariates(model, table))
    values = y[:, 0] if model.n_outcomes_ == 1 else y
    log_prob = distribution.logpdf(values)
    print(f"rows                          {len(table):10d}")
    print(f"mean log density              {log_prob.mean():10.4f}  (standard error {_standard_error(log_prob):.4f})")
    print(f"lowest log density            {log_prob.min():10.4f}  (row {int(log_prob.argmin())})")
    if model.n_outcomes_ == 1:
        print(f"CRPS                          {distribution.crps(values).mean():10.4f}")
        for level in (0.5, 0.9):
            low, high = distribution.interval(level)
            inside = 100 * float(((low <= values) & (values <= high)).mean())
            width = f"(mean width {(high - low).mean():.4g})"
            print(f"{100 * level:.0f} % interval holds            {inside:10.1f} %  {width}")
    if args.out is not None:
        _write_table(args.out, {"log_density": log_prob})
        print(f"written to {args.out}")


def sample(args: argparse.Namespace) -> None:
    """Draw outcomes for every row of a table: one line for each draw."""
    _check_can_write(args.out, _TABLES)
    model = _read_model(args.model)
    table = read_table(args.table)
    draws = model.sample(_covariates(model, table), args.n, random_state=args.seed).reshape(len(table), args.n, -1)
    columns = {"row": np.repeat(np.arange(len(table)), args.n), "draw": np.tile(np.arange(args.n), len(table))}
    columns |= {name: draws[..., j].ravel() for j, name in enumerate(model.outcome_names_)}
    _write_table(args.out, columns)
    print(f"{args.n} draws for each of {len(table)} rows written to {args.out}")


def quantiles(args: argparse.Namespace) -> None:
    """Quantiles of every outcome for every row of a table."""
    _check_can_write(args.out, _TABLES)
    model = _read_model(args.model)
    distribution = model.predict_distribution(_covariates(model, read_table(args.table)))
    columns = {}
    for j, name in enumerate(model.outcome_names_):
        own = distribution if model.n_outcomes_ == 1 else distribution.marginal(j)
        for level, values in zip(args.levels, own.icdf(args.levels).T, strict=True):
            columns[f"{name} {level:g}"] = values
    _write_table(args.out, columns)
    print(f"{len(args.levels)} quantiles for each of {len(distribution)} rows written to {args.out}")


def plot(args: argparse.Namespace) -> None:
    """Draw what the model says about the rows of a table."""
    _check_can_write(args.out, _PICTURES)
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
    else:
        figure = _plot_of_rows(plots, model, read_table(args.table), args)
    _write(args.out, lambda path: figure.savefig(path, dpi=150))
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
    lines = [f"outcome: {', '.join(model.outcome_names_)}", "covariates by importance:"]
    lines += [f"  {names[j]:<24} {shares[j]:6.1%}  {kinds[j]}" for j in order[:10]]
    if len(order) > 10:
        lines.append(f"  and {len(order) - 10} more")
    return "\n".join([*lines, model.summary()])


def _plot_of_rows(plots: Any, model: TreeFlowRegressor, table: Any, args: argparse.Namespace) -> Any:
    if args.kind in ("density", "fan"):
        x = _covariates(model, table)
        if args.kind == "density":
            return plots.ConditionalDensityDisplay.from_estimator(model, x.iloc[args.rows]).figure_
        if args.covariate is None:
            raise ValueError("--kind fan draws the outcome against one covariate: name it with --covariate.")
        _check_columns(x, [args.covariate])
        return plots.FanChartDisplay.from_estimator(model, x, args.covariate).figure_
    table = _with_outcomes(table, model.outcome_names_)
    y = table[list(model.outcome_names_)].to_numpy(dtype=np.float64)
    names = {"pit": "PITDisplay", "calibration": "CalibrationDisplay", "intervals": "IntervalDisplay"}
    display = getattr(plots, names[args.kind])
    return display.from_estimator(model, _covariates(model, table), y[:, 0] if y.shape[1] == 1 else y).figure_


# Tables and models


def _read_model(path: Path) -> TreeFlowRegressor:
    model = load_model(path)
    if not isinstance(model, TreeFlowRegressor):
        raise ValueError(f"{path} holds a {type(model).__name__}; the command line is for TreeFlowRegressor only")
    return model


def read_table(path: Path) -> Any:
    """A CSV or Parquet file as a pandas frame."""
    import pandas as pd

    if path.suffix.lower() not in _TABLES:
        raise ValueError(f"the table's name should end in .csv or .parquet; got {path.name}")
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        return pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _check_columns(table: Any, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r}; the table has {', '.join(map(str, table.columns))}")


def _with_outcomes(table: Any, outcomes: Sequence[str]) -> Any:
    """The rows in which no outcome is missing."""
    _check_columns(table, outcomes)
    known = table[list(outcomes)].notna().all(axis=1)
    if not known.all():
        print(f"{int((~known).sum())} rows without an outcome are left out")
    return table[known].reset_index(drop=True)


def _covariates(model: TreeFlowRegressor, table: Any) -> Any:
    """The model's covariates out of a table that may have more columns."""
    _check_columns(table, list(model.feature_names_in_))
    return table[list(model.feature_names_in_)]


def _bound(text: str) -> tuple[float | None, float | None]:
    """A pair like "0," or ",1" or "0,1"."""
    ends = text.split(",")
    if len(ends) != 2:
        raise ValueError(f"expected bounds LOW,HIGH, an empty end for none; got {text!r}")
    low, high = (float(end) if end.strip() else None for end in ends)
    return low, high


def _standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


# Files are written beside their place and then moved there, so that no half of one is ever seen.


def _check_can_write(path: Path, suffixes: Sequence[str]) -> None:
    """Find out before the work is done."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"the output's name should end in {' or '.join(suffixes)}; got {path.name}")
    if path.is_dir():
        raise ValueError(f"{path} is a directory")
    if not path.resolve().parent.is_dir():
        raise ValueError(f"there is no directory {path.resolve().parent}")


def _write_table(path: Path, columns: dict[str, Any]) -> None:
    import pandas as pd

    frame = pd.DataFrame(columns)
    if path.suffix.lower() == ".csv":
        _write(path, lambda name: frame.to_csv(name, index=False))
    else:
        _write(path, lambda name: frame.to_parquet(name, index=False))


def _write(path: Path, write: Callable[[str], Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    try:
        write(name)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    finally:
        if os.path.exists(name):
            os.remove(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
