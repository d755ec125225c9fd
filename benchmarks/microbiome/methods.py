"""Generators of samples given age: ours, what a researcher would do without it, and real samples of other infants.

Each is fitted to training samples and then draws one sample for the age, infant and depth of every sample it is given.
Those that know compositions only get their reads by a multinomial draw at the real depth.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import expit, ndtr, ndtri

from benchmarks.microbiome.data import Samples

N_NEAR = 20  # samples nearest in age, of which resampling takes one


class Ours:
    """CompositionalFlow as it comes: of counts, or of compositions (`counts` false)."""

    def __init__(self, seed: int, counts: bool = True, subject: bool = False):
        self.seed, self.counts, self.subject = seed, counts, subject

    def fit(self, train: Samples) -> "Ours":
        """Train; samples of an infant are left out together."""
        from treecdf import CompositionalFlow

        self.model = CompositionalFlow(counts=self.counts, normalize=not self.counts, random_state=self.seed)
        if self.subject:
            self.model.fit(train.age, train.counts, subject=train.infant, time=train.age[:, 0])
        else:
            self.model.fit(train.age, train.counts, groups=train.infant)
        return self

    def draw(self, at: Samples, seed: int) -> np.ndarray:
        """Counts (n, taxa) at the real depths, or compositions."""
        given: dict = {"depth": at.depth} if self.counts else {}
        if self.subject:
            given |= {"subject": at.infant, "time": at.age[:, 0]}
        return np.asarray(self.model.sample(at.age, 1, random_state=seed, **given))[:, 0]

    def log_prob(self, at: Samples) -> np.ndarray:
        """Log densities (n,) of compositions, given the depth if the model knows it."""
        return self.model.log_prob(at.age, at.counts)


class OtherInfants:
    """No generator: real samples of training infants, each used once, as near in age as that allows. The control."""

    def __init__(self, seed: int):
        pass

    def fit(self, train: Samples) -> "OtherInfants":
        """Keep the samples."""
        self.train = train
        return self

    def draw(self, at: Samples, seed: int) -> np.ndarray:
        """Counts (n, taxa) at depths of their own."""
        from scipy.optimize import linear_sum_assignment

        _, found = linear_sum_assignment(np.abs(at.age - self.train.age.T))
        return self.train.counts[found]


class Resampling:
    """A training sample drawn among those nearest in age, with replacement."""

    def __init__(self, seed: int):
        pass

    def fit(self, train: Samples) -> "Resampling":
        """Keep the samples."""
        self.train = train
        return self

    def draw(self, at: Samples, seed: int) -> np.ndarray:
        """Counts (n, taxa) at depths of their own."""
        nearest = np.argsort(np.abs(at.age - self.train.age.T), axis=1, kind="stable")[:, :N_NEAR]
        picked = np.random.default_rng(seed).integers(nearest.shape[1], size=len(nearest))
        return self.train.counts[nearest[np.arange(len(nearest)), picked]]


class LogisticNormal:
    """Zero-inflated logistic normal with a copula.

    Presence of a taxon is a logistic regression on hinges of age; the log of its abundance where present, relative to
    the mean log of those present, is linear in the same with a normal residual. Normal scores of presences and
    residuals have one correlation matrix, shrunk towards the identity by the rule of Ledoit and Wolf.
    """

    def __init__(self, seed: int):
        self.seed = seed

    def fit(self, train: Samples) -> "LogisticNormal":
        """Regressions of each taxon, then the correlations of their scores."""
        from sklearn.covariance import ledoit_wolf
        from sklearn.linear_model import LogisticRegression, Ridge

        self.knots = np.quantile(train.age, [0.1, 0.3, 0.5, 0.7, 0.9])
        self.scale = train.age.std()
        x, y = self._hinges(train.age), train.y
        present = y > 0
        log_y = np.log(np.where(present, y, 1.0))
        log_y = log_y - (log_y.sum(axis=1) / present.sum(axis=1))[:, None]
        rng = np.random.default_rng(self.seed)
        self.odds, self.means, self.sd = [], [], np.ones(y.shape[1])
        scores = np.zeros((len(y), 2 * y.shape[1]))
        for k in range(y.shape[1]):
            rows = present[:, k]
            self.odds.append(None if rows.all() or not rows.any() else LogisticRegression().fit(x, rows))
            self.means.append(Ridge(1.0).fit(x[rows], log_y[rows, k]) if rows.sum() > 1 else None)
            chance = self._chance(x, k, float(rows.mean()))
            low, high = np.where(rows, 0.0, chance), np.where(rows, chance, 1.0)
            scores[:, k] = -ndtri(np.clip(low + (high - low) * rng.random(len(y)), 1e-6, 1 - 1e-6))
            if rows.sum() > 1:
                residual = log_y[rows, k] - self.means[k].predict(x[rows])
                self.sd[k] = residual.std() + 1e-9
                scores[rows, y.shape[1] + k] = residual / self.sd[k]
        covariance = ledoit_wolf(scores)[0] + 1e-9 * np.eye(scores.shape[1])
        sd = np.sqrt(np.diag(covariance))
        self.root = np.linalg.cholesky(covariance / np.outer(sd, sd))
        self.prevalence = present.mean(axis=0)
        return self

    def draw(self, at: Samples, seed: int) -> np.ndarray:
        """Counts (n, taxa): abundances of the taxa that are present, read to the real depths."""
        rng = np.random.default_rng(seed)
        x, n_taxa = self._hinges(at.age), len(self.sd)
        scores = rng.standard_normal((len(x), 2 * n_taxa)) @ self.root.T
        log_y = np.full((len(x), n_taxa), -np.inf)
        for k in range(n_taxa):
            present = ndtr(-scores[:, k]) < self._chance(x, k, float(self.prevalence[k]))
            mean = 0.0 if self.means[k] is None else self.means[k].predict(x)
            log_y[:, k] = np.where(present, mean + self.sd[k] * scores[:, n_taxa + k], -np.inf)
        log_y[~np.isfinite(log_y).any(axis=1), 0] = 0.0
        y = np.exp(log_y - log_y.max(axis=1, keepdims=True))
        return read(y / y.sum(axis=1, keepdims=True), at.depth, rng)

    def _hinges(self, age: np.ndarray) -> np.ndarray:
        return np.hstack([age, np.maximum(age - self.knots, 0.0)]) / self.scale

    def _chance(self, x: np.ndarray, k: int, prevalence: float) -> np.ndarray:
        if self.odds[k] is None:
            return np.full(len(x), prevalence)
        return expit(self.odds[k].decision_function(x))


class PaperWay:
    """The paper's flow of all taxa at once, with what the paper leaves open filled in: zeros, and the way to the cube.

    A density of exact zeros grows without bound. So zeros are spread evenly over the values from 0 to the taxon's
    smallest abundance above 0 before training, and draws below that abundance are zeros again; then draws are divided
    by their sums. The outcomes get into the cube by a box from 0 to a little above each taxon's largest abundance, or
    by a Student t of each taxon.
    """

    def __init__(self, seed: int, base: str = "box"):
        self.seed, self.base = seed, base

    def fit(self, train: Samples) -> "PaperWay":
        """Train on all taxa; whose the samples are is not used."""
        from treecdf import MLP, Logistic, Stage, TreeFlowRegressor

        y = train.y
        self.smallest = np.where(y > 0, y, np.inf).min(axis=0)
        stages = [Stage(Logistic(), max_depth=4), Stage(MLP((4, 4), alpha=1e-4, max_iter=1000), max_depth=4)]
        bounds = [(0, None)] * y.shape[1] if self.base == "box" else None
        settings = {"base": self.base, "bounds": bounds, "stages": stages, "random_state": self.seed}
        model = TreeFlowRegressor.paper(c0=0.1, gamma=0.5, eta=0.1, **settings)
        self.model = model.fit(train.age, spread_zeros(y, self.smallest, self.seed))
        return self

    def draw(self, at: Samples, seed: int) -> np.ndarray:
        """Counts (n, taxa) at the real depths."""
        drawn = self.model.sample(at.age, 1, seed)[:, 0]
        drawn = np.where(drawn < self.smallest, 0.0, drawn)
        return read(drawn / drawn.sum(axis=-1, keepdims=True), at.depth, np.random.default_rng(seed))


def spread_zeros(y: np.ndarray, smallest: np.ndarray, seed: int) -> np.ndarray:
    """Abundances (n, taxa) with zeros drawn evenly from 0 to each taxon's smallest abundance above 0."""
    u = 1 - np.random.default_rng(seed).random(y.shape)
    return np.where(y > 0, y, u * smallest)


def read(y: np.ndarray, depth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Reads (n, taxa) of compositions: multinomial."""
    return rng.multinomial(depth.astype(int), y).astype(float)


METHODS: dict[str, Callable] = {
    "treecdf": Ours,
    "treecdf_subject": partial(Ours, subject=True),
    "treecdf_shares": partial(Ours, counts=False),
    "real": OtherInfants,
    "resampling": Resampling,
    "logistic_normal": LogisticNormal,
    "paper": PaperWay,
    "paper_student": partial(PaperWay, base="student"),
}
LABELS = {
    "treecdf": "CompositionalFlow, counts",
    "treecdf_subject": "the same with subject=",
    "treecdf_shares": "CompositionalFlow, proportions",
    "real": "real samples of other infants",
    "resampling": "resampling at near ages",
    "logistic_normal": "zero-inflated logistic normal, copula",
    "paper": "the paper's flow, box",
    "paper_student": "the paper's flow, Student t",
}
