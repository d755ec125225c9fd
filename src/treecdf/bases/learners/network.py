"""A small neural network for smooth relations on many rows; the folds train in lockstep as one batch of networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treecdf._common.telling import tell
from treecdf._common.typing import Array, Ints

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]  # matrix (folds, inputs, outputs) and bias (folds, 1, outputs) of each layer
_FAR = 5.0  # standard deviations: covariates beyond are held
_STEPS_A_TELLING = 20  # after so many steps the line of progress is told again
_STEEP = np.float32(50)  # inputs of a unit beyond are held where its logistic function is taken: it is 0 or 1 there
_CHUNK_ROWS = 8192  # rows that are predicted together
_SPREAD = 0.5  # standard deviation of biases of later layers to begin with
_CLEARLY_BEATS = 0.9  # a network is tried if the error of the Gaussian process is below this share of the trees'


class Slope(Protocol):
    """The derivative of a loss by the outputs of networks."""

    def __call__(self, output: Floats, chosen: Ints) -> Floats:
        """Derivatives (folds, batch, outputs) at the outputs of the rows `chosen` (folds, batch)."""
        ...


def silu(z: Any) -> tuple[Any, Any]:
    """The output of a SiLU unit, z times its logistic function, and its derivative.

    Arrays are in single precision during training and in double precision in predictions.
    """
    one = np.float32(1)
    share = one / (one + np.exp(-np.clip(z, -_STEEP, _STEEP)))
    active = z * share
    return active, share + active * (one - share)


@dataclass(frozen=True)
class Objective:
    """What networks learn: where their outputs begin, and the derivative of the loss by them.

    `watch` is called with the layers and the share of the steps done after each step.
    """

    start: Array  # (outputs,)
    slope: Slope
    watch: Callable[[Layers, float], None] | None = None


@dataclass(frozen=True)
class Network:
    """A small network: hidden layers of SiLU units, squared error, Adam with a rate that rises and falls once.

    It has a fixed budget of steps; there is nothing to converge to.

    Parameters
    ----------
    hidden : tuple of int, default (64, 64, 64)
        Units of each hidden layer.
    n_epochs : int, default 160
        Passes over the rows.
    max_steps : int, default 2000
        Steps at most, whatever the epochs.
    batch : int, default 256
        Rows of a step.
    rate : float, default 8e-3
        Largest learning rate.
    decay : float, default 0.1
        Weight decay.
    sharpness : float, default 2.0
        Size of the weights of a single covariate to begin with; those of several are smaller. Large ones find curves
        that wind, small ones begin with curves that hardly bend.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(300, 1))
    >>> y = np.sin(2 * x[:, 0])
    >>> fold = np.arange(300) % 3
    >>> learner = Network(hidden=(16,), n_epochs=40)
    >>> predict, left_out = learner.cross_fit(x, y, np.ones(300), fold, np.random.default_rng(0))
    >>> left_out.shape
    (300,)
    """

    hidden: tuple[int, ...] = (64, 64, 64)
    n_epochs: int = 160
    max_steps: int = 2000
    batch: int = 256
    rate: float = 8e-3
    decay: float = 0.1
    sharpness: float = 2.0

    @property
    def kind(self) -> str:
        """The word "network"."""
        return "network"

    def is_worth_trying(self, errors: Mapping[str, float]) -> bool:
        """True only if the Gaussian process clearly beats the trees, because networks are slow."""
        return errors.get("process", np.inf) < _CLEARLY_BEATS * errors.get("trees", np.inf)

    @property
    def name(self) -> str:
        """The learner's name in the summary of a model."""
        return "network " + "-".join(map(str, self.hidden))

    def cross_fit(
        self, x: Array, y: Array, weight: Array, fold: Ints, rng: np.random.Generator, best: float = np.inf
    ) -> tuple[FittedNetworks, Array]:
        """The folds' networks, and out-of-fold predictions (n,); see `Learner.cross_fit`."""
        n_folds = int(fold.max()) + 1
        rows = [np.flatnonzero(fold != f) for f in range(n_folds)]
        single = np.clip(x, -_FAR, _FAR).astype(np.float32)
        relative = (weight / weight.mean()).astype(np.float32)
        target = y.astype(np.float32)

        def slope(output: Floats, chosen: Ints) -> Floats:
            return (output - target[chosen][..., None]) * relative[chosen][..., None]

        layers = self.train(single, rows, Objective(np.zeros(1), slope), rng)
        fitted = FittedNetworks(tuple(layers))
        return fitted, fitted.outputs(x)[fold, np.arange(len(x)), 0]

    def train(
        self,
        x: Floats,
        rows: list[Ints],
        objective: Objective,
        rng: np.random.Generator,
        relevance: Array | None = None,
    ) -> Layers:
        """The layers of one network for each fold, trained on its rows of x (n, q).

        With a `relevance` (folds, q) networks begin with small weights of covariates of little relevance, and change
        them in small steps.
        """
        n_folds = len(rows)
        factor = np.ones((n_folds, x.shape[1]), np.float32) if relevance is None else relevance.astype(np.float32)
        layers = self._first_layers(factor, objective.start, rng)
        self._spread(layers, x, factor, rows, rng)
        adam = _Adam(layers)
        queue = [np.empty(0, np.int64)] * n_folds
        n_steps = min(self.max_steps, 1 + self.n_epochs * max(len(own) for own in rows) // self.batch)
        for step in range(n_steps):
            if step % _STEPS_A_TELLING == 0:
                tell(f"step {step} of {n_steps}, {n_folds} folds", step / n_steps)
            for f in range(n_folds):
                if len(queue[f]) < self.batch:
                    queue[f] = np.concatenate([queue[f], rng.permutation(rows[f])])
            chosen = np.stack([q[: self.batch] if len(q) >= self.batch else np.resize(q, self.batch) for q in queue])
            queue = [q[self.batch :] for q in queue]
            slope = partial(objective.slope, chosen=chosen)
            gradients = _gradients(layers, x[chosen] * factor[:, None], slope)
            adam.step(gradients, self.rate * _one_cycle(step / n_steps), self.decay)
            if objective.watch is not None:
                objective.watch(_on_covariates(layers, factor), (step + 1) / n_steps)
        return _on_covariates(layers, factor)

    def _first_layers(self, factor: Floats, start: Array, rng: np.random.Generator) -> Layers:
        """Layers to begin with, for covariates times `factor` (folds, q); outputs are near `start` (outputs,)."""
        n_folds, q = factor.shape
        layers: Layers = []
        for k, (a, b) in enumerate(pairwise((q, *self.hidden, len(start)))):
            matrix = rng.normal(size=(n_folds, a, b)) * np.sqrt((1.0 if k < len(self.hidden) else 0.1) / a)
            layers.append((matrix.astype(np.float32), np.zeros((n_folds, 1, b), np.float32)))
        layers[0][0][:] *= np.sqrt(q / (factor**2).sum(axis=1))[:, None, None]
        layers[-1][1][:] = start
        return layers

    def _spread(self, layers: Layers, x: Floats, factor: Floats, rows: list[Ints], rng: np.random.Generator) -> None:
        """Let the bend of every unit of the first layer pass through a random row; further bends are anywhere.

        With few covariates that matter bends are sharper, because rows are dense enough to show more detail.
        """
        for f, own in enumerate(rows):
            n_relevant = float((factor[f] ** 2).sum() / (factor[f] ** 2).max())
            layers[0][0][f] *= max(self.sharpness / np.sqrt(n_relevant), min(self.sharpness, 1.0))
            at = x[rng.choice(own, self.hidden[0])] * factor[f]
            layers[0][1][f, 0] = -(at * layers[0][0][f].T).sum(axis=1)
        for _, bias in layers[1:-1]:
            bias[:] = _SPREAD * rng.normal(size=bias.shape)


@dataclass(frozen=True)
class FittedNetworks:
    """One network for each fold: matrices (folds, inputs, outputs) and biases (folds, 1, outputs) of the layers."""

    layers: tuple[tuple[Floats, Floats], ...]

    @property
    def n_outputs(self) -> int:
        """The number of outputs of each network."""
        return int(self.layers[-1][0].shape[2])

    def outputs(self, x: Array) -> Array:
        """Outputs (folds, n, outputs) of every network.

        In double precision: products of matrices round differently with the number of rows, and what is said of a
        row should not depend on the rows beside it.
        """
        parts = []
        for i in range(0, len(x), _CHUNK_ROWS):
            active = np.clip(x[i : i + _CHUNK_ROWS], -_FAR, _FAR)[None]
            for matrix, bias in self.layers[:-1]:
                active = silu(active @ matrix.astype(np.float64) + bias)[0]
            matrix, bias = self.layers[-1]
            parts.append(active @ matrix.astype(np.float64) + bias)
        return np.concatenate(parts, axis=1)

    def only(self, f: int) -> FittedNetworks:
        """The network of one fold."""
        return FittedNetworks(tuple((matrix[f : f + 1], bias[f : f + 1]) for matrix, bias in self.layers))

    def __call__(self, x: Array) -> Array:
        """Predictions (n,) of standardised covariates x (n, q): the mean over the folds' networks of one output."""
        return self.outputs(x)[..., 0].mean(axis=0)


def _on_covariates(layers: Layers, factor: Floats) -> Layers:
    """Layers for covariates as they are, from those for covariates times `factor` (folds, q)."""
    matrix, bias = layers[0]
    return [(matrix * factor[..., None], bias), *layers[1:]]


def _gradients(layers: Layers, x: Floats, slope: Callable[[Floats], Floats]) -> Layers:
    """Gradients of the mean loss of rows x (folds, batch, q), in the shapes of the layers.

    slope: the derivative of the loss by the outputs (folds, batch, outputs), which it is given.
    """
    active, rises = [x], []
    for matrix, bias in layers[:-1]:
        value, rise = silu(active[-1] @ matrix + bias)
        active.append(value)
        rises.append(rise)
    matrix, bias = layers[-1]
    output = active[-1] @ matrix + bias
    back = slope(output) / np.float32(x.shape[1])
    gradients = []
    for k in range(len(layers) - 1, -1, -1):
        gradients.append((active[k].transpose(0, 2, 1) @ back, back.sum(axis=1, keepdims=True)))
        if k:
            back = (back @ layers[k][0].transpose(0, 2, 1)) * rises[k - 1]
    return gradients[::-1]


class _Adam:
    """Adam with weight decay. All parameters are in one flat array, so that a step is a few operations."""

    def __init__(self, layers: Layers) -> None:
        """Copy the layers into the flat array and replace them by views of it."""
        parts = [part for layer in layers for part in layer]
        self.flat = np.concatenate([part.ravel() for part in parts])
        self.first, self.second = np.zeros_like(self.flat), np.zeros_like(self.flat)
        self.count = 0
        begin = 0
        for k, (matrix, bias) in enumerate(layers):
            views = []
            for part in (matrix, bias):
                views.append(self.flat[begin : begin + part.size].reshape(part.shape))
                begin += part.size
            layers[k] = (views[0], views[1])

    def step(self, gradients: Layers, rate: float, decay: float) -> None:
        """Move the layers down the gradients."""
        gradient = np.concatenate([part.ravel() for layer in gradients for part in layer])
        self.count += 1
        self.first += np.float32(0.1) * (gradient - self.first)
        self.second += np.float32(0.01) * (gradient * gradient - self.second)
        size = rate / (1 - 0.9**self.count)
        root = np.sqrt(self.second) / np.float32(np.sqrt(1 - 0.99**self.count)) + np.float32(1e-8)
        self.flat *= np.float32(1 - rate * decay)
        self.flat -= np.float32(size) * self.first / root


def _one_cycle(t: float) -> float:
    """The learning rate at share t of the steps: up to 1 over the first three tenths, then down to 0, as cosines."""
    if t < 0.3:
        return 0.04 + 0.96 * (1 - np.cos(np.pi * t / 0.3)) / 2
    return (1 + np.cos(np.pi * (t - 0.3) / 0.7)) / 2
