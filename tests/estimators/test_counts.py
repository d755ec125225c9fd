"""Compositions of counts: depth, reads, samples of one subject, functionals."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from scipy.stats import kstest, multivariate_normal, spearmanr

from treecdf import CompositionalFlow, load_model
from treecdf.flows.composition.functionals import bray_curtis, richness, shannon
from treecdf.flows.composition.ratios import Ratios
from treecdf.flows.composition.reads import Depths, as_reads, spread, thinned
from treecdf.flows.composition.subjects import Memory, Subjects, pairs

N_SUBJECTS, N_TIMES, N_TAXA = 40, 6, 6


def simulate(seed, n_subjects=N_SUBJECTS):
    """Reads at very different depths: rare taxa are missed in shallow samples; subjects have levels of their own."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(n_subjects), N_TIMES)
    time = np.tile(np.arange(N_TIMES) * 10.0, n_subjects)
    own = rng.normal(size=(n_subjects, N_TAXA))[subject]
    level = np.linspace(2, -5, N_TAXA) + 0.9 * own + 0.4 * rng.normal(size=(len(subject), N_TAXA))
    share = np.exp(level)
    share /= share.sum(axis=1, keepdims=True)
    depth = np.exp(rng.uniform(np.log(50), np.log(5000), len(subject))).round()
    counts = rng.multinomial(depth.astype(int), share).astype(float)
    x = time[:, None] / 50
    return x, counts, subject, time


@pytest.fixture(scope="module")
def data():
    return simulate(0)


@pytest.fixture(scope="module")
def model(data):
    x, counts, subject, time = data
    return CompositionalFlow(counts=True, random_state=0).fit(x, counts, subject=subject, time=time)


def test_draws_are_whole_numbers_of_the_depth(data, model):
    x, counts, _, _ = data
    depth = counts.sum(axis=1)
    drawn = model.sample(x, 3, random_state=0, depth=depth)
    assert drawn.shape == (len(x), 3, N_TAXA)
    np.testing.assert_array_equal(drawn, np.round(drawn))
    np.testing.assert_array_equal(drawn.sum(axis=-1), np.repeat(depth[:, None], 3, axis=1))
    assert (drawn >= 0).all()
    free = model.sample(x, 20, random_state=0).sum(axis=-1)  # depths like those of training
    np.testing.assert_allclose(np.quantile(free, [0.1, 0.5, 0.9]), np.quantile(depth, [0.1, 0.5, 0.9]), rtol=0.15)


def test_richness_follows_the_depth(data, model):
    x, counts, _, _ = data
    depth = counts.sum(axis=1)
    drawn = model.sample(x, 1, random_state=0, depth=depth)[:, 0]
    real = spearmanr(depth, richness(counts))[0]
    assert real > 0.5
    assert spearmanr(depth, richness(drawn))[0] == pytest.approx(real, abs=0.12)
    zeros = model.zero_prob(x[:2], depth=60), model.zero_prob(x[:2], depth=4000)
    assert (zeros[0][:, -1] > zeros[1][:, -1] + 0.3).all()  # the rare taxon is missed in shallow samples


def test_depths_beyond_the_training_rows(model, data):
    x = data[0][:30]
    shallow = model.sample(x, 5, random_state=0, depth=3)
    np.testing.assert_array_equal(shallow.sum(axis=-1), 3)
    deep = model.sample(x, 5, random_state=0, depth=10**7)
    np.testing.assert_array_equal(deep.sum(axis=-1), 10**7)


def test_density_of_shares_at_a_depth_integrates_to_one():
    """Over patterns and simplices; lattices of counts at a large depth are nearly that integral."""
    x, counts, _, _ = simulate(1)
    three = counts[:, [0, 1, 3]] + np.array([1.0, 0, 0])
    model = CompositionalFlow(counts=True, random_state=0).fit(x, three)
    depth, at = 160, x[:1]
    lattice = np.array([(a, b, depth - a - b) for a, b in product(range(depth + 1), repeat=2) if a + b <= depth])
    log_prob = model.log_prob(np.repeat(at, len(lattice), axis=0), lattice)
    present = (lattice > 0).sum(axis=1)
    total = np.exp(log_prob - (present - 1) * np.log(depth)).sum()
    assert total == pytest.approx(1, abs=0.06)


