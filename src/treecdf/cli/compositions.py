"""Compositions on the command line: models of tables whose columns are taxa.

Every column that is not named as something else is a taxon. A model knows its taxa, so that they are found by their
names in other tables.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treecdf._common.typing import Array
from treecdf.cli.fields import Kind
from treecdf.cli.inputs import Choose, check_columns
from treecdf.cli.models import columns_to_keep, kinds_of_covariates, standard_error, stream_beside, table_of
from treecdf.cli.output import check_memory, check_output, free_name, write_table
from treecdf.cli.tables import read_file
from treecdf.cli.terminal import printable, quoted
from treecdf.estimators.compositional import CompositionalFlow

if TYPE_CHECKING:
    from pandas import DataFrame

_MOST_TAXA = 8  # that the description of a model lists
# Options of `fit` that say nothing about compositions, and what they are when they are not given.
_FOREIGN: dict[str, Any] = {
    "outcome": [],
    "exposure": None,
    "bounds": [],
    "atoms": [],
    "resolution": [],
    "checkpoint": None,
    "effort": "default",
    "forget_rows": False,
}


def fit_composition(args: argparse.Namespace) -> None:
    """Fit a model of compositions to a table and write it to a file."""
    for name, absent in _FOREIGN.items():
        if getattr(args, name) != absent:
            raise ValueError(f"--{name.replace('_', '-')} does not go with --composition")
    if not args.covariates:
        raise ValueError("--composition needs --covariates: all columns that nothing else is said of are taxa")
    if args.time and not args.subject:
        raise ValueError("--time goes with --subject: it says when samples of one subject were taken")
    check_output(args.out, [args.table])
    table = read_file(table_of(args), _columns_to_learn(args))
    roles = {*args.covariates, args.subject, args.time, args.groups, args.weight}
    taxa = [name for name in table.columns if name not in roles]
    if len(taxa) < 2:
        raise ValueError(f"at least 2 columns of taxa are needed; got {len(taxa)}")
    model = CompositionalFlow(
        counts=args.composition == "counts",
        normalize=args.composition == "parts",
        categorical_features=args.categorical or None,
        n_jobs=args.jobs,
        random_state=args.seed,
    )
    start = time.perf_counter()
    model.fit(
        table[args.covariates],
        table[taxa].astype(np.float64),
        table[args.groups].to_numpy() if args.groups else None,
        sample_weight=table[args.weight].to_numpy(dtype=np.float64) if args.weight else None,
        **_subjects(args, table),
    )
    seconds = time.perf_counter() - start
    model.save(args.out)
    print(f"{len(table)} samples of {len(taxa)} taxa, {len(args.covariates)} covariate(s), fitted in {seconds:.1f} s")
    print(describe_composition(model))
    print(f"written to {args.out}, {os.path.getsize(args.out) / 1e3:.0f} kB")


def describe_composition(model: CompositionalFlow) -> str:
    """A description of a fitted model of compositions."""
    taxa = getattr(model, "taxa_", tuple(str(k) for k in range(model.n_taxa_)))
    shown = [printable(taxa[k]) for k in model.order_[:_MOST_TAXA]]
    more = f", and {len(taxa) - len(shown)} more" if len(taxa) > len(shown) else ""
    lines = [f"taxa, abundant and steady ones first: {', '.join(shown)}{more}"]
    names = getattr(model, "feature_names_in_", [f"column {j}" for j in range(model.n_features_in_)])
    lines.append(f"covariates: {', '.join(map(printable, names))}")
    if model.counts:
        low, middle, high = model.depths_.quantiles[[0, 50, 100]]
        lines.append(f"counts, of {low:.0f} to {high:.0f} reads a sample, half of them up to {middle:.0f}")
    if hasattr(model, "subjects_"):
        near = float(model.subjects_.ratio(np.zeros(1)).mean())
        lines.append(f"samples of one subject are alike: log ratios of a taxon correlate by {near:.2f} on average")
    return "\n".join(lines)


def score_composition(model: CompositionalFlow, args: argparse.Namespace) -> None:
    """Print the mean log density of the samples of a table; write each row's log density."""
    table = read_file(table_of(args), _columns_to_ask(model, args, model.taxa_))
    log_prob = model.log_prob(_covariates(model, table), table[list(model.taxa_)].astype(np.float64))
    lowest = int(log_prob.argmin())
    lines = [
        f"samples                       {len(table):10d}",
        f"mean log density              {log_prob.mean():10.4f}{standard_error(log_prob)}",
        f"lowest log density            {log_prob[lowest]:10.4f}  (row {lowest} of the file, from 0)",
    ]
    if args.out is not None:
        write_table(args.out, _labelled(args, table, {"log_density": log_prob}))
        lines.append(f"written to {args.out}")
    print("\n".join(lines), file=stream_beside(args.out))


