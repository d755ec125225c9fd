"""The commands that fit a model and that describe one.

Each command checks its arguments before it works, and writes its files before it prints, so that results are not lost
if the terminal is closed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from treecdf.cli.compositions import describe_composition, fit_composition
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Choose, check_columns
from treecdf.cli.models import known_outcomes, refuse_options_of_compositions, table_of, tell_unknown
from treecdf.cli.output import check_output
from treecdf.cli.tables import read_file
from treecdf.cli.terminal import printable, quoted
from treecdf.data.recording import FEW
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor

# Covariates that the description of a model lists.
_MOST_COVARIATES = 10


def fit(args: argparse.Namespace) -> None:
    """Fit a model to a table and write it to a file."""
    if args.composition:
        fit_composition(args)
        return
    refuse_options_of_compositions(args)
    if not args.outcome:
        raise ValueError("--outcome is missing: one column, or several, to learn the distribution of")
    check_output(args.out, [args.table])
    model = TreeFlowRegressor(
        effort=args.effort,
        bounds=[_bound(text) for text in args.bounds] or None,
        atoms=_values("--atoms", args.atoms),
        resolution=_values("--resolution", args.resolution),
        categorical_features=args.categorical or None,
        remember_rows=not args.forget_rows,
        random_state=args.seed,
        n_jobs=args.jobs,
        checkpoint=args.checkpoint,
        verbose=1,
    )
    table = read_file(table_of(args), _columns_to_learn(args))
    known = known_outcomes(table, args.outcome)
    tell_unknown(int((~known).sum()), len(table), args.outcome, args.out)
    roles = [*args.outcome, *(name for name in (args.weight, args.groups, args.exposure) if name)]
    x = table.drop(columns=roles)
    # A row without an outcome stays in its place without a weight, so that all rows have the numbers of the file.
    table[~known] = table[known].iloc[[0] * int((~known).sum())].to_numpy()
    weight = table[args.weight].to_numpy(dtype=np.float64) if args.weight else np.ones(len(table))
    y = table[args.outcome].astype(np.float64)
    start = time.perf_counter()
    model.fit(
        x,
        y[args.outcome[0]] if len(args.outcome) == 1 else y,
        sample_weight=np.where(known, weight, 0.0),
        groups=table[args.groups].to_numpy() if args.groups else None,
        exposure=table[args.exposure].to_numpy(dtype=np.float64) if args.exposure else None,
    )
    seconds = time.perf_counter() - start
    model.save(args.out)
    print(f"{known.sum()} rows, {x.shape[1]} covariates, fitted in {seconds:.1f} s")
    print(describe(model))
    print(f"written to {args.out}, {os.path.getsize(args.out) / 1e3:.0f} kB")


def info(args: argparse.Namespace) -> None:
    """Print a description of a model file."""
    start = time.perf_counter()
    model = load_model(args.model)
    seconds = time.perf_counter() - start
    print(f"{args.model}: {os.path.getsize(args.model) / 1e3:.0f} kB, loaded in {seconds:.2f} s")
    print(describe_composition(model) if isinstance(model, CompositionalFlow) else describe(model))


def describe(model: TreeFlowRegressor) -> str:
    """A description of a fitted model: outcomes, covariates by importance, flows."""
    names = getattr(model, "feature_names_in_", [f"column {j}" for j in range(model.n_features_in_)])
    kinds, shares = model.covariates_.kinds, model.feature_importances_
    order = np.argsort(-shares, kind="stable")
    outcomes = ", ".join(map(printable, model.outcome_names_))
    lines = [f"outcome: {outcomes}", "covariates by importance:"]
    lines += [f"  {printable(names[j]):<24} {shares[j]:6.1%}  {kinds[j]}" for j in order[:_MOST_COVARIATES]]
    if len(order) > _MOST_COVARIATES:
        lines.append(f"  and {len(order) - _MOST_COVARIATES} more")
    return "\n".join([*lines, model.summary()])


def _columns_to_learn(args: argparse.Namespace) -> Choose:
    """How `fit` reads the columns of a table."""

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        given = args.weight, args.groups, args.exposure
        weights, groups, exposures = ([name] if name else [] for name in given)
        check_columns(names, [*args.outcome, *args.drop, *args.categorical, *weights, *groups, *exposures])
        kinds = {name: Kind.ANY for name in names if name not in args.drop}
        _give_roles(kinds, "--categorical", args.categorical, Kind.LEVELS)
        _give_roles(kinds, "--outcome", args.outcome, Kind.NUMBER)
        _give_roles(kinds, "--weight", weights, Kind.WEIGHT)
        _give_roles(kinds, "--groups", groups, Kind.TEXT)
        _give_roles(kinds, "--exposure", exposures, Kind.WEIGHT)
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


def _bound(text: str) -> tuple[float | None, float | None]:
    """A pair like "0," or ",1" or "0,1" as numbers, None for an end that is not given."""
    ends = text.split(",")
    try:
        low, high = (float(end) if end.strip() else None for end in ends)
    except ValueError:
        raise ValueError(f"expected --bounds LOW,HIGH, an empty end for none; got {quoted(text)}") from None
    return low, high


def _values(option: str, given: Sequence[str]) -> Any:
    """The setting that an option's words stand for: None, "auto", "few", a number, or several."""
    is_grid = option == "--resolution"
    if not given:
        return FEW if is_grid else None
    if list(given) == ["auto"]:
        return "auto"
    if is_grid and list(given) == ["none"]:
        return None
    try:
        numbers = [float(word) for word in given]
    except ValueError:
        raise ValueError(f"expected {option} to be auto or numbers; got {' '.join(map(quoted, given))}") from None
    return numbers[0] if is_grid and len(numbers) == 1 else numbers
