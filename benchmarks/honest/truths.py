"""Known densities p(y | x): rows are drawn from them, and a fit is compared with their log density at fresh rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import binom, cauchy, gamma, lognorm, norm, t

Generator = np.random.Generator
SLOPES = np.array([1.0, -0.5, 0.25, 0.0, 0.0])
NOISE = 0.5  # standard deviation, or scale, of the noise about a linear location
GROUP_SIZE = 10
GROUP_EFFECT = 1.0  # standard deviation of what the rows of a group share
GROUP_NOISE = 0.3
LEVEL_EFFECT = 1.0  # standard deviation of the effects of a category's levels
LEVEL_NOISE = 0.5
GAPS = 0.1  # share of new rows without x0


@dataclass(frozen=True)
class Truth:
    """A density p(y | x) that is known.

    `covariates(n, rng)` draws x, `draw(x, rng)` outcomes y (n,) or (n, d), and `log_density(x, y)` is (n,). Of
    outcomes with few values it is the log of a probability.
    """

    covariates: Callable[[int, Generator], Any]
    draw: Callable[[Any, Generator], np.ndarray]
    log_density: Callable[[Any, np.ndarray], np.ndarray]

    def rows(self, n: int, rng: Generator) -> tuple[Any, np.ndarray]:
        """Covariates and outcomes of n rows."""
        x = self.covariates(n, rng)
        return x, self.draw(x, rng)


def located(covariates: Callable, location: Callable, scale: Callable | float, noise) -> Truth:
    """y = location(x) + scale(x) times noise, which has `rvs` and `logpdf` as in scipy."""

    def place(x):
        return location(x), scale(x) if callable(scale) else np.full(len(x), scale)

    def draw(x, rng):
        center, width = place(x)
        return center + width * noise.rvs(size=len(x), random_state=rng)

    def log_density(x, y):
        center, width = place(x)
        return noise.logpdf((y - center) / width) - np.log(width)

    return Truth(covariates, draw, log_density)


class Outliers:
    """Standard normal noise, of which a share is wider."""

    def __init__(self, share: float, width: float):
        self._share, self._width = share, width

    def rvs(self, size: int, random_state: Generator) -> np.ndarray:
        """Draws (size,)."""
        wide = random_state.random(size) < self._share
        return np.where(wide, self._width, 1.0) * random_state.normal(size=size)

    def logpdf(self, z: np.ndarray) -> np.ndarray:
        """Log density, in the shape of z."""
        parts = np.stack([norm.logpdf(z), norm.logpdf(z, scale=self._width)])
        return logsumexp(parts, axis=0, b=np.array([1 - self._share, self._share]).reshape(2, *[1] * np.ndim(z)))


def normal_columns(q: int) -> Callable[[int, Generator], np.ndarray]:
    """Sampler of independent standard normal covariates (n, q)."""
    return lambda n, rng: rng.normal(size=(n, q))


def linear(x: np.ndarray) -> np.ndarray:
    """Location (n,) that is linear in the first three columns; the rest do not matter."""
    return x[:, :3] @ SLOPES[:3]


def _smooth(x):
    return np.sin(1.5 * x[:, 0]) + 0.3 * x[:, 1] ** 2 + 0.5 * x[:, 1] * x[:, 2]


def _three_of_many(x):
    return x[:, 0] - x[:, 1] + 0.5 * x[:, 2]


def _nothing(x):
    return np.zeros(len(x))


NOISES = {"normal": norm(), "t2": t(2), "cauchy": cauchy(), "lognormal": lognorm(1.0)}  # of y that no column tells of
# Normal covariates, one outcome
TRUTHS = {
    **{
        f"nothing_{name}_{q}": located(normal_columns(q), _nothing, 1.0, noise)
        for name, noise in NOISES.items()
        for q in (5, 30)
    },
    "linear": located(normal_columns(5), linear, NOISE, norm()),
    "scales": located(normal_columns(5), linear, lambda x: NOISE * np.exp(0.6 * x[:, 0]), norm()),
    "t3": located(normal_columns(5), linear, NOISE, t(3)),
    "cauchy": located(normal_columns(5), linear, NOISE, cauchy()),
    "outliers": located(normal_columns(5), linear, NOISE, Outliers(0.05, 10.0)),
    "skewed": located(normal_columns(5), linear, NOISE, gamma(2, loc=-2)),
    "smooth": located(normal_columns(5), _smooth, 0.3, norm()),
    "wide_200": located(normal_columns(200), _three_of_many, NOISE, norm()),
    "wide_500": located(normal_columns(500), _three_of_many, NOISE, norm()),
}


# Outcomes with few values


def _chance(x):
    return expit(1.5 * x[:, 0] - x[:, 1])


def _trials(m: int) -> Truth:
    """The number of successes in m trials, whose chance depends on x."""
    return Truth(
        normal_columns(3),
        lambda x, rng: rng.binomial(m, _chance(x)).astype(float),
        lambda x, y: binom.logpmf(y, m, _chance(x)),
    )


VALUES = {"binary": _trials(1), "counts": _trials(5)}


# Several outcomes


def joint_normal(d: int) -> Truth:
    """d outcomes, linear in three columns, with normal noise of correlation 0.5 between neighbours."""
    slopes = np.random.default_rng(d).normal(size=(3, d))
    root = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))

    def log_density(x, y):
        z = np.linalg.solve(root, (y - x @ slopes).T)
        return norm.logpdf(z).sum(axis=0) - np.log(np.diag(root)).sum()

    return Truth(normal_columns(3), lambda x, rng: x @ slopes + rng.normal(size=(len(x), d)) @ root.T, log_density)


def skewed_pair() -> Truth:
    """Two outcomes: one with skewed noise, and one whose location and scale follow the first."""
    first = located(normal_columns(2), lambda x: x[:, 0], 0.5, gamma(2, loc=-2))

    def place(x, y):
        return x[:, 1] + 0.5 * y, 0.3 * np.exp(0.2 * np.tanh(y))

    def draw(x, rng):
        y = first.draw(x, rng)
        return np.column_stack([y, rng.normal(*place(x, y))])

    def log_density(x, y):
        return first.log_density(x, y[:, 0]) + norm.logpdf(y[:, 1], *place(x, y[:, 0]))

    return Truth(first.covariates, draw, log_density)


JOINT = {"joint_2": joint_normal(2), "joint_4": joint_normal(4), "joint_8": joint_normal(8), "skewed": skewed_pair()}


# Rows that belong together, gaps and levels


def grouped() -> Truth:
    """Ten rows of a group come one after the other: they share three of five columns, and an effect on y.

    `log_density` is that of a row of a new group.
    """

    def covariates(n, rng):
        shared = rng.normal(size=(-(-n // GROUP_SIZE), 3)).repeat(GROUP_SIZE, axis=0)[:n]
        return np.column_stack([shared, rng.normal(size=(n, 2))])

    def draw(x, rng):
        effect = GROUP_EFFECT * rng.normal(size=-(-len(x) // GROUP_SIZE)).repeat(GROUP_SIZE)[: len(x)]
        return linear(x) + effect + GROUP_NOISE * rng.normal(size=len(x))

    spread = np.hypot(GROUP_EFFECT, GROUP_NOISE)
    return Truth(covariates, draw, lambda x, y: norm.logpdf(y, linear(x), spread))


def with_gaps() -> Truth:
    """The linear truth where x0 is missing in some rows: there y is wider, because x0 is unknown."""
    whole = TRUTHS["linear"]

    def covariates(n, rng):
        x = whole.covariates(n, rng)
        x[rng.random(n) < GAPS, 0] = np.nan
        return x

    def draw(x, rng):
        gap = np.isnan(x[:, 0])
        return whole.draw(np.column_stack([np.where(gap, rng.normal(size=len(x)), x[:, 0]), x[:, 1:]]), rng)

    def log_density(x, y):
        gap = np.isnan(x[:, 0])
        known = np.column_stack([np.where(gap, 0.0, x[:, 0]), x[:, 1:]])
        return norm.logpdf(y, linear(known), np.where(gap, np.hypot(NOISE, SLOPES[0]), NOISE))

    return Truth(covariates, draw, log_density)


def levels(effects: np.ndarray, new: float = 0.0) -> Truth:
    """Frames with two columns of numbers and a category whose levels have effects (k,) on y.

    A share `new` of the rows has a level of its own, whose effect is drawn for it: `log_density` does not know it.
    """

    def covariates(n, rng):
        import pandas as pd

        name = rng.integers(len(effects), size=n)
        unseen = rng.random(n) < new
        names = [f"new {i}" if is_new else f"level {k}" for i, (k, is_new) in enumerate(zip(name, unseen, strict=True))]
        return pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "level": names})

    def place(x):
        known = ~is_unseen(x)
        number = x["level"].str.split().str[1].astype(int).to_numpy()
        effect = np.where(known, effects[np.where(known, number, 0)], 0.0)
        return x["a"].to_numpy() - 0.5 * x["b"].to_numpy() + effect, known

    def draw(x, rng):
        center, known = place(x)
        return (
            center
            + np.where(known, 0.0, LEVEL_EFFECT) * rng.normal(size=len(x))
            + LEVEL_NOISE * rng.normal(size=len(x))
        )

    def log_density(x, y):
        center, known = place(x)
        return norm.logpdf(y, center, np.where(known, LEVEL_NOISE, np.hypot(LEVEL_EFFECT, LEVEL_NOISE)))

    return Truth(covariates, draw, log_density)


def is_unseen(x) -> np.ndarray:
    """Which rows of a frame of `levels` have a level that training rows do not have."""
    return x["level"].str.startswith("new").to_numpy()
