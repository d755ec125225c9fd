"""What commands need of a model and a table together: columns, outcomes, and row numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from treecdf._common.typing import Array
from treecdf.cli.fields import Kind, kind_of_levels
from treecdf.cli.inputs import STANDARD, Choose, Input, check_columns
from treecdf.cli.output import free_name
from treecdf.cli.tables import read_file, read_pieces
from treecdf.cli.terminal import quoted
from treecdf.data.columns import Category, Date
from treecdf.estimators.compositional import CompositionalFlow
from treecdf.estimators.loading import load_model
from treecdf.estimators.progress import Progress
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
    """The model if it is a regressor, else an error about the file."""
    if isinstance(model, TreeFlowRegressor):
        return model
    raise ValueError(
        f"{path} holds a {type(model).__name__}: fit, info, score and sample are for it, other commands not"
    )


class Asked:
    """Rows of a table for which a model is asked, with their row numbers in the file and the columns to copy."""

    def __init__(self, model: TreeFlowRegressor, frame: DataFrame, exposure: str | None, kept: DataFrame) -> None:
        self._model, self.frame, self._exposure, self._kept = model, frame, exposure, kept

    @staticmethod
    def whole(model: TreeFlowRegressor, args: argparse.Namespace, with_outcomes: bool = False) -> Asked:
        """All rows of the table; with outcomes, only those that have them."""
        exposure = _exposure_of(model, args)
        frame = read_file(table_of(args), columns_to_ask(model, with_outcomes, exposure))
        if with_outcomes:
            known = known_outcomes(frame, model.outcome_names_)
            tell_unknown(int((~known).sum()), len(frame), model.outcome_names_, args.out)
            frame = frame[known]
        return Asked(model, frame, exposure, frame[[]])

    @staticmethod
    def pieces(
        model: TreeFlowRegressor, args: argparse.Namespace, n_rows: int, with_outcomes: bool = False
    ) -> Iterator[Asked]:
        """The rows of the table, n_rows at a time, with a progress bar; with outcomes, only rows that have them."""
        given, ids, exposure = table_of(args), list(args.id), _exposure_of(model, args)
        parts = read_pieces(given, columns_to_ask(model, with_outcomes, exposure), n_rows)
        beside = read_pieces(given, columns_to_keep(ids), n_rows) if ids else None
        n_read = n_unknown = 0
        progress = Progress(1)
        try:
            for frame, share in parts:
                kept = frame[[]] if beside is None else next(beside)[0]
                n_read += len(frame)
                if with_outcomes:
                    known = known_outcomes(frame, model.outcome_names_)
                    n_unknown += int((~known).sum())
                    frame, kept = frame[known], kept[known]
                if len(frame):
                    yield Asked(model, frame, exposure, kept)
                if n_read > n_rows or share < 1:  # a single piece needs no bar
                    progress.show(f"{n_read} rows", share)
        finally:
            progress.close()
        tell_unknown(n_unknown, n_read, model.outcome_names_, args.out)

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
            free_name("row", [*self._kept, *answers]): np.repeat(self.rows, repeats)
        }
        for name in self._kept:
            labels[free_name(name, [*labels, *answers])] = np.repeat(self._kept[name].to_numpy(), repeats)
        return labels | dict(answers)


def _exposure_of(model: TreeFlowRegressor, args: argparse.Namespace) -> str | None:
    """The column of exposures, None if the model has none."""
    exposure: str | None = getattr(args, "exposure", None)
    if hasattr(model, "exposure_") != (exposure is not None):
        raise ValueError(_about_exposure(model, args.command))
    return exposure


def _about_exposure(model: TreeFlowRegressor, command: str) -> str:
    """The error message about a missing or needless exposure."""
    if not hasattr(model, "exposure_"):
        return "the model was fitted without an exposure: leave --exposure out"
    if command == "plot":
        return "of a model with exposures only --kind importance and history are drawn"
    return "the model was fitted with an exposure: name its column by --exposure COLUMN"


def refuse_options_of_compositions(args: argparse.Namespace) -> None:
    """Raise a ValueError about options that are only for compositions."""
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
    """A choice of columns that are copied into the result."""

    def choose(names: Sequence[str]) -> dict[str, Kind]:
        check_columns(names, ids)
        return dict.fromkeys(ids, Kind.AS_IT_IS)

    return choose


def known_outcomes(table: DataFrame, outcomes: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows (n,) have all outcomes; these columns of the table become numbers."""
    for name in outcomes:
        if table[name].dtype.kind in "mM":
            raise ValueError(f"column {quoted(name)}: expected numbers, as it is an outcome; got dates or durations")
        try:
            table[name] = table[name].astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {quoted(name)}: expected numbers, as it is an outcome: {error}") from None
    return table[list(outcomes)].notna().all(axis=1).to_numpy()


def tell_unknown(n_unknown: int, n: int, outcomes: Sequence[str], out: Path | None) -> None:
    """Tell how many of n rows have no outcome; not on the standard output if the result goes `out` there."""
    if n_unknown == n:
        raise ValueError(f"every row of the table lacks an outcome ({', '.join(map(quoted, outcomes))})")
    if n_unknown:
        print(f"{n_unknown} rows without an outcome are left out", file=stream_beside(out))


def stream_beside(out: Path | None) -> TextIO:
    """The stream for messages: not the standard output if the result goes there."""
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
    """Standard error of the mean of values (n,) as text; empty for one value, or if it is infinite."""
    if len(values) < 2 or not np.isfinite(values).all():
        return ""
    return f"  (standard error {values.std(ddof=1) / np.sqrt(len(values)):.4f})"
