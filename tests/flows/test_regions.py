"""Regions of the covariates."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.helpers.sticks import CENTERS, LIKELIHOOD, X_NEW, X_VAL, Y_VAL, N, X, Y, log_prob_of_members, small
from treecdf.flows.regions import fit_regions
from treecdf.flows.weights import likelihood_weights, stacked_weights

BLOBS, BLOB_OF = make_blobs(
    [150, 150, 100], centers=[[0, 0], [50, 0], [0, 8]], cluster_std=[1.0, 2.0, 0.3], random_state=0
)


def regions(how, x, weight=None):
    return fit_regions(how, x, np.ones(len(x)) if weight is None else weight, np.random.default_rng(0))


def same_partition(first, second):
    return len(set(zip(first, second, strict=True))) == len(set(first)) == len(set(second))


@pytest.mark.parametrize("how", [3, np.int64(3), "hdbscan", KMeans(3, random_state=0, n_init=3)])
def test_regions_are_the_blobs(how):
    found = regions(how, BLOBS)
    assert found.n_regions == 3
    assert same_partition(found(BLOBS), BLOB_OF)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_k_means_regions_are_those_of_the_nearest_mean(k):
    x = X * [1.0, 1e6]  # the unit of a covariate does not count
    found, z = regions(k, x), (X - X.mean(axis=0)) / X.std(axis=0)
    assert found.n_regions == len(found.points) == k
    own = found(x)
    for region in range(k):
        assert found.points[region] == pytest.approx(z[own == region].mean(axis=0), abs=0.05)
    z_new = (X_NEW - X.mean(axis=0)) / X.std(axis=0)
    nearest = ((z_new[:, None] - found.points) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(found(X_NEW * [1.0, 1e6]), nearest)


def test_k_means_regions_count_the_weights():
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    weight = np.array([9.0, 1.0, 1.0, 3.0])
    found = regions(2, x, weight)
    mean = np.average(x, weights=weight, axis=0)
    sd = np.sqrt(np.average((x - mean) ** 2, weights=weight, axis=0))
    assert np.sort(found.points[:, 0] * sd + mean) == pytest.approx([0.1, 10.75])


@pytest.mark.parametrize(("x", "n_regions"), [(np.repeat(CENTERS, 10, 0), 3), (np.ones((30, 2)), 1), (CENTERS[:2], 2)])
def test_more_regions_than_distinct_rows(x, n_regions):
    found = regions(8, x)
    assert found.n_regions == n_regions
    assert sorted(set(found(x))) == list(range(n_regions))
    assert same_partition(found(x), [tuple(row) for row in x])


@pytest.mark.parametrize("how", [5, "hdbscan"])
def test_constant_covariates_are_one_region(how):
    found = regions(how, np.full((50, 3), 7.0))
    assert found.n_regions == 1
    assert np.array_equal(found([[7.0] * 3, [0.0] * 3, [1e300] * 3]), [0, 0, 0])


def test_noise_goes_to_the_nearest_cluster():
    x = np.vstack([BLOBS, [[25.0, 30.0], [70.0, -30.0], [-5.0, 25.0]]])
    z = StandardScaler().fit_transform(x)
    labels = HDBSCAN(min_cluster_size=10, copy=True).fit(z).labels_
    noise = labels < 0
    assert noise[-3:].all()
    found = regions("hdbscan", x)
    assert found.n_regions == labels.max() + 1
    assert np.array_equal(found(x)[~noise], labels[~noise])
    nearest = np.linalg.norm(z[noise][:, None] - z[~noise], axis=2).argmin(axis=1)
    assert np.array_equal(found(x)[noise], labels[~noise][nearest])


@pytest.mark.parametrize("n", [2, 4, 30])
def test_nothing_but_noise_is_one_region(n):
    x = np.linspace(0, 1, n)[:, None] ** 2
    found = regions("hdbscan", x)
    assert found.n_regions == 1
    assert not found(x).any()
    assert not found([[-1e300], [1e300]]).any()


def test_hdbscan_is_shown_some_rows_of_a_large_table(monkeypatch):
    monkeypatch.setattr("treecdf.flows.regions._LARGEST_HDBSCAN", 120)
    found = regions("hdbscan", BLOBS)
    assert len(found.points) <= 120
    assert same_partition(found(BLOBS), BLOB_OF)


@pytest.mark.parametrize("how", [3, "hdbscan"])
def test_rows_far_away_belong_to_some_region(how):
    found = regions(how, BLOBS)
    far = np.array([[1e300, 0.0], [-1.7e308, 1.7e308], [0.0, 1e300]])
    assert np.isin(found(far), np.arange(3)).all()
    assert found([[1e300, 0.0]]) == found([[60.0, 0.0]])  # the far right is the right blob's


def test_a_fitted_clusterer_is_used_as_it_is():
    clusterer = KMeans(3, random_state=0, n_init=3).fit(BLOBS + 1000.0)
    centers = clusterer.cluster_centers_.copy()
    found = regions(clusterer, BLOBS + 1000.0)
    assert found.clusterer is clusterer
    assert np.array_equal(clusterer.cluster_centers_, centers)
    assert np.array_equal(found(BLOBS + 1000.0), clusterer.labels_)


def test_a_clusterer_is_cloned_before_it_is_fitted():
    clusterer = KMeans(3, random_state=0, n_init=3)
    model = small(weights="stacked", regions=clusterer, max_trees=1).fit(X, Y)
    assert not hasattr(clusterer, "cluster_centers_")
    found = np.sort(model.mixture_.regions.clusterer.cluster_centers_, axis=0)
    np.testing.assert_allclose(found, np.sort(clone(clusterer).fit(X).cluster_centers_, axis=0), atol=0.3)


def test_any_pipeline_with_predict_is_a_clusterer():
    clusterer = make_pipeline(StandardScaler(), KMeans(3, random_state=0, n_init=3))
    x = BLOBS * [1.0, 1e-6]
    assert same_partition(regions(clusterer, x)(x), BLOB_OF)


def test_a_clusterer_gets_its_seed_from_the_model():
    """As scikit-learn's classifiers do: one random_state, one model."""
    model = small(weights="likelihood", regions=KMeans(7, n_init=1), max_trees=1)
    inertias = {model.fit(X, Y).mixture_.regions.clusterer.inertia_ for _ in range(4)}
    assert len(inertias) == 1


