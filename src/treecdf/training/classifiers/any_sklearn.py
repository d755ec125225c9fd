"""Any scikit-learn classifier with predict_proba at the nodes: slower, in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.special import xlog1py, xlogy
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from treecdf._common.typing import Array
from treecdf._kernels.transform import PYTHON
from treecdf.data.basis import Basis
from treecdf.training.classifiers.protocol import SEARCH_WIDTH, NodeClassifier, NodeFits, Splits
from treecdf.training.sources.rows import Rows

_MARGIN = 1e-9  # predict_proba may say 0 or 1; a likelihood may not


@runtime_checkable
class ProbabilisticClassifier(Protocol):
    """The methods that are used of a scikit-learn classifier, besides `clone` and its parameters."""

    def fit(self, X: Array, y: Array) -> ProbabilisticClassifier:
        """Learn labels y (n,), 1 for the left child and 0 for the right, from covariates X (n, q)."""
        ...

    def predict_proba(self, X: Array) -> Array:
        """Probabilities (n, 2) of the labels 0 and 1."""
        ...


@dataclass(frozen=True)
class ClassifierNode:
    """A fitted scikit-learn classifier, or None and the share of the left child if one child was empty."""

    model: ProbabilisticClassifier | None
    share: float

    def left_prob(self, x: Array) -> Array:
        """Probability of the left child at covariates x (n, q)."""
        if self.model is None:
            return np.full(len(x), self.share)
        return np.clip(self.model.predict_proba(x)[:, 1], _MARGIN, 1 - _MARGIN)


@dataclass(frozen=True)
class AnyClassifier:
    """Node classifier made of clones of a scikit-learn classifier."""

    estimator: ProbabilisticClassifier

    def kind(self, q: int) -> tuple[int, ...]:
        """(PYTHON,): the parameters are Python objects, and no kernel evaluates them."""
        return (PYTHON,)

    def search_basis(self, q: int) -> Basis:
        """Hinges of the covariates: the classifier may be non-linear, so the search must see more than lines."""
        return Basis.hinges(q, max_width=SEARCH_WIDTH)

    def fit_basis(self, q: int) -> Basis:
        """The q covariates themselves."""
        return Basis.linear(q)

    def fit(self, rows: Rows, splits: Splits, rng: np.random.Generator) -> NodeFits:
        """Fitted clones, one for each node with rows on both sides; the other nodes keep their share."""
        theta = np.empty((len(splits.axis), 1), dtype=object)
        log_lik = np.empty(len(splits.axis))
        for node, both in enumerate(splits.has_both):
            x, left, weight = rows.node_rows(node)
            model = self._fit_one(x, left, weight, rng) if both else None
            theta[node, 0] = ClassifierNode(model, splits.share[node])
            p = theta[node, 0].left_prob(x)
            log_lik[node] = weight @ (xlogy(left, p) + xlog1py(1 - left, -p))
        return NodeFits(theta, log_lik)

    def _fit_one(self, x: Array, left: Array, weight: Array, rng: np.random.Generator) -> ProbabilisticClassifier:
        """A clone fitted to labels `left` (n,), with a seed from `rng` if it has none of its own."""
        model = clone(self.estimator)
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=int(rng.integers(2**31)))
        weighted = has_fit_parameter(model, "sample_weight")
        return model.fit(x, left, sample_weight=weight) if weighted else model.fit(x, left)


def as_node_classifier(classifier: object) -> NodeClassifier:
    """The classifier unchanged if it has the methods of a NodeClassifier, wrapped if it is one of scikit-learn."""
    if isinstance(classifier, type):
        raise TypeError(f"Expected a node classifier, not its class: {classifier.__name__}() instead of the bare name.")
    if isinstance(classifier, NodeClassifier):
        return classifier
    if isinstance(classifier, ProbabilisticClassifier):
        return AnyClassifier(classifier)
    raise TypeError(
        "Expected a node classifier: Constant, Logistic, MLP, BoostedTrees, one with the methods of NodeClassifier, "
        f"or a scikit-learn classifier with predict_proba; got {classifier!r}."
    )
