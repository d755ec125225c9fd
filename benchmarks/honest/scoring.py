"""The ways in which a model is tried on fresh rows: each takes a `Fitter` and a generator and returns metrics."""

from collections.abc import Callable

import numpy as np

from benchmarks.honest import simple
from benchmarks.honest.fitter import Fitter, Generator, Metrics
from benchmarks.honest.measures import FRESH, coverage, coverage_of_levels, gaps, levels_by_draws, log_mass, width
from benchmarks.honest.outside import DISTANCES, INSIDE, OUTSIDE
from benchmarks.honest.truths import (
    GROUP_SIZE,
    JOINT,
    LEVEL_EFFECT,
    TRUTHS,
    VALUES,
    grouped,
    is_unseen,
    levels,
    with_gaps,
)

DRAWN_ROWS, DRAWS = 1000, 199  # of several outcomes, whose marginals are known by draws


def try_rows(fit: Fitter, rng: Generator, truth: str, n: int, beside: Callable) -> Metrics:
    """Fit n rows of a truth, score fresh ones, the simple method beside."""
    source = TRUTHS[truth]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    model, other = fit(x, y), beside(x, y)
    return coverage(model.predict_distribution(x_new), y_new, x_new[:, 0]) | gaps(
        source.log_density(x_new, y_new), model.log_prob(x_new, y_new), other(x_new, y_new)
    )


def try_groups(fit: Fitter, rng: Generator, n: int, given: bool) -> Metrics:
    """Fit rows of which ten belong together, score new groups; `groups=` is passed if `given` and if `fit` has it."""
    source = grouped()
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    group = np.arange(n) // GROUP_SIZE
    passed = given and fit.takes("groups")
    model = fit(x, y, **{"groups": group} if passed else {})
    other = simple.mixed(x, y, group)(x_new, y_new, np.full(FRESH, -1))
    return (
        coverage(model.predict_distribution(x_new), y_new, x_new[:, 0])
        | gaps(source.log_density(x_new, y_new), model.log_prob(x_new, y_new), other)
        | {"groups_passed": float(passed), "said": fit.said("groups=")}
    )


def try_gaps(fit: Fitter, rng: Generator, n: int) -> Metrics:
    """Fit rows without gaps, score rows of which some have no x0."""
    source = with_gaps()
    x, y = TRUTHS["linear"].rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    return _of_part(fit, x, y, x_new, y_new, source, simple.without_gaps, np.isnan(x_new[:, 0])) | {
        "said": fit.said("missing", "gap")
    }


def try_levels(fit: Fitter, rng: Generator, n: int, n_levels: int, new: float) -> Metrics:
    """Fit a category of so many levels, score rows of which a share `new` has levels that training rows did not."""
    effects = LEVEL_EFFECT * rng.normal(size=n_levels)
    x, y = levels(effects).rows(n, rng)
    source = levels(effects, new)
    x_new, y_new = source.rows(FRESH, rng)
    return _of_part(fit, x, y, x_new, y_new, source, simple.of_levels, is_unseen(x_new))


def _of_part(fit: Fitter, x, y, x_new, y_new, source, beside: Callable, part: np.ndarray) -> Metrics:
    """Metrics of all new rows, and those whose names begin with "part_" of some, where there are any."""
    model, other = fit(x, y), beside(x, y)
    distribution = model.predict_distribution(x_new)
    true, fitted = source.log_density(x_new, y_new), distribution.logpdf(y_new)
    metrics = coverage(distribution, y_new) | gaps(true, fitted, other(x_new, y_new))
    if part.any():
        own = coverage(distribution[part], y_new[part])
        own |= gaps(true[part], fitted[part], other(x_new, y_new)[part])
        metrics |= {f"part_{key}": value for key, value in own.items()}
    return metrics


def try_values(fit: Fitter, rng: Generator, truth: str, n: int, params: dict) -> Metrics:
    """Fit an outcome of few values; probabilities of the values are those of cells of width 1 by the CDF."""
    source = VALUES[truth]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    model = fit(x, y, params)
    distribution = model.predict_distribution(x_new)
    other = simple.logistic(x, y)(x_new, y_new)
    draws = distribution.sample(20, random_state=0)
    return gaps(source.log_density(x_new, y_new), log_mass(distribution, y_new), other) | {
        "draws_are_values": float(np.mean(np.isin(draws, np.unique(y)))),
        "said": fit.said("atoms", "resolution"),
    }


def try_joint(fit: Fitter, rng: Generator, truth: str, n: int) -> Metrics:
    """Fit several outcomes; coverage is the mean over their marginals, by draws at some of the new rows."""
    source = JOINT[truth]
    x, y = source.rows(n, rng)
    x_new, y_new = source.rows(FRESH, rng)
    model, other = fit(x, y), simple.least_squares(x, y)
    draws = model.sample(x_new[:DRAWN_ROWS], DRAWS, random_state=0)
    levels = [levels_by_draws(draws[..., j], y_new[:DRAWN_ROWS, j], rng) for j in range(y.shape[1])]
    return coverage_of_levels(np.concatenate(levels)) | gaps(
        source.log_density(x_new, y_new), model.log_prob(x_new, y_new), other(x_new, y_new)
    )


def try_outside(fit: Fitter, rng: Generator, truth: str, n: int) -> Metrics:
    """Widths of 90 % intervals outside the data over the largest inside on the same line; the narrowest counts."""
    asked = OUTSIDE[truth]
    model = fit(*asked.truth.rows(n, rng))
    edges = asked.lines(rng)

    def widths(distance):
        return width(model.predict_distribution(distance * edges))

    inside = np.max([widths(distance) for distance in INSIDE], axis=0)
    ratio = {f"ratio_{distance:g}": float(np.min(widths(distance) / inside)) for distance in DISTANCES}
    far = np.vstack([distance * edges for distance in DISTANCES]).repeat(100, axis=0)
    there = coverage(model.predict_distribution(far), asked.truth.draw(far, rng))
    return ratio | {"narrowest": min(ratio.values()), "coverage_90_outside": there["coverage_90"]}
