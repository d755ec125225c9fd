"""Which rows belong together, and divisions that do not part them."""

import numpy as np
import pytest

from treecdf.data.table import learn_table
from treecdf.data.units import draw_folds, set_aside, units_of_content, units_of_groups

RNG = np.random.default_rng(0)
NAMES = np.array(["a", None, "b", "a", ""], dtype=object)
NUMBERS = np.array([1.0, np.nan, 0.0, 1.0, -0.0])


def units(n=200, n_groups=40):
    return units_of_groups(RNG.integers(n_groups, size=n), n)


def test_equal_rows_have_equal_units_and_others_do_not():
    y = np.array([[2.0], [1.0], [5.0], [2.0], [5.0]])
    found = units_of_content([NUMBERS], y)
    assert found[0] == found[3]
    assert found[2] == found[4], "0 and -0 are the same number"
    assert len(set(found.tolist())) == 3
    with_names = units_of_content([NUMBERS, NAMES], y)
    assert with_names[0] == with_names[3]
    assert with_names[2] != with_names[4]
    assert len(set(with_names.tolist())) == 4


def test_where_a_value_stands_matters():
    one, other = np.array([1.0, 2.0]), np.array([2.0, 1.0])
    found = units_of_content([one, other], np.zeros((2, 1)))
    assert found[0] != found[1]


def test_a_hundred_thousand_rows_are_told_apart():
    x = RNG.integers(0, 400, size=(100_000, 2)).astype(float)
    found = units_of_content(list(x.T), np.zeros((len(x), 1)))
    assert len(np.unique(found)) == len(np.unique(x, axis=0))


def test_units_stay_the_same_from_run_to_run():
    """They decide which rows are set aside, so another version of them is another model."""
    found = units_of_content([np.array([1.5]), np.array(["a"], dtype=object)], np.array([[2.0]]))
    assert found.tolist() == [14643697340358427057]


@pytest.mark.parametrize("n_folds", [2, 5, 39])
def test_folds_do_not_part_units_and_are_of_about_equal_size(n_folds):
    own = units()
    fold = draw_folds(own, n_folds, np.random.default_rng(1))
    assert set(fold) == set(range(n_folds))
    by_unit = {unit: set(fold[own == unit]) for unit in own}
    assert all(len(folds) == 1 for folds in by_unit.values())
    sizes = np.bincount([folds.pop() for folds in by_unit.values()])
    assert np.ptp(sizes) <= 1


def test_there_are_no_more_folds_than_units():
    assert set(draw_folds(np.arange(3, dtype=np.uint64), 5, RNG)) == {0, 1, 2}


def test_rows_set_aside_do_not_part_units():
    own = units()
    for rows in set_aside(own, 0.2, 4, np.random.default_rng(0)):
        assert not set(own[rows]) & set(np.delete(own, rows))


def test_divisions_do_not_depend_on_the_order_of_the_rows():
    own, order = units(), RNG.permutation(200)
    fold, moved = (draw_folds(part, 5, np.random.default_rng(3)) for part in (own, own[order]))
    assert np.array_equal(fold[order], moved)
    aside, others = (set_aside(part, 0.3, 1, np.random.default_rng(3))[0] for part in (own, own[order]))
    assert set(aside) == set(order[others])


def test_one_row_more_hardly_changes_a_division():
    own = RNG.integers(2**63, size=1001).astype(np.uint64)
    fold, before = (draw_folds(part, 5, np.random.default_rng(3)) for part in (own, own[:-1]))
    assert (fold[:-1] != before).mean() < 0.01


def test_another_seed_is_another_division():
    own = units()
    assert (draw_folds(own, 5, np.random.default_rng(0)) != draw_folds(own, 5, np.random.default_rng(1))).mean() > 0.5


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], r"Expected groups of shape \(3,\); got \(2,\)"),
        ([1, None, 2], "The group of row 1 is missing"),
        ([1.0, 2.0, np.nan], "The group of row 2 is missing"),
        (["a", "a", "a"], "All rows are of one group"),
    ],
)
def test_bad_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        learn_table(np.zeros((3, 1)), np.arange(3.0), None, groups, None, RNG)


def test_groups_are_known_by_their_names():
    same = [units_of_groups(groups, 3).tolist() for groups in ([1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1"])]
    assert same[0] == same[1] == same[2]


def test_copies_become_one_row_with_the_sum_of_their_weights():
    x, y, weight = [[1.0], [2.0], [1.0], [1.0]], [5.0, 6.0, 5.0, 7.0], [0.5, 1.0, 0.25, 3.0]
    table, _ = learn_table(x, y, weight, None, None, RNG)
    rows = sorted(zip(table.x[:, 0], table.y[:, 0], table.weight, table.number, strict=True))
    assert rows == [(1.0, 5.0, 0.75, 0), (1.0, 7.0, 3.0, 3), (2.0, 6.0, 1.0, 1)]


def test_copies_in_two_groups_stay_two_rows():
    table, _ = learn_table([[1.0], [1.0], [2.0]], [5.0, 5.0, 5.0], None, ["a", "b", "a"], None, RNG)
    assert len(table) == 3
    assert len(set(table.unit.tolist())) == 2


def test_copies_of_a_single_row_make_two():
    table, _ = learn_table([[1.0]] * 5, [2.0] * 5, None, None, None, RNG)
    assert table.weight.tolist() == [2.5, 2.5]
    assert len(set(table.unit.tolist())) == 2
