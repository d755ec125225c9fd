"""Checkpoints of long fits: a directory with a file that says which fit it is of, and one for each training job.

    fit.tcdf     checksums of the settings, the seed and the rows; the seed itself if the user gave none
    job-3.tcdf   the steps job 3 has done so far and the state of its generator, or what it gave in the end

The files are like model files, and checked like them. A job that is begun again is the same as before, except that
steps of its file are taken from there: so it cannot but end in the same flows.
"""

from __future__ import annotations

import contextlib
import copy
import os
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecdf._common.random import as_generator
from treecdf._common.steps import Grown, Sizes, Steps, Stop
from treecdf._common.typing import Array
from treecdf.data.table import Table
from treecdf.flows.results import Fitted, History
from treecdf.flows.tree import TreeSequence
from treecdf.persist.checks.models import ModelFileError, check_grown, check_learnt, check_result, expect
from treecdf.persist.files import ForeignPartError, fingerprint, own_version, packed, put_in_place, refusing, unpacked

SECONDS = 20.0  # from one writing of a job's steps to the next, at least,
SHARE = 0.01  # and writing takes no more than this share of the time
_FORMAT = "treecdf checkpoint"
_FIT = "fit.tcdf"
_LEARN = -1  # in the place of a stage's number
_COLUMNS: dict[str, Any] = {"stage": np.int64, "train": np.float64, "validation": np.float64, "kept": np.bool_}


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        with refusing(path):
            yield
    except ModelFileError as error:
        raise ModelFileError(f"{error} Remove {path.parent} to begin anew.") from None


class NoCheckpoint:
    """Of a fit that is not to be kept."""

    def generator(self, random_state: Any) -> np.random.Generator:
        """The generator of the fit."""
        return as_generator(random_state)

    def begin(self, settings: Mapping[str, Any], *tables: Table | None) -> None:
        """Say which fit it is."""

    def steps(self, stop: Stop, number: int, sizes: Sizes) -> Steps:
        """The steps of a job."""
        return Steps(stop)

    def remove(self) -> None:
        """The fit is done."""


