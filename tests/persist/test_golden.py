"""Model files that an earlier treecdf wrote: they are read, and predict what they did when they were written.

`python -m tests.persist.make_golden` writes them anew, when the version of the format is raised.
"""

import zipfile

import numpy as np
import pytest

from tests.fuzz_files import unpack
from tests.persist.make_golden import GOLDEN, N_TRAINING, PREDICTIONS, predictions, problems
from treecdf import load_model
from treecdf.persist.format import VERSION

NAMES = list(problems())
MOST_OF_ONE, MOST_OF_ALL = 60_000, 200_000  # bytes


@pytest.fixture(scope="module")
def known():
    with np.load(PREDICTIONS) as file:
        return dict(file)


def test_there_is_a_file_of_every_model_and_they_are_small():
    sizes = {path.name: path.stat().st_size for path in GOLDEN.iterdir()}
    assert set(sizes) == {PREDICTIONS.name, *(f"{name}.tcdf" for name in NAMES)}
    assert max(sizes.values()) < MOST_OF_ONE
    assert sum(sizes.values()) < MOST_OF_ALL


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_of_the_present_version(name):
    document, _ = unpack((GOLDEN / f"{name}.tcdf").read_bytes())
    assert document["version"] == VERSION, "write the files anew: python -m tests.persist.make_golden"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_predicts_what_it_did_when_it_was_written(name, known):
    _, as_x, as_y = problems()[name]
    x, y = as_x(known["x"])[N_TRAINING:], as_y(known["y"])[N_TRAINING:]
    found = predictions(load_model(GOLDEN / f"{name}.tcdf"), x, y)
    expected = {key.removeprefix(f"{name}."): value for key, value in known.items() if key.startswith(f"{name}.")}
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert np.isfinite(value).all()
        np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_is_written_as_it_was(name, tmp_path):
    """The same parts, fields and numbers in the same order; how well they are deflated may differ."""
    old, new = GOLDEN / f"{name}.tcdf", tmp_path / "again.tcdf"
    load_model(old).save(new)
    (document, pools), (again, pools_again) = unpack(old.read_bytes()), unpack(new.read_bytes())
    assert {**document, "written_by": None} == {**again, "written_by": None}
    assert pools == pools_again


def test_the_files_hold_what_they_should():
    """Text, missing values, weights, a chain, atoms, a grid and compositions."""
    default, chain, atoms, grid, compositional = (load_model(GOLDEN / f"{name}.tcdf") for name in NAMES)
    assert [type(column).__name__ for column in default.covariates_.columns] == [
        "Number",
        "Number",
        "Category",
        "Category",
    ]
    assert default.covariates_.columns[1].has_gaps
    assert chain.n_outcomes_ == 2
    assert atoms.atoms_ is not None
    assert grid.grid_ is not None
    assert compositional.n_taxa_ == 4
    assert zipfile.is_zipfile(GOLDEN / "default.tcdf")
