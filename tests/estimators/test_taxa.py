"""Compositions whose taxa and samples have names."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from treecdf import CompositionalFlow, TreeFlowRegressor, load_model
from treecdf.data.compositions import read_compositions

RNG = np.random.default_rng(0)
N = 60
SAMPLES = [f"s{k}" for k in range(N)]
X = pd.DataFrame({"age": RNG.normal(size=N)}, index=SAMPLES)
RAW = RNG.gamma(2.0, size=(N, 4)) * np.array([8.0, 4.0, 2.0, 1.0]) * (RNG.random((N, 4)) < [1, 0.9, 0.7, 0.5])
Y = pd.DataFrame(RAW / RAW.sum(axis=1, keepdims=True), index=SAMPLES, columns=["ecoli", "bifido", "rothia", "dorea"])


@pytest.fixture(scope="module")
def model():
    return CompositionalFlow(random_state=0).fit(X, Y)


def test_columns_are_known_by_their_names(model):
    expected = model.log_prob(X, Y)
    np.testing.assert_array_equal(model.log_prob(X, Y[Y.columns[::-1]]), expected)
    np.testing.assert_array_equal(model.log_prob(X, Y.to_numpy()), expected)
    assert model.taxa_ == tuple(Y.columns)


def test_other_taxa_are_refused_by_name(model):
    with pytest.raises(ValueError, match="not in training: blautia; missing now: dorea"):
        model.log_prob(X, Y.rename(columns={"dorea": "blautia"}))
    with pytest.raises(ValueError, match="more than one column 'ecoli'"):
        CompositionalFlow().fit(X, Y.set_axis(["ecoli", "ecoli", "a", "b"], axis=1))
    with pytest.raises(ValueError, match=r"taxon bifido: abundances must not be negative"):
        CompositionalFlow().fit(X, Y.assign(bifido=-0.1))


def test_draws_of_frames_are_frames_with_taxa(model):
    drawn = model.sample(X[:3], 2, random_state=0)
    assert list(drawn.columns) == list(Y.columns)
    assert drawn.index.tolist() == [(name, k) for name in SAMPLES[:3] for k in range(2)]
    with pytest.warns(UserWarning, match="valid feature names"):
        array = model.sample(X[:3].to_numpy(), 2, random_state=0)
    np.testing.assert_array_equal(drawn.to_numpy().reshape(3, 2, 4), array)
    zeros = model.zero_prob(X[:3])
    assert (list(zeros.columns), list(zeros.index)) == (list(Y.columns), SAMPLES[:3])


def test_samples_of_x_and_y_must_agree(model):
    with pytest.raises(ValueError, match="same samples in another order"):
        CompositionalFlow().fit(X, Y[::-1])
    with pytest.raises(ValueError, match=r"row 0 is 's0' in X and 'other' in Y"):
        model.log_prob(X, Y.rename(index={"s0": "other"}))
    model.log_prob(X.reset_index(drop=True), Y)  # numbered rows have no names


def test_a_file_keeps_the_names(model, tmp_path):
    model.save(tmp_path / "m.tcdf")
    loaded = load_model(tmp_path / "m.tcdf")
    assert loaded.taxa_ == model.taxa_
    np.testing.assert_array_equal(loaded.log_prob(X, Y[Y.columns[::-1]]), model.log_prob(X, Y))


def test_a_refit_to_an_array_forgets_the_names(model):
    again = CompositionalFlow(random_state=0).fit(X, Y)
    assert not hasattr(again.fit(X, Y.to_numpy()), "taxa_")


class Biom:
    """What is read of a BIOM table: taxa are its rows."""

    matrix_data = csr_array(Y.to_numpy().T)

    def ids(self, axis):
        return np.array(Y.columns if axis == "observation" else SAMPLES)


@pytest.mark.parametrize("form", [Y, Biom(), csr_array(Y.to_numpy())], ids=["frame", "biom", "sparse"])
def test_forms_of_a_table_are_the_same(form):
    read = read_compositions(form, normalize=False)
    np.testing.assert_array_equal(read.y, read_compositions(Y.to_numpy(), normalize=False).y)
    assert (read.taxa is None) == isinstance(form, csr_array)


def test_a_flow_of_the_user_keeps_to_the_range_of_each_taxon():
    """Without bounds one taxon whose ratio strays far takes the whole."""
    rng = np.random.default_rng(1)
    flow = TreeFlowRegressor(effort="fast", max_trees=1)
    y = rng.dirichlet([5.0, 5.0, 5.0], 80)
    model = CompositionalFlow(flow=flow, random_state=0).fit(rng.normal(size=(80, 1)), y)
    assert flow.bounds is None  # the user's own is left alone
    for link in model.links_[1:]:
        assert np.isfinite(link.flow.members[0].base.support).all()
    with pytest.raises(ValueError, match="bounds cannot be kept by base='student'"):
        CompositionalFlow(flow=TreeFlowRegressor(base="student")).fit(rng.normal(size=(80, 1)), y)
