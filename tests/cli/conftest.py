"""A small model that the tests of the command line ask."""

import numpy as np
import pandas as pd
import pytest

from tests.helpers.small_tables import small_model, small_rows
from treecdf.cli.main import main


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A directory with the small model in m.tcdf and rows in t.csv."""
    place = tmp_path_factory.mktemp("small")
    small_model().save(place / "m.tcdf")
    small_rows(8, 1).to_csv(place / "t.csv", index=False)
    return place


@pytest.fixture(scope="session")
def flats(tmp_path_factory):
    """A directory with a table that has text and gaps, new rows of it, and a model."""
    place = tmp_path_factory.mktemp("flats")
    rng = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame({"area": rng.gamma(9, 8, n), "district": rng.choice(["hill", "harbour", None], n)})
    table["year"] = np.where(rng.random(n) < 0.2, np.nan, rng.integers(1900, 2020, n))
    table["rent"] = (10 + 4 * (table.district == "hill")) * table.area * rng.lognormal(0, 0.1, n)
    table["deposit"] = table.rent * rng.uniform(2, 3, n)
    table.loc[3, "rent"] = np.nan
    table[:200].to_csv(place / "flats.csv", index=False)
    table[200:].to_csv(place / "new.csv", index=False)
    for name, outcomes in (("one", ["rent"]), ("two", ["rent", "deposit"])):
        named = [part for outcome in outcomes for part in ("--outcome", outcome)]
        drop = [] if name == "two" else ["--drop", "deposit"]
        out = str(place / f"{name}.tcdf")
        assert (
            main(["fit", str(place / "flats.csv"), *named, *drop, "--effort", "fast", "--jobs", "1", "--out", out]) == 0
        )
    return place
