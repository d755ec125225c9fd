"""LightGBMLSS with its two laws that have many modes: a mixture of normals, and a spline flow."""

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import norm

from benchmarks.distributions import NormalMixture, Quantiles
from benchmarks.peers.boosting import LightGBMLSS
from benchmarks.peers.common import PATIENCE, Peer, ZScore, score, set_aside


class LightGBMLSSMixture(LightGBMLSS):
    """A mixture of normals whose parameters are boosted; the rows set aside choose two, four or six of them.

    At rate 0.1, or with stabilised gradients, its scales run away on our shapes.
    """

    components = (2, 4, 6)

    def __init__(self, random_state: int = 0, d: int = 1):
        Peer.__init__(self, random_state, d, law="Mixture", num_boost_round=1000, learning_rate=0.01)

    def _fit(self, x, y):
        self._tried("components", self.components, x, y)

    def _tried(self, name: str, values: tuple, x, y) -> None:
        """Keep the model of that value of a setting whose likelihood of the rows set aside is highest."""
        import torch

        torch.set_num_threads(1)
        train, validation = set_aside(len(x), self.random_state)
        self._z, found = ZScore(y[train]), []
        for value in values:
            self.settings[name] = value
            self._train(x[train], y[train], x[validation], y[validation])
            found.append((score(self, x[validation], y[validation]), value, self._model))
        _, self.settings[name], self._model = max(found, key=lambda one: one[0])
        self.n_trees_ = self._model.booster.best_iteration

    def _law(self):
        from lightgbmlss.distributions.Gaussian import Gaussian
        from lightgbmlss.distributions.Mixture import Mixture

        return Mixture(Gaussian(stabilization="None"), M=self.settings["components"], initialize=True)

    def _train(self, x, y, x_aside, y_aside) -> None:
        import lightgbm
        from lightgbmlss.model import LightGBMLSS as Model

        rows = lightgbm.Dataset(x, self._z(y), params={"verbosity": -1})
        aside = lightgbm.Dataset(x_aside, self._z(y_aside), reference=rows, params={"verbosity": -1})
        self._model = Model(self._law())
        self._model.train(
            {
                "num_threads": 1,
                "seed": self.random_state,
                "verbosity": -1,
                "learning_rate": self.settings["learning_rate"],
            },
            rows,
            num_boost_round=self.settings["num_boost_round"],
            valid_sets=[aside],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )

    def _parameters(self, x) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, means and standard deviations (n, k), in the unit of the outcome."""
        raw = self._raw(x).reshape(len(x), 3, -1)
        return softmax(raw[:, 2], axis=1), self._z.back(raw[:, 0]), self._z.std * np.exp(raw[:, 1])

    def _raw(self, x) -> np.ndarray:
        """What the trees add up to and their start values, (n, parameters)."""
        # The library's own `predict` draws the weights with Gumbel noise: the same row gets other weights each time.
        found = self._model.booster.predict(x, raw_score=True).reshape(len(x), -1)
        return found + self._model.start_values

    def log_prob(self, x, y):
        """Log density (n,)."""
        weights, means, stds = self._parameters(x)
        with np.errstate(divide="ignore"):
            return logsumexp(np.log(weights) + norm.logpdf(y[:, None], means, stds), axis=1)

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m)."""
        rng, (weights, means, stds) = np.random.default_rng(random_state), self._parameters(x)
        ends = np.cumsum(weights, axis=1)[:, None, :-1]
        chosen = np.sum(rng.random((len(x), n_samples, 1)) >= ends, axis=2)
        return rng.normal(*(np.take_along_axis(part, chosen, axis=1) for part in (means, stds)))

    def predict_distribution(self, x):
        """Mixtures of normals."""
        return NormalMixture(*self._parameters(x))


class LightGBMLSSSpline(LightGBMLSSMixture):
    """A spline flow whose parameters are boosted; the rows set aside choose the rate, since many make it run away."""

    rates = (0.01, 0.003, 0.001)
    bound = 4.0  # of the z-scored outcomes; beyond it the flow is a standard normal

    def __init__(self, random_state: int = 0, d: int = 1):
        Peer.__init__(self, random_state, d, law="SplineFlow", num_boost_round=1000, count_bins=8)

    def _fit(self, x, y):
        self._tried("learning_rate", self.rates, x, y)

    def _law(self):
        from lightgbmlss.distributions.SplineFlow import SplineFlow

        bins = self.settings["count_bins"]
        return SplineFlow(count_bins=bins, bound=self.bound, order="quadratic", stabilization="None", initialize=True)

    def flow(self, x):
        """The torch flow of rows: an element for each."""
        import torch

        law, raw = self._model.dist, torch.tensor(self._raw(x), dtype=torch.float32)
        return law.replace_parameters(raw, law.create_spline_flow(len(x)))[1]

    def log_prob(self, x, y):
        """Log density (n,)."""
        import torch

        with torch.no_grad():
            # The base is one normal for each row; the flow's density is not summed over them.
            found = _log_prob(self.flow(x), torch.tensor(self._z(y), dtype=torch.float32))
        return found.numpy().astype(float) + self._z.log_det

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m)."""
        noise = np.random.default_rng(random_state).normal(size=(len(x), n_samples))
        return self._z.back(BoostedSpline(self, x).moved(noise, False))

    def predict_distribution(self, x):
        """Increasing maps of standard normals."""
        return BoostedSpline(self, x)


def _log_prob(flow, z):
    """Log density of z (n,) by the change of variables through each of the flow's maps, (n,)."""
    total = 0.0
    for transform in reversed(flow.transforms):
        before = transform.inv(z)
        total = total - transform.log_abs_det_jacobian(before, z)
        z = before
    return total + _standard_normal(z)


def _standard_normal(z):
    return -0.5 * z**2 - 0.5 * float(np.log(2 * np.pi))


class BoostedSpline(Quantiles):
    """One outcome by LightGBMLSS's spline flow."""

    def __init__(self, model: LightGBMLSSSpline, x: np.ndarray):
        self._model, self._x = model, x

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        return self._model._z.back(self.moved(np.broadcast_to(norm.ppf(levels), (len(self._x), len(levels))), False))

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        z = self._model._z(np.reshape(y, (len(y), -1)))
        return norm.cdf(self.moved(z, True)).reshape(np.shape(y))

    def moved(self, points, inverse: bool):
        """The points (n, m) under the map of their rows, or its inverse."""
        import torch

        (transform, *_), found = self._model.flow(self._x).transforms, []
        with torch.no_grad():
            for column in torch.tensor(np.array(points.T), dtype=torch.float32):
                found.append((transform.inv if inverse else transform)(column).numpy())
        return np.column_stack(found).astype(float)
