"""What may stand at the nodes of a tree."""

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression, LogisticRegression

from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf._kernels.transform import LINEAR
from treecdf.data.basis import Basis
from treecdf.training.classifiers import AnyClassifier, NodeClassifier, NodeFits, as_node_classifier
from treecdf.training.classifiers.protocol import share_log_lik


class Share:
    """A node classifier as a user would write it: the four methods of the protocol and nothing else."""

    def kind(self, q):
        return LINEAR, 0

    def search_basis(self, q):
        return Basis.empty()

    def fit_basis(self, q):
        return Basis.empty()

    def fit(self, rows, splits, rng):
        return NodeFits(logit(splits.share)[:, None], share_log_lik(splits.left_weight, splits.weight))


@pytest.mark.parametrize("classifier", [Constant(), Logistic(), MLP(), BoostedTrees(), Share()])
def test_classifiers_with_the_four_methods_are_taken_as_they_are(classifier):
    assert isinstance(classifier, NodeClassifier)
    assert as_node_classifier(classifier) is classifier


def test_those_of_scikit_learn_are_wrapped():
    estimator = LogisticRegression()
    assert not isinstance(estimator, NodeClassifier)
    assert as_node_classifier(estimator) == AnyClassifier(estimator)


@pytest.mark.parametrize("wrong", [LinearRegression(), "logistic", None, 3])
def test_others_are_refused(wrong):
    with pytest.raises(TypeError, match=r"Expected a node classifier: Constant, .*; got"):
        as_node_classifier(wrong)


def test_a_classifier_needs_all_four_methods():
    class Half:
        def search_basis(self, q):
            return Basis.empty()

        def fit(self, rows, splits, rng):
            raise NotImplementedError

    with pytest.raises(TypeError, match="NodeClassifier"):
        as_node_classifier(Half())


def test_a_users_classifier_gives_the_same_flow_as_ours():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), rng.gamma(2, size=80)
    settings = {"base": "box", "max_trees": 4, "random_state": 0}
    own, theirs = (
        TreeFlowRegressor(stages=[Stage(classifier, 2)], **settings).fit(x, y) for classifier in (Constant(), Share())
    )
    assert own.n_trees_ > 0
    np.testing.assert_array_equal(own.log_prob(x, y), theirs.log_prob(x, y))