class Checkpoint(NoCheckpoint):
    """In a directory of its own, which is made if it is not there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"Expected checkpoint to be a directory or a new name; got the file {self.path}.")
        is_begun = (self.path / _FIT).exists() and bool(self._files("job-*.tcdf"))  # else there is nothing to lose
        self._before = self._read() if is_begun else None
        if self._before is None and not {*self._files("*")} <= {*self._halves(), self.path / _FIT}:
            raise ValueError(f"Expected checkpoint to be a directory without other files; got {self.path}.")
        self._seed: int | None = None
        self._draws: Any = None
        self._fit = ""
        self._pace = SECONDS, SHARE

    def generator(self, random_state: Any) -> np.random.Generator:
        """The generator of the fit; without a seed that of the fit that is gone on with, or a new one."""
        if random_state is None:
            before = None if self._before is None else self._before["seed"]
            self._seed = int(np.random.SeedSequence(before).entropy)  # type: ignore[arg-type]
            random_state = self._seed
        rng = as_generator(random_state)
        self._draws = copy.deepcopy(rng).integers(2**63, size=4)
        return rng

    def begin(self, settings: Mapping[str, Any], *tables: Table | None) -> None:
        """Say which fit it is, by its settings and its rows for training and for validation.

        Complain if the directory has another one.
        """
        try:
            marks = {f"the setting {name}": fingerprint(value, name) for name, value in settings.items()}
        except ForeignPartError as error:
            raise ModelFileError(f"A fit with parts of other libraries cannot have a checkpoint: {error}") from None
        marks = {"the version of treecdf": own_version(), **marks, "the seed": fingerprint(self._draws, "seed")}
        for table, name in zip(tables, ("training", "validation"), strict=True):
            rows = None if table is None else (table.x, table.y, table.weight)
            marks[f"the {name} rows"] = fingerprint(rows, name)
        self._fit = fingerprint(marks, "marks")
        if self._before is None:
            self.path.mkdir(exist_ok=True)
            fit = {"marks": marks, "seed": self._seed}
            put_in_place(self.path / _FIT, packed(_FORMAT, {"fit": fit}, zipfile.ZIP_STORED))
        else:
            self._compare(marks, self._before["marks"])
        _unlink(self._halves())

    def _compare(self, marks: Mapping[str, str], kept: Mapping[str, Any]) -> None:
        for name in [*marks, *kept]:
            if marks.get(name) != kept.get(name):
                raise ValueError(
                    f"The checkpoint {self.path} is of another fit: {name} differs. Go on with the fit that it is of, "
                    "remove it, or name another."
                )

    def steps(self, stop: Stop, number: int, sizes: Sizes) -> Steps:
        """The steps of a job, with those that were done before."""
        steps = KeptSteps(stop, self.path / f"job-{number}.tcdf", self._fit, self._pace)
        steps.read(sizes)
        return steps

    def remove(self) -> None:
        """The fit is done: leave nothing behind."""
        _unlink([*self._files("job-*.tcdf"), *self._halves(), self.path / _FIT])
        if not self._files("*"):
            self.path.rmdir()

    def _halves(self) -> list[Path]:
        """Files that a fit was writing when it was killed."""
        return [*self._files(".fit.tcdf.*"), *self._files(".job-*.tcdf.*")]

    def _files(self, pattern: str) -> list[Path]:
        return list(self.path.glob(pattern))

    def _read(self) -> dict[str, Any]:
        path = self.path / _FIT
        with _refusing(path):
            _, (fit,) = unpacked(path.read_bytes(), (_FORMAT,), ("fit",))
            expect(isinstance(fit.get("marks"), dict) and "seed" in fit, "what the checkpoint is of")
            expect(fit["seed"] is None or (type(fit["seed"]) is int and fit["seed"] >= 0), "a seed")
        return fit


def _unlink(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


class KeptSteps(Steps):
    """Takes steps that were done before from a file, and writes those it does to it now and then."""

    def __init__(self, stop: Stop, path: Path, fit: str, pace: tuple[float, float]) -> None:
        super().__init__(stop)
        self.path, self.fit, self.pace = path, fit, pace
        # Stage, what was done, and the state of the generator after it; known for the last at least. One object, so
        # that an interrupt does not find half of it.
        self._log: list[tuple[int, Any, Any]] = []
        self._n_taken = self._n_written = 0
        self._due: float | None = None

    def learn(
        self,
        rng: np.random.Generator,
        n_covariates: int,
        shape: tuple[int, ...],
        fit: Callable[[], tuple[Any, Array]],
    ) -> tuple[Any, Array]:
        """As `Steps.learn`."""
        check = partial(check_learnt, n_covariates=n_covariates, shape=shape)
        step: tuple[Any, Array] = self._do(rng, _LEARN, check, partial(super().learn, rng, n_covariates, shape, fit))
        return step

    def grow(
        self, rng: np.random.Generator, stage: int, rows: Sequence[Grown], grow: Callable[[], list[Any]]
    ) -> list[Any]:
        """As `Steps.grow`."""
        sizes = {"n_covariates": rows[0].n_covariates, "n_outcomes": rows[0].n_outcomes}
        check = partial(check_grown, n_trees=len(rows), **sizes)
        trees: list[Any] = self._do(rng, stage, check, partial(super().grow, rng, stage, rows, grow))
        return trees

    def _do(self, rng: np.random.Generator, stage: int, check: Callable[[Any], None], work: Callable[[], Any]) -> Any:
        if self._n_taken < len(self._log):
            kept_stage, done, state = self._log[self._n_taken]
            with _refusing(self.path):
                expect(kept_stage == stage, "the steps of this job")
                check(done)
                if state is not None:
                    rng.bit_generator.state = state
        else:
            if self._due is None:
                self._due = time.monotonic() + self.pace[0]
            done = work()
            if self.is_cut_short:
                return done
            self._log.append((stage, done, rng.bit_generator.state))
            if time.monotonic() >= self._due:
                self.write()
        self._n_taken += 1
        return done

    def write(self) -> None:
        """Write all steps."""
        if len(self._log) == self._n_written:
            return
        grown = [(stage, trees) for stage, trees, _ in self._log if stage != _LEARN]
        stages = [
            (stage, *_joined([trees for _, trees in of_stage]))
            for stage, of_stage in groupby(grown, key=lambda step: step[0])
        ]
        learnt = [done for stage, done, _ in self._log if stage == _LEARN]
        self._put({"learnt": learnt, "stages": stages, "state": self._log[-1][2]})
        self._n_written = len(self._log)

    def finish(self, fitted: Fitted) -> None:
        """Write what the job gave in the place of the steps; only the steps if it was cut short."""
        if fitted.is_whole:
            columns = vars(fitted.history)
            history = {name: np.array(columns[name], dtype=kind) for name, kind in _COLUMNS.items()}
            self._put({"flows": fitted.flows, "history": history, "left_out": fitted.left_out})
        else:
            self.write()

    def _put(self, content: dict[str, Any]) -> None:
        """Write the file. A full disk must not end a fit that could go on without."""
        begin = time.monotonic()
        try:
            put_in_place(self.path, packed(_FORMAT, {"job": {"fit": self.fit, **content}}, zipfile.ZIP_STORED))
        except (OSError, ModelFileError) as error:
            warnings.warn(f"The checkpoint cannot be written, the fit goes on: {error}", UserWarning, stacklevel=2)
        now, (seconds, share) = time.monotonic(), self.pace
        self._due = now + max(seconds, (now - begin) / share)

    def read(self, sizes: Sizes) -> None:
        """Read the file, if there is one."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        with _refusing(self.path):
            _, (job,) = unpacked(data, (_FORMAT,), ("job",))
            expect(job.get("fit") == self.fit, "a job of this fit")
            if "flows" in job:
                check_result(job["flows"], job["history"], job["left_out"], sizes)
                history = History(**{name: column.tolist() for name, column in job["history"].items()})
                self.result = Fitted(job["flows"], history, job["left_out"])
                return
            done = [(_LEARN, step) for step in job["learnt"]]
            done += [(stage, trees) for stage, grown, joined in job["stages"] for trees in _parted(grown, joined)]
            expect(len(done) > 0, "a step")
            self._log = [(stage, step, None) for stage, step in done]
            self._log[-1] = (*done[-1], job["state"])
            self._n_written = len(self._log)


def _joined(rounds: Sequence[list[TreeSequence]]) -> tuple[NDArray[np.bool_], tuple[TreeSequence, ...]]:
    """Whether there is a tree, for each round and fold, and the trees of each fold."""
    grown = np.array([[len(tree) > 0 for tree in trees] for trees in rounds])
    return grown, tuple(TreeSequence.join([tree for tree in fold if len(tree)]) for fold in zip(*rounds, strict=True))


def _parted(grown: NDArray[np.bool_], joined: tuple[TreeSequence, ...]) -> list[list[TreeSequence]]:
    """Inverse of `_joined`."""
    before: NDArray[np.int64] = np.cumsum(grown, axis=0) - grown
    expect(grown.shape[1] == len(joined), "trees for each fold")
    return [
        [trees[k : k + has_tree] for trees, k, has_tree in zip(joined, starts, has_trees, strict=True)]
        for starts, has_trees in zip(before.tolist(), grown.tolist(), strict=True)
    ]
