"""The microbiome study: what is filled in where the paper is silent, generators, and a judge that can be trusted."""

import numpy as np
import pytest

from benchmarks.microbiome.data import Samples, infant_folds
from benchmarks.microbiome.judge import correlation_slopes, judge, neighbours, nested_auc, pooled, signature, subjects
from benchmarks.microbiome.methods import METHODS, spread_zeros

RNG = np.random.default_rng(0)
N, N_TAXA = 120, 4


def simulate(seed, own=0.5):
    """Counts of infants with levels of their own."""
    rng = np.random.default_rng(seed)
    infant = np.repeat([f"i{k}" for k in range(N // 6)], 6)
    level = np.repeat(rng.normal(size=(N // 6, N_TAXA)), 6, axis=0) * own
    share = np.exp(level + 0.6 * rng.normal(size=(N, N_TAXA)) + [2.0, 1.0, -2.0, -4.0])
    share /= share.sum(axis=1, keepdims=True)
    age = rng.uniform(0, 1000, size=(N, 1))
    counts = np.array([rng.multinomial(rng.integers(50, 2000), row) for row in share], dtype=float)
    return Samples(age, counts, infant)


SAMPLES = simulate(0)
Y = SAMPLES.y
SMALLEST = np.where(Y > 0, Y, np.inf).min(axis=0)


def test_zeros_are_spread_below_the_smallest_abundance():
    spread = spread_zeros(Y, SMALLEST, seed=0)
    np.testing.assert_array_equal(spread[Y > 0], Y[Y > 0])
    zeros = (spread / SMALLEST)[Y == 0]
    assert (zeros > 0).all()
    assert (zeros <= 1).all()
    assert zeros.mean() == pytest.approx(0.5, abs=0.1)
    assert len(np.unique(zeros)) == (Y == 0).sum() > 30
    np.testing.assert_array_equal(spread, spread_zeros(Y, SMALLEST, seed=0))
    assert (spread != spread_zeros(Y, SMALLEST, seed=1)).any()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "real"])
def test_generators_draw_samples_of_the_ages_they_are_asked_for(name):
    test = infant_folds(SAMPLES.infant, 0)[0]
    train, real = SAMPLES.take(np.setdiff1d(np.arange(N), test)), SAMPLES.take(test)
    drawn = METHODS[name](0).fit(train).draw(real, 0)  # a warning about repeated zeros would be an error
    assert drawn.shape == real.counts.shape
    assert (drawn >= 0).all()
    if name == "treecdf_shares":
        assert drawn.sum(axis=1) == pytest.approx(1.0)
    else:
        np.testing.assert_array_equal(drawn, np.round(drawn))
    if name not in ("treecdf_shares", "resampling"):
        np.testing.assert_array_equal(drawn.sum(axis=1), real.depth)
    assert (drawn == 0).mean(axis=0) == pytest.approx((real.counts == 0).mean(axis=0), abs=0.25)


def test_the_control_uses_every_real_sample_once():
    test = infant_folds(SAMPLES.infant, 0)[0]
    train, real = SAMPLES.take(np.setdiff1d(np.arange(N), test)), SAMPLES.take(test)
    drawn = METHODS["real"](0).fit(train).draw(real, 0)
    found = [tuple(row) for row in drawn]
    assert len(set(found)) == len({tuple(row) for row in train.counts} & set(found))
    assert set(found) <= {tuple(row) for row in train.counts}


def test_folds_divide_infants():
    folds = infant_folds(SAMPLES.infant, 1)
    assert sorted(np.concatenate(folds)) == list(range(N))
    owners = [set(SAMPLES.infant[rows]) for rows in folds]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]


def test_the_judge_tells_nonsense_and_lets_the_truth_pass():
    """A second draw of the same mechanism passes; shuffled taxa do not."""
    other = simulate(1)
    same = Samples(SAMPLES.age, other.counts, SAMPLES.infant)
    assert nested_auc(SAMPLES, same.counts, 50) == pytest.approx(0.5, abs=0.15)
    assert nested_auc(SAMPLES, SAMPLES.counts[:, ::-1], 50) > 0.95
    metrics, details = judge(other, SAMPLES, same.counts)
    figures = pooled([details])
    assert max(figures["detectors"].values()) < 0.65
    assert np.abs(figures["shannon"]).max() < 0.3
    assert metrics["subject_drawn"] == pytest.approx(metrics["subject_real"], abs=0.1)
    shares = judge(other, SAMPLES, same.y)[1]
    assert pooled([shares])["detectors"]["smallest"] < 0.65  # a share of one read is as small


def test_slopes_of_the_same_samples_are_one_and_of_independent_taxa_less():
    found = correlation_slopes(Y, SAMPLES, Y)
    assert found["slope_within"] == pytest.approx(1)
    assert found["slope_overall"] == pytest.approx(1)
    shuffled = np.column_stack([RNG.permutation(column) for column in Y.T])
    assert abs(correlation_slopes(Y, SAMPLES, shuffled)["slope_overall"]) < 0.3


def test_copies_of_training_samples_are_found():
    near = neighbours(Y, simulate(1).y, Y[::-1])
    assert near["near_drawn"] == 0 < near["near_real"]


def test_infants_that_are_alike():
    from scipy.spatial.distance import pdist, squareform

    same_age = Samples(np.zeros((N, 1)), SAMPLES.counts, SAMPLES.infant)
    real = squareform(pdist(Y, "braycurtis"))
    found = subjects(same_age, real, squareform(pdist(RNG.permutation(Y), "braycurtis")))
    assert found["subject_real"] < found["subject_drawn"]


def test_signatures_of_a_known_sample():
    found = signature(np.array([[5.0, 5, 1, 1, 1, 0]]))
    assert found["richness"][0] == 5
    assert found["smallest"][0] == pytest.approx(1 / 13)
    assert found["ties"][0] == pytest.approx(3 / 5)
    assert found["singletons"][0] == pytest.approx(3 / 5)
    assert found["largest"][0] == pytest.approx(5 / 13)
