"""Damaged and hostile model files: each is loaded with the same predictions or refused, and never does harm.

    python -m tests.fuzz_files --count 20000 --seed 0 --bounds

The memory that loading takes is measured for every bomb, and for every fiftieth of the other files. `--bounds` compiles
the kernels with bounds checks, so that one index beyond an array is an error and not luck.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from tests.helpers.forged import FORGERIES, bomb, encrypted, other_method, overlap, stored

SECONDS = 30  # most time for one file
MOST_MEMORY = 10  # most memory, in bytes for each byte that the file holds when it is unpacked, if it is honest
SLACK = 1 << 20  # bytes of memory that any file may take
EXTREMES = (0, 1, -1, 2, 3, 7, 64, 255, 2**31 - 1, -(2**31), 2**62, 0.5, -0.5, 1e-300, 1e300, np.inf, -np.inf, np.nan)
WORDS = (None, True, "", "x", [], {}, {"float": "inf"}, {"tuple": []}, {"array": 0}, {"object": 0}, {"list": [1]})


def rows(n=70, q=3, seed=0):
    """Covariates (n, q) and two outcomes (n, 2)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, q))
    y = np.where(rng.random(n) < 0.5, x[:, 0], -x[:, 0]) + 0.3 * rng.normal(size=n)
    return x, np.column_stack([y, y + x[:, 1] * rng.normal(size=n)])


def small_models():
    """Models that have every part a file may have, by name, and the number of outcomes of each."""
    from treecdf import MLP, BoostedTrees, CompositionalFlow, Constant, Logistic, Stage, TreeFlowRegressor
    from treecdf.bases.learners import BoostedMean, GaussianProcess, Neighbours, Network, Polynomial

    nodes = [
        Stage(BoostedTrees(rounds=2, max_depth=2), 3),
        Stage(MLP((3, 2), max_iter=20), 2),
        Stage(Logistic(basis="hinges"), 3),
        Stage(Logistic(basis="cubic"), 2),
        Stage(Constant(), 3),
    ]
    few = {"max_trees": 3, "random_state": 0, "early_stopping_window": 3}
    never = {**few, "validation_fraction": 0, "max_trees": 2}
    learners = [
        Polynomial(2),
        GaussianProcess(max_iter=3),
        BoostedMean(2, rate=0.3, max_rounds=5),
        _always(Network(hidden=(4, 3), max_steps=5)),
        Neighbours(k=2),
    ]
    return {
        "default": (TreeFlowRegressor(**few), 1),
        "several": (TreeFlowRegressor(**few), 2),
        "paper": (TreeFlowRegressor.paper(**few), 1),
        "rotations": (TreeFlowRegressor(rotations=3, weights="stacked", regions=3, **few), 2),
        "density": (TreeFlowRegressor(rotations=2, weights="likelihood", regions="hdbscan", base="box", **few), 2),
        "student": (TreeFlowRegressor(base="student", structure="joint", **few), 1),
        "bounds": (TreeFlowRegressor(bounds=(-20, None), effort="fast", **few), 1),
        "box with bounds": (TreeFlowRegressor(bounds=[(-20, None), (None, 90.5)], base="box", **few), 2),
        "fast": (TreeFlowRegressor(effort="fast", **never), 1),
        "sampled": (TreeFlowRegressor(base="conditional", effort="fast", **never), 1),
        "mixture": (TreeFlowRegressor(base="mixture", effort="fast", **few), 1),
        "network": (TreeFlowRegressor(base="network", effort="fast", **few), 1),
        "nodes": (TreeFlowRegressor(base="box", stages=nodes, **never), 1),
        "learners": (TreeFlowRegressor(base=learners, **never), 1),
        "near": (TreeFlowRegressor(base="conditional", effort="fast", **few), 1),
        "long tails": (TreeFlowRegressor(base=[Polynomial(1)], **never), 1),
        "frame": (TreeFlowRegressor(base="box", **few), 1),
        "atoms on a grid": (TreeFlowRegressor(base="box", atoms=[0.0], resolution=0.25, **few), 1),
        "two atoms": (TreeFlowRegressor(base="box", atoms=[0.0, 1.0], **few), 1),
        "two on a grid": (TreeFlowRegressor(base="box", resolution=0.25, **few), 2),
        "few values": (TreeFlowRegressor(base="box", **few), 1),
        "listed values": (TreeFlowRegressor(base="box", **few), 1),
        "compositions": (CompositionalFlow(flow=TreeFlowRegressor(base="box", **never), random_state=0), 4),
        "counts": (CompositionalFlow(counts=True, random_state=0), 4),
    }


