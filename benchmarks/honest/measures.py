"""Figures of a fitted model where the truth is known."""

import numpy as np

FRESH = 4_000  # rows on which a fit is scored
LEVELS = (0.5, 0.9, 0.99)  # of the central intervals
THIRDS = ("coverage_90_low", "coverage_90_middle", "coverage_90_high")  # of x0
SMALLEST = np.finfo(float).eps  # probability that a difference of two values of a CDF can tell from none


def coverage(distribution, y: np.ndarray, x0: np.ndarray | None = None) -> dict[str, float]:
    """Share of outcomes y (n,) in each central interval, and in the 90 % interval of each third of the rows by x0.

    The CDF at y says so at once; the ends of the intervals would take much longer, and are not needed.
    """
    return coverage_of_levels(distribution.cdf(y), x0)


def coverage_of_levels(level: np.ndarray, x0: np.ndarray | None = None) -> dict[str, float]:
    """The same from the values (n,) of the CDF at the outcomes."""
    inside = np.abs(level - 0.5) <= np.array(LEVELS)[:, None] / 2
    found = {f"coverage_{100 * one:.0f}": float(np.mean(row)) for one, row in zip(LEVELS, inside, strict=True)}
    if x0 is not None:
        third = np.searchsorted(np.quantile(x0, [1 / 3, 2 / 3]), x0)
        found |= {name: float(np.mean(inside[1][third == k])) for k, name in enumerate(THIRDS)}
    return found


def levels_by_draws(draws: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values (n,) of the CDF at outcomes y (n,), from draws (n, m): uniform if the draws are of their distribution."""
    below = np.sum(draws <= y[:, None], axis=1)
    return (below + rng.random(len(y))) / (draws.shape[1] + 1)


def gaps(true: np.ndarray, fitted: np.ndarray, simple: np.ndarray) -> dict[str, float]:
    """Mean log density of a fit, and the nats a row that it and the simple method are behind the truth."""
    gap, simple_gap = float(np.mean(true - fitted)), float(np.mean(true - simple))
    return {
        "log_lik": float(np.mean(fitted)),
        "worst_row": float(np.min(fitted)),
        "gap": gap,
        "simple_gap": simple_gap,
        "behind": gap - simple_gap,
    }


def differences(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Mean and largest difference of the log densities of two models at the same rows."""
    difference = np.abs(one - other)
    return {"mean_difference": float(np.mean(difference)), "largest_difference": float(np.max(difference))}


def log_mass(distribution, y: np.ndarray, step: float = 1.0) -> np.ndarray:
    """Log probability (n,) of the cells of width `step` about outcomes y (n,), by the CDF alone."""
    ends = distribution.cdf(np.column_stack([y - step / 2, y + step / 2]))
    return np.log(np.maximum(ends[:, 1] - ends[:, 0], SMALLEST))


def width(distribution) -> np.ndarray:
    """Width (n,) of the 90 % intervals."""
    low, high = distribution.interval(0.9)
    return high - low


def crps_of_draws(draws: np.ndarray, y: np.ndarray) -> np.ndarray:
    """CRPS (n,) of outcomes y (n,) by draws (n, m), E|Y - y| - E|Y - Y'| / 2."""
    m = draws.shape[1]
    rank = 2 * np.arange(1, m + 1) - m - 1
    between = np.sort(draws, axis=1) @ rank / (m * (m - 1))
    return np.mean(np.abs(draws - y[:, None]), axis=1) - between


def farthest(ratio: np.ndarray) -> float:
    """Largest distance of ratios from 1."""
    return float(np.max(np.abs(ratio - 1)))