def test_depth_is_worth_knowing(data):
    x, counts, subject, _ = data
    new_x, new_counts, _, _ = simulate(7)
    with_depth = CompositionalFlow(counts=True, random_state=0).fit(x, counts, groups=subject)
    without = CompositionalFlow(normalize=True, random_state=0).fit(x, counts, groups=subject)
    assert with_depth.score(new_x, new_counts) > without.score(new_x, new_counts) + 0.3


def test_counts_are_checked(data, model):
    x, counts, subject, time = data
    with pytest.raises(ValueError, match=r"taxon 0: with counts=True it must hold whole numbers"):
        CompositionalFlow(counts=True).fit(x, counts + 0.5)
    with pytest.raises(ValueError, match=r"depth of row 0 is 0\.5"):
        model.sample(x, 1, depth=0.5)
    with pytest.raises(ValueError, match="depth of shape"):
        model.sample(x, 1, depth=[1, 2])
    with pytest.raises(ValueError, match="time goes with subject"):
        model.sample(x, 1, time=time)
    with pytest.raises(ValueError, match="time goes with subject"):
        CompositionalFlow(counts=True).fit(x, counts, time=time)
    shares = CompositionalFlow(normalize=True, random_state=0).fit(x, counts)
    with pytest.raises(ValueError, match="depth is for a model of counts"):
        shares.sample(x, 1, depth=100)
    with pytest.raises(ValueError, match="subject needs a model"):
        shares.sample(x, 1, subject=subject)
    with pytest.raises(ValueError, match="Expected counts"):
        CompositionalFlow(counts=1).fit(x, counts)


def test_samples_of_a_subject_are_alike_and_each_keeps_its_distribution(data, model):
    x, counts, subject, time = data
    depth = counts.sum(axis=1)
    first, second = pairs(subject)

    def distance(y, a, b):
        y = y / y.sum(axis=1, keepdims=True)
        return np.abs(y[a] - y[b]).sum(axis=1).mean() / 2

    drawn = model.sample(x, 20, random_state=0, depth=depth, subject=subject, time=time)
    alone = model.sample(x, 20, random_state=0, depth=depth)
    real = distance(counts, first, second)
    own = np.mean([distance(drawn[:, k], first, second) for k in range(20)])
    free = np.mean([distance(alone[:, k], first, second) for k in range(20)])
    assert free > real + 0.08
    assert own == pytest.approx(real, abs=0.04)
    for f in (shannon, richness):
        values = [f(part.reshape(-1, N_TAXA)) for part in (drawn, alone)]
        assert values[0].mean() == pytest.approx(values[1].mean(), abs=0.25 * values[1].std())
        assert values[0].std() == pytest.approx(values[1].std(), rel=0.15)


def test_names_of_subjects_do_not_matter(data, model):
    x, counts, subject, time = data
    names = np.array([f"infant {s:03}" for s in subject])
    fitted = CompositionalFlow(counts=True, random_state=0).fit(x, counts, subject=names, time=time)
    assert fitted.subjects_.ratio.lasting.mean() == pytest.approx(model.subjects_.ratio.lasting.mean(), abs=0.15)
    assert fitted.sample(x[:6], 2, random_state=0, subject=["new"] * 6, time=time[:6]).shape == (6, 2, N_TAXA)


def test_subjects_without_pairs_are_independent(data):
    x, counts, _, _ = data
    fitted = CompositionalFlow(counts=True, random_state=0).fit(x[:60], counts[:60], subject=np.arange(60))
    assert not fitted.subjects_.presence(np.zeros(1)).any()
    assert not fitted.subjects_.ratio(np.zeros(1)).any()


def memory(lasting, passing, scale, n_taxa):
    return Memory(np.full(n_taxa, lasting), np.full(n_taxa, passing), np.full(n_taxa, scale))