def as_frame(x):
    """The same covariates with gaps, with many names, with two, as dates, and as levels that have an order."""
    import pandas as pd

    gaps = np.where(x[:, 0] > 1, np.nan, x[:, 0])
    names = [chr(ord("a") + int(20 / (1 + np.exp(-3 * value)))) for value in x[:, 1]]
    frame = pd.DataFrame({"gaps": gaps, "many": names, "sïgn": np.where(x[:, 2] > 0, "+", "-")})
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta((1000 * x[:, 1]).round(), unit="h")
    sizes = ["S", "M", "L", "XL"]
    frame["size"] = pd.Categorical(np.array(sizes)[np.clip(x[:, 2] + 2, 0, 3).astype(int)], sizes, ordered=True)
    return frame


def compositions(y):
    """Shares of four taxa (n, 4), the last of them in few rows."""
    raw = np.exp(np.column_stack([y, -y]))
    raw[:, 1:] *= np.abs(y[:, :1]) > [[0.2, 0.5, 2.0]]
    return raw / raw.sum(axis=1, keepdims=True)


def counts(y):
    """Reads of these taxa, to different depths."""
    return np.ceil(compositions(y) * np.linspace(50, 500, len(y)).round()[:, None])


def _always(network):
    """A network that is tried even where trees do well."""
    object.__setattr__(network, "is_worth_trying", lambda errors: True)
    return network


