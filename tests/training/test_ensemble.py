"""How the members of a mixture are trained: rows set aside, weights, progress, seeds, processes and threads."""

import io
import pickle
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import treecdf.training.ensemble
import treecdf.training.jobs
from benchmarks.simulations import SIMULATIONS, sse
from tests.helpers.sticks import (
    FITTED_CLUSTERER,
    LIKELIHOOD,
    MIXTURES,
    TURN,
    X_NEW,
    X_VAL,
    Y_NEW,
    Y_VAL,
    N,
    X,
    Y,
    every_mixture,
    fit,
    log_prob_of_members,
    mixture,
    naive_stack,
    small,
)
from treecdf import Constant, Logistic, Stage, TreeFlowRegressor
from treecdf.data.table import learn_table
from treecdf.data.units import set_aside, units_of_ranks
from treecdf.training.ensemble import _Trainer
from treecdf.training.jobs import Workers
from treecdf.training.parameters import read_settings
from treecdf.training.plan import make_plan

# Rows set aside


@pytest.mark.parametrize(("n", "fraction", "n_members"), [(100, 0.1, 4), (100, 0.1, 10), (100, 0.3, 7), (7, 0.5, 9)])
def test_members_set_aside_other_rows_while_they_last(n, fraction, n_members):
    folds = set_aside(np.arange(n, dtype=np.uint64), fraction, n_members, np.random.default_rng(0))
    size = round(fraction * n)
    assert [len(set(fold)) for fold in folds] == [size] * n_members
    times = np.bincount(np.concatenate(folds), minlength=n)
    assert len(times) == n
    assert np.ptp(times) <= 1
    first = folds[: n // size]
    assert len(set(np.concatenate(first))) == size * len(first)


@pytest.mark.parametrize(
    ("n", "fraction", "size"), [(2, 0.1, 1), (2, 0.9, 1), (10, 0.01, 1), (10, 0.99, 9), (3, 0.9, 2)]
)
def test_a_row_at_least_is_set_aside_and_a_row_is_left(n, fraction, size):
    for fold in set_aside(np.arange(n, dtype=np.uint64), fraction, 3, np.random.default_rng(0)):
        assert len(set(fold)) == size


def rows_set_aside(model):
    """Rows of X, Y that each member sets aside."""
    table, _ = learn_table(X[:20], Y[:20], None, None, None, np.random.default_rng(0))
    plan = make_plan(read_settings(model.get_params(deep=False)), 20, X.shape[1], [(None, None)] * Y.shape[1])
    aside = _Trainer(plan, table, None, np.random.default_rng(0), Workers())._set_aside()
    return [set(table.number[rows]) for rows in aside]


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_members_share_validation_rows_unless_the_weights_are_equal(weights):
    aside = rows_set_aside(small(stages=[], weights=weights, regions=1, validation_fraction=0.2))
    assert [len(rows) for rows in aside] == [4, 4, 4]
    assert len(set.union(*aside)) == (12 if weights == "equal" else 4)


@pytest.mark.parametrize("weights", ["stacked", "likelihood"])
def test_stacking_looks_at_rows_set_aside_and_likelihood_at_the_others(weights):
    model = fit(stages=[], weights=weights, regions=1, rotations=LIKELIHOOD["rotations"])
    aside = np.zeros(N, bool)
    units = units_of_ranks(list(np.asarray(X, float).T), Y)
    aside[set_aside(units, 0.1, 1, np.random.default_rng(0))[0]] = True
    for flow in model.mixture_.members:
        assert flow.standardize.mean * flow.standardize.unit == pytest.approx(X[~aside].mean(axis=0), rel=1e-9)
    log_prob = log_prob_of_members(model, X, Y)
    if weights == "stacked":
        overall = naive_stack(log_prob[aside], np.ones(3))
        expected = naive_stack(log_prob[aside], 20 * overall)
    else:
        expected = np.exp(log_softmax(log_prob[~aside].sum(axis=0)))
    assert expected.max() < 0.999
    assert model.predict_distribution(X_NEW).weights == pytest.approx(np.tile(expected, (50, 1)), abs=1e-5)


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_validation_rows_of_the_user_serve_all_members(weights):
    model = small(weights=weights).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    for flow in model.mixture_.members:
        assert flow.standardize.mean == pytest.approx((X / np.abs(X).max(axis=0)).mean(axis=0))
    check_history(model)


def check_history(model):
    """Log-likelihoods of the history against those of each member."""
    history = model.history_
    assert set(history) == {"member", "stage", "train", "validation", "kept", "too_dense"}
    assert {len(values) for values in history.values()} == {len(history["member"])}
    assert np.array_equal(np.unique(history["member"]), np.arange(3))
    assert (np.diff(history["member"]) >= 0).all()
    assert model.n_trees_ == history["kept"].sum()
    train, validation = log_prob_of_members(model, X, Y), log_prob_of_members(model, X_VAL, Y_VAL)
    for number, flow in enumerate(model.mixture_.members):
        kept = (history["member"] == number) & history["kept"]
        assert sum(len(stage) for stage in flow.stages) == kept.sum() > 0
        last = np.flatnonzero(kept)[-1]
        assert history["train"][last] == pytest.approx(train[:, number].mean(), rel=1e-9)
        assert history["validation"][last] == pytest.approx(validation[:, number].mean(), rel=1e-9)


def test_every_member_stops_on_its_own():
    model = small(c0=0.6, max_trees=40, early_stopping_window=3).fit(X[:100], Y[:100])
    grown = np.bincount(model.history_["member"])
    assert len(set(grown)) > 1
    assert model.n_trees_ == model.history_["kept"].sum() < grown.sum()
    trees = [sum(len(stage) for stage in flow.stages) for flow in model.mixture_.members]
    assert trees == [model.history_["kept"][model.history_["member"] == number].sum() for number in range(3)]


@pytest.mark.parametrize("max_trees", [0, 3])
def test_columns_of_the_history_keep_their_kinds(max_trees):
    """Also where a member grew no tree: here the heavy row is all that lets a node be split."""
    weight = np.ones(20)
    weight[0] = 100.0
    model = small(max_trees=max_trees, min_samples_node=50, rotations=4, validation_fraction=0.25)
    model.fit(X[:20], Y[:20], weight)
    if max_trees:
        assert 0 < len(np.unique(model.history_["member"])) < 4
    kinds = {name: values.dtype.kind for name, values in model.history_.items()}
    assert kinds == {"member": "i", "stage": "i", "train": "f", "validation": "f", "kept": "b", "too_dense": "b"}


def test_stacking_needs_validation_rows():
    with pytest.raises(ValueError, match="weights='stacked' needs validation rows"):
        fit(weights="stacked", validation_fraction=0)
    model = small(weights="stacked", validation_fraction=0).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert np.isfinite(model.score(X, Y))


@pytest.mark.parametrize("weights", ["equal", "likelihood"])
def test_without_validation_rows_every_tree_of_every_member_is_grown(weights):
    model = fit(weights=weights, validation_fraction=0, early_stopping_window=1)
    assert model.n_trees_ == 3 * 8
    assert np.isnan(model.history_["validation"]).all()


@pytest.mark.parametrize("rotations", [1, 4, [np.eye(2)]])
def test_one_outcome_has_nothing_to_rotate(rotations):
    with pytest.warns(UserWarning, match="rotations are for several outcomes"):
        model = small(rotations=rotations, weights="stacked").fit(X, Y[:, 0])
    plain = small(rotations=None).fit(X, Y[:, 0])
    assert len(model.mixture_.members) == 1
    assert np.array_equal(model.log_prob(X, Y[:, 0]), plain.log_prob(X, Y[:, 0]))
    assert np.array_equal(model.predict_distribution(X).icdf(0.3), plain.predict_distribution(X).icdf(0.3))


@pytest.mark.parametrize("bounds", [(-1e3, 1e3), [None, (0, None)], [(None, 1e3), None]])
def test_rotations_cannot_keep_bounds(bounds):
    with pytest.raises(ValueError, match="expected rotations or bounds, got both"):
        fit(bounds=bounds)


@pytest.mark.parametrize("bounds", [None, (None, None), (-np.inf, np.inf)])
def test_no_bounds_are_no_trouble(bounds):
    assert np.isfinite(fit(bounds=bounds, max_trees=1).score(X, Y))


# Sample weights


@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_rows_of_weight_zero_are_left_out(name):
    counted = np.random.default_rng(1).random(N) < 0.7
    x, y = X.copy(), Y.copy()
    x[~counted], y[~counted] = 1e6, -1e6
    model = small(**MIXTURES[name])
    weighted = model.fit(x, y, counted.astype(float)).log_prob(X_NEW, Y_NEW)
    assert np.array_equal(weighted, model.fit(X[counted], Y[counted]).log_prob(X_NEW, Y_NEW))


@pytest.mark.parametrize("weights", ["equal", "stacked", "likelihood"])
def test_a_row_of_weight_two_equals_the_row_twice(weights):
    """With the user's own validation rows and regions, which no draw decides."""
    rng = np.random.default_rng(0)
    times, times_val = rng.integers(0, 4, N), rng.integers(0, 3, 150)
    rows, rows_val = np.repeat(np.arange(N), times), np.repeat(np.arange(150), times_val)
    model = small(weights=weights, regions=FITTED_CLUSTERER, max_trees=3, c0=0.1)
    plain = model.fit(X, Y, X_val=X_VAL, y_val=Y_VAL).predict_distribution(X_NEW)
    weighted = model.fit(
        X, Y, sample_weight=times, X_val=X_VAL, y_val=Y_VAL, sample_weight_val=times_val
    ).predict_distribution(X_NEW)
    repeated = model.fit(X[rows], Y[rows], X_val=X_VAL[rows_val], y_val=Y_VAL[rows_val]).predict_distribution(X_NEW)
    assert weighted.weights == pytest.approx(repeated.weights, abs=1e-6)
    assert weighted.logpdf(Y_NEW) == pytest.approx(repeated.logpdf(Y_NEW), abs=1e-6)
    assert np.abs(weighted.logpdf(Y_NEW) - plain.logpdf(Y_NEW)).max() > 1e-2


# Importances, progress, questions


def test_importances_add_up_to_one():
    model = mixture("equal")
    found = model.feature_importances_
    assert found.shape == (2,)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("verbose", [0, 1])
def test_progress_counts_the_members(verbose, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")  # lines are cut to the terminal's width
    monkeypatch.setattr("treecdf.estimators.progress.time", SimpleNamespace(monotonic=count(1).__next__))
    model = fit(verbose=verbose)
    shown = terminal.getvalue()
    for number in (1, 2, 3):
        assert (f"{number} of 3 done" in shown) == bool(verbose)
    if verbose:
        assert shown.endswith("\n")
        last = shown.split("\r")[-1]
        assert f"{model.n_trees_} trees" in last
        of_last = model.history_["validation"][model.history_["member"] == 2]
        assert f"validation log-likelihood {of_last.max():.4f}" in last
        first = shown.split("\r")[1]
        assert "the family 'joint': 3 to train, 1 at a time" in first
        assert first.lstrip().startswith("0%")
        assert last.lstrip().startswith("100%")


def test_progress_of_one_member_counts_its_trees(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")  # lines are cut to the terminal's width
    monkeypatch.setattr("treecdf.estimators.progress.time", SimpleNamespace(monotonic=count(1).__next__))
    fit(verbose=1, rotations=None)
    assert "the family 'joint': stage 1, 8 trees" in terminal.getvalue()
    assert "member" not in terminal.getvalue()


def test_progress_is_told_from_the_beginning_and_in_lines_for_a_log(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr("treecdf.estimators.progress.time", SimpleNamespace(monotonic=count(1).__next__))
    TreeFlowRegressor(effort="fast", max_trees=2, random_state=0, verbose=2).fit(X, Y[:, 0])
    begin, *lines = log.getvalue().splitlines()
    assert begin.startswith("treecdf: 0%, 1 s: the family 'flow': training begins")
    assert any("the family 'flow': base: learner 1 of 4, linear" in line for line in lines)
    assert any("Gaussian process: tuning, step " in line for line in lines)
    assert any("the family 'flow': done, 0 trees kept, validation log-likelihood" in line for line in lines)
    assert "\r" not in log.getvalue()
    shares = [int(re.match(r"treecdf: (\d+)%", line)[1]) for line in lines]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert len(set(shares)) > 10
    assert sum("s left: " in line for line in lines) > 10


def test_a_mixture_has_no_pit():
    with pytest.raises(ValueError, match=r"mixture of 3.*marginal"):
        mixture("equal").predict_distribution(X_NEW).pit(Y_NEW)
    assert fit(rotations=1).predict_distribution(X_NEW).pit(Y_NEW).shape == (50, 2)


@pytest.mark.parametrize("rows", [slice(3, 9), [0, 4, 4], np.arange(50) % 2 == 0, slice(None, None, -1)])
@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by a fitted clusterer"])
def test_slices_keep_their_weights(name, rows):
    distribution = mixture(name).predict_distribution(X_NEW)
    assert np.array_equal(distribution[rows].weights, distribution.weights[rows])
    assert distribution[rows].logpdf(Y_NEW[rows]) == pytest.approx(distribution.logpdf(Y_NEW)[rows], rel=1e-12)
    assert distribution[rows].mean() == pytest.approx(distribution.mean()[rows], rel=1e-9)
    assert distribution[7].weights.shape == (1, 3)


def test_shapes_of_answers():
    model = mixture("stacked by k-means")
    distribution = model.predict_distribution(X_NEW)
    assert distribution.logpdf(np.tile(Y_NEW[:7], (50, 1, 1))).shape == (50, 7)
    assert distribution.sample(4).shape == (50, 4, 2)
    assert model.predict(X_NEW).shape == (50, 2)
    assert distribution.logpdf(np.tile(Y_NEW[:7], (50, 1, 1)))[:, 3] == pytest.approx(
        distribution.logpdf(np.tile(Y_NEW[3], (50, 1))), rel=1e-9
    )


def test_three_outcomes():
    y, y_new = np.column_stack([Y, X[:, 0] + Y[:, 0]]), np.column_stack([Y_NEW, X_NEW[:, 0] + Y_NEW[:, 0]])
    model = small(rotations=2, max_trees=3, weights="stacked").fit(X, y)
    assert len(model.mixture_.members) == 4
    distribution = model.predict_distribution(X_NEW)
    mixed = logsumexp(log_prob_of_members(model, X_NEW, y_new) + np.log(distribution.weights), axis=1)
    assert distribution.logpdf(y_new) == pytest.approx(mixed, rel=1e-12)
    assert distribution.sample(5, random_state=0).shape == (50, 5, 3)


# scikit-learn's rules


@every_mixture
def test_pickle_keeps_the_mixture(name):
    model = mixture(name)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.log_prob(X_NEW, Y_NEW), model.log_prob(X_NEW, Y_NEW))
    assert np.array_equal(copy.sample(X_NEW, 3, random_state=0), model.sample(X_NEW, 3, random_state=0))


@pytest.mark.parametrize("rotations", [2, [np.eye(2), TURN]])
@pytest.mark.parametrize("how", [3, "hdbscan", KMeans(3, random_state=0, n_init=1)])
def test_a_clone_fits_to_the_same_mixture(how, rotations):
    model = small(rotations=rotations, weights="stacked", regions=how, max_trees=2).fit(X, Y)
    copy = clone(model)
    assert not hasattr(copy, "mixture_")
    assert copy.get_params()["weights"] == "stacked"
    assert np.array_equal(copy.get_params()["rotations"], rotations)
    assert np.array_equal(copy.fit(X, Y).log_prob(X_NEW, Y_NEW), model.log_prob(X_NEW, Y_NEW))


def test_a_clone_keeps_a_frozen_clusterer():
    frozen = FrozenEstimator(KMeans(3, random_state=0, n_init=1).fit(X_NEW))
    model = clone(small(weights="stacked", regions=frozen, max_trees=1)).fit(X, Y)
    assert np.array_equal(model.mixture_.regions(X), frozen.predict(X))


def test_settings_of_a_clusterer_can_be_searched():
    model = small(weights="stacked", regions=KMeans(3))
    assert model.set_params(regions__n_clusters=5).regions.n_clusters == 5


def test_grid_search_over_rotations_maximises_the_likelihood():
    folds = KFold(2)
    search = GridSearchCV(small(max_trees=4), {"rotations": [None, 2]}, cv=folds).fit(X, Y)
    by_hand = [
        np.mean([small(max_trees=4, rotations=r).fit(X[a], Y[a]).score(X[b], Y[b]) for a, b in folds.split(X)])
        for r in (None, 2)
    ]
    assert search.cv_results_["mean_test_score"] == pytest.approx(by_hand, rel=1e-12)
    assert search.best_params_["rotations"] == [None, 2][np.argmax(by_hand)]
    assert len(search.best_estimator_.mixture_.members) == (search.best_params_["rotations"] or 1)


# Seeds, processes and threads


def bits(model):
    """Everything that was learnt."""
    arrays = [*model.history_.values(), model.feature_importances_]
    arrays.append(model.mixture_.log_weights)
    for flow in model.mixture_.members:
        for part in (flow.standardize, flow.base, flow.base.rotation):
            arrays += [value for value in vars(part).values() if isinstance(value, np.ndarray)]
        for stage in flow.stages:
            arrays += [stage.nodes, stage.theta, stage.roots, stage.kind]
    return [array.tobytes() for array in arrays]


# All arrays reach the processes as read-only memory maps, as large ones do.
JOBS = {"processes": {"backend": "loky", "max_nbytes": 100}, "threads": {"backend": "threading"}}


@pytest.fixture
def blas_threads():
    """Two threads for the linear algebra, as where nobody asked for one; later as many as before."""

    def ask_for_two():
        for library in ThreadpoolController().select(user_api="blas").lib_controllers:
            library.set_num_threads(2)

    with threadpool_limits(None):
        asking = threading.Thread(target=ask_for_two)  # recent threadpoolctl: who asks, decides for as long as it lives
        asking.start()
        asking.join()
        yield


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_the_mixture_does_not_depend_on_the_jobs(name, jobs):
    settings = {**MIXTURES[name], "subsample": 0.7}  # which makes every member draw
    one = fit(**settings, n_jobs=1)
    with joblib.parallel_config(**JOBS[jobs]):
        two = fit(**settings, n_jobs=2)
    assert bits(one) == bits(two)
    assert np.array_equal(one.log_prob(X_NEW, Y_NEW), two.log_prob(X_NEW, Y_NEW))
    assert np.array_equal(one.sample(X_NEW, 5, random_state=0), two.sample(X_NEW, 5, random_state=0))


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("jobs", JOBS)
def test_validation_rows_and_weights_reach_the_jobs(jobs):
    rows = {"sample_weight": np.linspace(0, 2, N), "X_val": X_VAL, "y_val": Y_VAL}
    one = small(weights="stacked", n_jobs=1).fit(X, Y, **rows)
    with joblib.parallel_config(**JOBS[jobs]):
        assert bits(small(weights="stacked", n_jobs=2).fit(X, Y, **rows)) == bits(one)


@pytest.mark.usefixtures("blas_threads")
def test_the_joblib_backend_is_used(monkeypatch):
    known = joblib.Parallel
    made = []

    def parallel(*args, **options):
        made.append(known(*args, **options))
        return made[-1]

    monkeypatch.setattr(treecdf.training.jobs, "Parallel", parallel)
    with joblib.parallel_config(backend="threading"):
        fit(n_jobs=2, max_trees=1)
    assert made[0].n_jobs == 2
    assert type(made[0]._backend).__name__ == "ThreadingBackend"


def fit_members_in_threads():
    with joblib.parallel_config(backend="threading"):
        fit(rotations=2, max_trees=1, n_jobs=2)


def fit_two_models_in_threads():
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(fit, rotations=None, max_trees=1) for _ in range(2)]:
            job.result()


def threads_of_linear_algebra():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("fit_two", [fit_members_in_threads, fit_two_models_in_threads], ids=["members", "models"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_linear_algebra_has_one_thread_while_flows_are_trained_and_all_of_them_later(fit_two, again, monkeypatch):
    """A flow that begins while another is trained, and ends after it, must not put back the other's limit."""
    first_is_in, second_is_in, first_is_done = (threading.Event() for _ in range(3))
    order, split, fit_flow = count(), treecdf.training.ensemble.split, treecdf.training.ensemble.fit_flow
    seen = []

    def begin(*args):
        if next(order) == 1:
            first_is_in.wait(20)
        return split(*args)

    def train(*args):
        is_first = not first_is_in.is_set()
        first_is_in.set()
        seen.extend(threads_of_linear_algebra())
        trained = fit_flow(*args)
        if is_first:
            second_is_in.wait(20)
            first_is_done.set()
        else:
            second_is_in.set()
            first_is_done.wait(20)
            time.sleep(0.3)
            seen.extend(threads_of_linear_algebra())
        return trained

    before = threads_of_linear_algebra()
    assert set(before) == {2}
    if again:
        fit(max_trees=1)
    monkeypatch.setattr(treecdf.training.ensemble, "split", begin)
    monkeypatch.setattr(treecdf.training.ensemble, "fit_flow", train)
    fit_two()
    assert set(seen) == {1}
    assert threads_of_linear_algebra() == before


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_predictions_do_not_depend_on_the_threads(n_jobs, monkeypatch):
    monkeypatch.setattr("treecdf.flows.continuous._ROWS_OF_LEARNERS", 30)
    for module in ("flow", "continuous"):
        monkeypatch.setattr(f"treecdf.flows.{module}.CHUNK_POINTS", 30)
    model = fit(**MIXTURES["stacked by k-means"])

    def answers(n):
        distribution = model.set_params(n_jobs=n).predict_distribution(X)
        found = [model.log_prob(X, Y), distribution.sample(3, 0), distribution[:5].mean()]
        return [array.tobytes() for array in found]

    assert answers(1) == answers(n_jobs)


@pytest.mark.parametrize("name", ["equal", "stacked by k-means", "likelihood by HDBSCAN"])
def test_one_seed_is_one_mixture(name):
    one, same, other = (fit(**{**MIXTURES[name], "random_state": seed}) for seed in (0, 0, 1))
    assert bits(one) == bits(same)
    assert not np.array_equal(one.log_prob(X_NEW, Y_NEW), other.log_prob(X_NEW, Y_NEW))


@pytest.mark.parametrize("seed", [np.random.RandomState, np.random.default_rng])
def test_every_kind_of_seed_is_accepted(seed):
    settings = {"weights": "stacked", "max_trees": 2}
    assert bits(fit(**settings, random_state=seed(3))) == bits(fit(**settings, random_state=seed(3)))
    assert np.isfinite(fit(**settings, random_state=None).score(X, Y))


def test_members_have_seeds_of_their_own():
    """Twice the same rotation and the same rows: what differs is the draws of each member."""
    model = small(rotations=[np.eye(2)] * 2, subsample=0.5).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    first, second = log_prob_of_members(model, X_NEW, Y_NEW).T
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize(
    "classifier", [LogisticRegression(), DecisionTreeClassifier(max_depth=2, splitter="random")], ids=["linear", "tree"]
)
def test_scikit_learn_classifiers_in_other_processes(classifier):
    settings = {"stages": [Stage(Constant(), 2), Stage(classifier, 2)], "max_trees": 3, "weights": "stacked"}
    with joblib.parallel_config(**JOBS["processes"]):
        one, two = (fit(**settings, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert two.score(X, Y) > fit(max_trees=0).score(X, Y)
    assert np.array_equal(one.log_prob(X_NEW, Y_NEW), two.log_prob(X_NEW, Y_NEW))


# What it is good for


@pytest.mark.parametrize("seed", [0, 1])
def test_rotations_lower_the_error_of_a_density_that_turns(seed):
    x, y = SIMULATIONS["half_gaussian"].sample(1000, np.random.default_rng(seed))
    errors = [
        sse(small(stages=[Stage(Logistic(), 4)], max_trees=30, c0=0.5, rotations=r).fit(x, y).log_prob, "half_gaussian")
        for r in (4, None)
    ]
    assert errors[0] < 0.97 * errors[1]


def test_stacking_finds_the_rotation_of_each_region():
    """A square on its side where x > 0: there the member of 45 degrees is worth most, elsewhere the plain one."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (1500, 1)) + 0.01 * rng.normal(size=(1500, 1))
    y, tilt = rng.uniform(-1, 1, (1500, 2)), np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    y[x[:, 0] > 0] = y[x[:, 0] > 0] @ tilt
    model = small(rotations=2, weights="stacked", regions=2, max_trees=15, validation_fraction=0.3).fit(x, y)
    straight, tilted = model.predict_distribution([[-1.0], [1.0]]).weights
    assert straight[0] > 0.7
    assert tilted[1] > 0.7


def test_members_are_trained_by_backends_that_give_all_results_at_once():
    settings = {"base": "box", "rotations": 2, "max_trees": 2, "random_state": 0}
    expected = TreeFlowRegressor(**settings).fit(X, Y).log_prob(X, Y)
    with joblib.parallel_config(backend="multiprocessing"):
        found = TreeFlowRegressor(n_jobs=2, **settings).fit(X, Y).log_prob(X, Y)
    np.testing.assert_array_equal(found, expected)