def test_a_clusterer_fitted_to_a_frame_serves_frames():
    frame = pd.DataFrame(X, columns=["a", "b"])
    clusterer = KMeans(3, random_state=0, n_init=1).fit(frame)
    model = small(weights="stacked", regions=clusterer, max_trees=1).fit(frame, Y)
    assert model.predict_distribution(frame).weights.shape == (N, 3)


class Steps(ClusterMixin, BaseEstimator):
    """Labels a row by its first covariate, rounded: 10 times a whole number."""

    def __init__(self, word=False):
        self.word = word

    def fit(self, x, y=None):
        self.fitted_ = True
        return self

    def predict(self, x):
        label = (10 * np.round(x[:, 0])).astype(int)
        return np.array([f"region {value}" for value in label]) if self.word else label


@pytest.mark.parametrize("word", [False, True], ids=["numbers", "words"])
@pytest.mark.parametrize("weights", ["stacked", "likelihood"])
def test_a_label_that_fit_did_not_see_gets_the_overall_weights(weights, word):
    model = small(weights=weights, regions=Steps(word), rotations=LIKELIHOOD["rotations"]).fit(
        X, Y, X_val=X_VAL, y_val=Y_VAL
    )
    seen = np.unique(np.round(X[:, 0]))
    assert model.mixture_.regions.n_regions == len(seen) >= 3
    unseen = np.array([[99.0, 0.0], [-99.0, 0.0], [seen.max() + 1, 0.0], [seen.min() - 1, 0.0]])
    found = model.predict_distribution(unseen).weights
    rows = (X, Y) if weights == "likelihood" else (X_VAL, Y_VAL)
    rule = likelihood_weights if weights == "likelihood" else stacked_weights
    log_prob = log_prob_of_members(model, *rows)
    overall = np.exp(rule(log_prob, np.ones(len(log_prob)), np.zeros(len(log_prob), np.int64), 1)[-1])
    assert found == pytest.approx(np.tile(overall, (4, 1)), abs=1e-6)
    assert np.abs(model.predict_distribution(X).weights - overall).max() > 1e-3


def test_regions_of_a_single_member_are_not_needed():
    model = small(rotations=1, weights="stacked", regions="hdbscan").fit(X, Y)
    assert model.mixture_.regions is None
    assert np.array_equal(model.predict_distribution(X).weights, np.ones((N, 1)))
