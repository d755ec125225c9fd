"""A clock that jumps, by hours and backwards, does not matter: waiting and pacing go by the monotonic one."""

import time

import numpy as np
import pytest

import treecdf.persist.checkpoint
from treecdf import TreeFlowRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + RNG.normal(size=60)


@pytest.mark.parametrize("step", [86_400.0, -86_400.0], ids=["forwards", "backwards"])
def test_a_clock_that_jumps_changes_no_fit_with_a_checkpoint(step, tmp_path, monkeypatch):
    settings = {"base": "box", "max_trees": 6, "random_state": 0, "on_interrupt": "raise"}
    honest = TreeFlowRegressor(**settings).fit(X, Y)
    now = [time.time()]

    def jumping():
        now[0] += step
        return now[0]

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(treecdf.persist.checkpoint, "SECONDS", 0.0)  # every step is written
    monkeypatch.setattr(treecdf.persist.checkpoint, "SHARE", np.inf)
    written = []
    replace_file = treecdf.persist.checkpoint.replace_file

    def stop_at_the_fourth(*args):
        written.append(args)
        replace_file(*args)
        if len(written) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(treecdf.persist.checkpoint, "replace_file", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        TreeFlowRegressor(checkpoint=tmp_path / "c", **settings).fit(X, Y)
    assert (tmp_path / "c").exists()
    again = TreeFlowRegressor(checkpoint=tmp_path / "c", **settings).fit(X, Y)
    np.testing.assert_array_equal(again.log_prob(X, Y), honest.log_prob(X, Y))
    assert not (tmp_path / "c").exists()
