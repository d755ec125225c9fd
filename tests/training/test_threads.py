"""One seed gives one model, bit for bit, whatever the number of threads and wherever the arrays lie in memory."""

import threading
import time

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from threadpoolctl import threadpool_info, threadpool_limits

import treecdf.flows.continuous
import treecdf.training.ensemble
import treecdf.training.sources.rows
import treecdf.training.sources.shard
from treecdf import MLP, BoostedTrees, Constant, Logistic, Stage, TreeFlowRegressor
from treecdf._kernels.losses import cross_entropy, logistic_loss, mlp_loss
from treecdf.bases.looking import look_at_mixture

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.3 * RNG.normal(size=(500, 2))
STAGES = [
    Stage(Constant(), 2),
    Stage(Logistic(), 3),
    Stage(BoostedTrees(), 3),
    Stage(Logistic(basis="hinges"), 2),
    Stage(MLP((4, 4), max_iter=20), 2),
]


@pytest.fixture
def small_pieces(monkeypatch):
    """Eight shards of rows in training, many chunks of points in serving."""
    monkeypatch.setattr(treecdf.training.sources.rows, "SHARD_ROWS", 64)
    monkeypatch.setattr(treecdf.flows.continuous, "_ROWS_OF_LEARNERS", 40)
    monkeypatch.setattr(treecdf.flows.continuous, "CHUNK_POINTS", 100)


def fit(n_jobs, y=Y, **settings):
    model = {"stages": STAGES, "max_trees": 4, "random_state": 0, **settings}
    return TreeFlowRegressor(base="box", n_jobs=n_jobs, **model).fit(X, y)


def bits(model):
    """Everything that was learnt."""
    (flow,) = model.mixture_.members
    box = flow.base
    arrays = [*vars(flow.standardize).values(), box.low, box.high, box.low_tail, box.high_tail]
    arrays += [*model.history_.values(), model.feature_importances_]
    for stage in flow.stages:
        arrays += [stage.nodes, stage.theta, stage.roots, stage.kind]
    return [array.tobytes() for array in arrays]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("settings", [{}, {"subsample": 0.6}, {"split_search": "exhaustive", "grid_size": 3}])
def test_the_model_does_not_depend_on_the_threads(settings):
    one = fit(1, **settings)
    assert one.n_trees_ > 3
    for n_jobs in (2, 3, -1):
        assert bits(fit(n_jobs, **settings)) == bits(one)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("y", [Y[:, 0], Y], ids=["one outcome", "two outcomes"])
def test_predictions_do_not_depend_on_the_threads(y):
    model = fit(1, y)

    def answers(n_jobs):
        distribution = model.set_params(n_jobs=n_jobs).predict_distribution(X)
        found = [model.log_prob(X, y), model.sample(X, 7, random_state=0), distribution.mean(), distribution.pit(y)]
        if y.ndim == 1:
            found += [distribution.icdf([0.1, 0.5, 0.9]), distribution.crps(y)]
        return [array.tobytes() for array in found]

    assert answers(1) == answers(2) == answers(3)


@pytest.mark.usefixtures("small_pieces")
def test_the_threads_are_used(monkeypatch):
    threads = set()
    arrange = treecdf.training.sources.shard.arrange

    def slow_arrange(*args):
        threads.add(threading.get_ident())
        time.sleep(0.002)
        arrange(*args)

    monkeypatch.setattr(treecdf.training.sources.shard, "arrange", slow_arrange)
    fit(1, max_trees=1)
    assert threads == {threading.get_ident()}
    threads.clear()
    fit(3, max_trees=1)
    assert len(threads) == 3


def test_shards_add_up_to_the_whole(small_pieces, monkeypatch):
    """Not bit for bit, sums being rounded in another order, but the same model."""
    stages = STAGES[:2]
    cut = fit(1, stages=stages)
    monkeypatch.setattr(treecdf.training.sources.rows, "SHARD_ROWS", 10_000)
    assert cut.log_prob(X, Y) == pytest.approx(fit(1, stages=stages).log_prob(X, Y), abs=1e-8)


