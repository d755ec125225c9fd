"""Known densities: the fit is never better than the truth, its PIT is uniform, and the gap closes as rows come in.

    python -m tests.truth

prints, for each density and number of rows, the mean log density of the truth and of the fit on fresh rows, their gap
with its standard error, and the level of the Kolmogorov-Smirnov test of the PIT; then the rate n^-r at which the gap
closes, and what is lost when y is permuted against x, where there is nothing to learn but the marginal density.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import kstest, lognorm, norm
from sklearn.base import clone

from treecdf import BoostedTrees, Logistic, Stage, TreeFlowRegressor

ERRORS = 4  # standard errors by which a fit may seem better than the truth
LEVEL = 1e-3  # of the Kolmogorov-Smirnov test, on PIT_ROWS fresh rows
PIT_ROWS = 1000
RATE = 0.3  # the gap closes at least like n^-RATE
LOST = 0.04  # nats a row that may be lost to dependence that is not there, at 1000 rows; seeds 0 to 3 lose .018 to .036
FRESH = 20_000


@dataclass(frozen=True)
class Truth:
    """A density p(y | x) that is known, and the model that is to find it."""

    draw: Callable
    log_density: Callable
    model: TreeFlowRegressor

    def rows(self, n, seed):
        """Covariates (n, 2), uniform on a square, and outcomes (n,)."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, size=(n, 2))
        return x, self.draw(x, rng)


def _place(x):
    return np.sin(2 * x[:, 0]), 0.5 * np.exp(0.7 * x[:, 1])


def _draw_branches(x, rng):
    side = np.where(rng.random(len(x)) < expit(2 * x[:, 1]), 1.0, -1.0)
    return side * (1 + x[:, 0]) + 0.4 * rng.normal(size=len(x))


def _branches(x, y):
    weight = np.stack([np.log(expit(2 * x[:, 1])), np.log(expit(-2 * x[:, 1]))])
    center = np.stack([1 + x[:, 0], -1 - x[:, 0]])
    return logsumexp(weight + norm.logpdf(y, center, 0.4), axis=0)


FAST = TreeFlowRegressor(effort="fast", random_state=0)
NODES = [Stage(Logistic(basis="hinges"), 6), Stage(BoostedTrees(), 6)]
TREES = TreeFlowRegressor(base="box", stages=NODES, c0=0.1, subsample=0.7, random_state=0)
TRUTHS = {
    "normal": Truth(
        lambda x, rng: rng.normal(*_place(x)),
        lambda x, y: norm.logpdf(y, *_place(x)),
        FAST,
    ),
    "skewed": Truth(
        lambda x, rng: np.exp(_place(x)[0] + 0.5 * rng.normal(size=len(x))),
        lambda x, y: lognorm.logpdf(y, 0.5, scale=np.exp(_place(x)[0])),
        TREES,
    ),
    "branches": Truth(_draw_branches, _branches, TREES),
}


@dataclass(frozen=True)
class Line:
    """How a fit to n rows compares with the truth on fresh rows."""

    n: int
    true: float
    fitted: float
    error: float  # standard error of the gap
    level: float  # of the test of the PIT

    @property
    def gap(self):
        """Nats a row that the truth is ahead."""
        return self.true - self.fitted

    def __str__(self):
        gap = f"gap {self.gap:.4f} +- {self.error:.4f}"
        return f"true {self.true:.4f}  fitted {self.fitted:.4f}  {gap}  KS level {self.level:.3f}"


def compare(name, n, seed=0):
    """A fit to n rows against the truth."""
    truth = TRUTHS[name]
    model = clone(truth.model).fit(*truth.rows(n, [seed, n]))
    x, y = truth.rows(FRESH, [seed, n, 1])
    true, fitted = truth.log_density(x, y), model.log_prob(x, y)
    pit = model.predict_distribution(x[:PIT_ROWS]).cdf(y[:PIT_ROWS])
    error = np.std(true - fitted) / np.sqrt(FRESH)
    return Line(n, true.mean(), fitted.mean(), error, kstest(pit, "uniform").pvalue)


def rate(lines):
    """r of a gap that falls like n^-r."""
    return -np.polyfit(np.log([line.n for line in lines]), np.log([line.gap for line in lines]), 1)[0]


def lost_to_chance(name, n=1000, seed=0):
    """Nats a row that a fit to permuted outcomes loses, on fresh rows, against one that has no covariate."""
    truth = TRUTHS[name]
    rng = np.random.default_rng(seed)
    x, y = truth.rows(n, [seed, 2])
    y = rng.permutation(y)
    x_new, y_new = truth.rows(FRESH, [seed, 3])
    y_new = rng.permutation(y_new)
    dependent = clone(truth.model).fit(x, y).log_prob(x_new, y_new)
    marginal = clone(truth.model).fit(np.zeros((n, 1)), y).log_prob(np.zeros((FRESH, 1)), y_new)
    return float(np.mean(marginal - dependent))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000])
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    is_right = True
    for name in TRUTHS:
        lines = []
        for n in options.rows:
            begin = time.perf_counter()
            lines.append(line := compare(name, n))
            is_right &= line.gap > -ERRORS * line.error and line.level > LEVEL
            say(f"{name:9} n {n:6}  {line}  {time.perf_counter() - begin:.0f} s")
        if len(lines) > 1:
            is_right &= rate(lines) >= RATE
            say(f"{name:9} gap like n^-{rate(lines):.2f}, at least n^-{RATE}")
        lost = lost_to_chance(name)
        is_right &= lost < LOST
        say(f"{name:9} permuted: {lost:.4f} nats a row lost, less than {LOST}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
