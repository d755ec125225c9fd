"""SIGKILL inside `save`, again and again: the file is the old model or the new one, never half of either.

    python -m tests.kill_saves --count 1000 --seed 0

One process fits two models and forks others, which save them in turn over one file until they are killed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

MOMENTS = ("before", "packing", "writing", "flushing", "moving", "between")
TARGETS = ("packing", "writing", "flushing", "moving")
LONGEST = 0.02  # most seconds before a process is killed as soon as it is where it should be
CHECKED = 20  # so many of the files are loaded; of all of them the bytes are compared


def models():
    """Two models whose files differ in size."""
    from treecdf import Logistic, Stage, TreeFlowRegressor

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    settings = {"base": "box", "stages": [Stage(Logistic(), 3)], "validation_fraction": 0, "random_state": 0}
    return [TreeFlowRegressor(max_trees=trees, **settings).fit(x, x[:, 0]) for trees in (3, 30)]


def mark_moments(place):
    """Let this process say in `place` what it is doing."""
    import treecdf._common.files
    import treecdf.persist.files

    def marked(owner, name, moment, after):
        function = getattr(owner, name)

        def wrapper(*args, **kwargs):
            place[0] = MOMENTS.index(moment)
            result = function(*args, **kwargs)
            place[0] = MOMENTS.index(after)
            return result

        setattr(owner, name, wrapper)

    marked(treecdf.persist.files, "packed", "packing", "packing")
    marked(treecdf.persist.files, "replace_file", "writing", "between")
    marked(os, "fsync", "flushing", "moving")


def save_for_ever(found, path, place):
    """Save the models in turn."""
    mark_moments(place)
    while True:
        for model in found:
            model.save(path)


def attempt(found, path, place, delay, target):
    """Save in a process of its own, kill it when it is at the target after the delay, and say where it was."""
    place[0] = MOMENTS.index("before")
    pid = os.fork()
    if pid == 0:
        try:
            save_for_ever(found, path, place)
        finally:
            os._exit(1)
    begin = time.perf_counter()
    while place[0] != MOMENTS.index(target) or time.perf_counter() - begin < delay:
        pass  # sleeping would miss the short ones
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return MOMENTS[place[0]]


def run(count, seed, directory):
    """Kill so many processes; the moments they were in, and how often the file was the one model or the other."""
    from treecdf import load_model

    rng, place, path = np.random.default_rng(seed), mmap.mmap(-1, 1), Path(directory) / "model.tcdf"
    found, whole = models(), []
    for model in found:
        model.save(path)
        whole.append(path.read_bytes())
    killed, files, n_left = Counter(), Counter(), 0
    for number in range(count):
        killed[attempt(found, path, place, rng.uniform(0, LONGEST), TARGETS[number % len(TARGETS)])] += 1
        data = path.read_bytes()
        files["first" if data == whole[0] else "second" if data == whole[1] else "half"] += 1
        if number % max(1, count // CHECKED) == 0:
            load_model(path)
        left = [name for name in os.listdir(directory) if name != path.name]
        n_left += len(left)
        for name in left:
            os.remove(os.path.join(directory, name))
    return {"killed": dict(killed), "files": dict(files), "left": n_left}


def main():
    """Kill saves from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(run(options.count, options.seed, directory)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
