"""What one run measures: how far a model is from the truth on fresh rows, and what it costs."""

import time
import warnings
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from benchmarks.distributions import Empirical
from benchmarks.honest.measures import crps_of_draws
from benchmarks.peers.common import Peer
from benchmarks.rows import Run, Store, latest, run_all
from benchmarks.scoring import fitted
from benchmarks.shapes.cases import CASES
from benchmarks.shapes.truths import Shape

NAME = "shapes"  # of the file of rows and of the page
FRESH = 10_000  # rows on which densities are compared
CRPS_ROWS, CRPS_DRAWS = 2_000, 400  # first of them; the truth's CRPS is known by draws
REGION_ROWS, REGION_DRAWS = 1_000, 199  # first of them; draws by which the regions of most models are known
LEVEL = 0.9  # of the highest-density region

Metrics = dict[str, float]
Generator = np.random.Generator


def score_shapes(run: Run) -> dict:
    """Try one method on one case; all methods have the same rows, which the seed and the truth give."""
    case = CASES[run.dataset]
    rng = np.random.default_rng([run.seed, crc32(case.truth.encode())])
    x_new, y_new = case.shape.sample(FRESH, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, report = fitted(run, *case.shape.sample(case.n, rng))
        report["metrics"] = measured(model, case.shape, x_new, y_new, rng)
    return report


def measured(model, shape: Shape, x: np.ndarray, y: np.ndarray, rng: Generator) -> Metrics:
    """Figures of a fitted model on fresh rows; what it cannot tell is left out."""
    found = _densities(model, shape, x, y) if getattr(model, "has_density", True) else {}
    if shape.d == 1:
        some = slice(CRPS_ROWS)
        own = float(np.mean(_distribution(model, x[some]).crps(y[some])))
        found |= {"crps": own, "crps_ratio": own / crps_of_truth(shape, x[some], y[some], rng)}
    if "gap" in found:
        some = slice(REGION_ROWS)
        found["hdr_coverage"] = float(np.mean(in_region(model, x[some], y[some])))
    return found


def _densities(model, shape: Shape, x: np.ndarray, y: np.ndarray) -> Metrics:
    model.log_prob(x[:20], y[:20])
    start = time.process_time()
    log_prob = model.log_prob(x, y)
    seconds = time.process_time() - start
    gap = shape.log_density(x, y) - log_prob
    return {
        "log_lik": float(np.mean(log_prob)),
        "worst_row": float(np.min(log_prob)),
        "gap": float(np.mean(gap)),
        "gap_error": float(np.std(gap) / np.sqrt(len(gap))),
        "densities_cpu": seconds,
    }


def _distribution(model, x: np.ndarray):
    """Distributions of one outcome."""
    if hasattr(model, "predict_distribution"):
        return model.predict_distribution(x)
    return Empirical(model.sample(x, REGION_DRAWS, random_state=0), draws=True)


def crps_of_truth(shape: Shape, x: np.ndarray, y: np.ndarray, rng: Generator) -> float:
    """Mean CRPS of the truth itself at outcomes y (n,), without bias by draws."""
    draws = shape.draw(np.repeat(x, CRPS_DRAWS, axis=0), rng).reshape(len(x), CRPS_DRAWS)
    return float(np.mean(crps_of_draws(draws, y)))


def in_region(model, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which outcomes y (n,) or (n, 2) are in the highest-density regions.

    Of one outcome our models have `hdr`. Else draws tell: an outcome is inside if its density is higher than that of a
    share 1 - LEVEL of its row's own draws.
    """
    if y.ndim == 1 and not isinstance(model, Peer):
        regions, _ = model.predict_distribution(x).hdr(LEVEL)
        return np.array([any(a <= one <= b for a, b in some) for one, some in zip(y, regions, strict=True)])
    draws = model.sample(x, n_samples=REGION_DRAWS, random_state=0)
    n, m = draws.shape[:2]
    of_draws = model.log_prob(np.repeat(x, m, axis=0), draws.reshape(n * m, *draws.shape[2:])).reshape(n, m)
    rank = np.sum(of_draws < model.log_prob(x, y)[:, None], axis=1)
    return rank >= np.round((1 - LEVEL) * (m + 1))


def run_shapes(runs: Sequence[Run], jobs: int, retry: bool, again: bool, limit: float | None) -> None:
    """Make the runs that are not stored yet; `retry` makes failed ones again, `again` makes all of them."""
    done = {run for run, row in latest(Store(NAME).read()).items() if not (again or (retry and "error" in row))}
    run_all([run for run in runs if run not in done], score_shapes, Store(NAME), jobs, limit)