def sample_composition(model: CompositionalFlow, args: argparse.Namespace) -> None:
    """Draw samples for every row of a table: one line for each draw."""
    depth: Any = None if args.depth is None else int(args.depth) if args.depth.isdecimal() else args.depth
    names = [depth] if isinstance(depth, str) else []
    table = read_file(table_of(args), _columns_to_ask(model, args, names))
    check_memory(len(table), args.n, 2 + model.n_taxa_ + len(args.id))
    if isinstance(depth, str):
        depth = table[depth].to_numpy(dtype=np.float64)
    drawn = model.sample(_covariates(model, table), args.n, args.seed, depth=depth, **_subjects(args, table))
    columns = {free_name("draw", [*model.taxa_, *args.id]): np.tile(np.arange(args.n), len(table))}
    for name in model.taxa_:
        values = drawn[name].to_numpy()
        columns[free_name(name, columns)] = values.astype(np.int64) if hasattr(model, "depths_") else values
    write_table(args.out, _labelled(args, table, columns, args.n))
    print(f"{args.n} draws for each of {len(table)} rows written to {args.out}", file=stream_beside(args.out))


def _columns_to_learn(args: argparse.Namespace) -> Choose:
    """How `fit` reads the columns of a table of compositions."""

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        given = [name for name in (args.subject, args.time, args.groups, args.weight) if name]
        check_columns(names, [*args.covariates, *args.drop, *args.categorical, *given])
        dropped = set(args.drop)
        kinds = {name: Kind.WEIGHT for name in names if name not in dropped}  # taxa: numbers, none missing
        for option, own, kind in (
            ("--covariates", args.covariates, Kind.ANY),
            ("--categorical", args.categorical, Kind.LEVELS),
            ("--subject", [args.subject] if args.subject else [], Kind.TEXT),
            ("--groups", [args.groups] if args.groups and args.groups != args.subject else [], Kind.TEXT),
            ("--weight", [args.weight] if args.weight else [], Kind.WEIGHT),
            ("--time", [args.time] if args.time and args.time not in args.covariates else [], Kind.WEIGHT),
        ):
            for name in own:
                free = Kind.ANY if option == "--categorical" else Kind.WEIGHT
                if kinds.get(name) is not free:
                    reason = "is no covariate" if option == "--categorical" else "is dropped or named already"
                    raise ValueError(f"{option} names {quoted(name)}, which {reason}")
                kinds[name] = kind
        if args.time and args.time in args.covariates:
            kinds[args.time] = Kind.WEIGHT
        return kinds

    return choose


def _columns_to_ask(model: CompositionalFlow, args: argparse.Namespace, more: Sequence[str]) -> Choose:
    """A choice of columns to read: covariates, further columns of numbers, subjects and times."""
    if not hasattr(model, "taxa_"):
        raise ValueError("the model was fitted on an array: the command line needs one that knows its taxa by name")
    kinds = kinds_of_covariates(model) | dict.fromkeys(more, Kind.WEIGHT)
    if getattr(args, "time", None):
        kinds[args.time] = Kind.WEIGHT
    if getattr(args, "subject", None):
        kinds[args.subject] = Kind.TEXT

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        check_columns(names, list(kinds))
        return kinds

    return choose


def _subjects(args: argparse.Namespace, table: DataFrame) -> dict[str, Any]:
    """Subjects and times of the samples, as keyword arguments."""
    subject = table[args.subject].astype(str).to_numpy() if args.subject else None
    return {"subject": subject, "time": table[args.time].to_numpy(dtype=np.float64) if args.time else None}


def _covariates(model: CompositionalFlow, table: DataFrame) -> DataFrame:
    return table[list(model.feature_names_in_)]


def _labelled(
    args: argparse.Namespace, table: DataFrame, answers: dict[str, Array], repeats: int = 1
) -> dict[str, Any]:
    """Columns of a result: each row's number and the copied columns, then the answers, which keep their names."""
    labels: dict[str, Any] = {free_name("row", [*args.id, *answers]): np.repeat(np.arange(len(table)), repeats)}
    if args.id:
        kept = read_file(table_of(args), columns_to_keep(args.id))
        for name in args.id:
            labels[free_name(name, [*labels, *answers])] = np.repeat(kept[name].to_numpy(), repeats)
    return labels | answers
