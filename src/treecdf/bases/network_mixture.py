"""A network mixture: small networks give locations, log scales and weights of components; for smooth shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treecdf._common.numerics import log_sum_exp
from treecdf._common.steps import Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.tails import T5, T10
from treecdf.bases.boosted_mixture import start_of_mixture
from treecdf.bases.components import Learnt, choose_tail, make_loss
from treecdf.bases.learners.boosting import BoostingSettings, boost_scores
from treecdf.bases.learners.network import FittedNetworks, Floats, Layers, Network, Objective
from treecdf.bases.mean import TrainingRows

_CHECKS = 20  # times that left-out rows are looked at while networks are trained
_CHECKED_ROWS = 2000  # rows that are looked at
_TAIL = T10  # networks are trained under it: outliers pull less than under a normal
_FAR = 5.0  # standard deviations: covariates beyond are held
_LARGEST_SLOPE = 20.0  # of the loss of a row by an output
_MEMORY = 0.98  # share of the running mean of the weights that a step keeps
_JUDGED_ROWS = 4000  # rows that tell which covariates matter, at most
_LEAST_RELEVANCE = 0.05  # before it is squared: any covariate may turn out to matter
_JUDGES = BoostingSettings(4, 0.2, 40, min_rows=10, subsample=0.6, column_fraction=1.0, patience=5)
_LOOK_FOLDS = 2  # folds that a look leaves out
_LOOK_STEPS = 400  # steps of a look at most
_LOOK_SHARE = 3  # and at most the steps of the training over this


@dataclass(frozen=True)
class MixtureNetwork:
    """The number of components, and how the networks are trained: the way that makes left-out rows most likely."""

    n_components: int
    networks: tuple[Network, ...]

    def look(self, rows: TrainingRows, floor: float, rng: np.random.Generator) -> tuple[MixtureNetwork, float, Ints]:
        """The same learner; the mean negative log-likelihood after few steps, and the rows (m,) that it is of."""
        first = self.networks[0]
        quick = replace(first, max_steps=min(_LOOK_STEPS, max(first.max_steps // _LOOK_SHARE, 1)))
        few = replace(rows, fold=np.minimum(rows.fold, _LOOK_FOLDS))
        _, left_out = self._fit(few, floor, rng, _LOOK_FOLDS, quick)
        seen = np.flatnonzero(few.fold < _LOOK_FOLDS)
        _, _, loss = choose_tail(rows.observed[seen], left_out[seen], rows.weight[seen], floor, _TAIL)
        return self, loss, seen

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The folds' networks, trained in the way and stopped at the step where left-out rows were most likely."""
        learnt, least = list[Learnt](), np.inf
        for network in self.networks:
            fit = partial(self._fit, rows, floor, rng, int(rows.fold.max()) + 1, network)
            fitted, left_out = steps.learn(rng, rows.x.shape[1], (len(rows.x), 3 * self.n_components), fit)
            tail, shift, loss = choose_tail(rows.observed, left_out, rows.weight, floor, _TAIL, rows.n_tails)
            if not learnt or loss < least:
                left_out[:, : self.n_components] += shift
                learnt, least = [Learnt(NetworkMixture(fitted, shift), left_out, tail)], loss
        return learnt[0]

    def _fit(
        self, rows: TrainingRows, floor: float, rng: np.random.Generator, n_folds: int, network: Network
    ) -> tuple[FittedNetworks, Array]:
        """Networks that leave out the first folds, and out-of-fold scores (n, 3 K); those of other folds are 0."""
        left_out = np.flatnonzero(rows.fold < n_folds)
        checked = np.sort(rng.permutation(left_out)[:_CHECKED_ROWS])
        relative = rows.weight / rows.weight.mean()
        loss = make_loss(rows.observed, None, _TAIL, floor)
        mean: Layers = []  # running mean of the layers, which has less noise than they
        best: list[tuple[float, FittedNetworks]] = []

        def slope(output: Floats, chosen: Ints) -> Floats:
            scores, flat = output.reshape(-1, output.shape[2]).astype(np.float64), chosen.ravel()
            gradient = np.clip(loss(scores, flat)[1], -_LARGEST_SLOPE, _LARGEST_SLOPE) * relative[flat, None]
            return gradient.reshape(output.shape).astype(np.float32)

        def watch(layers: Layers, done: float) -> None:
            step = round(done * network.max_steps)
            _move(mean, layers, min(_MEMORY, step / (step + 9)))
            if int(done * _CHECKS) == int((done - 1 / network.max_steps) * _CHECKS) and done < 1:
                return
            networks = FittedNetworks(tuple((matrix.copy(), bias.copy()) for matrix, bias in mean))
            scores = _own_outputs(networks, rows.x[checked], rows.fold[checked])
            value = float(rows.weight[checked] @ loss(scores, checked)[0])
            if not best or value < best[0][0]:
                best[:] = [(value, networks)]

        single = np.clip(rows.x, -_FAR, _FAR).astype(np.float32)
        learn = [np.flatnonzero(rows.fold != f) for f in range(n_folds)]
        objective = Objective(start_of_mixture(rows, self.n_components, floor), slope, watch)
        network.train(single, learn, objective, rng, _relevance(rows, floor, rng)[:n_folds])
        scores = np.zeros((len(rows.y), 3 * self.n_components))
        scores[left_out] = _own_outputs(best[0][1], rows.x[left_out], rows.fold[left_out])
        return best[0][1], scores


