"""Checkpoints of long fits: a directory with a file that identifies the fit, and one for each training job.

    fit.tcdf     checksums of the settings, the seed and the rows; the seed itself if the user gave none
    job-3.tcdf   the steps of job 3 so far and the state of its generator, or its result when it is done
    lock         while a fit is using the directory

The files have the format and the checks of model files. A resumed job runs as before, except that it takes finished
steps from its file; so it gives the same flows.
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
from typing import Self

import numpy as np

from treecdf._common.files import UNFINISHED, replace_file
from treecdf._common.random import as_generator
from treecdf._common.steps import Sizes, Steps, Stop, TreeRows
from treecdf._common.typing import Array, Bools, Ints
from treecdf.data.table import Table
from treecdf.flows.results import Fitted, History
from treecdf.flows.tree import TreeSequence
from treecdf.persist.checks.models import check_grown, check_learnt, check_result
from treecdf.persist.checks.values import FromFile, ModelFileError, expect
from treecdf.persist.files import ForeignPartError, fingerprint, own_version, packed, refusing, verified
from treecdf.persist.locking import LOCK, locked

SECONDS = 20.0  # least time from one writing of a job's steps to the next
SHARE = 0.01  # largest share of the time that may go into writing
_FORMAT = "treecdf checkpoint"
_FIT = "fit.tcdf"
_LEARN = -1  # in the place of the stage's number, for a step that learns a part of the base


@contextlib.contextmanager
def _refusing(path: Path, is_whole: bool) -> Iterator[None]:
    """As `refusing`, with advice about a checkpoint in the message."""
    try:
        with refusing(path, is_whole):
            yield
    except ModelFileError as error:
        raise ModelFileError(f"{error} Remove {path.parent} to begin anew.") from error.__cause__


def _read_section(path: Path, data: bytes, name: str) -> dict[str, FromFile]:
    """The only section of a file of a checkpoint; its contents are not checked yet."""
    with _refusing(path, is_whole=False):
        content = verified(data, (_FORMAT,))
    with _refusing(path, is_whole=True):
        (section,) = content.sections(name)
    return section


def _write_section(path: Path, name: str, values: Mapping[str, object]) -> None:
    data = packed(_FORMAT, {name: values}, zipfile.ZIP_STORED)
    replace_file(path, lambda file: file.write(data))


class NoCheckpoint:
    """Takes the place of the checkpoint in a fit that has none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def generator(self, random_state: FromFile) -> np.random.Generator:
        """The random generator of the fit, from what the user gave as a seed."""
        return as_generator(random_state)

    def begin(self, settings: Mapping[str, object], *tables: Table | None) -> None:
        """Note the settings and the training and validation rows of the fit."""

    def steps(self, stop: Stop, number: int, sizes: Sizes) -> Steps:
        """The steps of the training job with this number."""
        return Steps(stop)

    def remove(self) -> None:
        """Remove the files when the fit is done."""


class Checkpoint(NoCheckpoint):
    """A directory for one fit, created if it does not exist.

    The jobs of the fit run in a `with` block: within it no other fit can use the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"Expected checkpoint to be a directory or a new name; got the file {self.path}.")
        self._before = self._read_begun()
        own = {*self._unfinished(), self.path / _FIT, self.path / LOCK}
        if self._before is None and not {*self._files("*")} <= own:
            raise ValueError(f"Expected checkpoint to be a directory without other files; got {self.path}.")
        self._seed: int | None = None
        self._draws: Ints | None = None
        self._fit = ""
        self._pace = SECONDS, SHARE
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            held.enter_context(locked(self.path))
            if not (self.path / _FIT).exists() or fingerprint(self._read()["marks"], "marks") != self._fit:
                raise self._changed()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _changed(self) -> ValueError:
        return ValueError(f"Another fit has used the checkpoint {self.path} meanwhile. Try again, or name another.")

    def generator(self, random_state: FromFile) -> np.random.Generator:
        """The generator of the fit; without a seed that of the resumed fit, or a new one."""
        if random_state is None:
            before = None if self._before is None else self._before["seed"]
            self._seed = int(np.random.SeedSequence(before).entropy)  # type: ignore[arg-type]
            random_state = self._seed
        rng = as_generator(random_state)
        self._draws = copy.deepcopy(rng).integers(2**63, size=4)
        return rng

    def begin(self, settings: Mapping[str, object], *tables: Table | None) -> None:
        """Write which fit it is: checksums of its settings, its seed, and its training and validation rows.

        A ValueError if the directory has a fit of which one of them differs, or if another fit is using it.
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
        self.path.mkdir(exist_ok=True)
        with locked(self.path):
            if self._read_begun() != self._before:
                raise self._changed()
            if self._before is None:
                _write_section(self.path / _FIT, "fit", {"marks": marks, "seed": self._seed})
            else:
                self._compare(marks, self._before["marks"])
            _unlink(self._unfinished())

    def _compare(self, marks: Mapping[str, str], kept: Mapping[str, object]) -> None:
        for name in [*marks, *kept]:
            if marks.get(name) != kept.get(name):
                raise ValueError(
                    f"The checkpoint {self.path} is of another fit: {name} differs. Go on with the fit that it is of, "
                    "remove it, or name another."
                )

    def steps(self, stop: Stop, number: int, sizes: Sizes) -> Steps:
        """The steps of the training job with this number; steps done before are taken from its file."""
        steps = KeptSteps(stop, self.path / f"job-{number}.tcdf", self._fit, self._pace)
        steps.read(sizes)
        return steps

    def remove(self) -> None:
        """Remove the files and the directory when the model is in place.

        A directory behind a link is emptied but stays. If something cannot be removed there is only a warning, so that
        the finished model is not lost.
        """
        try:
            with locked(self.path):
                _unlink([*self._files("job-*.tcdf"), *self._unfinished(), self.path / _FIT])
            if not self.path.is_symlink() and not self._files("*"):
                self.path.rmdir()
        except (OSError, ValueError) as error:
            text = f"The fit is done, but its checkpoint {self.path} cannot be removed: {error}"
            warnings.warn(text, UserWarning, stacklevel=3)

    def _unfinished(self) -> list[Path]:
        """Files that were being written when a fit was killed."""
        return self._files(f"{UNFINISHED}*")

    def _files(self, pattern: str) -> list[Path]:
        return list(self.path.glob(pattern))

    def _read_begun(self) -> dict[str, FromFile] | None:
        """The identification of the fit in the directory; None if no job has written anything yet."""
        is_begun = (self.path / _FIT).exists() and bool(self._files("job-*.tcdf"))
        return self._read() if is_begun else None

    def _read(self) -> dict[str, FromFile]:
        """Checksums and the seed of the fit that the directory belongs to."""
        path = self.path / _FIT
        fit = _read_section(path, path.read_bytes(), "fit")
        with _refusing(path, is_whole=True):
            expect(isinstance(fit.get("marks"), dict) and "seed" in fit, "what the checkpoint is of")
            expect(fit["seed"] is None or (type(fit["seed"]) is int and fit["seed"] >= 0), "a seed")
        return fit


