"""What all peers have in common: the rows set aside for early stopping, z-scores, settings."""

from importlib.metadata import PackageNotFoundError, version

import numpy as np

VALIDATION_SHARE = 0.1
PATIENCE = 50  # rounds of boosting, or epochs, without a better score of the rows set aside


class Peer:
    """A model of another library: what a row tells of it, and `has_density` and `one_outcome_only` by class."""

    library = ""
    has_density = True
    one_outcome_only = False

    def __init__(self, random_state: int = 0, d: int = 1, **settings):
        self.random_state, self.d, self.settings = random_state, d, settings

    def told(self) -> dict:
        """Library, its version and our settings of it, as JSON."""
        try:
            found = version(self.library)
        except PackageNotFoundError:
            found = "missing"
        return {"library": self.library, "library_version": found} | self.settings

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Peer":
        """Train on x (n, q) and y (n,) or (n, d)."""
        if self.one_outcome_only and self.d > 1:
            raise ValueError(f"{self.library} has no model of several outcomes together")
        self._fit(x, y)
        return self


def set_aside(n: int, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows for early stopping, the same for every peer."""
    rows = np.random.default_rng(random_state).permutation(n)
    n_validation = max(1, round(VALIDATION_SHARE * n))
    return rows[n_validation:], rows[:n_validation]


def score(model: Peer, x: np.ndarray, y: np.ndarray) -> float:
    """Mean log density, -inf where it is no number."""
    found = float(np.mean(model.log_prob(x, y)))
    return found if np.isfinite(found) else -np.inf


class ZScore:
    """Columns shifted and scaled to mean 0 and standard deviation 1 of the rows it was made from."""

    def __init__(self, values: np.ndarray):
        std = values.std(axis=0)
        self.mean, self.std = values.mean(axis=0), np.where(std > 0, std, 1.0)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """To z-scores."""
        return (values - self.mean) / self.std

    def back(self, z: np.ndarray) -> np.ndarray:
        """To the unit of the rows."""
        return self.mean + self.std * z

    @property
    def log_det(self) -> float:
        """What is added to a log density of z-scores to make it one of the rows."""
        return -float(np.sum(np.log(self.std)))


def draw_normals(mean: np.ndarray, factor: np.ndarray, n_samples: int, random_state: int) -> np.ndarray:
    """Draws (n, m, d) of normals with means (n, d) and Cholesky factors (n, d, d) or (d, d)."""
    noise = np.random.default_rng(random_state).normal(size=(len(mean), n_samples, mean.shape[1]))
    return mean[:, None, :] + noise @ np.swapaxes(factor, -1, -2)
