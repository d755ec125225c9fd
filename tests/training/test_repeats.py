"""Outcomes that repeat exactly end a stage of trees, because their density grows without bound: a fit says so."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import treecdf.persist.checkpoint
import treecdf.training.boosting
import treecdf.training.ensemble
from treecdf import CompositionalFlow, Constant, Logistic, ModelFileError, Stage, TreeFlowRegressor, load_model

RNG = np.random.default_rng(0)
N = 150
X = RNG.normal(size=(N, 1))
Y = np.where(RNG.random(N) < 0.5, 0.0, RNG.normal(size=N))
PAIRS = np.column_stack([Y, np.where(Y == 0, 0.0, RNG.normal(size=N))])
STEEP = {"base": "box", "c0": 0.5, "gamma": 0.0, "random_state": 0}
QUICK = {**STEEP, "stages": [Stage(Constant(), 6)]}
CUT_SHORT = "Training was cut short"


def quietly(fit, *args, **kwargs):
    """What the function returns, and the warnings about training cut short, which must not be lost in workers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(*args, **kwargs)
    return result, [str(warning.message) for warning in caught if CUT_SHORT in str(warning.message)]


def test_a_fit_names_the_stage_its_trees_the_cause_and_what_to_do():
    stages = [Stage(Logistic(), 6), Stage(Logistic(), 4)]
    with pytest.warns(UserWarning, match=CUT_SHORT) as caught:
        model = TreeFlowRegressor(**STEEP, stages=stages).fit(X, Y)
    (warning,) = caught
    assert warning.filename == __file__
    kept = int(model.history_["kept"][model.history_["stage"] == 0].sum())
    ended = f"stage 0 of the family 'joint' ended after {kept} trees"
    for part in (ended, "repeat exactly", "without bound", "atoms", "resolution", "CompositionalFlow"):
        assert part in str(warning.message)
    assert f"note: {ended}" in model.summary()


def test_the_history_has_the_tree_with_which_a_stage_ended():
    """The first stage has half of the room up to 30 nats, and ends with the tree that uses it up."""
    stages = [Stage(Constant(), 6), Stage(Constant(), 6)]
    model, _ = quietly(TreeFlowRegressor(**STEEP, stages=stages, validation_fraction=0).fit, X, Y)
    stage, too_dense = model.history_["stage"], model.history_["too_dense"]
    assert too_dense.dtype == bool
    last = [int(np.flatnonzero(stage == number)[-1]) for number in (0, 1)]
    assert np.flatnonzero(too_dense).tolist() == last
    (flow,) = model.mixture_.members
    uniform = flow.base.to_box(np.zeros((1, 1, 1)), flow.base.parameters(X[:1]))[1]
    denser = model.log_prob(X[:1], [0.0]) - uniform[0]
    assert 30 < denser < 60


def test_a_stage_that_has_all_its_trees_was_not_cut_short():
    model, _ = quietly(TreeFlowRegressor(**QUICK).fit, X, Y)
    enough = TreeFlowRegressor(**QUICK, max_trees=len(model.history_["stage"])).fit(X, Y)  # warnings are errors
    assert enough.n_trees_ == model.n_trees_
    assert not enough.history_["too_dense"].any()


@pytest.mark.parametrize("settings", [QUICK, {"effort": "fast", "max_trees": 3, "random_state": 0}])
def test_a_fit_to_outcomes_that_do_not_repeat_is_silent(settings):
    model = TreeFlowRegressor(**settings).fit(X, RNG.normal(size=N))  # warnings are errors
    assert not model.history_["too_dense"].any()
    assert "bound" not in model.summary()


@pytest.mark.parametrize(("name", "value"), [("atoms", [0.0]), ("resolution", 0.01)])
def test_what_the_warning_advises_helps(name, value):
    model = TreeFlowRegressor(**QUICK, **{name: value}).fit(X, Y)  # warnings are errors
    assert not model.history_["too_dense"].any()


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_members_trained_in_other_processes_give_one_warning(n_jobs):
    model, told = quietly(TreeFlowRegressor(**{**QUICK, "c0": 0.3}, rotations=3, n_jobs=n_jobs).fit, X, PAIRS)
    dense = [model.history_["too_dense"][model.history_["member"] == member] for member in range(3)]
    assert all(member.any() for member in dense)
    numbers = sorted(member.size for member in dense)
    assert len(told) == 1
    assert numbers[0] < numbers[-1]
    assert f"stage 0 of the family 'joint' ended after {numbers[0]} to {numbers[-1]} trees" in told[0]


def keep_second_of_two(left_out, weight):
    """What takes the place of `weigh_families`: of two families the second alone, else the first."""
    return [int(left_out.shape[1] == 2)], np.ones(1)


@pytest.mark.parametrize("kept", [True, False])
def test_only_families_that_are_kept_are_told_of(kept, monkeypatch):
    """The rule is drawn in here, so that all families break it, and those of repeats are told of like any other."""
    monkeypatch.setattr(treecdf.flows.summary, "_FOR_REPEATS", "")
    monkeypatch.setattr(treecdf.training.boosting, "_LARGEST_LOG_DENSITY", -np.inf)
    monkeypatch.setattr(treecdf.training.ensemble, "_HOPELESS", np.inf)
    monkeypatch.setattr(treecdf.training.ensemble, "_NOT_WORTH_IT", -np.inf)  # no mixtures

    def keep(left_out, weight):
        n_kept = min(left_out.shape[1], 1 + kept)  # links of the chain have one family each
        return list(range(n_kept)), np.full(n_kept, 1 / n_kept)

    monkeypatch.setattr(treecdf.training.ensemble, "weigh_families", keep)
    twice = np.repeat(PAIRS[::2], 2, axis=0)[: len(X)]
    model, (told,) = quietly(TreeFlowRegressor(max_trees=3, random_state=0).fit, X, twice)
    assert model.history_["too_dense"].any()
    for text in (told, model.summary()):
        assert "stage 0 of the family 'chain 0 1' ended" in text
        assert ("stage 0 of the family 'repeats' ended" in text) == kept