def fit(name):
    """One of the models above, fitted."""
    model, d = small_models()[name]
    x, y = rows()
    y = compositions(y) if name == "compositions" else y[:, 0] if d == 1 else y
    if name == "counts":
        return model.fit(x, counts(rows()[1]), subject=np.arange(len(x)) // 4, time=x[:, 0])
    if name == "atoms on a grid":
        y = np.where(y < -0.5, 0.0, np.round(4 * y) / 4)
    if name == "two atoms":  # whose log odds are linear
        y = (x[:, 0] + x[:, 1] + 0.5 * np.sin(np.arange(len(x))) > 0).astype(float)
    if name == "near":  # rows in pairs, so that near rows are worth remembering
        x, y = (np.repeat(part, 2, axis=0) for part in (x, y))
        x, y = x + 1e-3 * np.sin(np.arange(x.size)).reshape(x.shape), y + 1e-3 * np.sin(np.arange(len(y)))
    if name == "two on a grid":
        y = np.round(4 * y) / 4
    if name == "few values":
        y = np.clip(np.round(y), -1, 1)
    if name == "listed values":
        y = np.array([1.0, 2.0, 5.0, 10.0])[np.clip(np.round(y + 1), 0, 3).astype(int)]
    if name == "long tails":
        x, y = np.exp(2 * x), y + 5 * x[:, 0]
    model.fit(as_frame(x) if name == "frame" else x, y)
    return on_its_own_model(model) if name == "sampled" else model


def on_its_own_model(model):
    """A fitted model as it is when trees of other rows follow: a flow whose base is the model of a sample."""
    from treecdf.flows.flow import TreeFlow
    from treecdf.flows.learnt import Learnt
    from treecdf.flows.mixture import Mixture
    from treecdf.flows.results import Family

    flow = TreeFlow(*Learnt.of(model.mixture_, model.covariates_.width), model.mixture_.members[0].stages[:0])
    model.mixture_ = Mixture((flow,), np.zeros((1, 1)))
    model.families_ = (Family("refined", (flow,), np.array([-1.0]), np.zeros((1, 1))),)
    model.family_weights_ = np.ones(1)
    return model


def predictions(model):
    """All kinds of predictions at a few rows, as one flat array."""
    x, y = rows(n=6, seed=1)
    if hasattr(model, "depths_"):
        kin = {"subject": [0, 0, 1, 1, 1, 2], "time": np.arange(6.0)}
        found = [model.sample(x, 3, random_state=0, **kin), model.zero_prob(x, 5), model.log_prob(x, counts(y))]
        return np.concatenate([part.ravel() for part in found])
    if hasattr(model, "n_taxa_"):
        found = [model.sample(x, 3, random_state=0), model.zero_prob(x, 5), model.log_prob(x, compositions(y))]
        return np.concatenate([part.ravel() for part in found])
    x, d = as_frame(x) if hasattr(model, "feature_names_in_") else x, model.n_outcomes_
    found = [model.log_prob(x, y[:, :d]), model.sample(x, 3, random_state=0), model.sample(x[:2], 20, random_state=0)]
    if d == 1:
        distribution = model.predict_distribution(x)
        found += [distribution.icdf([0.0, 0.1, 0.5, 1.0]), distribution.crps(y[:, 0]), distribution.mean()]
    return np.concatenate([part.ravel() for part in found])


# Mutations of a file's bytes; nothing is put right afterwards


def flip(data, rng):
    bits = np.frombuffer(data, np.uint8).copy()
    for at in rng.integers(len(bits), size=rng.integers(1, 4)):
        bits[at] ^= 1 << rng.integers(8)
    return bits.tobytes()


def flip_end(data, rng):
    """In the zip's directory, which nothing sums up."""
    bits = np.frombuffer(data, np.uint8).copy()
    bits[-rng.integers(1, 400)] = rng.integers(256)
    return bits.tobytes()


def truncate(data, rng):
    return data[: rng.integers(len(data))]


def splice(data, rng):
    a, b, c = np.sort(rng.integers(len(data), size=3))
    return (data[:a] + data[b:], data[:b] + data[a:], data[:a] + data[b:c] + data[a:b] + data[c:])[rng.integers(3)]


# Mutations of what a file says, with new checksums, so that only the checks of the model can refuse it


def unpack(data):
    """The JSON document, and the other entries."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    del entries["model.sha256"]
    return json.loads(entries.pop("model.json")), entries


def pack(document, entries):
    """A file with checksums as they should be."""
    for name, content in entries.items():
        pool = document["pools"].get(name.removesuffix(".bin")) if isinstance(document.get("pools"), dict) else None
        if isinstance(pool, list) and len(pool) == 2:
            pool[1] = hashlib.sha256(content).hexdigest()
    return pack_text(json.dumps(document).encode(), entries)


def pack_text(text, entries, how=zipfile.ZIP_DEFLATED):
    """A file with this text as its JSON."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.writestr("model.json", text)
        archive.writestr("model.sha256", hashlib.sha256(text).hexdigest())
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


def change_numbers(data, rng):
    """Numbers of the arrays: extremes, neighbours, swaps."""
    from treecdf.persist.format import DTYPES

    document, entries = unpack(data)
    for _ in range(rng.integers(1, 4)):
        name = rng.choice([name for name in entries if entries[name]])
        pool = np.frombuffer(entries[name], DTYPES[name.removesuffix(".bin")]).copy()
        column = pool[rng.choice(pool.dtype.names)] if pool.dtype.names else pool
        at = rng.integers(len(column))
        with np.errstate(all="ignore"):
            if rng.random() < 0.5:
                value = np.array(rng.choice(EXTREMES))
                column[at] = value.astype(column.dtype)
            elif rng.random() < 0.5:
                column[at] = column[rng.integers(len(column))]
            elif column.dtype != bool:
                column[at] = column[at] + np.array(rng.choice((-1, 1))).astype(column.dtype)
        entries[name] = pool.tobytes()
    return pack(document, entries)


def change_json(data, rng):
    """Values anywhere in the document: replaced, removed, doubled, moved."""
    document, entries = unpack(data)
    for _ in range(rng.integers(1, 3)):
        part = document[rng.choice(("objects", "arrays", "fitted", "parameters", "pools"))]
        while True:
            keys = list(part) if isinstance(part, dict) else range(len(part))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            if isinstance(part[key], dict | list) and rng.random() < 0.85:
                part = part[key]
                continue
            _change(part, key, rng)
            break
    return pack(document, entries)


def _change(part, key, rng):
    old, what = part[key], rng.integers(6)
    if type(old) in (int, float) and what < 4:
        value = EXTREMES[rng.integers(len(EXTREMES))] if what < 2 else old + int(rng.choice((-1, 1)))
        part[key] = value if np.isfinite(value) else {"float": repr(value)}
    elif what == 4:
        del part[key]
    elif what == 5 and isinstance(part, list):
        part.insert(key, old)
    else:
        part[key] = WORDS[rng.integers(len(WORDS))]


def swap_references(data, rng):
    """One reference to an object or array takes the place of another."""
    document, entries = unpack(data)
    found = []

    def walk(part):
        for item in part.values() if isinstance(part, dict) else part:
            if isinstance(item, dict) and len(item) == 1 and next(iter(item)) in ("object", "array"):
                found.append(item)
            elif isinstance(item, dict | list):
                walk(item)

    walk(document["objects"])
    walk(document["fitted"])
    for _ in range(rng.integers(1, 3)):
        a, b = (found[k] for k in rng.integers(len(found), size=2))
        value = dict(b)
        a.clear()
        a.update(value)
    return pack(document, entries)


def change_shapes(data, rng):
    """Arrays of one dtype take over each other's shape, or get another one of the same size."""
    document, entries = unpack(data)
    arrays = document["arrays"]
    for _ in range(rng.integers(1, 3)):
        a = arrays[rng.integers(len(arrays))]
        b = arrays[rng.integers(len(arrays))]
        if rng.random() < 0.4:
            a[1], b[1] = b[1], a[1]
        elif rng.random() < 0.4:
            a[1] = a[1][::-1]
        elif rng.random() < 0.5:
            a[2] = "F"
        else:
            a[1] = [1, *a[1]] if rng.random() < 0.5 else [int(np.prod(a[1]))]
    return pack(document, entries)


DAMAGE = (flip, flip_end, truncate, splice)
ALWAYS = {bomb: "refused", other_method: "refused", overlap: "refused", encrypted: "refused", stored: "same"}
EDITS = (change_numbers, change_numbers, change_json, swap_references, change_shapes)


class Slow(BaseException):
    """A file took too long."""


def _too_slow(*_):
    raise Slow


def judge(data, path, honest, is_damage):
    """What became of one file: "refused", "same" or "other"; whatever else happens is a failure."""
    from treecdf import ModelFileError, load_model

    path.write_bytes(data)
    try:
        model = load_model(path)
    except ModelFileError:
        return "refused"
    try:
        found = predictions(model)
    except ValueError as error:  # it may be a model of other columns or taxa now
        if is_damage or not any(word in str(error) for word in ("colum", "feature", "outcome(s)")):
            raise
        return "other"
    if hasattr(model, "summary"):
        model.summary()
    if len(found) == len(honest) and np.array_equal(found, honest, equal_nan=True):
        return "same"
    assert not is_damage, "damage changed predictions and was not seen"
    return "other"


def run(files, count, seed, directory, measured=50, say=lambda text: None):
    """Judge so many mutations of files {name: (data, predictions)}; the outcomes, and the worst use of memory."""
    rng = np.random.default_rng(seed)
    path = Path(directory) / "mutant.treecdf"
    outcomes, most, slowest = Counter(), 0.0, 0.0
    sizes = {name: sum(entry.file_size for entry in _entries(data)) for name, (data, _) in files.items()}
    signal.signal(signal.SIGALRM, _too_slow)
    for number in range(count):
        name = list(files)[rng.integers(len(files))]
        data, honest = files[name]
        mutations = (DAMAGE, FORGERIES, EDITS)[rng.choice(3, p=[0.25, 0.15, 0.6])]
        mutate = mutations[rng.integers(len(mutations))]
        try:
            mutant = mutate(data, rng)
        except (IndexError, ValueError, TypeError, OverflowError, AttributeError):
            outcomes["not made", mutate.__name__] += 1
            continue
        signal.alarm(SECONDS)
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if number % measured == 0 or mutate is bomb:
                    memory = memory_of_load(mutant, path) / (MOST_MEMORY * sizes[name] + SLACK)
                    most = max(most, memory)
                    assert memory < 1, f"memory {memory:.1f} times what is allowed"
                outcome = judge(mutant, path, honest, mutations is not EDITS)
                assert mutate not in ALWAYS or outcome == ALWAYS[mutate], f"{outcome}, not {ALWAYS[mutate]}"
        except (Exception, Slow) as error:
            kept = Path(directory) / f"failed-{seed}-{number}.treecdf"
            kept.write_bytes(mutant)
            raise AssertionError(
                f"mutation {number} ({mutate.__name__} of {name!r}), kept as {kept}: {error!r}"
            ) from error
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - begin)
        outcomes[outcome, mutate.__name__] += 1
        if (number + 1) % 1000 == 0:
            say(f"{number + 1}: {_totals(outcomes)}")
    return outcomes, most, slowest


