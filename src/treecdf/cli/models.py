"""What commands need of a model and of a table together: its columns, its outcomes, and the numbers of its rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.cli.fields import Kind, kind_of_levels
from treecdf.cli.inputs import STANDARD, Choose, Input, check_columns
from treecdf.cli.output import free_name
from treecdf.cli.tables import read_file
from treecdf.cli.terminal import quoted
from treecdf.data.columns import Category, Date
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.regressor import TreeFlowRegressor

if TYPE_CHECKING:
    from pandas import DataFrame


def table_of(args: argparse.Namespace) -> Input:
    """The table that the arguments name, and how they say that it is written."""
    return Input(args.table, args.separator, args.encoding)


def read_model(path: Path) -> TreeFlowRegressor:
    """The regressor in a model file."""
    return as_regressor(load_model(path), path)


def as_regressor(model: TreeFlowRegressor | CompositionalFlow, path: Path) -> TreeFlowRegressor:
    """The model if it is a regressor, else a complaint about the file."""
    if isinstance(model, TreeFlowRegressor):
        return model
    raise ValueError(
        f"{path} holds a {type(model).__name__}: fit, info, score and sample are for it, other commands not"
    )


class Asked:
    """The rows of a table that a model is asked about, with their numbers in the file and the columns to carry over."""

    def __init__(self, model: TreeFlowRegressor, args: argparse.Namespace, with_outcomes: bool = False) -> None:
        self._model, self._given = model, table_of(args)
        self.ids: list[str] = list(getattr(args, "id", []))
        self._exposure: str | None = getattr(args, "exposure", None)
        if hasattr(model, "exposure_") != (self._exposure is not None):
            raise ValueError(_about_exposure(model, args.command))
        frame = read_file(self._given, columns_to_ask(model, with_outcomes, self._exposure))
        self.frame = frame[known_outcomes(frame, model.outcome_names_, args.out)] if with_outcomes else frame

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def covariates(self) -> DataFrame:
        """The model's covariates."""
        return self.frame[list(self._model.feature_names_in_)]

    @property
    def exposure(self) -> Array | None:
        """Exposures (n,) of the rows, None if the model knows none."""
        return None if self._exposure is None else self.frame[self._exposure].to_numpy(dtype=np.float64)

    @property
    def outcomes(self) -> Array:
        """Outcomes (n,), or (n, d) if there are several."""
        y: Array = self.frame[list(self._model.outcome_names_)].to_numpy(dtype=np.float64)
        return y[:, 0] if self._model.n_outcomes_ == 1 else y

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers (n,) of the rows in the file, counted from 0."""
        return self.frame.index.to_numpy(dtype=np.int64)

    def labelled(self, answers: Mapping[str, Array], repeats: int = 1) -> dict[str, NDArray[np.generic]]:
        """Columns of a result: each row's number and what is carried over, then the answers, which keep their names."""
        labels: dict[str, NDArray[np.generic]] = {
            free_name("row", [*self.ids, *answers]): np.repeat(self.rows, repeats)
        }
        if self.ids:
            kept = read_file(self._given, columns_to_keep(self.ids)).loc[self.frame.index]
            for name in self.ids:
                labels[free_name(name, [*labels, *answers])] = np.repeat(kept[name].to_numpy(), repeats)
        return labels | dict(answers)


def _about_exposure(model: TreeFlowRegressor, command: str) -> str:
    """What is wrong with the exposure that is given, or is not."""
    if not hasattr(model, "exposure_"):
        return "the model was fitted without an exposure: leave --exposure out"
    if command == "plot":
        return "of a model with exposures only --kind importance and history are drawn"
    return "the model was fitted with an exposure: name its column by --exposure COLUMN"


def refuse_options_of_compositions(args: argparse.Namespace) -> None:
    """Complain about options that say something about compositions only."""
    for name in ("covariates", "subject", "time", "depth"):
        if getattr(args, name, None):
            raise ValueError(f"--{name} is for compositions")


def kinds_of_covariates(model: TreeFlowRegressor | CompositionalFlow) -> dict[str, Kind]:
    """How the covariates of a model are read, by name."""
    if not hasattr(model, "feature_names_in_"):
        raise ValueError("the model was fitted on an array: the command line needs one that knows its columns by name")
    kinds = {}
    for name, part in zip(model.feature_names_in_, model.covariates_.columns, strict=True):
        if isinstance(part, Category):
            kinds[str(name)] = kind_of_levels(part.levels)
        else:
            kinds[str(name)] = Kind.DATE if isinstance(part, Date) else Kind.NUMBER
    return kinds


def columns_to_ask(model: TreeFlowRegressor, with_outcomes: bool = False, exposure: str | None = None) -> Choose:
    """How the model's covariates are read, its outcomes if they are needed, and exposures; other columns are not."""
    kinds = kinds_of_covariates(model)
    if with_outcomes:
        kinds |= dict.fromkeys(model.outcome_names_, Kind.NUMBER)
    if exposure is not None:
        kinds[exposure] = Kind.WEIGHT

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        check_columns(names, list(kinds))
        return kinds

    return choose


def columns_to_keep(ids: Sequence[str]) -> Choose:
    """How columns are read that are carried over into the result."""

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        check_columns(names, ids)
        return dict.fromkeys(ids, Kind.AS_IT_IS)

    return choose


def known_outcomes(table: DataFrame, outcomes: Sequence[str], out: Path) -> NDArray[np.bool_]:
    """Which rows (n,) have all outcomes, which become numbers in the table.

    How many have not is told, beside the result if that goes `out` to the standard output.
    """
    for name in outcomes:
        if table[name].dtype.kind in "mM":
            raise ValueError(f"column {quoted(name)}: expected numbers, as it is an outcome; got dates or durations")
        try:
            table[name] = table[name].astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {quoted(name)}: expected numbers, as it is an outcome: {error}") from None
    known = table[list(outcomes)].notna().all(axis=1).to_numpy()
    if not known.any():
        raise ValueError(f"every row of the table lacks an outcome ({', '.join(map(quoted, outcomes))})")
    if not known.all():
        print(f"{int((~known).sum())} rows without an outcome are left out", file=stream_beside(out))
    return known


def stream_beside(out: Path | None) -> TextIO:
    """Where to tell what a person should know: not on the standard output if the result goes there."""
    return sys.stderr if str(out) == STANDARD else sys.stdout


def number_of_outcome(model: TreeFlowRegressor, given: str | None) -> int | None:
    """The number of the outcome that the user names or counts from 0; None if none is given."""
    if given is None:
        return None
    names = list(model.outcome_names_)
    if given in names:
        return names.index(given)
    if given.isdigit() and int(given) < len(names):
        return int(given)
    listed = ", ".join(map(quoted, names))
    raise ValueError(f"expected --outcome to be {listed}, or a number from 0 to {len(names) - 1}; got {quoted(given)}")


def standard_error(values: Array) -> str:
    """Standard error of the mean of values (n,) in words; nothing of a single one, or of one that is infinite."""
    if len(values) < 2 or not np.isfinite(values).all():
        return ""
    return f"  (standard error {values.std(ddof=1) / np.sqrt(len(values)):.4f})"
