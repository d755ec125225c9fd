"""Any scikit-learn classifier with predict_proba at the nodes: slower, in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from treecdf._common.typing import Array
from treecdf._kernels.transform import PYTHON
from treecdf.data.basis import Basis
from treecdf.training.classifiers.protocol import SEARCH_WIDTH, NodeClassifier, NodeFits, Splits
from treecdf.training.sources.rows import Rows

_MARGIN = 1e-9  # predict_proba may say 0 or 1; a likelihood may not


@dataclass(frozen=True)
class ClassifierNode:
    """A fitted scikit-learn classifier, or the share where a child was empty."""

    model: Any
    share: float

    def left_prob(self, x: Array) -> Array:
        """Probability of the left child at covariates x (n, q)."""
        if self.model is None:
            return np.full(len(x), self.share)
        return np.clip(self.model.predict_proba(x)[:, 1], _MARGIN, 1 - _MARGIN)


@dataclass(frozen=True)
class AnyClassifier:
    """Node classifier made of clones of a scikit-learn classifier."""

    estimator: Any

    def kind(self, q: int) -> tuple[int, ...]:
        """Python objects, for which there is no kernel."""
        return (PYTHON,)

    def search_basis(self, q: int) -> Basis:
        """Hinges: nothing is known about the classifier, so the search should see more than lines."""
        return Basis.hinges(q, max_width=SEARCH_WIDTH)

    def fit_basis(self, q: int) -> Basis:
        """The covariates."""
        return Basis.linear(q)

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """One clone for each node with rows on both sides."""
        theta = np.empty((len(splits.axis), 1), dtype=object)
        log_lik = np.empty(len(splits.axis))
        for node, both in enumerate(splits.has_both):
            x, left, weight = rows.node_rows(node)
            model = self._fit_one(x, left, weight, rng) if both else None
            theta[node, 0] = ClassifierNode(model, splits.share[node])
            p = theta[node, 0].left_prob(x)
            log_lik[node] = weight @ (xlogy(left, p) + xlog1py(1 - left, -p))
        return NodeFits(theta, log_lik)

    def _fit_one(self, x: Array, left: Array, weight: Array, rng: np.random.Generator) -> Any:
        model = clone(self.estimator)
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=int(rng.integers(2**31)))
        weighted = has_fit_parameter(model, "sample_weight")
        return model.fit(x, left, sample_weight=weight) if weighted else model.fit(x, left)

    def importance(self, theta: NDArray[Any], q: int) -> Array:
        """What the classifiers themselves report; zero if they report nothing."""
        return np.array([_reported_importance(node.model, q) for node in theta[:, 0]]).reshape(-1, q)


def _reported_importance(model: Any, q: int) -> Array:
    for read in _REPORTS:
        try:
            return np.abs(np.asarray(read(model), dtype=float)).reshape(q)
        except (AttributeError, ValueError):
            continue
    return np.zeros(q)


_REPORTS: tuple[Callable[[Any], Any], ...] = (lambda m: m.feature_importances_, lambda m: m.coef_)


def as_node_classifier(classifier: Any) -> NodeClassifier:
    """`classifier` itself if it is one of ours, wrapped if it is scikit-learn's."""
    if isinstance(classifier, type):
        raise TypeError(f"Expected a node classifier, not its class: {classifier.__name__}() instead of the bare name.")
    if hasattr(classifier, "search_basis") and hasattr(classifier, "importance"):
        return classifier
    if hasattr(classifier, "fit") and hasattr(classifier, "predict_proba"):
        return AnyClassifier(classifier)
    raise TypeError(
        "Expected a node classifier: Constant, Logistic, MLP, BoostedTrees or a scikit-learn classifier with "
        f"predict_proba; got {classifier!r}."
    )