def _entries(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.infolist()


def memory_of_load(data, path):
    """Most memory that was in use while a file was loaded or refused."""
    from treecdf import ModelFileError, load_model

    path.write_bytes(data)
    tracemalloc.start()
    try:
        load_model(path)
    except ModelFileError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _totals(outcomes):
    totals = Counter()
    for (outcome, _), count in outcomes.items():
        totals[outcome] += count
    return dict(totals)


def main():
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bounds", action="store_true", help="compile with bounds checks, in a cache of their own")
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    with tempfile.TemporaryDirectory() as directory:
        if options.bounds:
            os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": directory}
        files = {}
        for name in small_models():
            model = fit(name)
            path = Path(directory) / "model.treecdf"
            model.save(path)
            files[name] = path.read_bytes(), predictions(model)
            say(f"{name}: {len(files[name][0])} bytes")
        begin = time.perf_counter()
        outcomes, most, slowest = run(files, options.count, options.seed, tempfile.gettempdir(), say=say)
        for (outcome, mutation), count in sorted(outcomes.items()):
            say(f"{mutation:16} {outcome:8} {count}")
        seconds = time.perf_counter() - begin
        say(f"{options.count} files in {seconds:.0f} s, slowest {slowest:.2f} s: {_totals(outcomes)}")
        say(f"memory at most {most:.2f} of what is allowed, ten times what the honest file holds and 1 MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
