"""What all tests of the benchmarks share."""

import pytest

from benchmarks import cli


@pytest.fixture(autouse=True)
def committed_pages_stay(monkeypatch):
    """No command of a test writes README or the paper's page: other tests read them at the same time."""
    for name in ("write_readme", "write_paper_page"):
        monkeypatch.setattr(cli, name, lambda page: None)
