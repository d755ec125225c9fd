"""A mixture density network as somebody builds it who takes it seriously: five of them, one for each fold."""

from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from benchmarks.distributions import JointDensity, NormalMixture
from benchmarks.peers.common import Peer, ZScore

LEAST_SCALE = 1e-3  # of z-scored outcomes
MOST_EPOCHS = 640  # fewer steps than set where there are few rows
N_STATES = 40  # of the training, among which the rows of the fold choose


class FoldedMixture(Peer):
    """The equal mixture of five networks, each trained without a fold of the rows, which picks its best state.

    Two layers of SiLU units give a mixture of eight normals with full covariances; AdamW, one cycle of the learning
    rate over a fixed number of steps. The five are trained side by side, as slices of one array.
    """

    library = "torch"

    def __init__(self, random_state: int = 0, d: int = 1):
        fixed = {"components": 8, "hidden": [64, 64], "folds": 5, "steps": 4000, "batch": 128, "lr": 5e-3}
        super().__init__(random_state, d, **fixed)

    def _fit(self, x, y):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(self.random_state)
        y = y.reshape(len(y), -1)
        self._zx, self._zy = ZScore(x), ZScore(y)
        rows = [torch.as_tensor(z, dtype=torch.float32) for z in (self._zx(x), self._zy(y))]
        n_folds = self.settings["folds"]
        fold = np.random.default_rng(self.random_state).permutation(len(x)) % n_folds
        inside = [torch.as_tensor(np.flatnonzero(fold != k)) for k in range(n_folds)]
        aside = [torch.as_tensor(np.flatnonzero(fold == k)) for k in range(n_folds)]
        self._layers = self._trained(rows, inside, aside)

    def _start(self, q: int):
        """Weights (folds, in, out) and biases (folds, 1, out) of the layers, as torch's own linear layers start."""
        import torch

        k, d = self.settings["components"], self.d
        sizes = [q, *self.settings["hidden"], k * (1 + d + d * d)]
        layers = []
        for width, next_width in pairwise(sizes):
            for shape in ((width, next_width), (1, next_width)):
                values = (2 * torch.rand(self.settings["folds"], *shape) - 1) / width**0.5
                layers.append(values.requires_grad_())
        return layers

    def _trained(self, rows, inside, aside):
        """Layers of the networks, each in its best state by the likelihood of its fold."""
        import torch

        layers = self._start(rows[0].shape[1])
        enough = MOST_EPOCHS * len(inside[0]) // self.settings["batch"]
        steps = max(min(self.settings["steps"], enough), N_STATES)
        optimizer = torch.optim.AdamW(layers, lr=self.settings["lr"], weight_decay=1e-3)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.settings["lr"], total_steps=steps)
        best, kept = np.full(len(inside), np.inf), [layer.detach().clone() for layer in layers]
        for step in range(1, steps + 1):
            some = torch.stack([part[torch.randint(len(part), (self.settings["batch"],))] for part in inside])
            optimizer.zero_grad()
            (-self._log_prob(layers, rows[0][some], rows[1][some]).mean(dim=1).sum()).backward()
            torch.nn.utils.clip_grad_norm_(layers, 10.0)
            optimizer.step()
            cycle.step()
            if step % (steps // N_STATES) == 0:
                self._keep(layers, rows, aside, best, kept)
        if not np.isfinite(best).all():
            raise ArithmeticError("no state gave the rows of its fold a finite density")
        return kept

    def _keep(self, layers, rows, aside, best, kept) -> None:
        """Copy those networks into `kept` that are better than before on their folds."""
        import torch

        with torch.no_grad():
            for k, some in enumerate(aside):
                own = [layer[k : k + 1] for layer in layers]
                score = -self._log_prob(own, rows[0][some][None], rows[1][some][None]).mean().item()
                if score < best[k]:
                    best[k] = score
                    for whole, layer in zip(kept, own, strict=True):
                        whole[k] = layer[0]

    def _parameters(self, layers, x):
        """Log weights (f, n, k), means (f, n, k, d) and Cholesky factors (f, n, k, d, d) at x (f, n, q)."""
        import torch

        for number in range(0, len(layers), 2):
            x = torch.baddbmm(layers[number + 1], x, layers[number])
            if number < len(layers) - 2:
                x = torch.nn.functional.silu(x)
        k, d = self.settings["components"], self.d
        logits, means, factors = x.split([k, k * d, k * d * d], dim=2)
        factors = factors.unflatten(2, (k, d, d))
        scales = torch.nn.functional.softplus(factors.diagonal(dim1=-2, dim2=-1)) + LEAST_SCALE
        lower = torch.diag_embed(scales) if d == 1 else factors.tril(-1) + torch.diag_embed(scales)
        return torch.log_softmax(logits, dim=2), means.unflatten(2, (k, d)), lower

    def _log_prob(self, layers, x, z):
        """Log density (f, n) of z-scored outcomes z (f, n, d) by each network."""
        import torch

        log_weights, means, lower = self._parameters(layers, x)
        away = (z[:, :, None, :] - means)[..., None]
        away = away / lower if self.d == 1 else torch.linalg.solve_triangular(lower, away, upper=False)
        log_det = torch.log(lower.diagonal(dim1=-2, dim2=-1)).sum(dim=-1)
        square = (away**2).sum(dim=(-2, -1))
        constant = 0.5 * self.d * float(np.log(2 * np.pi))
        return torch.logsumexp(log_weights - 0.5 * square - log_det, dim=2) - constant

    def _at(self, x):
        """z-scored covariates (f, n, q), the same for every network."""
        import torch

        z = torch.as_tensor(self._zx(x), dtype=torch.float32)
        return z.expand(self.settings["folds"], *z.shape)

    def log_prob(self, x, y):
        """Log density (n,) in the unit of the outcomes."""
        import torch

        z = torch.as_tensor(self._zy(y.reshape(len(y), -1)), dtype=torch.float32)
        each = self._log_prob(self._layers, self._at(x), z.expand(self.settings["folds"], *z.shape))
        return logsumexp(each.numpy().astype(float), axis=0) - np.log(len(each)) + self._zy.log_det

    def _components(self, x):
        """Weights (n, m), means (n, m, d) and factors (n, m, d, d) of all components of all networks."""
        parts = [part.numpy().astype(float) for part in self._parameters(self._layers, self._at(x))]
        log_weights, means, lower = (np.concatenate(part, axis=1) for part in parts)
        return np.exp(log_weights) / self.settings["folds"], means, lower

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        rng, (weights, means, lower) = np.random.default_rng(random_state), self._components(x)
        ends = np.cumsum(weights, axis=1)[:, None, :-1]
        chosen = np.sum(rng.random((len(x), n_samples, 1)) >= ends, axis=2)
        row = np.arange(len(x))[:, None]
        noise = rng.normal(size=(*chosen.shape, self.d))
        z = means[row, chosen] + np.einsum("nmij,nmj->nmi", lower[row, chosen], noise)
        draws = self._zy.back(z)
        return draws[:, :, 0] if self.d == 1 else draws

    def predict_distribution(self, x):
        """Mixture of normals of one outcome, the joint density of several."""
        if self.d > 1:
            return JointDensity(self, x)
        weights, means, lower = self._components(x)
        return NormalMixture(weights, self._zy.back(means[:, :, 0]), self._zy.std * lower[:, :, 0, 0])
