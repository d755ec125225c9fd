"""Rotations: which there are, and what they do to outcomes and flows."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from tests.helpers.sticks import FREE, OUTCOMES, TURN, X_NEW, X_VAL, Y_NEW, Y_VAL, X, Y, every_outcome, fit, small
from treecdf.bases.box import Support
from treecdf.bases.rotation import Rotation
from treecdf.bases.student import Student
from treecdf.training.plan import rotation_matrices

# Rotations


@pytest.mark.parametrize("j", [1, 2, 3, 7, np.int64(4)])
def test_a_number_means_equally_spaced_angles(j):
    matrices = rotation_matrices(j, 2)
    assert len(matrices) == j
    first_axis = np.array(matrices)[:, 0]
    np.testing.assert_allclose(np.arctan2(first_axis[:, 1], first_axis[:, 0]), np.arange(j) * np.pi / 2 / j, atol=1e-15)


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("j", [1, 2, 4])
def test_every_plane_is_turned_and_the_identity_is_taken_once(j, d):
    matrices = np.array(rotation_matrices(j, d))
    assert len(matrices) == d * (d - 1) // 2 * (j - 1) + 1
    np.testing.assert_allclose(
        matrices @ matrices.transpose(0, 2, 1), np.tile(np.eye(d), (len(matrices), 1, 1)), atol=1e-15
    )
    np.testing.assert_allclose(np.linalg.det(matrices), 1.0)
    distance = np.abs(matrices[:, None] - matrices[None]).max(axis=(2, 3))
    assert (distance[~np.eye(len(matrices), dtype=bool)] > 0.1).all()
    assert [np.array_equal(matrix, np.eye(d)) for matrix in matrices] == [True] + [False] * (len(matrices) - 1)
    moved = np.abs(matrices - np.eye(d)).max(axis=2) > 0  # a plane is two axes
    assert (moved[1:].sum(axis=1) == 2).all()


@pytest.mark.parametrize("off", [0, None, np.int64(0)])
def test_zero_and_none_are_off(off):
    assert rotation_matrices(off, 2) == [None]
    model = fit(rotations=off, max_trees=1)
    assert len(model.mixture_.members) == 1
    assert model.mixture_.members[0].base.rotation is None


def test_matrices_are_taken_as_they_are():
    given = [ortho_group.rvs(3, random_state=seed) for seed in range(4)]
    given += [np.diag([1.0, -1.0, 1.0]), np.eye(3, dtype=int)[[1, 0, 2]]]  # reflections too
    assert {round(np.linalg.det(matrix)) for matrix in given} == {-1, 1}
    for found in (rotation_matrices(given, 3), rotation_matrices(tuple(given), 3)):
        assert np.array_equal(found, np.array(given))
    members = small(rotations=[matrix[:2, :2] for matrix in given[4:]], max_trees=1).fit(X, Y).mixture_.members
    assert np.array_equal([flow.base.rotation.matrix for flow in members], [[[1, 0], [0, -1]], [[0, 1], [1, 0]]])


NO_ROTATIONS = {
    "too large": np.eye(3),
    "not square": np.eye(2)[:1],
    "flat": np.array([1.0, 0.0]),
    "a number": 1.0,
    "a shear": [[1.0, 0.1], [0.0, 1.0]],
    "stretched": 1.001 * np.eye(2),
    "zero": np.zeros((2, 2)),
    "NaN": [[np.nan, 0.0], [0.0, 1.0]],
    "infinite": [[np.inf, 0.0], [0.0, 1.0]],
    "huge": [[1e200, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("name", NO_ROTATIONS)
def test_what_is_no_rotation_is_refused(name):
    with pytest.raises(ValueError, match=r"rotations to be orthogonal matrices of shape \(2, 2\); got"):
        fit(rotations=[np.eye(2), NO_ROTATIONS[name]])


def test_words_are_no_rotations():
    with pytest.raises(ValueError):
        fit(rotations=[np.eye(2), "quarter"])


@pytest.mark.parametrize("empty", [[], ()])
def test_no_matrices_are_refused(empty):
    with pytest.raises(ValueError, match="Expected rotations to be None, an integer"):
        fit(rotations=empty)


# The rotation of the outcomes


def rotation(y, matrix=TURN):
    return Rotation.fit(y, np.ones(len(y)), np.asarray(matrix))


@every_outcome
@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [1.0, 0.0]]], ids=["rotation", "reflection"])
def test_turning_back_undoes_turning(name, matrix):
    y = OUTCOMES[name]
    turn = rotation(y, matrix)
    assert (turn.scale > 0).all()
    np.testing.assert_allclose(turn.turn_back(turn.turn(y)), y, rtol=1e-12, atol=1e-14 * turn.scale.max(axis=None))
    r = np.random.default_rng(6).normal(size=(4, 5, 2))
    rounding = 1e-15 * np.abs(turn.center / turn.scale).max()
    np.testing.assert_allclose(turn.turn(turn.turn_back(r)), r, rtol=1e-10, atol=1e-12 + rounding)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_turned_outcomes_are_standardised_first(d):
    rng = np.random.default_rng(d)
    y, weight = rng.gamma(2.0, size=(300, d)) * 10.0 ** np.arange(d), rng.random(300)
    matrix = ortho_group.rvs(d, random_state=d)
    turn = Rotation.fit(y, weight, matrix)
    assert turn.scale == pytest.approx(np.sqrt(np.cov(y.T, aweights=weight, ddof=0).diagonal()), rel=1e-12)
    mean = np.average(y, axis=0, weights=weight)
    spread = np.cov(turn.turn(y).T, aweights=weight, ddof=0)
    correlation = np.cov(((y - mean) / turn.scale).T, aweights=weight, ddof=0)
    np.testing.assert_allclose(spread, matrix.T @ correlation @ matrix, atol=1e-10)


@pytest.mark.parametrize("name", ["plain", "scales far apart", "one constant", "one huge", "huge", "tiny"])
@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [1.0, 0.0]]], ids=["rotation", "reflection"])
def test_log_det_is_that_of_the_jacobian(name, matrix):
    turn = rotation(OUTCOMES[name], matrix)
    jacobian = np.empty((2, 2))
    for k in range(2):
        step = 0.25 * turn.scale[k] * np.eye(2)[k]
        change = turn.turn(turn.center + step) - turn.turn(turn.center - step)
        jacobian[:, k] = change / 0.5  # per scale, which no float64 can overflow
    assert turn.log_det == pytest.approx(np.linalg.slogdet(jacobian)[1] - np.log(turn.scale).sum(), abs=1e-10)


@every_outcome
def test_far_outcomes_have_a_finite_image_and_log_density(name):
    y, ones = OUTCOMES[name], np.ones(200)
    far = np.array([[1e300, 0.0], [1.7e308, 1.7e308], [-1.7e308, 1.7e308], [5e-324, -1e300]])
    assert np.isfinite(rotation(y).turn(far)).all()
    for base in (Support.fit(y, ones, FREE, TURN), Student.fit(y, ones, TURN)):
        place, log_det = base.to_box(far)
        assert np.isfinite(place).all()
        assert np.isfinite(log_det).all()


@pytest.mark.parametrize("name", ["plain", "scales far apart", "a large offset"])
def test_the_box_is_that_of_the_turned_outcomes(name):
    y = OUTCOMES[name]
    support = Support.fit(y, np.ones(200), FREE, TURN)
    r = ((y - y.min(axis=0) / 2 - y.max(axis=0) / 2) / y.std(axis=0)) @ TURN
    margin = 0.1 * np.ptp(r, axis=0)
    np.testing.assert_allclose(support.low, r.min(axis=0) - margin, atol=1e-8)
    np.testing.assert_allclose(support.high, r.max(axis=0) + margin, atol=1e-8)
    assert support.inside(support.to_box(y)[0]).all()


@pytest.mark.parametrize("matrix", [TURN, [[0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
def test_a_member_is_the_flow_of_outcomes_turned_by_hand(matrix):
    model = small(rotations=[np.array(matrix)]).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    center, scale = Y.min(axis=0) / 2 + Y.max(axis=0) / 2, Y.std(axis=0)
    by_hand = [((y - center) / scale) @ matrix for y in (Y, Y_VAL, Y_NEW)]
    plain = small(rotations=None).fit(X, by_hand[0], X_val=X_VAL, y_val=by_hand[1])
    expected = plain.log_prob(X_NEW, by_hand[2]) - np.log(scale).sum()
    assert model.n_trees_ == plain.n_trees_ > 3
    assert model.log_prob(X_NEW, Y_NEW) == pytest.approx(expected, abs=1e-8)


def test_one_angle_is_the_model_without_rotations():
    assert fit(rotations=1).log_prob(X, Y) == pytest.approx(fit(rotations=None).log_prob(X, Y), abs=1e-8)