def _move(mean: Layers, layers: Layers, kept: float) -> None:
    """Move the running mean towards the layers; an empty one becomes a copy of them."""
    if not mean:
        mean[:] = [(matrix.copy(), bias.copy()) for matrix, bias in layers]
    for old, new in zip(mean, layers, strict=True):
        for part, now in zip(old, new, strict=True):
            part += np.float32(1 - kept) * (now - part)


def _own_outputs(networks: FittedNetworks, x: Array, fold: Ints) -> Array:
    """Outputs (n, outputs) of each row x (n, q) by the network that left out its fold (n,)."""
    outputs = np.empty((len(x), networks.n_outputs))
    for f in np.unique(fold):
        here = fold == f
        outputs[here] = networks.only(f).outputs(x[here])[0]
    return outputs


def _relevance(rows: TrainingRows, floor: float, rng: np.random.Generator) -> Array:
    """How much each covariate matters (folds, q), 1 for the first of each fold, by a few boosted trees.

    It is the share of rows that splits on the covariate divide, squared, which takes it away from those that only noise
    chose. The trees of a fold did not see the rows that its network is judged by.
    """
    n_folds, q = int(rows.fold.max()) + 1, rows.x.shape[1]
    if q == 1:
        return np.ones((n_folds, 1))
    chosen = np.sort(rng.permutation(len(rows.y))[:_JUDGED_ROWS])
    start, loss = start_of_mixture(rows, 3, floor), make_loss(rows.observed[chosen], None, T5, floor)
    few = rows.x[chosen], rows.weight[chosen], start, rows.fold[chosen]
    scores, _ = boost_scores(loss, *few, _JUDGES, rng)
    divided = 0.5 ** np.floor(np.log2(np.arange(scores.column.shape[1]) + 1))  # by the nodes of a tree, level by level
    used = np.where(scores.column >= 0, scores.column, q)
    found = np.zeros((n_folds, q + 1))
    for f in range(n_folds):
        own = used[f::n_folds]
        found[f] = np.bincount(own.ravel(), np.tile(divided, len(own)), q + 1)
    shares = found[:, :q] / np.maximum(found[:, :q].max(axis=1, keepdims=True), 1e-300)
    return np.where(found[:, :q].any(axis=1, keepdims=True), np.maximum(shares, _LEAST_RELEVANCE) ** 2, 1.0)


@dataclass(frozen=True)
class NetworkMixture:
    """The folds' networks; at new rows their mixtures are mixed with equal weights."""

    networks: FittedNetworks
    shift: float  # added to the log scales

    @property
    def n_each(self) -> int:
        """K, the number of components of each network."""
        return self.networks.n_outputs // 3

    @property
    def n_components(self) -> int:
        """The number of components of all networks together."""
        return self.n_each * len(self.networks.layers[0][0])

    @property
    def is_line(self) -> bool:
        """False: locations bend."""
        return False

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 F K) of the F networks at standardised covariates x (n, q)."""
        log_scale, logits, location = np.split(self.networks.outputs(x), 3, axis=2)
        logits = logits - log_sum_exp(logits, axis=2)
        parts = (log_scale + self.shift, logits, location)
        return np.hstack([part.transpose(1, 0, 2).reshape(len(x), -1) for part in parts])

    def describe(self) -> Iterator[str]:
        """How many networks and components there are."""
        yield f"network mixture: {len(self.networks.layers[0][0])} networks of {self.n_each} components each"
