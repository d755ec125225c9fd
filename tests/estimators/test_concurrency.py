"""Many threads and processes at once give what one gives, and leave no memory behind."""

import gc
import multiprocessing
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import numpy as np
import pytest
from joblib import Parallel, delayed

from tests.memory_growth import MODELS, round_trip
from treecdf import TreeFlowRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = np.column_stack([X[:, 0] + RNG.normal(size=90), X[:, 1] * RNG.normal(size=90)])
SETTINGS = {
    "default": ({"max_trees": 3}, 1),
    "fast": ({"effort": "fast", "max_trees": 3}, 2),
    "box": ({"base": "box", "max_trees": 3}, 1),
    "rotations": ({"base": "student", "rotations": 2, "weights": "stacked", "max_trees": 3}, 2),
    "grid": ({"base": "box", "max_trees": 3, "resolution": 0.25}, 1),
}
every_model = pytest.mark.parametrize("name", SETTINGS)
_FITTED = {}


def fit(name):
    settings, d = SETTINGS[name]
    return TreeFlowRegressor(random_state=0, **settings).fit(X, Y[:, :d])


def fitted(name):
    if name not in _FITTED:
        _FITTED[name] = fit(name)
    return _FITTED[name]


def answers(model, x, y):
    """All kinds of predictions, as bytes."""
    d = model.n_outcomes_
    distribution = model.predict_distribution(x)
    found = [model.log_prob(x, y[:, :d]), model.sample(x, 3, random_state=0), distribution[:2].mean()]
    if d == 1:
        quantiles = distribution.icdf([0.0, 0.1, 0.5, 1.0])
        found += [quantiles, distribution.cdf(quantiles), distribution.crps(y[:, 0])]
    return b"".join(part.tobytes() for part in found)


def parts():
    """Eight slices of the rows, not all of the same length."""
    ends = np.linspace(0, 36, 9).astype(int)
    return [(X[a:b], Y[a:b]) for a, b in pairwise(ends)]


@every_model
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_eight_threads_ask_one_model_at_once(name, n_jobs):
    model = pickle.loads(pickle.dumps(fitted(name))).set_params(n_jobs=n_jobs)
    serial = [answers(model, x, y) for x, y in parts()]
    barrier = Barrier(8)

    def ask(x, y):
        barrier.wait()
        return answers(model, x, y)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, *zip(*parts(), strict=True))) == serial


@every_model
def test_eight_threads_ask_one_distribution_at_once(name):
    model = fitted(name)
    expected = model.predict_distribution(X[:2]).std().tobytes()
    distribution, barrier = model.predict_distribution(X[:2]), Barrier(8)

    def ask(_):
        barrier.wait()
        return distribution.std().tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [expected] * 8


@every_model
def test_fits_in_threads_at_once_are_those_of_one_after_the_other(name):
    expected = answers(fitted(name), X[:5], Y[:5])
    with ThreadPoolExecutor(3) as pool:
        assert [answers(model, X[:5], Y[:5]) for model in pool.map(fit, [name] * 3)] == [expected] * 3


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib(backend):
    tasks = [(fitted(name), *part) for name in SETTINGS for part in parts()[:2]]
    found = Parallel(2, backend=backend)(delayed(answers)(*task) for task in tasks)
    assert found == [answers(*task) for task in tasks]


def test_spawned_processes():
    tasks = [(fitted(name), *parts()[0]) for name in SETTINGS]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(answers, tasks)
    assert found == [answers(*task) for task in tasks]


@every_model
def test_pickle_keeps_every_answer(name):
    copy = pickle.loads(pickle.dumps(fitted(name)))
    assert answers(copy, X[:9], Y[:9]) == answers(fitted(name), X[:9], Y[:9])


def test_rounds_of_fits_and_predictions_leave_nothing_behind():
    """Less than 4 kB a round, a tenth of a model; `python -m tests.memory_growth` looks at the whole process."""
    for number in range(len(MODELS)):
        round_trip(number)
    tracemalloc.start()
    try:
        round_trip(0)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(4 * len(MODELS)):
            round_trip(number)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 4 * len(MODELS) * 4096
