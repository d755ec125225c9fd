"""Known densities p(y | x) of many shapes: `SHAPES[name].sample(n, rng)` draws rows, `.log_density(x, y)` is exact.

Each stands for a kind that is named in its words; unimodal controls are among them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logsumexp, softmax
from scipy.stats import beta, gamma, gumbel_l, lognorm, norm, vonmises

from benchmarks.honest import truths as honest
from benchmarks.honest.truths import Generator, Truth, normal_columns

Array = np.ndarray
Part = tuple[Array, object]  # weight (n,) of a component, and its law as in scipy, with parameters (n,)


@dataclass(frozen=True)
class Shape(Truth):
    """A known density: what it is in words, the outcomes it has, and what a picture of it shows."""

    words: str = ""
    d: int = 1
    is_control: bool = False
    # One covariate: ends of x and of y that are drawn; with two outcomes y stands for both of them.
    window: tuple[tuple[float, float], tuple[float, float]] | None = None

    def sample(self, n: int, rng: Generator) -> tuple[Array, Array]:
        """Covariates (n, q), and outcomes (n,) or (n, 2)."""
        return self.rows(n, rng)


def uniform_columns(q: int, low: float = -1.0) -> Callable[[int, Generator], Array]:
    """Sampler of independent covariates (n, q), uniform between `low` and 1."""
    return lambda n, rng: rng.uniform(low, 1.0, size=(n, q))


def mixed(covariates: Callable, parts: Callable[[Array], Sequence[Part]], **told) -> Shape:
    """A mixture whose components `parts(x)` depend on x (n, q)."""

    def draw(x, rng):
        found = parts(x)
        ends = np.cumsum([weight for weight, _ in found], axis=0)
        chosen = np.sum(rng.random(len(x)) >= ends[:-1], axis=0)
        draws = np.stack([law.rvs(size=len(x), random_state=rng) for _, law in found])
        return draws[chosen, np.arange(len(x))]

    def log_density(x, y):
        with np.errstate(divide="ignore"):
            return logsumexp([np.log(weight) + law.logpdf(y) for weight, law in parts(x)], axis=0)

    return Shape(covariates, draw, log_density, **told)


def normals(weights: Sequence, means: Sequence, stds: Sequence) -> list[Part]:
    """Normal components; a weight, mean or standard deviation is (n,) or one number for all rows."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in (*weights, *means, *stds)))
    whole = [np.broadcast_to(weight, shape) for weight in weights]
    return [(weight, norm(mean, std)) for weight, mean, std in zip(whole, means, stds, strict=True)]


# One covariate


def _demo(x):
    x = x[:, 0]
    upper = 0.3 + 0.4 * (x + 1) / 2
    return normals([upper, 1 - upper], [1.5 * np.sin(3 * x), -1.2 * x - 1.0], [0.15 + 0.15 * (x + 1), 0.15])


FOLD_NOISE = 0.05
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(300)
_NODES, _NODE_WEIGHTS = (_NODES + 1) / 2, _NODE_WEIGHTS / 2


def _fold(y):
    return y + 0.3 * np.sin(2 * np.pi * y)


def _folded() -> Shape:
    """Outcomes are uniform between 0 and 1 and x is a curve of them, with noise: three outcomes fit some x."""

    def covariates(n, rng):
        return (_fold(rng.random(n)) + FOLD_NOISE * rng.normal(size=n))[:, None]

    def draw(x, rng):
        # Exact by rejection: an outcome is kept with the density of x over its peak. The limit, the density at the
        # nearest point of the curve, only saves time where x is off the curve.
        most = np.exp(-0.5 * (_distance(x[:, 0]) / FOLD_NOISE) ** 2)
        y, left = np.empty(len(x)), np.arange(len(x))
        while len(left):
            tried = rng.random((len(left), 16))
            chance = np.exp(-0.5 * ((x[left] - _fold(tried)) / FOLD_NOISE) ** 2) / most[left, None]
            kept = rng.random(tried.shape) < chance
            found = kept.any(axis=1)
            y[left[found]] = tried[found, kept[found].argmax(axis=1)]
            left = left[~found]
        return y

    def log_density(x, y):
        at_nodes = norm.logpdf(x, _fold(_NODES), FOLD_NOISE)
        inside = norm.logpdf(x[:, 0], _fold(y), FOLD_NOISE) - logsumexp(at_nodes, axis=1, b=_NODE_WEIGHTS)
        return np.where((y >= 0) & (y <= 1), inside, -np.inf)

    words = "a curve folded over x: one to three branches with soft turns"
    return Shape(covariates, draw, log_density, words, window=((-0.1, 1.1), (-0.1, 1.1)))


