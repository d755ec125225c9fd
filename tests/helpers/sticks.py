"""Two outcomes, a stick that the covariates move and turn, and small mixtures of rotated flows fitted to it."""

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from sklearn.cluster import KMeans

from treecdf import Logistic, Stage, TreeFlowRegressor
from treecdf.training.plan import rotation_matrices

CENTERS = np.array([[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]])


def table(n, seed):
    """Covariates in three clouds with some noise around; two outcomes, a stick that x moves and turns."""
    rng = np.random.default_rng(seed)
    x = CENTERS[rng.integers(3, size=n)] + 0.2 * rng.normal(size=(n, 2))
    x[rng.random(n) < 0.05] *= 1.5
    along, across, angle = rng.normal(size=n), 0.3 * rng.normal(size=n), np.pi / 4 * (1 + x[:, 0])
    turned = np.column_stack(
        [along * np.cos(angle) - across * np.sin(angle), along * np.sin(angle) + across * np.cos(angle)]
    )
    return x, (turned + x[:, 1:]) * [1.0, 20.0] + [0.0, 100.0]


N = 400
X, Y = table(N, 0)
X_VAL, Y_VAL = table(150, 1)
X_NEW, Y_NEW = table(50, 2)
AT = np.vstack([CENTERS[[0, 2]], [[0.5, 0.3]]])  # where densities are looked at
FREE = [(None, None)] * 2


def small(**settings):
    model = {"stages": [Stage(Logistic(), 3)], "max_trees": 8, "c0": 0.3, "rotations": 3, "random_state": 0}
    return TreeFlowRegressor(**{"base": "box", **model, **settings})


def fit(**settings):
    return small(**settings).fit(X, Y)


def angle(radians):
    return np.array([[np.cos(radians), np.sin(radians)], [-np.sin(radians), np.cos(radians)]])


FITTED_CLUSTERER = KMeans(4, random_state=0, n_init=1).fit(X)
# Products of likelihoods leave all but one member without weight unless members are much alike.
LIKELIHOOD = {"weights": "likelihood", "max_trees": 3, "rotations": [angle(1.0), angle(1.002), angle(1.005)]}
MIXTURES = {
    "equal": {"weights": "equal"},
    "stacked by k-means": {"weights": "stacked", "regions": 3},
    "stacked by HDBSCAN": {"weights": "stacked", "regions": "hdbscan"},
    "stacked by a clusterer": {"weights": "stacked", "regions": KMeans(4, random_state=0, n_init=1)},
    "likelihood by k-means": {**LIKELIHOOD, "regions": 3},
    "likelihood by HDBSCAN": {**LIKELIHOOD, "regions": "hdbscan"},
    "likelihood by a fitted clusterer": {**LIKELIHOOD, "regions": FITTED_CLUSTERER},
    "equal, of Student t": {"weights": "equal", "base": "student"},
    "stacked by k-means, of Student t": {"weights": "stacked", "regions": 3, "base": "student"},
}
every_mixture = pytest.mark.parametrize("name", MIXTURES)


@cache
def mixture(name):
    """Trained on all of X, Y; stopped and stacked by X_VAL, Y_VAL."""
    return small(**MIXTURES[name]).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)


def log_prob_of_members(model, x, y):
    return np.column_stack([flow.forward_and_log_det(y[:, None], x)[1][:, 0] for flow in model.mixture_.members])


TURN = rotation_matrices(3, 2)[1]
Z = np.random.default_rng(5).normal(size=(200, 2))
OUTCOMES = {
    "plain": Z,
    "scales far apart": Z * [1e-12, 1e12],
    "a large offset": 1e6 + Z,
    "one constant": np.column_stack([Z[:, 0], np.full(200, 7.0)]),
    "one zero": np.column_stack([np.zeros(200), Z[:, 1]]),
    "both constant": np.full((200, 2), -3.0),
    "one a copy of the other": np.column_stack([Z[:, 0], 2 * Z[:, 0] + 3]),
    "huge": Z * 1e300,
    "one huge": Z * [1e300, 1.0],
    "the largest that are allowed": np.where(Z > 0, 1e303, -1e303),
    "tiny": Z * 1e-300,
}
every_outcome = pytest.mark.parametrize("name", OUTCOMES)


def naive_stack(log_prob, prior):
    """Maximum of the log-likelihood of mixture weights plus sum of prior * log weights."""

    def loss(theta):
        log_weights = log_softmax(np.r_[theta, 0.0])
        return -(logsumexp(log_prob + log_weights, axis=1).sum() + prior @ log_weights)

    found = minimize(loss, np.zeros(len(prior) - 1), tol=1e-12, options={"gtol": 1e-7})
    return np.exp(log_softmax(np.r_[found.x, 0.0]))