def test_the_family_for_outcomes_that_repeat_is_noted_without_a_warning(monkeypatch):
    """It is of several outcomes that come in the same combinations, and is made the only one that is kept."""
    monkeypatch.setattr(treecdf.training.boosting, "_LARGEST_LOG_DENSITY", -np.inf)
    monkeypatch.setattr(treecdf.training.ensemble, "_HOPELESS", np.inf)
    monkeypatch.setattr(treecdf.training.ensemble, "_NOT_WORTH_IT", -np.inf)  # no mixtures
    monkeypatch.setattr(treecdf.training.ensemble, "weigh_families", keep_second_of_two)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.repeat(rng.normal(size=(20, 2)), 3, axis=0)
    model = TreeFlowRegressor(max_trees=3, random_state=0).fit(x, y)  # warnings are errors
    assert [family.name for family in model.families_] == ["repeats"]
    note = r"note: stage 0 of the family 'repeats' ended after (0 to )?1 trees?, at outcomes that repeat"
    assert re.search(note, model.summary())


def test_a_model_file_keeps_it(tmp_path):
    model, _ = quietly(TreeFlowRegressor(**QUICK).fit, X, Y)
    model.save(tmp_path / "m.tcdf")
    loaded = load_model(tmp_path / "m.tcdf")
    np.testing.assert_array_equal(loaded.history_["too_dense"], model.history_["too_dense"])
    assert loaded.summary() == model.summary()
    del model.history_["too_dense"]
    with pytest.raises(ModelFileError, match="too_dense"):
        model.save(tmp_path / "without.tcdf")


@pytest.mark.parametrize("n_files", [2, 4, 6])
def test_a_fit_that_goes_on_from_a_checkpoint_says_the_same(n_files, tmp_path, monkeypatch):
    """It is killed in the middle of a job, and after jobs that are done; their results come from files."""
    settings = {**QUICK, "rotations": 2}
    whole, told = quietly(TreeFlowRegressor(**settings).fit, X, PAIRS)
    put, left = treecdf.persist.checkpoint.replace_file, [n_files]

    def put_and_die(*args):
        put(*args)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(treecdf.persist.checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(treecdf.persist.checkpoint, "SHARE", np.inf)
    monkeypatch.setattr(treecdf.persist.checkpoint, "replace_file", put_and_die)
    model = TreeFlowRegressor(**settings, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, PAIRS)
    again, told_again = quietly(model.fit, X, PAIRS)
    assert told_again == told != []
    np.testing.assert_array_equal(again.history_["too_dense"], whole.history_["too_dense"])


def test_a_refit_to_other_outcomes_forgets_it():
    model, _ = quietly(TreeFlowRegressor(**QUICK).fit, X, Y)
    assert "without bound" in model.summary()
    assert "without bound" not in model.fit(X, RNG.normal(size=N)).summary()


def test_fits_to_files_and_dask_collections_say_the_same(tmp_path):
    import dask.dataframe as dd

    in_memory, told = quietly(TreeFlowRegressor(**QUICK).fit, X, Y)
    frame = pd.DataFrame({"x": X[:, 0], "y": Y})
    frame.to_parquet(tmp_path / "rows.parquet")
    table = dd.from_pandas(frame, npartitions=2, sort=False)
    streamed = quietly(TreeFlowRegressor(**QUICK).fit_parquet, tmp_path / "rows.parquet", "y")
    lazy = quietly(TreeFlowRegressor(**QUICK).fit, table[["x"]], table["y"])
    for model, text in (streamed, lazy):
        assert text == told != []
        assert model.summary() == in_memory.summary()


# Compositions

COUNTS = np.where(RNG.random((N, 4)) < 0.5, RNG.integers(1, 4, (N, 4)), 1).astype(float)
STEEP_LINKS = {"flow": TreeFlowRegressor(**QUICK), "normalize": True, "random_state": 0}


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_compositions_whose_ratios_repeat_give_one_warning(n_jobs):
    model, told = quietly(CompositionalFlow(**STEEP_LINKS, n_jobs=n_jobs).fit, X, COUNTS)
    assert len(told) == 1
    named = re.search("columns of Y: ([0-9, ]+)", told[0])[1]
    assert set(map(int, named.split(", "))) <= set(model.order_[1:].tolist())  # the first has no ratio


def test_noise_helps_with_small_counts():
    counts = COUNTS + np.random.default_rng(0).uniform(-0.5, 0.5, COUNTS.shape)
    CompositionalFlow(**STEEP_LINKS).fit(X, counts)  # warnings are errors


def test_taxa_cannot_share_a_checkpoint(tmp_path):
    flow = TreeFlowRegressor(checkpoint=tmp_path / "one")
    with pytest.raises(ValueError, match=re.escape("flow.checkpoint")):
        CompositionalFlow(flow=flow, normalize=True).fit(X, COUNTS)
