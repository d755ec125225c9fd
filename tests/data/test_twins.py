"""The note that rows may belong together."""

import numpy as np
import pytest

from treecdf.data.twins import note_on_twins

RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(60), 10)
SHARED = RNG.normal(size=(60, 3))[GROUP]
TABLES = {
    "all covariates shared": (SHARED, "share all covariates"),
    "one covariate, shared": (SHARED[:, :1], "share all covariates"),
    "time besides": (np.column_stack([SHARED, np.tile(np.arange(10.0), 60)]), "share all covariates|share all but 1"),
    "a measure besides": (np.column_stack([SHARED, RNG.normal(size=600)]), "share all but 1 of 4 columns"),
    "two measures besides": (np.column_stack([SHARED, RNG.normal(size=(600, 2))]), "share all but 2 of 5 columns"),
}
PLAIN = {
    "continuous": RNG.normal(size=(600, 3)),
    "one continuous": RNG.normal(size=(600, 1)),
    "few values": RNG.integers(0, 5, size=(600, 3)).astype(float),
    "a year": RNG.integers(1990, 2020, size=(600, 1)).astype(float),
    "two values and a continuous one": np.column_stack([RNG.integers(0, 2, 600), RNG.normal(size=600)]),
    "a few copies": np.vstack([RNG.normal(size=(500, 3)), np.zeros((100, 3))]),
    "constant": np.ones((50, 2)),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_share_covariates_are_told_of(name):
    x, words = TABLES[name]
    (note,) = note_on_twins(x[RNG.permutation(len(x))])
    assert any(part in note for part in words.split("|"))
    assert "groups=" in note


@pytest.mark.parametrize("name", PLAIN)
def test_other_tables_have_no_note(name):
    assert note_on_twins(PLAIN[name]) == ()
