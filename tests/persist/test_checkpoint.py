"""A fit that is killed goes on from its checkpoint and ends in the same model; Ctrl-C leaves a usable one if asked."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression

import treecdf
import treecdf._common.steps
import treecdf.persist.checkpoint
import treecdf.training.jobs
from tests import fuzz_files
from tests.kill_fits import TARGETS
from treecdf import MLP, Logistic, ModelFileError, Stage, TreeFlowRegressor, load_model
from treecdf.bases.learners import Polynomial
from treecdf.training.growing.grower import TreeGrower

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, :2] + RNG.normal(size=(60, 2))
TWICE = np.repeat(Y[::2], 2, axis=0)  # outcomes in the same combinations, which get joint flows beside the chain
WEIGHT = RNG.uniform(0.5, 2.0, size=60)
FRAME = pd.DataFrame({"gap": np.where(X[:, 0] > 1, np.nan, X[:, 0]), "name": [f"n{round(v)}" for v in 4 * X[:, 1]]})
FEW = {"max_trees": 4, "early_stopping_window": 2, "random_state": 0}
BOX = {"base": "box", "stages": [Stage(Logistic(), 2), Stage(MLP((2,), max_iter=10), 1)], **FEW}
NEVER = {"base": "box", "stages": [Stage(Logistic(), 2)], **FEW, "validation_fraction": 0, "max_trees": 30}
FAST = {"effort": "fast", **FEW}
PAIRS = np.repeat(X, 2, axis=0) + 1e-3 * RNG.normal(size=(120, 3)), np.repeat(Y[:, 0], 2) + 1e-3 * RNG.normal(size=120)
VALIDATION = {"X_val": X[:20], "y_val": Y[:20], "sample_weight_val": WEIGHT[:20]}

FITS = {
    "two stages": (BOX, (X, Y[:, 0]), {}),
    "conditional base": ({**FAST, "random_state": 2}, (X, Y[:, 0]), {}),
    "nearness": (FAST, PAIRS, {}),
    "chain and joint flows": (FEW, (X, TWICE, WEIGHT), {}),
    "validation table": ({"structure": "chain", **FAST}, (X, Y, WEIGHT), VALIDATION),
    "rotations": ({"rotations": 3, "weights": "stacked", "regions": 2, **BOX}, (X, Y), {}),
    "no early stopping": ({**NEVER, "max_trees": 12}, (X, Y[:, 0]), {}),
    "names and gaps": (BOX, (FRAME, Y[:, 0]), {}),
    "atoms on a grid": ({"atoms": [0.0], "resolution": 0.5, **BOX}, (X, np.maximum(np.round(2 * Y[:, 0]) / 2, 0)), {}),
}


class Killed(BaseException):
    """The end of a process, as far as a test can play it: nothing is written any more."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def eager(monkeypatch):
    """Every step is written at once."""
    monkeypatch.setattr(treecdf.persist.checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(treecdf.persist.checkpoint, "SHARE", np.inf)


@pytest.fixture
def kill_after(eager, monkeypatch):
    """Kill fits after so many files."""
    put, left = treecdf.persist.checkpoint.replace_file, [np.inf]

    def put_and_die(*args):
        put(*args)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    monkeypatch.setattr(treecdf.persist.checkpoint, "replace_file", put_and_die)
    return functools.partial(left.__setitem__, 0)


def fit(name, **settings):
    parameters, rows, validation = FITS[name]
    return TreeFlowRegressor(**{**parameters, **settings}).fit(*rows, **validation)


@functools.cache
def honest(name):
    return bits(fit(name), name)


def bits(model, name):
    x, y, *_ = FITS[name][1]
    arrays = [model.log_prob(x, y), *model.history_.values(), model.feature_importances_, model.family_weights_]
    return [model.n_trees_, model.summary(), *(array.tobytes() for array in arrays)]


def begin(name, path, kill_after, n_files, **settings):
    """A fit that is killed after so many files."""
    kill_after(n_files)
    with pytest.raises(Killed):
        fit(name, checkpoint=path, **settings)
    kill_after(np.inf)


# The same model


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fits are forked")
def test_a_fit_that_is_killed_at_ten_random_moments_ends_in_the_same_model():
    command = [sys.executable, "-m", "tests.kill_fits", "--count", "10"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = json.loads(output)
    assert found["killed"] == dict.fromkeys(TARGETS, 10 // len(TARGETS))
    assert found["same"] == found["ended"] >= 1
    assert found["left"] == []


@pytest.mark.parametrize("name", FITS)
def test_a_killed_fit_goes_on_and_ends_in_the_same_model(name, path, kill_after):
    n_killed, model = 0, None
    while model is None:
        kill_after(4)
        try:
            model = fit(name, checkpoint=path)
        except Killed:
            n_killed += 1
    assert n_killed >= 2
    assert bits(model, name) == honest(name)
    assert not path.exists()


@pytest.mark.parametrize("n_files", range(6, 11))
def test_a_fit_killed_between_looks_at_nearness_ends_in_the_same_model(n_files, path, kill_after):
    begin("nearness", path, kill_after, n_files)
    assert "how near" in honest("nearness")[1]
    assert bits(fit("nearness", checkpoint=path), "nearness") == honest("nearness")


@pytest.mark.parametrize("name", ["conditional base", "chain and joint flows"])
def test_a_checkpoint_changes_nothing(name, path, eager):
    assert bits(fit(name, checkpoint=str(path)), name) == honest(name)
    assert not path.exists()


def test_what_was_done_is_not_done_again(path, kill_after, monkeypatch):
    expected = honest("conditional base")
    grown, learnt = count_calls(TreeGrower, "grow", monkeypatch), count_calls(Polynomial, "cross_fit", monkeypatch)
    fit("conditional base")
    in_all, polynomials = grown[0], learnt[0]
    grown[0] = learnt[0] = 0
    begin("conditional base", path, kill_after, 10)
    assert 0 < grown[0] < in_all
    before, learnt[0] = grown[0], 0
    assert bits(fit("conditional base", checkpoint=path), "conditional base") == expected
    assert grown[0] == in_all
    assert grown[0] > before
    assert 0 < learnt[0] < polynomials  # the transform of the outcome is chosen again, with polynomials


def count_calls(owner, name, monkeypatch):
    function, calls = getattr(owner, name), [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_jobs_that_are_done_are_not_begun(path, kill_after, monkeypatch):
    begin("rotations", path, kill_after, 15)
    done = sum("flows" in contents(file) for file in path.glob("job-*"))
    assert done >= 1
    runs = count_calls(treecdf.training.jobs, "run_job", monkeypatch)
    fit("rotations", checkpoint=path)
    assert runs[0] == 3 - done


def contents(file):
    return fuzz_files.unpack(file.read_bytes())[0]["job"]


@pytest.mark.parametrize("seed", [np.random.default_rng, np.random.RandomState], ids=["Generator", "RandomState"])
def test_a_generator_of_the_same_state_is_the_same_seed(seed, path, kill_after):
    kill_after(6)
    with pytest.raises(Killed):
        fit("two stages", checkpoint=path, random_state=seed(3))
    kill_after(np.inf)
    with pytest.raises(ValueError, match="the seed differs"):
        fit("two stages", checkpoint=path, random_state=seed(4))
    model = fit("two stages", checkpoint=path, random_state=seed(3))
    assert bits(model, "two stages") == bits(fit("two stages", random_state=seed(3)), "two stages")


def test_without_a_seed_the_fit_goes_on_with_its_own(path, kill_after, monkeypatch):
    seeds = []
    as_generator = treecdf.persist.checkpoint.as_generator
    monkeypatch.setattr(
        treecdf.persist.checkpoint, "as_generator", lambda seed: seeds.append(seed) or as_generator(seed)
    )
    begin("two stages", path, kill_after, 6, random_state=None)
    with pytest.raises(ValueError, match="the seed differs"):
        fit("two stages", checkpoint=path, random_state=0)
    model = fit("two stages", checkpoint=path, random_state=None)
    assert seeds[0] == seeds[-1]
    assert bits(model, "two stages") == bits(fit("two stages", random_state=seeds[0]), "two stages")
    fit("two stages", checkpoint=path, random_state=None)
    assert seeds[-1] not in (None, seeds[0])


def test_processes_write_their_own_jobs(path, eager, monkeypatch):
    """The main process ends when they have; what they wrote is all it takes to go on."""

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(treecdf.training.ensemble, "_weigh", die)
        with pytest.raises(Killed):
            fit("rotations", checkpoint=path, n_jobs=2)
    runs = count_calls(treecdf.training.jobs, "run_job", monkeypatch)
    assert bits(fit("rotations", checkpoint=path), "rotations") == honest("rotations")
    assert runs[0] == 0


# Another fit


OTHERS = {
    "max_trees": ({"max_trees": 5}, {}, "the setting max_trees"),
    "stages": ({"stages": [Stage(Logistic(), 2)]}, {}, "the setting stages"),
    "bounds": ({"bounds": (-99, None)}, {}, "the setting bounds"),
    "seed": ({"random_state": 1}, {}, "the seed"),
    "outcomes": ({}, {"y": Y[:, 1]}, "the training rows"),
    "covariates": ({}, {"X": X + 1e-12}, "the training rows"),
    "weights": ({}, {"sample_weight": WEIGHT}, "the training rows"),
    "validation": ({}, {"X_val": X, "y_val": Y[:, 0]}, "the validation rows"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_another_fit_is_not_used(name, path, kill_after):
    begin("two stages", path, kill_after, 4)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    settings, rows, match = OTHERS[name]
    with pytest.raises(ValueError, match=f"{path} is of another fit: {match} differs"):
        TreeFlowRegressor(**{**BOX, **settings}, checkpoint=path).fit(**{"X": X, "y": Y[:, 0], **rows})
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert bits(fit("two stages", checkpoint=path), "two stages") == honest("two stages")


def test_a_checkpoint_in_which_nothing_is_kept_yet_is_no_obstacle(path, kill_after):
    begin("two stages", path, kill_after, 1)
    assert os.listdir(path) == ["fit.tcdf"]
    model = fit("two stages", checkpoint=path, random_state=1)
    assert bits(model, "two stages") == bits(fit("two stages", random_state=1), "two stages")
    assert not path.exists()


def test_a_checkpoint_of_another_version_is_not_used(path, kill_after, monkeypatch):
    begin("two stages", path, kill_after, 4)
    monkeypatch.setattr(treecdf.persist.checkpoint, "own_version", lambda: "0.0")
    with pytest.raises(ValueError, match="the version of treecdf differs"):
        fit("two stages", checkpoint=path)


def test_settings_that_do_not_shape_the_model_may_change(path, kill_after):
    begin("two stages", path, kill_after, 4)
    model = fit("two stages", checkpoint=path, n_jobs=2, verbose=1, on_interrupt="keep")
    assert bits(model, "two stages") == honest("two stages")


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"base": LinearRegression()}, r"base\[0\] holds LinearRegression"),
        ({"base": "box", "stages": [Stage(LogisticRegression(), 2)]}, r"stages\[0\].classifier holds LogisticRegr"),
        ({"rotations": 2, "weights": "stacked", "regions": KMeans(2)}, "regions holds KMeans"),
    ],
)
def test_parts_of_other_libraries_cannot_be_kept(parameters, match, path):
    with pytest.raises(ModelFileError, match=f"parts of other libraries cannot have a checkpoint: {match}"):
        TreeFlowRegressor(**parameters, checkpoint=path).fit(X, Y[:, :1] if "rotations" not in parameters else Y)
    assert not path.exists()


def test_other_files_are_left_alone(tmp_path, path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="without other files"):
        fit("two stages", checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"got the file .*mine\.txt"):
        fit("two stages", checkpoint=tmp_path / "mine.txt")
    with pytest.raises(FileNotFoundError):
        fit("two stages", checkpoint=tmp_path / "nowhere" / "checkpoint")
    assert os.listdir(tmp_path) == ["mine.txt"]
    path.mkdir()
    assert bits(fit("two stages", checkpoint=path), "two stages") == honest("two stages")


def test_a_loaded_model_has_no_checkpoint(tmp_path, path):
    model = fit("two stages", checkpoint=path, on_interrupt="keep")
    model.save(tmp_path / "model.tcdf")
    loaded = load_model(tmp_path / "model.tcdf")
    assert loaded.checkpoint is None
    assert loaded.on_interrupt == "keep"
    assert bits(loaded, "two stages") == honest("two stages")


# Writing


def test_a_full_disk_does_not_end_the_fit(path, eager, monkeypatch):
    put = treecdf.persist.checkpoint.replace_file

    def fail(file, data):
        if "job" in file.name:
            raise OSError(28, "No space left on device")
        put(file, data)

    monkeypatch.setattr(treecdf.persist.checkpoint, "replace_file", fail)
    with pytest.warns(UserWarning, match="cannot be written, the fit goes on: .*No space left"):
        model = fit("two stages", checkpoint=path)
    assert bits(model, "two stages") == honest("two stages")


def test_steps_are_written_now_and_then(path, monkeypatch):
    """Not before SECONDS have passed, and so that it takes a small share of the time."""
    now, written = [0.0], []
    put = treecdf.persist.checkpoint.replace_file
    monkeypatch.setattr(treecdf.persist.checkpoint, "SECONDS", 20.0)
    monkeypatch.setattr(treecdf.persist.checkpoint, "SHARE", 0.02)

    def slow_put(file, data):
        written.append((file.name, now[0]))
        now[0] += 1.0
        put(file, data)

    def slow_grow(self):
        now[0] += 3.0
        return grow(self)

    grow = TreeGrower.grow
    monkeypatch.setattr(TreeGrower, "grow", slow_grow)
    monkeypatch.setattr(treecdf.persist.checkpoint, "replace_file", slow_put)
    monkeypatch.setattr(treecdf.persist.checkpoint.time, "monotonic", lambda: now[0])
    TreeFlowRegressor(**NEVER, checkpoint=path).fit(X, Y[:, 0])
    (first, begin), *steps, (last, end) = written
    assert first == "fit.tcdf"
    assert last == "job-0.tcdf"
    times = np.array([when for _, when in steps])
    assert len(times) == 2  # after 21 s, and then after 50 times the second it took
    assert times[0] == begin + 1 + 21
    assert times[1] == times[0] + 1 + 51
    assert end > times[-1]


# Damage


@pytest.mark.parametrize("file", ["fit.tcdf", "job-0.tcdf", "job-1.tcdf"])
def test_damage_is_refused(file, path, kill_after):
    begin("chain and joint flows", path, kill_after, 22)
    data = (path / file).read_bytes()
    rng = np.random.default_rng(0)
    damaged = [data[:size] for size in np.linspace(0, len(data) - 1, 8).astype(int)]
    damaged += [fuzz_files.flip(data, rng) for _ in range(8)]
    n_refused = 0
    for other in damaged:
        (path / file).write_bytes(other)
        kill_after(1)
        try:
            fit("chain and joint flows", checkpoint=path)
        except ModelFileError as error:
            n_refused += f"Remove {path} to begin anew" in str(error)
        except Killed:  # the bits were of no importance
            pass
    assert n_refused >= len(damaged) - 4
    (path / file).write_bytes(data)
    kill_after(np.inf)
    assert bits(fit("chain and joint flows", checkpoint=path), "chain and joint flows") == honest(
        "chain and joint flows"
    )


@pytest.mark.parametrize("name", ["rotations", "conditional base"])
def test_hostile_jobs_are_refused_or_harmless(name, path, kill_after):
    """Checksums are right, numbers and shapes are not: kernels must not see what is out of range."""
    begin(name, path, kill_after, 17 if name == "rotations" else 8)
    kept = {file: file.read_bytes() for file in path.iterdir()}
    jobs = [file for file in kept if file.name.startswith("job")]
    assert name != "rotations" or len({"flows" in contents(file) for file in jobs}) == 2
    rng, outcomes = np.random.default_rng(0), {"refused": 0, "fitted": 0}
    for _ in range(40):
        for file, data in kept.items():
            path.mkdir(exist_ok=True)
            file.write_bytes(data)
        file = jobs[rng.integers(len(jobs))]
        mutate = (fuzz_files.change_numbers, fuzz_files.change_shapes)[rng.integers(2)]
        file.write_bytes(mutate(kept[file], rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fit(name, checkpoint=path)
                outcomes["fitted"] += 1
            except ModelFileError:
                outcomes["refused"] += 1
    assert outcomes["refused"] > 5


def test_a_job_of_another_fit_is_refused(tmp_path, path, kill_after):
    begin("two stages", path, kill_after, 4)
    other = tmp_path / "other"
    begin("two stages", other, kill_after, 4, random_state=1)
    (path / "job-0.tcdf").write_bytes((other / "job-0.tcdf").read_bytes())
    with pytest.raises(ModelFileError, match="a job of this fit"):
        fit("two stages", checkpoint=path)


# Ctrl-C


@pytest.fixture
def interrupt_at(monkeypatch):
    """Interrupt at the trees of these numbers; what Ctrl-C does is as in a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    grow, calls, at = TreeGrower.grow, [0], []

    def grow_and_interrupt(self):
        calls[0] += 1
        if calls[0] in at:
            signal.raise_signal(signal.SIGINT)
        return grow(self)

    def set_trees(*numbers):
        calls[0] = 0
        at[:] = numbers

    monkeypatch.setattr(TreeGrower, "grow", grow_and_interrupt)
    yield set_trees
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_keeps_the_trees_so_far(interrupt_at):
    interrupt_at()
    whole = TreeFlowRegressor(**NEVER).fit(X, Y[:, 0])
    interrupt_at(12)
    with pytest.warns(UserWarning, match="interrupted; the model is without some trees"):
        model = TreeFlowRegressor(**NEVER, on_interrupt="keep").fit(X, Y[:, 0])
    assert whole.n_trees_ == 30
    assert model.n_trees_ == 12
    (block,), (all_trees,) = model.mixture_.members[0].stages, whole.mixture_.members[0].stages
    assert block.nodes.tobytes() == all_trees[:12].nodes.tobytes()
    np.testing.assert_array_equal(model.history_["train"], whole.history_["train"][:12])


def test_an_interrupt_keeps_the_families_so_far(interrupt_at):
    interrupt_at()
    whole = fit("chain and joint flows")
    n_folds, rounds = 5, np.bincount(whole.history_["member"])
    interrupt_at(n_folds * int(rounds[:2].sum()) + 2)  # the second tree after those of the two links of the chain
    match = "some trees of 1 .*, 3 of 4 flows of the family 'repeats'"
    with pytest.warns(UserWarning, match=match):
        model = fit("chain and joint flows", on_interrupt="keep")
    assert model.families_[0].name == "chain 0 1"
    assert np.isfinite(model.log_prob(X, Y)).all()
    assert np.isfinite(model.sample(X, 2, random_state=0)).all()


def test_members_that_were_cut_short_are_left_out_if_others_were_not(interrupt_at):
    interrupt_at()
    whole = fit("rotations")
    interrupt_at(1 + int((whole.history_["member"] == 0).sum()) + 1)
    with pytest.warns(UserWarning, match="2 of 3 flows of the family 'joint'"):
        model = fit("rotations", on_interrupt="keep")
    first, own = whole.mixture_.members[0], model.mixture_.members
    assert len(own) == 1
    for block, other in zip(own[0].stages, first.stages, strict=True):
        assert block.nodes.tobytes() == other.nodes.tobytes()


def test_without_anything_to_keep_the_interrupt_is_raised(interrupt_at, monkeypatch):
    interrupt_at()
    cross_fit = Polynomial.cross_fit

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return cross_fit(*args)

    monkeypatch.setattr(Polynomial, "cross_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit("conditional base", on_interrupt="keep")


def test_a_second_interrupt_is_raised(interrupt_at, monkeypatch):
    interrupt_at(3, 4)
    monkeypatch.setattr(treecdf._common.steps.Stop, "__call__", lambda self: False)  # as if the next tree took for ever
    with pytest.raises(KeyboardInterrupt):
        TreeFlowRegressor(**NEVER, on_interrupt="keep").fit(X, Y[:, 0])


@pytest.mark.parametrize("name", ["two stages", "conditional base", "chain and joint flows"])
@pytest.mark.parametrize("on_interrupt", ["raise", "keep"])
def test_an_interrupted_fit_goes_on(name, on_interrupt, path, interrupt_at):
    """Nothing was due to be written before."""
    is_raised = on_interrupt == "raise"
    after = {"two stages": 4, "conditional base": 5 if is_raised else 3, "chain and joint flows": 7 if is_raised else 5}
    interrupt_at(after[name])
    settings = {"checkpoint": path, "on_interrupt": on_interrupt}
    if is_raised or name == "chain and joint flows":
        with pytest.raises(KeyboardInterrupt):
            fit(name, **settings)
    else:
        with pytest.warns(UserWarning, match="Its checkpoint stays"):
            fit(name, **settings)
    assert (path / "job-0.tcdf").exists()
    assert contents(path / "job-0.tcdf")["stages"]["list"]
    interrupt_at()
    assert bits(fit(name, **settings), name) == honest(name)
    assert not path.exists()


def test_another_thread_cannot_keep_but_fits(interrupt_at):
    interrupt_at()
    found = []
    thread = threading.Thread(target=lambda: found.append(fit("two stages", on_interrupt="keep")))
    thread.start()
    thread.join()
    assert bits(found[0], "two stages") == honest("two stages")


def test_what_ignores_interrupts_goes_on_ignoring_them(interrupt_at):
    interrupt_at(3)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert bits(fit("two stages", on_interrupt="keep"), "two stages") == honest("two stages")
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it may be lost")
def test_an_interrupt_while_processes_are_begun_is_not_lost(interrupt_at):
    interrupt_at()
    with treecdf._common.steps.stop_by_interrupt("keep") as stop:
        with stop.children_ignore_interrupts():
            signal.raise_signal(signal.SIGINT)
            assert not stop()
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        assert stop()


_LONG_FIT = """
import signal
import sys
import warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of a shell ignore
import numpy as np
import treecdf.persist.checkpoint
from treecdf import Logistic, Stage, TreeFlowRegressor
treecdf.persist.checkpoint.SECONDS, treecdf.persist.checkpoint.SHARE = 0.0, np.inf
x = np.random.default_rng(0).normal(size=(400, 3))
y = x[:, :2] + np.random.default_rng(1).normal(size=(400, 2))
settings = {"base": "box", "rotations": 2, "validation_fraction": 0, "n_jobs": 2, "checkpoint": sys.argv[1]}
model = TreeFlowRegressor(stages=[Stage(Logistic(), 2)], max_trees=10**6, on_interrupt="keep", **settings)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(x, y)
print(caught[-1].message)
print(len(model.mixture_.members), model.n_trees_ >= 2, np.isfinite(model.log_prob(x, y)).all())
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a terminal is played by a group of processes")
def test_ctrl_c_in_a_terminal_stops_all_processes_and_keeps_their_trees(path):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _LONG_FIT, str(path)]
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        while len(list(path.glob("job-*.tcdf"))) < 2 and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=100)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert "is without some trees of 2 training job(s). Its checkpoint stays" in output
    assert output.endswith("\n2 True True\n")
    assert path.exists()