def _distance(x):
    """Of x (n,) from the values of the fold, which are those between 0 and 1."""
    return np.maximum(np.maximum(-x, x - 1), 0.0)


def _circle(x):
    height = np.sqrt(np.maximum(1 - x[:, 0] ** 2, 0.0))
    return normals([0.5, 0.5], [height, -height], [0.1, 0.1])


UPPER = np.array([1.0, 2.2, 0.4, 1.6, 2.8, 0.9, 2.0, 0.2])  # modes of the eighths of x
LOWER = np.array([-1.0, -0.2, -1.6, 0.3, -2.0, -0.6, 0.9, -1.2])
SHARES = np.array([0.5, 0.3, 0.6, 0.7, 0.4, 0.5, 0.25, 0.6])


def _jumps(x):
    k = np.minimum((8 * x[:, 0]).astype(int), 7)
    return normals([SHARES[k], 1 - SHARES[k]], [UPPER[k], LOWER[k]], [0.12, 0.25])


def _vanishing(x):
    x = x[:, 0]
    weights = softmax(np.stack([8 * x, 1 - 12 * x**2, -8 * x]), axis=0)
    return normals(weights, [-2 + 0.8 * x, 0.5 * np.cos(3 * x), 2 + 0.8 * x], [0.2, 0.2, 0.3])


def _fan(x):
    return normals([0.2] * 5, [1.5 * k * x[:, 0] for k in range(-2, 3)], [0.15] * 5)


def _widths(x):
    x = x[:, 0]
    return normals([0.4, 0.6], [np.sin(3 * x), -0.8 * x], [0.03, 0.6])


def _rare(x):
    x = x[:, 0]
    return normals([0.97, 0.03], [np.sin(3 * x), 2.5 + 0.8 * np.cos(2 * x)], [0.25, 0.2])


def _skewed(x):
    x = x[:, 0]
    lower = expit(1.5 * x)
    return [(lower, gamma(2, np.sin(2 * x), 0.25)), (1 - lower, gumbel_l(3 - x, 0.3))]


def _bounded(x):
    x = x[:, 0]
    low = 0.25 + 0.5 * x
    return [(low, beta(1 + 0 * x, 12 - 6 * x)), (1 - low, beta(8 - 4 * x, 2 + 2 * x))]


# Many covariates


def _moving(x):
    weights = softmax(np.stack([1.5 * x[:, 3], -1.5 * x[:, 3], x[:, 4]]), axis=0)
    means = [2 * np.sin(np.pi * x[:, 0]), -1.5 * x[:, 0] + 2 * x[:, 2] ** 2, 2 * x[:, 1] * x[:, 2] - 1.5]
    return normals(weights, means, [0.15, 0.2, 0.25])


def _moving_of_few(x):
    weights = softmax(np.stack([x[:, 2], -x[:, 2], 2 * x[:, 1], -2 * x[:, 1]]), axis=0)
    means = [2 * k - 3 + 1.2 * np.sin(3 * x[:, 0] + k) + 0.8 * x[:, 1] for k in range(4)]
    return normals(weights, means, [0.2, 0.2, 0.3, 0.3])


def _jumps_of_many(x):
    upper = 1.0 + 1.5 * (x[:, 0] > 0.3) + 0.8 * ((x[:, 1] > 0) ^ (x[:, 2] > 0))
    lower = -1.5 + 1.2 * (x[:, 3] > -0.2) - 0.8 * (x[:, 0] > -0.4)
    share = np.where(x[:, 2] > 0.2, 0.7, 0.35)
    return normals([share, 1 - share], [upper, lower], [0.15, 0.25])


# Two outcomes


def _ring() -> Shape:
    """A ring that widens with x and is denser on a side that turns with x."""

    def laws(x):
        x = x[:, 0]
        return lognorm(0.08, scale=1 + 0.5 * x), vonmises(1.0, np.pi * x)

    def draw(x, rng):
        radius, angle = (law.rvs(size=len(x), random_state=rng) for law in laws(x))
        return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])

    def log_density(x, y):
        radius, angle = laws(x)
        r = np.maximum(np.hypot(y[:, 0], y[:, 1]), np.finfo(float).tiny)  # no row is in the middle itself
        return radius.logpdf(r) + angle.logpdf(np.arctan2(y[:, 1], y[:, 0])) - np.log(r)

    words = "two outcomes on a ring that widens and turns"
    return Shape(uniform_columns(1), draw, log_density, words, d=2, window=((-1, 1), (-2, 2)))


