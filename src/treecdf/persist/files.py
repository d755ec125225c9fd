"""Model files: a zip of one JSON document, which says how the parts hang together, and of plain numbers.

    model.json     format, version, where the arrays are, the parts of the model, its parameters
    model.sha256   checksum of model.json, which has those of the numbers
    float64.bin    all arrays of this dtype one after the other, little-endian; the same for other dtypes

Nothing in a file is ever run: parts are frozen dataclasses of the registry in `format`, written field by field, and
numbers are read as numbers. A part that several others share is written once and comes back as one object. What a file
declares is bounded by its size before anything is allocated, and a model is checked (see `checks`) before it is handed
out, because kernels do not check what they index.

To make a new class part of model files, give it a line in CHECKS of a module in `checks` and a function to check it.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treecdf._common.files import replace_file
from treecdf.flows.results import Family
from treecdf.persist.archive import Archive
from treecdf.persist.checks.values import FromFile, ModelFileError, Numbers, expect
from treecdf.persist.format import VERSION, checksum, may_hold, most_items, most_pieces, own_version
from treecdf.persist.reading import Reader, field_of, read_arrays, read_document
from treecdf.persist.writing import ForeignPartError, Writer, as_text, zipped

__all__ = [
    "ForeignPartError",
    "ModelFileError",
    "fingerprint",
    "kept_parameters",
    "own_version",
    "packed",
    "read_model",
    "refusing",
    "set_fitted",
    "verified",
    "write_model",
]
# What gives random numbers to one fit: files do not keep its state.
_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
_MOST_LEFT_OUT = 10_000  # rows whose log densities are kept; of more only the mean, for `summary`


def write_model(
    path: str | os.PathLike[str],
    name: str,
    parameters: Mapping[str, FromFile],
    fitted: Mapping[str, FromFile],
    check: Callable[[Mapping[str, FromFile]], None],
) -> None:
    """Write a model of the format of this name; a file that is there already is replaced at once or not at all."""
    shorter = {name: _shortened(value) if name == "families_" else value for name, value in fitted.items()}
    sections = {"parameters": kept_parameters(parameters), "fitted": shorter}
    try:
        data = packed(name, sections, zipfile.ZIP_DEFLATED)
    except ForeignPartError as error:
        advice = "Use skops or joblib for models with parts of other libraries."
        raise ModelFileError(f"The model cannot be saved: {error} {advice}") from None
    check(shorter)
    replace_file(path, lambda file: file.write(data))


def read_model(
    path: str | os.PathLike[str], restore: Mapping[str, Callable[[FromFile, FromFile], FromFile]]
) -> FromFile:
    """The result of `restore` for the parameters and fitted attributes in a file of one of the formats it names."""
    data = Path(path).read_bytes()
    with refusing(path, is_whole=False):
        content = verified(data, tuple(restore))
    with refusing(path, is_whole=True):
        parameters, fitted = content.sections("parameters", "fitted")
        return restore[content.format](parameters, fitted)


def set_fitted(model: FromFile, fitted: Mapping[str, FromFile], known: Sequence[str]) -> None:
    """Set the fitted attributes of a model, if their names are known."""
    for name, value in fitted.items():
        expect(name in known, f"attributes of a fitted model; got {name!r:.40}")
        setattr(model, name, value)


def kept_parameters(parameters: Mapping[str, FromFile]) -> dict[str, FromFile]:
    """Parameters without the checkpoint and without a generator or its seed sequence, which are used up."""

    def is_done(name: str, value: FromFile) -> bool:
        return name == "checkpoint" or (name == "random_state" and isinstance(value, _GENERATORS))

    return {name: None if is_done(name, value) else value for name, value in parameters.items()}


def _shortened(families: tuple[Family, ...]) -> tuple[Family, ...]:
    """Families without the log densities of very many rows."""
    return tuple(
        family if len(family.left_out) <= _MOST_LEFT_OUT else replace(family, left_out=_mean(family.left_out))
        for family in families
    )


def _mean(log_density: NDArray[np.float64]) -> NDArray[np.float64]:
    known = np.isfinite(log_density)
    return np.array([log_density[known].mean() if known.any() else np.nan])


def packed(name: str, sections: Mapping[str, Mapping[str, FromFile]], how: int) -> bytes:
    """A file of the format of this name: sections of named values, deflated or stored."""
    writer = Writer()
    document: dict[str, FromFile] = {"format": name, "version": VERSION, "written_by": own_version()}
    for section, values in sections.items():
        document[section] = {key: writer.value(value, key) for key, value in values.items()}
    text, pools = as_text(document, writer)
    entries = {"model.json": text, "model.sha256": checksum(text).encode()}
    entries |= {f"{name}.bin": pool.tobytes() for name, pool in pools.items()}
    data = zipped(entries, how)
    sizes = {name: len(content) for name, content in entries.items()}
    can_be_read = may_hold(len(data), sizes) and writer.n_pieces <= most_pieces(len(data))
    return data if can_be_read else zipped(entries, zipfile.ZIP_STORED)


@dataclass(frozen=True)
class Content:
    """The JSON and the arrays of a file with correct checksums, which may still be forged."""

    document: dict[str, FromFile]
    arrays: list[Numbers]
    most_pieces: int

    @property
    def format(self) -> str:
        """Name of the format."""
        name: str = self.document["format"]
        return name

    def sections(self, *names: str) -> list[dict[str, FromFile]]:
        """The named values of the sections of these names; whether they fit together is not checked yet."""
        reader = Reader(self.arrays, self.most_pieces)
        for part in field_of(self.document, "objects", list):
            reader.add(part)
        found = [field_of(self.document, name, dict) for name in names]
        return [{key: reader.value(value) for key, value in values.items()} for values in found]


def verified(data: bytes, formats: Sequence[str]) -> Content:
    """The content of a file of one of these formats, if it has our version and correct checksums."""
    archive = Archive(data)
    document = read_document(archive, formats, most_items(len(data)))
    return Content(document, read_arrays(archive, document), most_pieces(len(data)))


def fingerprint(value: FromFile, name: str) -> str:
    """Checksum of a value that could be in a file; equal values have equal checksums."""
    writer = Writer()
    text, _ = as_text({"value": writer.value(value, name)}, writer)
    return checksum(text)


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str], is_whole: bool) -> Iterator[None]:
    """Turn any error about the contents of a file into a ModelFileError.

    is_whole: whether its checksums are known to be correct. Then an unexpected error does not mean damage: it is a bug
    of treecdf, or somebody made the file by hand, and the message says so.
    """
    where = os.fspath(path)
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{where} cannot be loaded: {error}") from error.__cause__
    except MemoryError as error:
        raise ModelFileError(f"{where} cannot be loaded: there is not enough memory for it.") from error
    except Exception as error:  # no list of what hostile data may cause is complete
        what = f"{type(error).__name__}: {error}"
        reason = f"it is damaged ({what})."
        if is_whole:
            reason = (
                f"its checksums are right, but this treecdf {own_version()} cannot read it ({what}). If treecdf wrote "
                "the file, please report this."
            )
        raise ModelFileError(f"{where} cannot be loaded: {reason}") from error