def test_memory_is_found_again():
    """Presences and ratios made of scores of known correlations."""
    rng = np.random.default_rng(0)
    subject, time = np.repeat(np.arange(150), 8), np.tile(np.arange(8.0), 150)
    truth = Subjects(memory(0.2, 0.5, 2.0, 30), memory(0.3, 0.4, 1.0, 30))
    u, v = truth.uniforms(subject, time, (1, 30), rng)
    chance = rng.uniform(0.1, 0.9, size=30) * np.ones((len(subject), 30))
    scores = np.sqrt(2) * _erfinv(2 * v.T - 1)
    found = Subjects.fit(subject, time, (chance > u.T, chance), scores)
    gap = np.arange(1.0, 8)
    for own, expected in ((found.presence, truth.presence), (found.ratio, truth.ratio)):
        np.testing.assert_allclose(own(gap).mean(axis=0), expected(gap)[0], atol=0.05)
        np.testing.assert_allclose(own(gap), expected(gap), atol=0.25)
    independent = Subjects.fit(subject, time, (rng.random(chance.shape) < chance, chance), rng.normal(size=u.T.shape))
    assert independent.presence(gap).mean() < 0.05
    assert independent.ratio(gap).mean() < 0.05


def _erfinv(z):
    from scipy.special import erfinv

    return erfinv(z)


@pytest.mark.parametrize("r", [0.1, 0.5, 0.9])
def test_the_covariance_of_two_indicators_is_the_bivariate_normals(r):
    from treecdf.flows.composition.subjects import _solved, indicator_series

    a, b = 0.3, -0.8
    joint = multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([a, b])
    terms = indicator_series(ndtr(np.array([a, b])))
    series = np.array([term[0] * term[1] for term in terms])
    assert _solved(series[:, None], np.array([joint - ndtr(a) * ndtr(b)])) == pytest.approx(r, abs=0.02)


def test_stronger_memories_keep_their_shape_and_stay_below_one():
    gap = np.array([0.0, 3.0])
    weak = memory(0.2, 0.4, 2.0, 3)
    np.testing.assert_allclose(weak.stronger(1.0)(gap), weak(gap))
    strong = weak.stronger(3.0)
    assert strong(gap)[0, 0] == pytest.approx(1 - 0.4**3)
    np.testing.assert_allclose(strong(gap)[:, 1] / strong(gap)[:, 0], weak(gap)[:, 1] / weak(gap)[:, 0])
    assert weak.stronger(1e3)(gap).max() < 1


def test_uniforms_are_uniform_and_independent_between_subjects():
    kin = Subjects(memory(0.5, 0.3, 5.0, 20_000), Memory.none(20_000))
    u, v = kin.uniforms(np.array([0, 0, 1]), np.array([0.0, 5.0, 0.0]), (1, 20_000), np.random.default_rng(0))
    assert u.shape == (20_000, 3)
    np.testing.assert_allclose(np.quantile(u, [0.1, 0.5, 0.9], axis=0).T, [[0.1, 0.5, 0.9]] * 3, atol=0.02)
    correlation = np.corrcoef(np.sqrt(2) * _erfinv(2 * u.T - 1))
    assert correlation[0, 1] == pytest.approx(0.5 + 0.3 * np.exp(-1), abs=0.02)
    assert abs(correlation[0, 2]) < 0.03
    assert abs(np.corrcoef(v.T)[0, 1]) < 0.03


def test_reads_are_the_nearest_whole_numbers():
    share = np.array([[0.7, 0.2996, 0.0004, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.15, 0.05]])
    reads = as_reads(share, np.array([100.0, 2.0, 10.0]))
    np.testing.assert_array_equal(reads[:2], [[69, 30, 1, 0], [1, 1, 0, 0]])
    assert reads[2].sum() == 10
    rng = np.random.default_rng(0)
    counts = rng.multinomial(500, [0.6, 0.3, 0.09, 0.01], 50).astype(float)
    np.testing.assert_array_equal(as_reads(counts / 500, np.full(50, 500.0)), counts)
    dithered = spread(counts, rng)
    np.testing.assert_array_equal(np.round(dithered), counts)
    assert (dithered[counts > 0] > 0).all()


