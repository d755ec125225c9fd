"""A network mixture: small networks give locations, log scales and weights of components; for smooth shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import logsumexp

from treecdf._common.steps import Steps
from treecdf._common.typing import Array, Ints
from treecdf._kernels.tails import T10
from treecdf.bases.boosted_mixture import start_of_mixture
from treecdf.bases.components import Learnt, choose_tail, make_loss
from treecdf.bases.learners.network import FittedNetworks, Floats, Layers, Network
from treecdf.bases.mean import TrainingRows

_CHECKS = 20  # times that left-out rows are looked at while networks are trained
_CHECKED_ROWS = 2000  # rows that are looked at
_TAIL = T10  # networks are trained under it: outliers pull less than under a normal
_FAR = 5.0  # standard deviations: covariates beyond are held
_LARGEST_SLOPE = 20.0  # of the loss of a row by an output


@dataclass(frozen=True)
class MixtureNetwork:
    """The number of components, and how the networks are trained."""

    n_components: int
    network: Network

    def cross_fit(
        self, rows: TrainingRows, step: float, floor: float, rng: np.random.Generator, steps: Steps
    ) -> Learnt:
        """The folds' networks at the step where left-out rows were most likely."""
        fit = partial(self._fit, rows, floor, rng)
        networks, left_out = steps.learn(rng, rows.x.shape[1], (len(rows.x), 3 * self.n_components), fit)
        tail, shift, _ = choose_tail(rows.observed, left_out, rows.weight, floor, _TAIL)
        left_out[:, : self.n_components] += shift
        return Learnt(NetworkMixture(networks, shift), left_out, tail)

    def _fit(self, rows: TrainingRows, floor: float, rng: np.random.Generator) -> tuple[FittedNetworks, Array]:
        """The networks, and out-of-fold scores (n, 3 K)."""
        n_folds = int(rows.fold.max()) + 1
        checked = np.sort(rng.permutation(len(rows.y))[:_CHECKED_ROWS])
        relative = rows.weight / rows.weight.mean()
        loss = make_loss(rows.observed, None, _TAIL, floor)
        best: list[tuple[float, Layers]] = []

        def slope(output: Floats, chosen: Ints) -> Floats:
            scores, flat = output.reshape(-1, output.shape[2]).astype(np.float64), chosen.ravel()
            gradient = np.clip(loss(scores, flat)[1], -_LARGEST_SLOPE, _LARGEST_SLOPE) * relative[flat, None]
            return gradient.reshape(output.shape).astype(np.float32)

        def watch(layers: Layers, done: float) -> None:
            if int(done * _CHECKS) == int((done - 1 / self.network.max_steps) * _CHECKS) and done < 1:
                return
            found = FittedNetworks(tuple(layers)).outputs(rows.x[checked])
            scores = found[rows.fold[checked], np.arange(len(checked))]
            value = float(rows.weight[checked] @ loss(scores, checked)[0])
            if not best or value < best[0][0]:
                best[:] = [(value, [(matrix.copy(), bias.copy()) for matrix, bias in layers])]

        single = np.clip(rows.x, -_FAR, _FAR).astype(np.float32)
        learn = [np.flatnonzero(rows.fold != f) for f in range(n_folds)]
        self.network.train(single, learn, start_of_mixture(rows, self.n_components, floor), slope, rng, watch)
        networks = FittedNetworks(tuple(best[0][1]))
        return networks, networks.outputs(rows.x)[rows.fold, np.arange(len(rows.y))]


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

    def __call__(self, x: Array) -> Array:
        """Scores (n, 3 F K) of the F networks at standardised covariates x (n, q)."""
        log_scale, logits, location = np.split(self.networks.outputs(x), 3, axis=2)
        logits = logits - logsumexp(logits, axis=2, keepdims=True)
        parts = (log_scale + self.shift, logits, location)
        return np.hstack([part.transpose(1, 0, 2).reshape(len(x), -1) for part in parts])

    def describe(self) -> Iterator[str]:
        """How many networks and components there are."""
        yield f"network mixture: {len(self.networks.layers[0][0])} networks of {self.n_each} components each"
