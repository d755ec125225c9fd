"""Parts taken out of the default model: what estimators without them lack, and the page of what is lost."""

import numpy as np
import pytest

from benchmarks.methods import METHODS
from benchmarks.rows import Store
from benchmarks.without import page
from benchmarks.without.page import SEEDS, SPLITS, WHOLE, without_page, without_runs
from benchmarks.without.parts import METHODS as WITHOUT
from benchmarks.without.parts import PARTS, without
from treecdf import TreeFlowRegressor
from treecdf.estimators import fitting
from treecdf.training.plan import make_plan

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = X + 0.2 * RNG.normal(size=(300, 2))


def _parts(plan) -> set[str]:
    """What a plan for 300 rows of 2 covariates and 2 outcomes has, and its base for more rows or covariates."""
    stacks = [plan.base(n, q) for n, q in ((300, 2), (3000, 2), (300, 200))]
    kinds = {learner.kind for stack in stacks for learner in stack.learners} - {"neighbours"}
    has = {{"network": "network_mean"}.get(kind, kind) for kind in kinds} | set(plan.mixtures)
    has |= {"nearness"} if any(stack.n_remembered for stack in stacks) else set()
    has |= {"flow_trees"} if plan.conditional.max_trees else set()
    return has


@pytest.fixture
def plans(monkeypatch):
    """Plans that fits are given, collected; fits end there."""
    found = []

    def stop(plan, *args):
        found.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "fit_ensemble", stop)
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_plan_lacks_the_part_and_nothing_else(part, plans):
    for model in (TreeFlowRegressor(n_jobs=1, random_state=0), without(part, random_state=0)):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    whole, less = map(_parts, plans)
    assert whole - less == ({"mixture", "network"} if part == "mixtures" else {part})
    assert less <= whole
    assert fitting.make_plan is make_plan


def test_methods_are_known_and_runs_are_split_by_split():
    assert set(WITHOUT) <= set(METHODS)
    runs = without_runs()
    assert {run.method for run in runs} == {WHOLE, *WITHOUT}
    assert [run.split for run in runs] == sorted(run.split for run in runs)
    assert sum(run.dataset == "yacht" for run in runs) == SPLITS * (1 + len(PARTS))
    assert sum(run.dataset == "demo_3000" for run in runs) == SEEDS * (1 + len(PARTS))
    assert {run.dataset for run in without_runs(datasets=["yacht"])} == {"yacht"}


def _row(method: str, split: int, log_lik: float, seconds: float, **others) -> dict:
    key = {"dataset": "yacht", "split": split, "method": method, "seed": split}
    timing = {"fit": seconds, "fit_cpu": seconds}
    return key | {"metrics": {"log_lik": log_lik}, "seconds": timing, "commit": "abc"} | others


def test_the_page_compares_the_same_splits(tmp_path, monkeypatch):
    store = Store("without", tmp_path)
    monkeypatch.setattr(page, "Store", lambda name: store)
    assert without_page() == []
    rows = [_row(WHOLE, 0, 1.0, 2.0), _row(WHOLE, 1, 2.0, 4.0), _row("without_process", 0, 0.5, 1.0)]
    for row in (*rows, _row("without_trees", 0, 0.0, 1.0, error="failed")):
        store.append(row)
    lines = [line for line in without_page() if line.startswith("| Gaussian process")]
    assert lines == ["| Gaussian process | -0.500 (0.50) |", "| Gaussian process | 0.500 | yacht |"]
    assert not any("boosted trees" in line for line in without_page())
    store.append(_row("without_process", 1, 1.7, 2.0))
    assert any("-0.400 ± 0.100 (0.50)" in line for line in without_page())
    assert "| Gaussian process | 0.400 | yacht |" in without_page()


def test_the_page_says_where_trees_pay(tmp_path, monkeypatch):
    store = Store("without", tmp_path)
    monkeypatch.setattr(page, "Store", lambda name: store)
    for dataset, less in (("yacht", 1.0), ("boston", 0.75)):
        for method, log_lik in ((WHOLE, 1.0), ("without_flow_trees", less)):
            store.append(_row(method, 0, log_lik, 1.0) | {"dataset": dataset})
    assert "| tables, one outcome | 1 of 2 | yacht +0.000, boston +0.250 |" in without_page()
