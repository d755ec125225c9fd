"""A small model that the tests of the command line ask."""

import pytest

from tests.helpers.small_tables import small_model, small_rows


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A directory with the small model in m.tcdf and rows in t.csv."""
    place = tmp_path_factory.mktemp("small")
    small_model().save(place / "m.tcdf")
    small_rows(8, 1).to_csv(place / "t.csv", index=False)
    return place