def test_thinned_reads():
    rng = np.random.default_rng(0)
    counts = np.tile([900.0, 90.0, 10.0], (400, 1))
    thin = thinned(counts, np.full(400, 100.0), rng)
    np.testing.assert_array_equal(thin.sum(axis=1), 100)
    np.testing.assert_allclose(thin.mean(axis=0), [90, 9, 1], atol=0.4)
    np.testing.assert_array_equal(thinned(counts, np.full(400, 1000.0), rng), counts)


def test_depths_are_like_those_of_training():
    depth = np.array([10.0, 100, 1000])
    found = Depths.fit(depth, np.ones(len(depth)))
    drawn = found.draw(1000, np.random.default_rng(0))
    assert (drawn.min() >= 10, drawn.max() <= 1000) == (True, True)
    np.testing.assert_allclose(found.covariate(np.array([1.0, 100, 1e9])), np.log([10.0, 100, 1000]))


def test_a_file_keeps_depths_and_subjects(data, model, tmp_path):
    x, counts, subject, time = data
    model.save(tmp_path / "m.tcdf")
    loaded = load_model(tmp_path / "m.tcdf")
    given = {"depth": 200, "subject": subject, "time": time}
    np.testing.assert_array_equal(loaded.log_prob(x, counts), model.log_prob(x, counts))
    np.testing.assert_array_equal(
        loaded.sample(x, 2, random_state=0, **given), model.sample(x, 2, random_state=0, **given)
    )


def test_a_refit_forgets_depths_and_subjects(data):
    x, counts, subject, _ = data
    fitted = CompositionalFlow(counts=True, random_state=0).fit(x[:40], counts[:40], subject=subject[:40])
    fitted.set_params(counts=False, normalize=True).fit(x[:40], counts[:40])
    assert not hasattr(fitted, "depths_")
    assert not hasattr(fitted, "subjects_")


def test_a_text_column_of_subjects_is_a_covariate_like_others(data):
    _, counts, subject, _ = data
    x = pd.DataFrame({"infant": [f"infant {s}" for s in subject]})
    fitted = CompositionalFlow(counts=True, random_state=0).fit(x, counts)
    assert np.isfinite(fitted.log_prob(x, counts)).all()


def test_functionals_are_means_and_quantiles_of_draws(data, model):
    x = data[0][:4]
    drawn = model.sample(x, 150, random_state=np.random.default_rng(3), depth=500)
    values = shannon(drawn.reshape(-1, N_TAXA)).reshape(4, 150)
    found = model.functional("shannon", x, level=0.8, n_draws=150, depth=500, random_state=np.random.default_rng(3))
    np.testing.assert_allclose(found[:, 0], values.mean(axis=1))
    np.testing.assert_allclose(found[:, 1:].T, np.quantile(values, [0.1, 0.9], axis=1))
    own = model.functional(shannon, x, level=0.8, n_draws=150, depth=500, random_state=np.random.default_rng(3))
    np.testing.assert_array_equal(own, found)
    near = model.functional("bray_curtis", x, reference=np.ones(N_TAXA), n_draws=20)
    assert ((near >= 0) & (near <= 1)).all()
    frame = model.functional("richness", pd.DataFrame(x).set_axis(list("abcd")), n_draws=20)
    assert (list(frame.columns), list(frame.index)) == (["mean", "lower", "upper"], list("abcd"))


def test_functionals_are_checked(data, model):
    x = data[0][:4]
    with pytest.raises(ValueError, match="Expected f to be a function or one of shannon, richness, bray_curtis"):
        model.functional("simpson", x)
    with pytest.raises(ValueError, match="needs a reference"):
        model.functional("bray_curtis", x)
    with pytest.raises(ValueError, match="only bray_curtis has one"):
        model.functional("shannon", x, reference=np.ones(N_TAXA))
    with pytest.raises(ValueError, match=r"Expected f to return numbers of shape"):
        model.functional(lambda y: y, x)
    with pytest.raises(ValueError, match="level"):
        model.functional("shannon", x, level=90)


def test_diversity_of_known_samples():
    y = np.array([[1.0, 1, 0, 0], [4, 0, 0, 0]])
    np.testing.assert_allclose(shannon(y), [np.log(2), 0])
    np.testing.assert_array_equal(richness(y), [2, 1])
    np.testing.assert_allclose(bray_curtis(y, np.array([1.0, 1, 0, 0])), [0, 0.5])


