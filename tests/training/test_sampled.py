"""Large files and Dask collections: the model of a sample, then trees of all other rows."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import treecdf.data.blocks
import treecdf.estimators.fitting
import treecdf.training.sources.rows
import treecdf.training.streaming
from treecdf import TreeFlowRegressor, load_model
from treecdf.data.table import read_covariates
from treecdf.data.units import set_aside
from treecdf.estimators.fitting import fit_table
from treecdf.estimators.state import schema_of
from treecdf.flows.learnt import Learnt
from treecdf.persist.checkpoint import NoCheckpoint
from treecdf.training.boosting import _fit_trees
from treecdf.training.context import TrainingContext
from treecdf.training.growing.located import FoldRows, locate
from treecdf.training.parameters import read_settings
from treecdf.training.plan import OfLargeTable, make_plan, refining_recipe
from treecdf.training.sources.pieces import Pick, PieceReader

pytest.importorskip("distributed")
import dask.dataframe as dd
from distributed import Client, LocalCluster

RNG = np.random.default_rng(11)
N = 3000
TABLE = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N), "c": RNG.normal(size=N)})
TABLE["town"] = [f"town {k}" for k in RNG.integers(0, 25, N)]
TABLE["weight"] = RNG.integers(0, 3, N).astype(float)
TABLE["person"] = RNG.integers(0, 1000, N)
TABLE["y"] = TABLE["a"] + np.exp(0.7 * TABLE["b"] * (TABLE["c"] > 0)) * RNG.normal(size=N)
TABLE["z"] = TABLE["a"] + RNG.normal(size=N)
COVARIATES = ["a", "b", "c", "town"]


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """3,000 rows are a large table: several blocks and shards, and a sample of 1,000."""
    monkeypatch.setattr(treecdf.estimators.fitting, "ROWS_READ_WHOLE", 1000)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_SAMPLE", 1000)
    monkeypatch.setattr(treecdf.training.sources.rows, "SHARD_ROWS", 128)
    monkeypatch.setattr(treecdf.data.blocks, "BLOCK_ROWS", 512)
    monkeypatch.setattr("treecdf.training.sources.parquet._PIECE_ROWS", 700)


def model(**settings):
    return TreeFlowRegressor(**{"effort": "fast", "max_trees": 15, "random_state": 0, **settings})


def model_of_sample(X, y, **settings):
    """The model of a sample, before trees are grown on all other rows."""
    fitted = model(**settings)
    given, known = (X, y, None, None), OfLargeTable(near_rows_tell=False)
    state = fit_table(read_settings(fitted.get_params(deep=False)), given, None, NoCheckpoint(), sample=known)
    vars(fitted).update(state.attributes)
    return fitted


def write(directory, frame, n_files=3):
    directory.mkdir(exist_ok=True)
    for k, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[rows].to_parquet(directory / f"{k}.parquet", index=False)
    return directory


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "rows", TABLE)


@pytest.fixture
def from_files(path):
    return model().fit_parquet(path, "y", COVARIATES, sample_weight="weight", groups="person")


def log_prob(fitted):
    return fitted.log_prob(TABLE[COVARIATES], TABLE["y"])


def fit_lazily(npartitions):
    table = dd.from_pandas(TABLE, npartitions=npartitions, sort=False)
    given = {"sample_weight": table["weight"], "groups": table["person"]}
    return model().fit(table[COVARIATES], table["y"], **given)


def in_sample(frame):
    return Pick(1000 / N, treecdf.training.streaming._KEY_OF_SAMPLE).mask(frame[COVARIATES], frame["y"], None, 0)


def test_what_comes_out_equals_the_parts_one_by_one(path):
    """The plain way, in memory: fit the sample, bring all other rows into its unit interval, grow trees there."""
    fitted = model().fit_parquet(path, "y", COVARIATES)
    chosen = in_sample(TABLE)
    assert 900 < chosen.sum() < 1100
    sample = model_of_sample(TABLE[COVARIATES][chosen], TABLE["y"][chosen])
    (flow,) = fitted.mixture_.members
    np.testing.assert_array_equal(
        flow.base.mixture.log_prob(np.zeros((5, 1, 1)), np.ones((5, len(flow.base.unit)))),
        sample.mixture_.log_prob(np.zeros((5, 1, 1)), np.ones((5, len(flow.base.unit)))),
    )
    settings = read_settings(model().get_params(deep=False))
    reader = PieceReader(schema_of(sample), [(None, None)])
    others = TABLE[~chosen].reset_index(drop=True)
    table = reader._table(others[COVARIATES], others[["y"]], None, None, 0)
    aside = np.zeros(len(table), bool)
    (rows,) = set_aside(table.unit, 0.1, 1, np.random.default_rng(0))
    aside[rows] = True
    assert 0.08 < aside.mean() < 0.12
    standardize, base = Learnt.of(sample.mixture_, table.x.shape[1])
    parts = [locate(table.take(mask), standardize, base) for mask in (~aside, aside)]
    recipe = refining_recipe(settings, [(None, None)], len(table))
    plain = _fit_trees(recipe, standardize, base, [FoldRows(*parts)], np.random.default_rng(0), TrainingContext())
    assert sum(plain.history.kept) > 2
    np.testing.assert_allclose(fitted.history_["validation"], plain.history.validation, atol=1e-9)
    x = read_covariates(schema_of(sample), TABLE[COVARIATES])
    expected = plain.flows[0].forward_and_log_det(TABLE["y"].to_numpy()[:, None, None], x)[1][:, 0]
    np.testing.assert_allclose(log_prob(fitted), expected, atol=1e-9)


def test_trees_of_all_rows_gain_what_the_sample_could_not_tell(path):
    fitted = model().fit_parquet(path, "y", COVARIATES)
    chosen = in_sample(TABLE)
    sample = model_of_sample(TABLE[COVARIATES][chosen], TABLE["y"][chosen])
    rng = np.random.default_rng(12)
    x = pd.DataFrame(rng.normal(size=(4000, 3)), columns=list("abc")).assign(town="town 3")
    y = x["a"] + np.exp(0.7 * x["b"] * (x["c"] > 0)) * rng.normal(size=4000)
    assert fitted.score(x, y) > sample.score(x, y) + 0.005
    assert fitted.n_trees_ > sample.n_trees_


def test_where_the_rows_are_does_not_matter(from_files):
    lazy = fit_lazily(4)
    np.testing.assert_array_equal(log_prob(lazy), log_prob(from_files))
    with LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster, Client(cluster):
        on_workers = fit_lazily(5)
    np.testing.assert_array_equal(log_prob(on_workers), log_prob(from_files))
    assert on_workers.summary() == from_files.summary()


def test_threads_do_not_matter(path, from_files):
    fit = partial(model(n_jobs=3).fit_parquet, path, "y", COVARIATES)
    np.testing.assert_array_equal(log_prob(fit(sample_weight="weight", groups="person")), log_prob(from_files))


def test_order_and_cut_of_the_rows_do_not_matter(from_files, tmp_path):
    """But for sums in another order."""
    shuffled = write(tmp_path / "shuffled", TABLE.sample(frac=1, random_state=0), 5)
    settings = {"sample_weight": "weight", "groups": "person"}
    other = model().fit_parquet(shuffled, "y", COVARIATES, **settings)
    np.testing.assert_allclose(log_prob(other), log_prob(from_files), atol=1e-6)


def test_a_sample_is_drawn_by_what_rows_hold():
    chosen = in_sample(TABLE)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(in_sample(TABLE.iloc[order]), chosen[order])
    as_categories = TABLE.assign(town=TABLE["town"].astype("category"))
    np.testing.assert_array_equal(in_sample(as_categories), chosen)
    every, none = Pick(1.0, 3), Pick(0.0, 3)
    assert every.mask(TABLE[COVARIATES], TABLE["y"], None, 0).all()
    assert not none.mask(TABLE[COVARIATES], TABLE["y"], None, 0).any()
    assert Pick(0.25, 3).mask(TABLE[COVARIATES], TABLE["y"], None, 0).mean() == pytest.approx(0.25, abs=0.04)


def test_it_is_a_model_like_any_other(from_files, tmp_path):
    from_files.save(tmp_path / "model.tcdf")
    loaded = load_model(tmp_path / "model.tcdf")
    np.testing.assert_array_equal(log_prob(loaded), log_prob(from_files))
    few = TABLE[COVARIATES][:30]
    d = loaded.predict_distribution(few)
    np.testing.assert_allclose(d.cdf(d.icdf(0.3)), 0.3, atol=1e-9)
    draws = d.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), d.mean(), atol=6 * d.std().max() / np.sqrt(4000))
    words = from_files.summary()
    assert "a flow on the model of a sample of the rows" in words
    assert "trees were grown on all others" in words
    assert d.support()[1] > 100
    assert from_files.compact(few, TABLE["y"][:30], tolerance=0.5).n_trees_ <= from_files.n_trees_


def test_tables_in_memory_are_no_exception(path, from_files):
    """The same bits as from files, and of other kinds of tables the same model."""
    given = {"sample_weight": TABLE["weight"], "groups": TABLE["person"]}
    frame = model().fit(TABLE[COVARIATES], TABLE["y"], **given)
    np.testing.assert_array_equal(log_prob(frame), log_prob(from_files))
    assert frame.summary() == from_files.summary()
    relative = model(weights_are="relative")
    relative.fit(TABLE[COVARIATES], TABLE["y"], sample_weight=3.0 * TABLE["weight"], groups=list(TABLE["person"]))
    mean = TABLE["weight"][TABLE["weight"] > 0].mean()
    counts = model().fit(TABLE[COVARIATES], TABLE["y"], sample_weight=TABLE["weight"] / mean, groups=TABLE["person"])
    np.testing.assert_allclose(log_prob(relative), log_prob(counts), atol=1e-9)
    numbers = TABLE[COVARIATES[:3]].to_numpy()
    array = model(max_trees=2).fit(numbers.tolist(), TABLE["y"].tolist())
    files = model(max_trees=2).fit_parquet(path, "y", COVARIATES[:3])
    np.testing.assert_array_equal(array.log_prob(numbers, TABLE["y"]), files.log_prob(TABLE[COVARIATES], TABLE["y"]))


def test_frames_of_polars_in_memory():
    polars = pytest.importorskip("polars")
    frame = model(max_trees=2).fit(TABLE[COVARIATES], TABLE["y"])
    other = polars.from_dict({name: TABLE[name].to_list() for name in [*COVARIATES, "y"]})
    fitted = model(max_trees=2).fit(other[COVARIATES], other["y"])
    np.testing.assert_array_equal(log_prob(fitted), log_prob(frame))


def test_a_large_table_in_memory_is_checked(path):
    with pytest.raises(ValueError, match="X has 3000 rows and y has 2999: they must have the same number"):
        model().fit(TABLE[COVARIATES], TABLE["y"][1:])
    with pytest.raises(ValueError, match="Expected groups of shape"):
        model().fit(TABLE[COVARIATES], TABLE["y"], groups=[1, 2])
    with pytest.raises(ValueError, match="y contains NaN in row 2000"):
        model().fit(TABLE[COVARIATES], TABLE["y"].where(TABLE.index != 2000))


def test_unconditional_bases_in_memory_have_all_rows():
    fitted = model(base="box", max_trees=2).fit(TABLE[COVARIATES], TABLE["y"])
    assert "random sample" not in fitted.summary()


def test_every_outcome_of_a_chain_has_trees_of_all_rows(path, tmp_path):
    outcomes, x = ["y", "z"], TABLE[COVARIATES[:3]]
    fitted = model().fit_parquet(path, outcomes, COVARIATES[:3])
    (chain,) = fitted.mixture_.members
    assert all(isinstance(link.members[0].base, Learnt) for link in chain.links)
    assert any(len(link.members[0].stages[0]) > 0 for link in chain.links)
    in_memory = model().fit(x, TABLE[outcomes])
    np.testing.assert_array_equal(fitted.log_prob(x, TABLE[outcomes]), in_memory.log_prob(x, TABLE[outcomes]))
    pick = Pick(1000 / N, treecdf.training.streaming._KEY_OF_SAMPLE)
    chosen = pick.mask(x, TABLE[outcomes], None, 0)
    sample = model_of_sample(x[chosen], TABLE[outcomes][chosen])
    assert (
        fitted.score(x[~chosen], TABLE[outcomes][~chosen]) > sample.score(x[~chosen], TABLE[outcomes][~chosen]) + 0.02
    )
    fitted.save(tmp_path / "model.tcdf")
    loaded = load_model(tmp_path / "model.tcdf")
    draws = [m.predict_distribution(x[:5]).sample(3, random_state=0) for m in (fitted, loaded)]
    np.testing.assert_array_equal(*draws)
    assert "trees were grown on all others" in loaded.summary()


def test_what_is_no_atom_has_trees_of_all_rows(path):
    with_atoms = TABLE.assign(y=np.where(TABLE["a"] > 1, 0.0, TABLE["y"]))
    fitted = model(atoms=[0.0]).fit_parquet(write(path, with_atoms), "y", COVARIATES[:3])
    assert fitted.atoms_ is not None
    (flow,) = fitted.mixture_.members
    assert len(flow.stages[0]) > 0
    chosen = Pick(1000 / N, treecdf.training.streaming._KEY_OF_SAMPLE).mask(
        TABLE[COVARIATES[:3]], with_atoms["y"], None, 0
    )
    others = with_atoms[~chosen]
    sample = model_of_sample(with_atoms[COVARIATES[:3]][chosen], with_atoms["y"][chosen], atoms=[0.0])
    scores = [m.score(others[COVARIATES[:3]], others["y"]) for m in (fitted, sample)]
    assert scores[0] > scores[1] + 0.01


def test_outcomes_that_are_nothing_but_atoms_or_on_a_grid_are_those_of_the_sample():
    x = TABLE[COVARIATES[:3]]
    for settings in ({"atoms": "auto"}, {}):
        fitted = model(max_trees=2, **settings).fit(x, np.round(TABLE["a"] > 0))
        assert "no trees were grown on the others" in fitted.summary()


def test_bounds_and_settings_of_conditional_bases(path, tmp_path):
    positive = write(tmp_path / "positive", TABLE.assign(y=np.exp(TABLE["y"])))
    fitted = model(bounds=(0, None), base="conditional").fit_parquet(positive, "y", COVARIATES)
    assert (fitted.log_prob(TABLE[COVARIATES][:3], [-1.0, -2.0, 0.5])[:2] == -np.inf).all()
    assert (fitted.sample(TABLE[COVARIATES][:3], 100, random_state=0) >= 0).all()
    bad = TABLE["y"].copy()
    bad[np.flatnonzero(~in_sample(TABLE))[0]] = -5.0
    below = write(tmp_path / "below", TABLE.assign(y=np.maximum(bad, -5.0)))
    with pytest.raises(ValueError, match="outside its bounds"):
        model(bounds=(-4.9, None)).fit_parquet(below, "y", COVARIATES)


def test_a_fit_that_was_killed_goes_on_from_the_sample(path, tmp_path, monkeypatch):
    expected = model().fit_parquet(path, "y", COVARIATES)
    where = tmp_path / "checkpoint"

    def fail(*args, **kwargs):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(treecdf.training.streaming, "fit_streamed", fail)
        with pytest.raises(MemoryError):
            model(checkpoint=where).fit_parquet(path, "y", COVARIATES)
    assert where.exists()
    fitted = model(checkpoint=where).fit_parquet(path, "y", COVARIATES)
    np.testing.assert_array_equal(log_prob(fitted), log_prob(expected))
    assert not where.exists()


def test_what_still_needs_few_rows_is_refused(path):
    with pytest.raises(ValueError, match="weights_are='relative' is for at most 1,000 rows"):
        model(weights_are="relative").fit_parquet(path, "y", COVARIATES)
    with pytest.raises(ValueError, match="Validation rows of base='box': expected at most 1,000 rows"):
        model(base="box").fit_parquet(path, "y", COVARIATES[:3], path_val=path)


def test_samples_of_few_values_have_their_shares():
    """Ten levels, half of the outcomes 0: copies of a row must not all be in a sample, or all be out of it."""
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(10, size=(20_000, 1)).astype(float),
        rng.normal(size=20_000).round() * rng.integers(2, size=20_000),
    )
    mask = Pick(0.25, 3).mask(x, y, None, 0)
    for level in range(10):
        own = x[:, 0] == level
        assert mask[own].mean() == pytest.approx(0.25, abs=0.02)
        assert (y[own & mask] == 0).mean() == pytest.approx((y[own] == 0).mean(), abs=0.02)
    twice = np.repeat(rng.normal(size=(500, 1)), 2, axis=0)
    both = Pick(0.25, 3).mask(twice, twice[:, 0], None, 0).reshape(-1, 2)
    assert (both[:, 0] == both[:, 1]).all()


def test_samples_never_part_groups():
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(1000, 1)), np.repeat(np.arange(100), 10)
    mask = Pick(0.5, 3).mask(x, x[:, 0], groups, 0).reshape(100, 10)
    assert (mask == mask[:, :1]).all()
    assert 0.2 < mask.mean() < 0.8


@pytest.mark.parametrize("n_others", [999, 1000])
def test_a_sample_that_leaves_too_few_rows_for_trees_is_learnt_from_as_a_table(monkeypatch, n_others):
    """Or it would have no trees at all: none of its own, and none of all others."""
    known = []

    def plan(*args):
        known.append(args[-1])
        return make_plan(*args)

    monkeypatch.setattr(treecdf.estimators.fitting, "make_plan", plan)
    monkeypatch.setattr(treecdf.training.streaming, "ROWS_OF_SAMPLE", 10**6)  # all rows but those that are cut off
    monkeypatch.setattr(treecdf.training.streaming.Sampled, "n_rows", N + n_others, raising=False)
    monkeypatch.setattr(treecdf.estimators.fitting, "_do_near_rows_tell", lambda *_: True)
    monkeypatch.setattr(treecdf.estimators.fitting, "_refined", lambda *_: None)
    model(max_trees=0).fit(TABLE[COVARIATES], TABLE["z"])
    assert (known[0] is None) == (n_others < 1000)
