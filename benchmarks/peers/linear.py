"""The baseline: linear regression with normal residuals."""

import numpy as np
from scipy.stats import multivariate_normal

from benchmarks.distributions import JointDensity, Normal
from benchmarks.peers.common import Peer, draw_normals


class LinearGaussian(Peer):
    """scikit-learn's least squares; the residuals are normal with one covariance for all rows."""

    library = "scikit-learn"

    def _fit(self, x, y):
        from sklearn.linear_model import LinearRegression

        y = y.reshape(len(y), -1)
        self._model = LinearRegression().fit(x, y)
        residuals = y - self._model.predict(x)
        free = max(len(x) - np.linalg.matrix_rank(x - x.mean(axis=0)) - 1, 1)
        self._cov = residuals.T @ residuals / free

    def log_prob(self, x, y):
        """Log density (n,)."""
        residuals = y.reshape(len(y), -1) - self._model.predict(x)
        return multivariate_normal(cov=self._cov, allow_singular=True).logpdf(residuals).reshape(len(x))

    def sample(self, x, n_samples: int, random_state: int):
        """Draws (n, m) or (n, m, d)."""
        found = draw_normals(self._model.predict(x), np.linalg.cholesky(self._cov), n_samples, random_state)
        return found[:, :, 0] if self.d == 1 else found

    def predict_distribution(self, x):
        """Normal of one outcome, the joint density of several."""
        if self.d > 1:
            return JointDensity(self, x)
        return Normal(self._model.predict(x)[:, 0], np.full(len(x), np.sqrt(self._cov[0, 0])))