MOON_NOISE = 0.1


def _moons() -> Shape:
    """Two half circles, one turned over: they move into each other with x, and one takes the other's weight."""

    def place(x):
        """Weight of the first moon, and of each its centre (2, n, 2) and which way it opens."""
        shift = 0.3 * x[:, 0]
        first = np.column_stack([-0.5 + 0 * shift, -0.25 - shift])
        return expit(1.5 * x[:, 0]), np.stack([first, -first]), np.array([1.0, -1.0])

    def draw(x, rng):
        share, centre, way = place(x)
        k = (rng.random(len(x)) >= share).astype(int)
        angle = np.pi * rng.random(len(x))
        arc = way[k][:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        return centre[k, np.arange(len(x))] + arc + MOON_NOISE * rng.normal(size=(len(x), 2))

    def log_density(x, y):
        share, centre, way = place(x)
        return logsumexp(
            [np.log(w) + _half_circle(s * (y - c)) for w, c, s in zip((share, 1 - share), centre, way, strict=True)],
            axis=0,
        )

    words = "two outcomes on two moons that move into each other"
    return Shape(uniform_columns(1), draw, log_density, words, d=2, window=((-1, 1), (-2, 2)))


def _half_circle(y: Array) -> Array:
    """Log density (n,) of points on the upper unit half circle with normal noise, by quadrature along it."""
    angle = np.pi * _NODES
    square = (y[:, :1] - np.cos(angle)) ** 2 + (y[:, 1:] - np.sin(angle)) ** 2
    peak = -np.log(2 * np.pi * MOON_NOISE**2)
    return peak + logsumexp(-0.5 * square / MOON_NOISE**2, axis=1, b=_NODE_WEIGHTS)


def _control(truth: Truth, words: str) -> Shape:
    return Shape(truth.covariates, truth.draw, truth.log_density, words, is_control=True)


def _unit_normal(x):
    return normals([1.0 + 0 * x[:, 0]], [0.0], [1.0])


_ONE = uniform_columns(1)
_POSITIVE = uniform_columns(1, low=0.0)
SHAPES: dict[str, Shape] = {
    "demo": mixed(
        _ONE, _demo, words="README's demo: two branches part, cross and widen", window=((-1, 1), (-3.2, 3.2))
    ),
    "folded": _folded(),
    "circle": mixed(
        lambda n, rng: np.cos(2 * np.pi * rng.random((n, 1))),
        _circle,
        words="a circle seen from the side",
        window=((-1, 1), (-1.5, 1.5)),
    ),
    "jumps": mixed(_POSITIVE, _jumps, words="two modes with seven jumps in x", window=((0, 1), (-3, 3.5))),
    "vanishing": mixed(_ONE, _vanishing, words="three modes that appear and vanish", window=((-1, 1), (-3.5, 4))),
    "fan": mixed(_POSITIVE, _fan, words="five modes that part from one", window=((0, 1), (-3.7, 3.7))),
    "widths": mixed(_ONE, _widths, words="widths of 1 to 20", window=((-1, 1), (-2.8, 2.8))),
    "rare": mixed(_ONE, _rare, words="a mode of 3 % weight", window=((-1, 1), (-2, 4))),
    "skewed": mixed(_ONE, _skewed, words="skewed modes, one with a hard lower end", window=((-1, 1), (-1.3, 5))),
    "bounded": mixed(_POSITIVE, _bounded, words="two betas between 0 and 1", window=((0, 1), (-0.05, 1.05))),
    "moving_5": mixed(uniform_columns(5), _moving, words="three modes that move and cross, 5 covariates"),
    "moving_20": mixed(uniform_columns(20), _moving_of_few, words="four moving modes, 3 of 20 covariates matter"),
    "jumps_5": mixed(uniform_columns(5), _jumps_of_many, words="two modes with jumps, 4 of 5 covariates matter"),
    "ring": _ring(),
    "moons": _moons(),
    "linear": _control(honest.TRUTHS["linear"], "control: linear, normal"),
    "scales": _control(honest.TRUTHS["scales"], "control: linear, scale depends on x"),
    "heavy": _control(honest.TRUTHS["t3"], "control: linear, t with 3 degrees of freedom"),
    "constant": replace(
        mixed(normal_columns(5), _unit_normal), words="control: normal, independent of x", is_control=True
    ),
}
