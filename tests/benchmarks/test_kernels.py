"""The micro-benchmarks give every kernel arguments that it does real work on."""

import numpy as np
import pytest

from benchmarks import cli, kernels
from benchmarks.rows import Store


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(kernels, "N_ROWS", 200)
    monkeypatch.setattr(kernels, "N_SOLVED", 20)


@pytest.mark.parametrize("name", kernels.CASES)
def test_a_kernel_writes_numbers(name):
    case = kernels.CASES[name]()
    given, before = case.arguments(), case.arguments()
    case.kernel(*given)
    written = [
        after
        for now, after in zip(before, given, strict=True)
        if isinstance(after, np.ndarray) and not np.array_equal(now, after, equal_nan=after.dtype.kind == "f")
    ]
    assert written
    assert all(np.isfinite(array).all() for array in written if array.dtype.kind == "f")
    assert case.count in (200, 20)


def test_the_benchmarked_trees_are_a_flow_that_can_be_undone():
    case = kernels.CASES["forward"]()
    *flow, u, log_det = case.arguments()
    moved = u.copy()
    case.kernel(*flow, moved, log_det)
    assert np.abs(moved - u).max() > 1e-3
    assert (log_det != 0).all()
    kernels.CASES["inverse"]().kernel(*flow, moved)
    assert np.allclose(moved, u, atol=1e-12)


def test_a_row_has_compile_time_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "Store", lambda name: Store(name, tmp_path))
    assert cli.main(["kernels", "label"]) == 0
    (row,) = Store("kernels", tmp_path).read()
    assert row["kernel"] == "label"
    assert row["compile"] > 10 * row["warm"]
    assert row["ns"] == pytest.approx(1e9 * row["warm"] / row["count"], rel=1e-4)
    assert row["count"] == 20_000
    assert "commit" in row
    header, line = capsys.readouterr().out.splitlines()
    assert "compile s" in header
    assert line.startswith("label ")
