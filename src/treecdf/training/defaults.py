"""The numbers that shape models by default, and the rules "so many rows, such settings", with their evidence.

ADR 11 and ADR 18 (docs/adr) have the figures that are named here. A number without a figure was set in development and
bounds time; no run that varies it alone was kept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treecdf.bases.boosted_mixture import MixtureBoosting
from treecdf.bases.learners import BoostedMean, GaussianProcess, Lasso, Learner, Neighbours, Network, Polynomial
from treecdf.bases.learners.boosting import BoostingSettings
from treecdf.bases.network_mixture import MixtureNetwork

# Folds of each effort, whose left-out rows stop the trees: ten cost twice the time of five.
FOLDS = {"fast": 3, "default": 5, "best": 10}
# Folds on more than HUGE_ROWS rows at most, but for the best effort, to bound time.
FOLDS_OF_HUGE_TABLES = 4
# Angles of two outcomes' rotations in families of joint flows (ADR 8, ADR 12).
ROTATIONS = {"default": 4, "best": 12}
# Flows of a family of bounded outcomes, which are not rotated, each with other rows set aside (ADR 12).
MEMBERS = {"default": 3, "best": 10}
# Early-stopping window of a fast fit at most, to bound time.
FAST_WINDOW = 3
# Trees of a fast fit on a conditional base at most, to bound time.
FAST_TREES = 20
# The same of trees on all rows that are not in a sample, if these are many; their rate is 2.5 times as high (ADR 51).
FAST_TREES_ON_MANY_OTHERS = 10
MANY_OTHERS = 40_000
# Trees on a conditional base at most on more than MANY_ROWS rows; their rate is four times as high there.
TREES_ON_MANY_ROWS = 300
# Nats, all left-out rows together, that trees on a conditional base have to gain, or there are none: on linear normal
# truths of 200 rows up to a dozen were kept for .1 to .2 nats in all.
WORTH_TREES = 2.0
# Nats a row that a tree on all other rows of a large table has to gain, on average over the window of early stopping.
# The more rows, the more trees gain a little: with 10,000,000 rows the 155th still did, after 6.5 seconds.
GAIN_A_TREE = 1e-5
# Rows from which on there is a conditional base: folds of fewer are too small to learn from.
FEWEST_ROWS_OF_CONDITIONAL = 40
# Share of the rows that each tree on a conditional base is grown on.
SUBSAMPLE = 0.7
# Rows up to which joint flows of outcomes in the same combinations are tried beside the chain, to bound time.
MOST_ROWS_OF_JOINT_FLOWS = 5000
# Outcomes up to which penalty="auto" counts once a row: Squares .073 for .085, but skillcraft -2.05 for -1.93 (ADR 22).
MOST_OUTCOMES_OF_ROW_PENALTY = 2
# Weight of a node of deep trees at least.
ROWS_OF_DEEP_NODE = 5
# Rows from which on trees are deeper and finer, networks are tried (ADR 11) and scales are boosted at twice the rate.
MANY_ROWS = 2500
# Rows from which on neighbours are asked: protein -2.001 -> -1.613, power -2.360 -> -2.333, kin8nm about the same
# (ADR 18). It is no optimum: on fewer rows neighbours were neutral or better, but not on all tables tried.
CROWDED_ROWS = 5000
# Rows from which on scales and weights may see how near other rows are (ADR 31): folds of fewer tell little of it.
FEWEST_ROWS_OF_NEARNESS = 100
# Rows that are remembered for their nearness at most, to bound time and the size of the file.
REMEMBERED_ROWS = 50_000
# Rows up to which a table is learnt from as a whole, in memory or read into it (ADR 37, ADR 41).
ROWS_READ_WHOLE = 50_000
# Rows of larger ones that the model is first learnt from, in memory, before trees are grown on all others: of 20,000
# kin40k is as good, protein half a nat worse (ADR 41).
ROWS_OF_SAMPLE = 50_000
# Share of such a sample whose nearest rows are compared with those of all of it (ADR 49).
SHARE_OF_FEWER_ROWS = 0.4
# Folds of a fast fit to such a sample where near rows tell little (ADR 49).
FOLDS_OF_FAST_SAMPLE = 2
# Rows of a large table from which on a boosted mixture of more rows than the sample is tried; the rows that it is
# learnt from at most, to bound memory and time; its folds; and the nats a row by which left-out rows have to be more
# likely for it to replace the model of the sample (ADR 52).
FEWEST_ROWS_OF_LARGE_MIXTURE = 150_000
ROWS_OF_LARGE_MIXTURE = 300_000
FOLDS_OF_LARGE_MIXTURE = 2
# Nats a row by which a mixture of half of the sample may be behind the model of the sample, or it is not looked at one
# of all of it; what that one gained over the one of half is what more rows are taken to gain at most (ADR 52).
FAR_BEHIND_FOR_LARGE_MIXTURE = 0.1
WORTH_A_LARGE_MIXTURE = 0.01
# How much nearer, in logarithms, the outcome of the nearest row of a sample has to be than that of the nearest row of
# fewer ones, to be asked: protein .41, kin40k .06 to .1, a smooth truth .06 to .11, noisy ones below .03 (ADR 49).
NEAR_ROWS_TELL = {"fast": 0.2, "default": 0.04, "best": -np.inf}
# Rows of a sample that first looks at slopes and nearness are taken at, and tails are compared on (ADR 49, ADR 51).
ROWS_OF_LOOK = 10_000
# Rows from which on trees learn at one and a half times the rate, and scales at twice, to bound time.
HUGE_ROWS = 20_000
# Covariates from which on a lasso is tried, which looks for the few that matter.
MANY_COLUMNS = 20
# Rows or covariates, whichever are fewer, of a linear regression on all of them at most: time grows with their cube.
MOST_LINEAR = 1000
# Products of a polynomial at most, and two for each row at most: time grows with their cube.
MOST_PRODUCTS = 600
# Covariates of a Gaussian process at most: each has a length scale, and they are tuned on 400 rows.
MOST_COVARIATES = 64
# Covariates among which to look for neighbours at most (ADR 18): in more dimensions no row is near another.
MOST_DIRECTIONS = 20
# Bins of each covariate on at most MANY_ROWS rows, to bound time.
BINS_OF_FEW_ROWS = 96
# Bins of each covariate on more rows: 254 instead of 64 took power's out-of-fold error from 3.42 to 3.13 (ADR 11).
BINS_OF_MANY_ROWS = 254
# Rows up to which the Gaussian process is exact.
ROWS_OF_EXACT_PROCESS = 1000
# Rows that a Gaussian process sees the others through if there are more of them, to bound time.
INDUCING_ROWS = 500
# Rows from which on mixtures are tried beside the stacked learners (ADR 39).
FEWEST_ROWS_OF_MIXTURE = 100
# Covariates that each tree of a boosted mixture sees on average, if there are so many.
COLUMNS_OF_MIXTURE = 8
# Covariates of a boosted mixture up to which its bins are fine, to bound time: they find jumps (ADR 24).
MOST_FINE_COLUMNS = 10
# Rows for each covariate from which on a network is tried.
ROWS_OF_NETWORK = 20
# Rows from which on networks that give a mixture are looked at even if a boosted mixture is far behind (ADR 24).
ROWS_OF_NETWORK_MIXTURE = 1000
# Weight decay of networks that give a mixture (ADR 24).
DECAY_OF_MIXTURE = 0.15
# Decay and sharpness of the two ways in which networks of a single covariate are trained: the first finds curves that
# wind (gap .05 for .33 of the second), the second has a gap of .04 for .06 where curves are simple (ADR 24).
WAYS_OF_ONE_COVARIATE = ((0.03, 2.0), (0.15, 0.6))
# Steps of these networks on at most CROWDED_ROWS rows, twice as many on more (ADR 24).
STEPS_OF_NETWORK = {"fast": 600, "default": 1500}
# The process of a fast fit, smaller to bound time; docs/results/peers.md has what a fast fit costs (`treecdf_fast`).
FAST_PROCESS = GaussianProcess(n_tuning=150, n_inducing=300, max_iter=30)
# Learning rate of the trees of a fast fit.
FAST_RATE = 0.2
# Rounds of the trees of a fast fit at most.
FAST_ROUNDS = 100


def default_learners(n: int, q: int, effort: str, remember_rows: bool = True) -> list[Learner]:
    """The learners that are tried on n rows of q covariates, the cheapest and most useful first.

    Without remember_rows none of them contains training rows.
    """
    learners: list[Learner] = [Lasso()] if q >= MANY_COLUMNS else []
    if min(n, q) <= MOST_LINEAR:
        learners.append(Polynomial(1))
    for degree in (2,) if effort == "fast" else (2, 3):
        if Polynomial(degree).n_features(q) <= min(MOST_PRODUCTS, 2 * n):
            learners.append(Polynomial(degree))
    if q <= MOST_COVARIATES:
        n_inducing = ROWS_OF_EXACT_PROCESS if n <= ROWS_OF_EXACT_PROCESS else INDUCING_ROWS
        process = FAST_PROCESS if effort == "fast" else GaussianProcess(n_inducing=n_inducing)
        learners.append(replace(process, holds_rows=remember_rows))
    learners += _trees(n, effort)
    if effort != "fast" and are_enough_for_networks(n, q):
        learners.append(Network())
    if n > CROWDED_ROWS and q <= MOST_DIRECTIONS and remember_rows:
        learners.append(Neighbours())
    return learners


def are_enough_for_networks(n: int, q: int) -> bool:
    """Whether networks are tried as learners of the mean on n rows of q covariates."""
    return n > MANY_ROWS and n > ROWS_OF_NETWORK * q


def are_enough_for_network_mixtures(n: int, q: int) -> bool:
    """Whether network mixtures are tried on n rows of q covariates even where boosted mixtures are behind."""
    return n >= ROWS_OF_NETWORK_MIXTURE and n > ROWS_OF_NETWORK * q


def _trees(n: int, effort: str) -> list[BoostedMean]:
    """Boosted trees for n rows; the second kind is tried only if the first was not clearly beaten."""
    n_bins = BINS_OF_MANY_ROWS if n > MANY_ROWS else BINS_OF_FEW_ROWS
    if effort == "fast":
        return [BoostedMean(4 if n <= MANY_ROWS else 6, FAST_RATE, FAST_ROUNDS, n_bins)]
    if n <= MANY_ROWS:
        return [BoostedMean(3, n_bins=n_bins), BoostedMean(5, n_bins=n_bins)]
    rate = 0.1 if n <= HUGE_ROWS else 0.15
    return [BoostedMean(8, rate, n_bins=n_bins), BoostedMean(5, rate, n_bins=n_bins)]


def default_mixture(n: int, q: int, effort: str) -> MixtureBoosting:
    """How a boosted mixture is learnt from n rows of q covariates (ADR 24)."""
    rate = 0.07 if n <= CROWDED_ROWS and effort != "fast" else 0.12
    fraction = max(0.65, min(1.0, COLUMNS_OF_MIXTURE / q))
    subsample = 0.6 if effort == "fast" else 0.8
    settings = BoostingSettings(4, rate, 400, min_rows=10, subsample=subsample, column_fraction=fraction)
    if effort == "fast":
        return MixtureBoosting((3, 8), settings, 1000)
    if q <= MOST_FINE_COLUMNS:
        settings = replace(settings, n_bins=BINS_OF_MANY_ROWS)
    return MixtureBoosting((3, 6, 10), settings)


def large_mixture(q: int, effort: str) -> MixtureBoosting:
    """How a boosted mixture is learnt from many rows of a large table with q covariates (ADR 52)."""
    rate, max_rounds = (0.3, 80) if effort == "fast" else (0.1, 400)
    fraction = max(0.8, min(1.0, COLUMNS_OF_MIXTURE / q))
    settings = BoostingSettings(
        7, rate, max_rounds, min_rows=20, subsample=0.7, column_fraction=fraction, patience=10, n_bins=254
    )
    return MixtureBoosting((3, 8), settings, ROWS_OF_LOOK)


def look_at_large_mixture(q: int) -> MixtureBoosting:
    """How mixtures of few rows are learnt that tell whether one of many is worth its time (ADR 52)."""
    quick = large_mixture(q, "fast")
    return replace(quick, counts=quick.counts[:1], settings=replace(quick.settings, patience=3, n_bins=64))


def default_network_mixture(n: int, q: int, effort: str) -> MixtureNetwork:
    """How a mixture with parameters from networks is learnt from n rows of q covariates (ADR 24)."""
    steps = STEPS_OF_NETWORK["fast" if effort == "fast" else "default"] * (1 if n <= CROWDED_ROWS else 2)
    usual = Network((64, 64), n_epochs=10**6, max_steps=steps, batch=128, rate=1e-2, decay=DECAY_OF_MIXTURE)
    if q > 1:
        return MixtureNetwork(8, (usual,))
    ways = [replace(usual, decay=decay, sharpness=sharpness) for decay, sharpness in WAYS_OF_ONE_COVARIATE]
    return MixtureNetwork(8, tuple(ways))


def default_scales(n: int) -> BoostingSettings:
    """How log scales and weights of a conditional base are boosted on n rows.

    The rate doubles with MANY_ROWS and again with HUGE_ROWS, which bounds time: rounds end by out-of-fold rows anyway.
    """
    rate = 0.05 if n <= MANY_ROWS else 0.1 if n <= HUGE_ROWS else 0.2
    return BoostingSettings(max_depth=3, rate=rate, max_rounds=600, subsample=0.5, n_bins=64)


def default_remembered(n: int, q: int) -> int:
    """Rows that a conditional base may remember for their nearness, 0 if it is not worth a look (ADR 31)."""
    return REMEMBERED_ROWS if n >= FEWEST_ROWS_OF_NEARNESS and q <= MOST_DIRECTIONS else 0
