"""What the microbiome study fills in where the paper is silent: zeros are spread, and cut back in draws."""

import numpy as np
import pytest

from benchmarks.microbiome import METHODS, spread_zeros

RNG = np.random.default_rng(0)
AGE = RNG.uniform(0, 1000, size=(80, 1))
RAW = RNG.gamma(1.0, size=(80, 3)) * (RNG.random((80, 3)) < [1.0, 0.7, 0.3])
Y = RAW / RAW.sum(axis=1, keepdims=True)
SMALLEST = np.where(Y > 0, Y, np.inf).min(axis=0)


def test_zeros_are_spread_below_the_smallest_abundance():
    spread = spread_zeros(Y, SMALLEST, seed=0)
    np.testing.assert_array_equal(spread[Y > 0], Y[Y > 0])
    zeros = (spread / SMALLEST)[Y == 0]
    assert (zeros > 0).all()
    assert (zeros <= 1).all()
    assert zeros.mean() == pytest.approx(0.5, abs=0.1)
    assert len(np.unique(zeros)) == (Y == 0).sum() > 50
    np.testing.assert_array_equal(spread, spread_zeros(Y, SMALLEST, seed=0))
    assert (spread != spread_zeros(Y, SMALLEST, seed=1)).any()


@pytest.mark.parametrize("name", ["paper", "paper_student"])
def test_draws_of_the_papers_flow_have_zeros_and_sum_to_one(name):
    model = METHODS[name](0).fit(AGE, Y, groups=np.arange(80))  # a warning about repeated zeros would be an error
    drawn = model.sample(AGE, 20, random_state=0)
    assert drawn.shape == (80, 20, 3)
    assert drawn.sum(axis=-1) == pytest.approx(1.0)
    assert (drawn >= 0).all()
    assert (drawn == 0).mean(axis=(0, 1)) == pytest.approx((Y == 0).mean(axis=0), abs=0.2)