def test_the_model_does_not_depend_on_the_threads_of_the_linear_algebra():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 12))
    y = x[:, 0] + rng.normal(size=20_000)
    found = []
    for limit in (1, 2, 4):
        with threadpool_limits(limit, user_api="blas"):
            model = TreeFlowRegressor(
                base="box", stages=[Stage(Logistic(), 2), Stage(MLP((3,), max_iter=3), 1)], max_trees=1
            )
            found.append(bits(model.set_params(random_state=0).fit(x, y)))
    assert found[0] == found[1] == found[2]


# A loop that is vectorised only if its arrays look far enough apart would add up in another order. numba lets an
# index count from the end, so "far enough" may mean: also as far behind an array's end as the array is long.


def test_cross_entropy_does_not_depend_on_where_its_arrays_lie():
    rng = np.random.default_rng(0)
    n = 64
    logits, left = rng.normal(size=n), (rng.random(n) < 0.5).astype(float)
    losses = set()
    for gap in (0, 8, 64, 500):
        memory = np.ones(1000)
        weight, z = memory[:n], memory[n + gap : 2 * n + gap]
        z[:] = logits
        losses.add(cross_entropy(z, n, weight, left, 0, np.empty(n), np.empty(n, np.int64)))
    assert len(losses) == 1


@pytest.mark.parametrize("which", range(3), ids=["x", "weight", "left"])
@pytest.mark.parametrize("hidden", [(), (4, 4)], ids=["logistic", "mlp"])
def test_losses_do_not_depend_on_where_their_arrays_lie(hidden, which):
    """An array that claims more and more rows than the 64 that are read comes near everything on the heap."""
    rng = np.random.default_rng(0)
    n = 64
    rows = [rng.normal(size=(1, n)), np.ones(n), (rng.random(n) < 0.5).astype(float)]
    n_parameters = 2 if not hidden else 4 * 2 + 4 * 5 + 5
    theta, start, active = rng.normal(size=(1, n_parameters)), np.array([0, n]), np.ones(1, np.int64)
    shapes = [(1,), (1, n_parameters), (1, n_parameters, n_parameters)]
    sums = [np.zeros(shape) for shape in (shapes[:2] if hidden else shapes)]
    original, found = rows[which], set()
    for claimed in range(n, 20_000 * n, n):
        rows[which] = as_strided(original, (*original.shape[:-1], claimed))
        for total in sums:
            total[:] = 0.0
        if hidden:
            mlp_loss(*rows, start, active, theta, np.array(hidden), *sums)
        else:
            logistic_loss(*rows, start, active, theta, *sums)
        found.add(b"".join(total.tobytes() for total in sums))
    assert len(found) == 1


def test_the_model_does_not_depend_on_where_its_arrays_lie():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 1))
    y = np.sin(3 * x[:, 0]) + 0.3 * rng.normal(size=2000)
    model = TreeFlowRegressor(base="box", stages=[Stage(MLP(max_iter=30), 3)], max_trees=6, random_state=0)
    found, litter = [], []
    for _ in range(6):
        litter.append(np.empty(rng.integers(1, 5000)))  # moves what is allocated later
        found.append(bits(model.fit(x, y)))
    assert all(one == found[0] for one in found)


def test_slices_of_rows_do_not_depend_on_the_threads():
    """Matrix products round differently in slices of another size."""

    def slices(n_threads):
        found = []
        treecdf.flows.flow.by_chunks(found.append, np.empty((900, 30, 1)), n_threads)
        return sorted((rows.start, rows.stop) for rows in found)

    assert len(slices(1)) > 1
    assert slices(1) == slices(2) == slices(3)


def test_all_of_a_fit_has_one_thread_of_linear_algebra(monkeypatch):
    seen = []

    def looks(*args):
        seen.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return look_at_mixture(*args)

    monkeypatch.setattr(treecdf.training.ensemble, "look_at_mixture", looks)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    with threadpool_limits(2, user_api="blas"):
        TreeFlowRegressor(effort="fast", random_state=0).fit(x, x[:, 0] * rng.choice([-1, 1], 150))
        after = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    assert seen
    assert set(seen) == {1}
    assert set(after) == {2}
