"""Networks trained by likelihood: flows of zuko, and a mixture density network."""

import copy

import numpy as np
from scipy.stats import norm

from benchmarks.distributions import JointDensity, NormalMixture, Quantiles
from benchmarks.peers.common import PATIENCE, Peer, ZScore, set_aside

CHUNK = 500  # rows whose quantiles are found at a time


class Network(Peer):
    """A torch module that gives a torch distribution of the z-scored outcomes for z-scored covariates."""

    def __init__(self, random_state: int = 0, d: int = 1, **settings):
        fixed = {"hidden": [64, 64], "lr": 1e-3, "max_epochs": 1000}
        super().__init__(random_state, d, **settings, **fixed)

    def _network(self, q: int):
        """The untrained module for q covariates."""
        raise NotImplementedError

    def _fit(self, x, y):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(self.random_state)
        train, validation = set_aside(len(x), self.random_state)
        y = y.reshape(len(y), -1)
        self._zx, self._zy = ZScore(x[train]), ZScore(y[train])
        rows = self._zx(x), self._zy(y)
        self._module = self._network(x.shape[1])
        self._train(*([_tensor(part[some]) for part in rows] for some in (train, validation)))

    def _train(self, rows, aside) -> None:
        """Adam on the mean log density, the parameters of the best epoch on the rows set aside."""
        import torch

        optimizer = torch.optim.Adam(self._module.parameters(), lr=self.settings["lr"])
        n = len(rows[0])
        batch = min(max(n // 20, 32), 512)
        best, state, waited = np.inf, None, 0
        for _ in range(self.settings["max_epochs"]):
            for some in torch.randperm(n).split(batch):
                optimizer.zero_grad()
                loss = -self._module(rows[0][some]).log_prob(rows[1][some]).mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._module.parameters(), 5.0)
                optimizer.step()
            with torch.no_grad():
                score = -self._module(aside[0]).log_prob(aside[1]).mean().item()
            if score < best:
                best, state, waited = score, copy.deepcopy(self._module.state_dict()), 0
            else:
                waited += 1
            if waited == PATIENCE:
                break
        if state is None:
            raise ArithmeticError("no epoch gave the rows set aside a finite density")
        self._module.load_state_dict(state)

    def _law(self, x):
        return self._module(_tensor(self._zx(x)))

    def log_prob(self, x, y):
        """Log density (n,) in the unit of the outcomes."""
        import torch

        with torch.no_grad():
            found = self._law(x).log_prob(_tensor(self._zy(y.reshape(len(y), -1))))
        return found.numpy().astype(float) + self._zy.log_det

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        import torch

        torch.manual_seed(random_state)
        with torch.no_grad():
            z = self._law(x).sample((n_samples,)).numpy().astype(float)
        draws = self._zy.back(np.swapaxes(z, 0, 1))
        return draws[:, :, 0] if self.d == 1 else draws

    def predict_distribution(self, x):
        """CDF and quantiles of one outcome, the joint density of several."""
        return JointDensity(self, x) if self.d > 1 else self._univariate(x)


class Flow(Network):
    """zuko's neural spline flow ("NSF") or masked autoregressive flow ("MAF"), three transforms as by default.

    With one outcome the affine transforms of a MAF make a normal whose mean and scale depend on x.
    """

    library = "zuko"

    def __init__(self, random_state: int = 0, d: int = 1, kind: str = "NSF"):
        super().__init__(random_state, d, kind=kind)

    def _network(self, q):
        from zuko import flows

        return getattr(flows, self.settings["kind"])(self.d, q, hidden_features=self.settings["hidden"])

    def _univariate(self, x):
        return MonotoneFlow(self, x)


class MonotoneFlow(Quantiles):
    """A flow of one outcome: an increasing map to a standard normal."""

    def __init__(self, flow: Flow, x: np.ndarray):
        self._flow, self._x = flow, x

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        zy = self._flow._zy
        points = zy(y.reshape(len(y), -1))
        return norm.cdf(self._moved(points, inverse=False)).reshape(y.shape)

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        points = np.broadcast_to(norm.ppf(levels), (len(self._x), len(levels)))
        return self._flow._zy.back(self._moved(points, inverse=True))

    def _moved(self, points, inverse):
        """The points (n, m) under the map of their rows."""
        import torch

        found = []
        with torch.no_grad():
            for start in range(0, len(points), CHUNK):
                some = slice(start, start + CHUNK)
                transform = self._flow._law(self._x[some]).transform
                move = transform.inv if inverse else transform
                found.append(move(_tensor(points[some].T[:, :, None])).numpy()[:, :, 0].T)
        return np.concatenate(found).astype(float)


class MixtureDensity(Network):
    """A mixture of five normals with full covariances, all its parameters from one network."""

    library = "torch"

    def __init__(self, random_state: int = 0, d: int = 1):
        super().__init__(random_state, d, components=5)

    def _network(self, q):
        return _mixture_network(q, self.d, self.settings["components"], self.settings["hidden"])

    def _univariate(self, x):
        import torch

        with torch.no_grad():
            law = self._law(x)
            weights = law.mixture_distribution.probs.numpy().astype(float)
            means = law.component_distribution.loc[:, :, 0].numpy().astype(float)
            stds = law.component_distribution.scale_tril[:, :, 0, 0].numpy().astype(float)
        return NormalMixture(weights, self._zy.back(means), self._zy.std * stds)


def _mixture_network(q: int, d: int, components: int, hidden: list[int]):
    """Module that turns (n, q) into a torch mixture of normals of d outcomes."""
    import torch
    from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

    sizes = [components, components * d, components * d * d]

    class Mixture(torch.nn.Sequential):
        def forward(self, x):
            logits, means, factors = super().forward(x).split(sizes, dim=1)
            factors = factors.reshape(-1, components, d, d)
            scales = torch.nn.functional.softplus(factors.diagonal(dim1=-2, dim2=-1)) + 1e-3
            parts = MultivariateNormal(
                means.reshape(-1, components, d),
                scale_tril=factors.tril(-1) + torch.diag_embed(scales),
                validate_args=False,  # they are valid by construction, and the checks take longer than the rest
            )
            return MixtureSameFamily(Categorical(logits=logits, validate_args=False), parts, validate_args=False)

    layers = []
    for width, next_width in zip([q, *hidden[:-1]], hidden, strict=True):
        layers += [torch.nn.Linear(width, next_width), torch.nn.ReLU()]
    return Mixture(*layers, torch.nn.Linear(hidden[-1], sum(sizes)))


def _tensor(values: np.ndarray):
    import torch

    return torch.as_tensor(np.ascontiguousarray(values), dtype=torch.float32)