def test_ratios_are_drawn_from_their_density_above_the_floor(model):
    """Levels of draws are uniform, of a link with two members and with the smallest ratio inside of its range."""
    link = model.links_[2]
    assert len(link.flow.members) == 2
    given = np.tile([0.5, np.log(200.0), 0.1], (4000, 1))
    floor = np.full(4000, np.quantile(link.draw(np.linspace(0.01, 0.99, 99), given[:99], None), 0.3))
    drawn = link.draw(np.random.default_rng(0).random(4000), given, floor)
    assert (drawn >= floor).all()
    assert kstest(link.level(drawn, given, floor), "uniform").pvalue > 0.001
    alike = link.quantile(np.array([0.4, 0.401]), given[:2], floor[:2])
    assert 0 < alike[1] - alike[0] < 0.01  # equal levels, similar ratios


def test_missing_and_far_covariates_have_answers(data, model):
    """A missing age is a typical one; beyond the ages of training what is at their end goes on."""
    x, counts = data[0], data[1]
    asked = np.array([[np.nan], [1e9], [-1e9], [x.max()], [x.min()]])
    same = np.tile(counts[:1], (2, 1))
    np.testing.assert_allclose(model.log_prob(asked[[1, 2]], same), model.log_prob(asked[[3, 4]], same))
    with pytest.warns(UserWarning, match="missing values in 1 row"):
        drawn = model.sample(asked, 3, random_state=0, depth=300)
    assert (drawn.sum(axis=-1) == 300).all()
    with pytest.warns(UserWarning, match="missing values in 1 row"):
        assert np.isfinite(model.log_prob(asked, counts[:5])).all()
    with pytest.warns(UserWarning, match="missing values in 1 row"):
        assert np.isfinite(model.functional("shannon", asked, n_draws=10)).all()


def test_features_of_a_ratio_know_who_is_absent():
    """An absent taxon before counts as half of the smallest that is present."""
    ratios = Ratios.of(np.array([[4.0, 1.0, 0.0, 5.0], [0.0, 2.0, 3.0, 0.0]]))
    found = ratios.features(3)
    np.testing.assert_allclose(found[0], [*np.log([0.8, 0.2, 0.1]), 1])
    np.testing.assert_allclose(found[1], [*np.log([0.2, 0.4, 0.6]), 0])


def test_subjects_that_have_nothing_in_common_are_not_made_alike():
    rng = np.random.default_rng(0)
    counts = rng.poisson([40.0, 20.0, 10.0, 5.0], size=(60, 4)).astype(float)
    x, subject = rng.normal(size=(60, 1)), np.repeat(np.arange(20), 3)
    model = CompositionalFlow(counts=True, random_state=0).fit(x, counts, subject=subject)
    assert model.subjects_.ratio(np.zeros(1)).mean() < 0.3


def test_times_are_given_to_fit_and_sample_or_to_neither():
    rng = np.random.default_rng(0)
    counts = rng.poisson([40.0, 20.0, 10.0], size=(40, 3)).astype(float)
    x, subject = rng.normal(size=(40, 1)), np.repeat(np.arange(10), 4)
    days = np.datetime64("2024-01-01") + np.tile(np.arange(4) * 30, 10)
    timed = CompositionalFlow(counts=True, random_state=0).fit(x, counts, subject=subject, time=days)
    with pytest.raises(ValueError, match="the model was fitted with times"):
        timed.sample(x, subject=subject)
    numbers = timed.sample(x, random_state=0, subject=subject, time=np.tile(np.arange(4.0) * 30, 10))
    np.testing.assert_array_equal(timed.sample(x, random_state=0, subject=subject, time=days), numbers)
    plain = CompositionalFlow(counts=True, random_state=0).fit(x, counts, subject=subject)
    with pytest.raises(ValueError, match="the model was fitted without times"):
        plain.sample(x, subject=subject, time=days)
    days[3] = np.datetime64("NaT")
    with pytest.raises(ValueError, match="time of row 3 is missing"):
        timed.sample(x, subject=subject, time=days)
