"""Disks that are full, directories that cannot be removed, two fits in one directory, processes that are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import treecdf.persist.checkpoint
from tests import kill_saves
from tests.helpers import forged
from treecdf import Logistic, ModelFileError, Stage, TreeFlowRegressor, load_model
from treecdf.persist.locking import LOCK, locked

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).normal(size=(60, 2))
Y = X[:, 0] + np.random.default_rng(1).normal(size=60)
BOX = {"base": "box", "stages": [Stage(Logistic(), 2)], "max_trees": 6, "validation_fraction": 0, "random_state": 0}
posix = pytest.mark.skipif(os.name != "posix", reason="locks, links and namespaces are POSIX's")


def fit(checkpoint=None):
    return TreeFlowRegressor(**BOX, checkpoint=checkpoint).fit(X, Y)


@pytest.fixture(scope="module")
def expected():
    return fit().log_prob(X, Y)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


@pytest.fixture
def eager(monkeypatch):
    """Every step is written at once."""
    monkeypatch.setattr(treecdf.persist.checkpoint, "SECONDS", 0.0)
    monkeypatch.setattr(treecdf.persist.checkpoint, "SHARE", np.inf)


# A fit that is done is not lost


@posix
def test_a_link_stays_and_what_is_behind_it_is_emptied(tmp_path, eager, expected):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(tmp_path / "link")
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "there") == []


def test_the_working_directory_can_be_a_checkpoint(tmp_path, monkeypatch, eager, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"The fit is done, but its checkpoint \. cannot be removed"):
        model = fit(".")
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)
    assert os.listdir(tmp_path) == []


def test_files_that_cannot_be_removed_are_named(path, monkeypatch, eager, expected):
    unlink = Path.unlink

    def fail(self, missing_ok=False):
        if self.name.startswith("job"):
            raise PermissionError(13, "Permission denied", str(self))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.warns(UserWarning, match=f"its checkpoint {path} cannot be removed: .*job-0"):
        model = fit(path)
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)


def test_the_model_is_there_even_if_the_warning_is_an_error(tmp_path, monkeypatch, expected):
    monkeypatch.chdir(tmp_path)
    model = TreeFlowRegressor(**BOX, checkpoint=".")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="cannot be removed"):
            model.fit(X, Y)
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)


# Two fits in one directory


@posix
def test_a_second_fit_in_one_directory_is_refused(path, monkeypatch, eager, expected):
    """While the first is growing trees; it does not notice."""
    from treecdf.training.growing.grower import TreeGrower

    grow, refusals = TreeGrower.grow, []

    def grow_and_fit(self):
        monkeypatch.setattr(TreeGrower, "grow", grow)
        before = sorted(os.listdir(path))
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert sorted(os.listdir(path)) == before
        return grow(self)

    def second():
        with pytest.raises(ValueError, match=f"{path} is in use by another fit, in process {os.getpid()}") as caught:
            fit(path)
        refusals.append(caught.value)

    monkeypatch.setattr(TreeGrower, "grow", grow_and_fit)
    model = fit(path)
    assert len(refusals) == 1
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)
    assert not path.exists()


@posix
def test_a_fit_after_one_that_failed_is_not_refused(path, monkeypatch, eager, expected):
    """Whoever keeps the error, as notebooks do, does not keep the lock."""
    with monkeypatch.context() as patch:
        patch.setattr("treecdf.training.growing.grower.TreeGrower.grow", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError) as kept:
            fit(path)
    np.testing.assert_array_equal(fit(path).log_prob(X, Y), expected)
    assert kept.value is not None


_HOLD = """
import sys
from pathlib import Path
from treecdf.persist.locking import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@posix
def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path):
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(ValueError, match=f"in process {process.pid}"), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert os.listdir(tmp_path) == [LOCK]
    with locked(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    assert os.listdir(tmp_path) == []


@posix
def test_a_file_system_without_locks_is_warned_about(path, monkeypatch, expected):
    import fcntl

    def fail(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.warns(UserWarning, match="cannot be locked .*Operation not supported"):
        model = fit(path)
    np.testing.assert_array_equal(model.log_prob(X, Y), expected)


def test_a_directory_that_another_fit_takes_meanwhile_is_not_used(path, monkeypatch):
    """Between saying which fit it is and growing trees."""
    from treecdf.persist.checkpoint import Checkpoint

    first, second = Checkpoint(path), Checkpoint(path)
    for checkpoint, seed in ((first, 0), (second, 1)):
        checkpoint.generator(seed)
        checkpoint.begin({"seed": seed}, None, None)
    with pytest.raises(ValueError, match="Another fit has used the checkpoint"), first:
        pass
    with second:
        pass


# Bombs


def test_a_job_that_is_a_bomb_takes_no_memory(path, monkeypatch, eager):
    import tracemalloc

    with monkeypatch.context() as patch:
        patch.setattr("treecdf.persist.checkpoint.Checkpoint.remove", lambda self: None)
        fit(path)
    job = path / "job-0.tcdf"
    honest = job.read_bytes()
    for method in (8, 12, 14):
        (text, *others) = forged.entries_of(honest)
        job.write_bytes(forged.forge([text | {"method": method, "packed": forged.packed_bomb(method)}, *others]))
        tracemalloc.start()
        with pytest.raises(ModelFileError, match=f"Remove {path} to begin anew"):
            fit(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < forged.BOMB / 5


# A full disk


_FULL = """
import json, os, sys, warnings
import numpy as np
import treecdf.persist.checkpoint
from tests.persist.test_faults import X, Y, fit
from treecdf import TreeFlowRegressor, load_model
disk, found = sys.argv[1], {}
treecdf.persist.checkpoint.SECONDS, treecdf.persist.checkpoint.SHARE = 0.0, np.inf
small, model = fit(), os.path.join(disk, "model.tcdf")
large = TreeFlowRegressor(random_state=0, max_trees=30).fit(X, Y)
small.save(model)
before, filler = open(model, "rb").read(), os.path.join(disk, "filler")

def fill(but):
    space = os.statvfs(disk)
    with open(filler, "wb") as file:
        file.write(bytes(space.f_bavail * space.f_bsize - but))

fill(but=4096)
try:
    large.save(model)
except OSError as error:
    found["save"] = str(error)
os.remove(filler)
found["old file"] = open(model, "rb").read() == before and load_model(model).n_trees_ == small.n_trees_
found["left after save"] = os.listdir(disk)
os.remove(model)

def warned(checkpoint):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(checkpoint)
    same = bool(np.array_equal(model.log_prob(X, Y), small.log_prob(X, Y)))
    return {"warnings": [str(warning.message) for warning in caught], "same": same, "left": os.listdir(disk)}

found["mount point"] = warned(disk)
fill(but=2 * 4096)
found["checkpoint"] = warned(os.path.join(disk, "checkpoint"))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def on_a_small_disk(tmp_path_factory):
    """What happens on a file system of 40 kB, which a process mounts for itself."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("mounting a small disk needs namespaces (unshare -rm), which are not to be had here")
    disk = tmp_path_factory.mktemp("disk")
    mount = 'mount -t tmpfs -o size=40k tmpfs "$1" && exec "$0" -c "$2" "$1"'
    command = ["unshare", "-rm", "sh", "-c", mount, sys.executable, str(disk), _FULL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "mount:" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), str(disk)


def test_a_disk_that_fills_up_during_save_leaves_the_old_model(on_a_small_disk):
    found, disk = on_a_small_disk
    assert found["save"] == f"[Errno 28] No space left on device: '{disk}/model.tcdf'"
    assert found["old file"]
    assert found["left after save"] == ["model.tcdf"]


def test_a_disk_that_fills_up_during_a_checkpoint_does_not_end_the_fit(on_a_small_disk):
    found, disk = on_a_small_disk
    assert found["checkpoint"]["same"]
    assert found["checkpoint"]["left"] == ["filler"]
    first = found["checkpoint"]["warnings"][0]
    job = f"{disk}/checkpoint/job-0.tcdf"
    assert first == f"The checkpoint cannot be written, the fit goes on: [Errno 28] No space left on device: '{job}'"


def test_a_mount_point_that_is_a_checkpoint_is_warned_about(on_a_small_disk):
    found, disk = on_a_small_disk
    assert found["mount point"]["same"]
    assert found["mount point"]["left"] == []
    (warning,) = found["mount point"]["warnings"]
    assert warning.startswith(f"The fit is done, but its checkpoint {disk} cannot be removed: [Errno 16]")


# SIGKILL inside save


@pytest.mark.skipif(not hasattr(os, "fork"), reason="saves are forked")
def test_a_save_that_is_killed_leaves_the_old_model_or_the_new_one():
    command = [sys.executable, "-m", "tests.kill_saves", "--count", "20"]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert sum(found["killed"].values()) == 20
    assert len(found["killed"]) >= 3
    assert set(kill_saves.MOMENTS) >= set(found["killed"])
    assert found["files"].get("half", 0) == 0
    assert found["left"] >= 1, "no process was killed while it was writing"


# Bugs of ours


def test_an_error_of_ours_is_not_called_damage(tmp_path, monkeypatch):
    file = tmp_path / "model.tcdf"
    fit().save(file)

    def broken(*_):
        raise AttributeError("'NoneType' object has no attribute 'oops'")

    with monkeypatch.context() as patch:
        patch.setattr("treecdf.estimators.regressor.check_fitted", broken)
        with pytest.raises(
            ModelFileError, match=r"checksums are right, but this treecdf .* cannot read it \(Attribut"
        ) as caught:
            load_model(file)
    assert "please report this" in str(caught.value)
    assert "damaged" not in str(caught.value)
    assert isinstance(caught.value.__cause__, AttributeError)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(ModelFileError) as caught:
        load_model(file)
    assert "checksums are right" not in str(caught.value)


def test_too_little_memory_is_not_called_damage(tmp_path, monkeypatch):
    file = tmp_path / "model.tcdf"
    fit().save(file)

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("treecdf.persist.files.read_arrays", full)
    with pytest.raises(ModelFileError, match="not enough memory") as caught:
        load_model(file)
    assert isinstance(caught.value.__cause__, MemoryError)
