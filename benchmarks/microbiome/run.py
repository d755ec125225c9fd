"""Runs of the study: one generator, one seed, one fold of infants who are left out.

Each seed divides the infants into three folds. A generator is fitted to the infants of two and draws one sample for
the age, infant and depth of every sample of the third; `judge` compares these with the real ones.
"""

import time
from dataclasses import replace

import numpy as np

from benchmarks.machine import provenance
from benchmarks.microbiome.data import N_FOLDS, Samples, infant_folds, load
from benchmarks.microbiome.judge import judge, shares
from benchmarks.microbiome.methods import METHODS
from benchmarks.rows import Run, Store, latest, run_all

NAME = "microbiome"
N_SEEDS = 3
N_AXES = 4
# The paper's flows take minutes and have no part in the targets: one seed.
SEEDS = {"paper": 1, "paper_student": 1}
CONTROL = "real"  # the method whose rows hold what is known of the real samples, for the rows of all others
PICTURED = (0, 0)  # seed and fold whose principal coordinates are kept


def run_study(methods: list[str], jobs: int = 1, retry: bool = False, n_seeds: int = N_SEEDS) -> None:
    """Run what has no row yet."""
    rows = stored()
    wanted = [
        Run("diabimmune", fold, method, seed)
        for seed in range(n_seeds)
        for fold in range(N_FOLDS)
        for method in methods
        if seed < SEEDS.get(method, n_seeds)
    ]
    runs = [run for run in wanted if run not in rows or (retry and "error" in rows[run])]
    run_all(runs, work, Store(NAME), jobs)


def stored() -> dict[Run, dict]:
    """The rows, by their keys; what is known of the real samples comes from those of the control.

    So do depths of draws, if they are the real ones.
    """
    rows = latest(Store(NAME).read())
    for run, row in rows.items():
        control = rows.get(replace(run, method=CONTROL), {})
        if row.get("details") and control.get("details"):
            known = {name: values for name, values in control["details"].items() if of_real(name)}
            row["details"] = known | {"drawn_depth": known["depth"]} | row["details"]
    return rows


def _short(value):
    """The same JSON value with three digits, and whole numbers as such: there are many of them."""
    if isinstance(value, dict):
        return {name: _short(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return int(value) if value == int(value) else float(f"{value:.3g}")


def of_real(name: str) -> bool:
    """Whether a detail is one of the real samples, which all methods are judged by."""
    return name in ("age", "depth") or name.startswith("real_")


def work(run: Run) -> dict:
    """Metrics, details and seconds of a run."""
    samples = load()
    test = infant_folds(samples.infant, run.seed)[run.split]
    train, real = samples.take(np.setdiff1d(np.arange(len(samples.age)), test)), samples.take(test)
    assert not set(train.infant) & set(real.infant)
    clock = time.perf_counter(), time.process_time()
    model = METHODS[run.method](run.seed).fit(train)
    seconds = {"fit": time.perf_counter() - clock[0], "fit_cpu": time.process_time() - clock[1]}
    clock = time.perf_counter(), time.process_time()
    drawn = model.draw(real, run.split)
    seconds |= {"draw": time.perf_counter() - clock[0], "draw_cpu": time.process_time() - clock[1]}
    metrics, details = judge(train, real, drawn)
    if hasattr(model, "log_prob"):
        metrics["log_prob"] = float(model.log_prob(real).mean())
    if (run.seed, run.split) == PICTURED:
        details["points"], details["share"] = principal_coordinates(real, drawn)
    if run.method != CONTROL:
        if details["drawn_depth"] == details["depth"]:
            del details["drawn_depth"]
        details = {name: values for name, values in details.items() if not of_real(name)}
    if run.seed != PICTURED[0]:  # pages want no more of the others than their metrics
        details = {}
    return {"metrics": metrics, "seconds": seconds, "details": _short(details)} | provenance()


def principal_coordinates(real: Samples, drawn: np.ndarray) -> tuple[list, list]:
    """The first axes (2 n, 4) of Bray-Curtis distances, older samples to the right and above; their shares."""
    from treecdf.plots.ordination import coordinates

    points, share = coordinates(np.vstack([real.y, shares(drawn)]), N_AXES)
    age = np.vstack([real.age, real.age])
    points *= np.sign((age - age.mean()).T @ points)
    return np.round(points, 4).tolist(), share.tolist()
