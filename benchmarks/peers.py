"""Other libraries behind the few methods the benchmarks ask of a model; `pip install ".[bench]"`."""

import numpy as np
from scipy.stats import norm


class NormalDistribution:
    """Normal distributions, one for each row."""

    def __init__(self, mean: np.ndarray, std: np.ndarray):
        self._mean, self._std = mean, std

    def _column(self, values: np.ndarray, like: np.ndarray) -> np.ndarray:
        return values[:, None] if np.ndim(like) == 2 else values

    def cdf(self, y):
        """P(Y <= y) for y (n,) or (n, m)."""
        return norm.cdf(y, self._column(self._mean, y), self._column(self._std, y))

    pit = cdf

    def icdf(self, levels):
        """Quantiles (n, m) of levels (m,)."""
        return self._mean[:, None] + self._std[:, None] * norm.ppf(levels)

    def crps(self, y):
        """In closed form."""
        z = (y - self._mean) / self._std
        return self._std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


class NGBoost:
    """NGBoost with 500 trees and its other defaults: normal for one outcome, multivariate normal for several."""

    library = "ngboost"

    def __init__(self, random_state: int = 0, d: int = 1, n_estimators: int = 500):
        self.random_state, self.d, self.n_trees_ = random_state, d, n_estimators

    def get_params(self, deep: bool = True) -> dict:
        """What is told about the model in the rows."""
        return {"n_estimators": self.n_trees_, "random_state": self.random_state}

    def fit(self, x, y):
        """Train it."""
        from ngboost import NGBRegressor
        from ngboost.distns import MultivariateNormal, Normal

        law = Normal if self.d == 1 else MultivariateNormal(self.d)
        self._model = NGBRegressor(
            Dist=law, n_estimators=self.n_trees_, random_state=self.random_state, verbose=False
        ).fit(x, y)
        return self

    def log_prob(self, x, y):
        """Log density (n,)."""
        return np.asarray(self._model.pred_dist(x).logpdf(y))

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        rng = np.random.default_rng(random_state)
        law = self._model.pred_dist(x)
        if self.d == 1:
            return law.loc[:, None] + law.scale[:, None] * rng.normal(size=(len(x), n_samples))
        factor = np.linalg.cholesky(np.asarray(law.cov))
        noise = rng.normal(size=(len(x), n_samples, self.d))
        return np.asarray(law.loc)[:, None, :] + noise @ factor.transpose(0, 2, 1)

    def predict_distribution(self, x):
        """Its distributions of one outcome; None of several."""
        if self.d > 1:
            return None
        law = self._model.pred_dist(x)
        return NormalDistribution(law.loc, law.scale)
