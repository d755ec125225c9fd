"""What is learnt of the recording before flows are trained."""

import numpy as np
import pytest

from treecdf import TreeFlowRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 1))
Y = np.where(RNG.random(120) < 0.3, 0.0, np.exp(X[:, 0]))


def test_validation_rows_that_are_all_atoms_are_not_dropped_in_silence():
    model = TreeFlowRegressor(effort="fast", max_trees=3, atoms=[0.0], random_state=0)
    with pytest.warns(UserWarning, match="All validation rows are atoms"):
        model.fit(X, Y, X_val=X[:5], y_val=np.zeros(5))
    np.testing.assert_array_equal(model.log_prob(X, Y), model.fit(X, Y).log_prob(X, Y))


@pytest.mark.parametrize("given", ["X_val", "y_val", "sample_weight_val"])
def test_half_of_the_validation_rows_is_refused_beside_dask_collections(given):
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="Expected X_val and y_val"):
        TreeFlowRegressor(base="box").fit(da.from_array(X), da.from_array(Y), **{given: np.ones(5)})