def _unlink(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


class KeptSteps(Steps):
    """Takes the steps done before from a file, and writes all steps to it now and then."""

    def __init__(self, stop: Stop, path: Path, fit: str, pace: tuple[float, float]) -> None:
        super().__init__(stop)
        self.path, self.fit, self.pace = path, fit, pace
        # For each step its stage, what was done, and the state of the generator after it (None if not known; it is for
        # the last). It is one list, so that an interrupt does not find half of a step in it.
        self._log: list[tuple[int, FromFile, FromFile]] = []
        self._n_taken = self._n_written = 0
        self._due: float | None = None

    def learn(
        self,
        rng: np.random.Generator,
        n_covariates: int,
        shape: tuple[int, ...],
        fit: Callable[[], tuple[FromFile, Array]],
    ) -> tuple[FromFile, Array]:
        """As `Steps.learn`."""
        check = partial(check_learnt, n_covariates=n_covariates, shape=shape)
        step: tuple[FromFile, Array] = self._do(
            rng, _LEARN, check, partial(super().learn, rng, n_covariates, shape, fit)
        )
        return step

    def grow(
        self, rng: np.random.Generator, stage: int, rows: Sequence[TreeRows], grow: Callable[[], list[FromFile]]
    ) -> list[FromFile]:
        """As `Steps.grow`."""
        sizes = {"n_covariates": rows[0].n_covariates, "n_outcomes": rows[0].n_outcomes}
        check = partial(check_grown, n_trees=len(rows), **sizes)
        trees: list[FromFile] = self._do(rng, stage, check, partial(super().grow, rng, stage, rows, grow))
        return trees

    def _do(
        self, rng: np.random.Generator, stage: int, check: Callable[[FromFile], None], work: Callable[[], FromFile]
    ) -> FromFile:
        if self._n_taken < len(self._log):
            kept_stage, done, state = self._log[self._n_taken]
            with _refusing(self.path, is_whole=True):
                expect(kept_stage == stage, "the steps of this job")
                check(done)
                if state is not None:
                    rng.bit_generator.state = state
        else:
            if self._due is None:
                self._due = time.monotonic() + self.pace[0]
            done = work()
            if self.was_interrupted:
                return done
            self._log.append((stage, done, rng.bit_generator.state))
            if time.monotonic() >= self._due:
                self.write()
        self._n_taken += 1
        return done

    def write(self) -> None:
        """Write all steps to the file, if there are new ones."""
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
        """Write the result of the job in place of its steps; only the steps if it was stopped early by Ctrl-C."""
        if fitted.is_whole:
            history = fitted.history.columns()
            self._put({"flows": fitted.flows, "history": history, "left_out": fitted.left_out})
        else:
            self.write()

    def _put(self, content: Mapping[str, object]) -> None:
        """Write the file; if the disk is full there is a warning, because the fit can continue without."""
        begin = time.monotonic()
        try:
            _write_section(self.path, "job", {"fit": self.fit, **content})
        except (OSError, ModelFileError) as error:
            warnings.warn(f"The checkpoint cannot be written, the fit goes on: {error}", UserWarning, stacklevel=2)
        now, (seconds, share) = time.monotonic(), self.pace
        self._due = now + max(seconds, (now - begin) / share)

    def read(self, sizes: Sizes) -> None:
        """Take the steps, or the result of the job, from the file, if there is one."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        job = _read_section(self.path, data, "job")
        with _refusing(self.path, is_whole=True):
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


def _joined(rounds: Sequence[list[TreeSequence]]) -> tuple[Bools, tuple[TreeSequence, ...]]:
    """Whether there is a tree, (rounds, folds), and all trees of each fold as one sequence."""
    grown = np.array([[len(tree) > 0 for tree in trees] for trees in rounds])
    return grown, tuple(TreeSequence.join([tree for tree in fold if len(tree)]) for fold in zip(*rounds, strict=True))


def _parted(grown: Bools, joined: tuple[TreeSequence, ...]) -> list[list[TreeSequence]]:
    """The trees of each round and fold, from the result of `_joined`."""
    before: Ints = np.cumsum(grown, axis=0) - grown
    expect(grown.shape[1] == len(joined), "trees for each fold")
    return [
        [trees[k : k + has_tree] for trees, k, has_tree in zip(joined, starts, has_trees, strict=True)]
        for starts, has_trees in zip(before.tolist(), grown.tolist(), strict=True)
    ]
