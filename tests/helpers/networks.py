"""Our networks' parameters in scikit-learn's MLPClassifier and back.

Ours are one vector: layer by layer the weights (out, in) row by row, then the biases. scikit-learn has a matrix (in,
out) and a vector for each layer.
"""

import numpy as np


def set_parameters(model, theta):
    """Write our parameters `theta` (P,) into a fitted MLPClassifier, in place."""
    for coefs, intercepts in zip(model.coefs_, model.intercepts_, strict=True):
        weights, intercepts[:], theta = np.split(theta, [coefs.size, coefs.size + intercepts.size])
        coefs[:] = weights.reshape(coefs.T.shape).T


def get_parameters(model):
    """Parameters (P,) of a fitted MLPClassifier in our order."""
    layers = zip(model.coefs_, model.intercepts_, strict=True)
    return np.concatenate([part for coefs, intercepts in layers for part in (coefs.T.ravel(), intercepts)])
