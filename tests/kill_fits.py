"""A fit that is killed at random moments and begun again: it goes on, and ends in the model it would have been.

    python -m tests.kill_fits --count 20 --seed 0

One process compiles the kernels and forks the fits; SIGKILL finds each of them learning, growing, writing or between.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import signal
import sys
import tempfile
import time
from collections import Counter

import numpy as np

MOMENTS = ("between jobs", "in a job", "learning the base", "growing stage 0", "growing stage 1", "writing")
TARGETS = [moment for moment in MOMENTS if moment != "in a job"]
MOST_ENDED = 5  # for each kill: fits that end before they are killed do not count


def problem():
    """Two outcomes that come in pairs: a chain, and joint families with one and with two stages."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    return x, np.repeat(x[:30, :2] + rng.normal(size=(30, 2)), 2, axis=0), rng.uniform(0.5, 2, 60)


def fit(checkpoint=None, **settings):
    """The model that is killed, unless it is left alone."""
    from treecdf import TreeFlowRegressor

    x, y, weight = problem()
    model = TreeFlowRegressor(max_trees=4, early_stopping_window=2, random_state=0, checkpoint=checkpoint, **settings)
    return model.fit(x, y, sample_weight=weight)


def bits(model):
    """A checksum of all that was learnt."""
    x, y, _ = problem()
    arrays = [model.log_prob(x, y), *model.history_.values(), model.feature_importances_, model.family_weights_]
    arrays += [np.array(model.n_trees_), model.sample(x, 3, random_state=0)]
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def mark_moments(place):
    """Let fits of this process write every step at once, and say in `place` what they are doing."""
    import treecdf.persist.checkpoint
    import treecdf.training.jobs

    def marked(owner, name, moment_of):
        function = getattr(owner, name)

        def wrapper(*args, **kwargs):
            before = place[0]
            place[0] = MOMENTS.index(moment_of(*args))
            try:
                return function(*args, **kwargs)
            finally:
                place[0] = before

        setattr(owner, name, wrapper)

    treecdf.persist.checkpoint.SECONDS, treecdf.persist.checkpoint.SHARE = 0.0, np.inf
    marked(treecdf.training.jobs, "run_job", lambda *_: "in a job")
    marked(treecdf.persist.checkpoint.KeptSteps, "learn", lambda *_: "learning the base")
    marked(treecdf.persist.checkpoint.KeptSteps, "grow", lambda self, rng, stage, *_: f"growing stage {stage}")
    marked(treecdf.persist.checkpoint, "replace_file", lambda *_: "writing")


def attempt(checkpoint, place, delay, target):
    """Fit in a process of its own; what it gave, or None if it was killed at the target after the delay."""
    place[0] = 0
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, bits(fit(checkpoint)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    begin = time.perf_counter()
    with os.fdopen(reader, "rb") as answer:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.perf_counter() - begin > delay and place[0] == MOMENTS.index(target):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return None
            time.sleep(5e-4)
        return answer.read().decode()


def run(count, seed, directory):
    """Kill so many fits; the moments they were in, and whether all that came to their ends are the same model."""
    rng = np.random.default_rng(seed)
    place = mmap.mmap(-1, 1)
    honest = bits(fit())
    begin = time.perf_counter()
    fit()
    duration = time.perf_counter() - begin
    mark_moments(place)
    checkpoint, killed, ended, missed = os.path.join(directory, "checkpoint"), Counter(), [], 0
    while killed.total() < count and len(ended) < MOST_ENDED * count:
        target = TARGETS[killed.total() % len(TARGETS)]
        answer = attempt(checkpoint, place, rng.uniform(0, duration / 2**missed), target)
        if answer is None:
            killed[target] += 1
            missed = 0
        else:
            ended.append(answer)
            missed += 1
    ended.append(attempt(checkpoint, place, np.inf, "writing"))
    same = sum(answer == honest for answer in ended)
    return {"killed": dict(killed), "ended": len(ended), "same": same, "left": os.listdir(directory)}


def main():
    """Kill fits from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(run(options.count, options.seed, directory)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
