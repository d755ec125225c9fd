"""The note that rows may belong together."""

import numpy as np
import pytest

from treecdf import TreeFlowRegressor
from treecdf.data import twins
from treecdf.data.twins import do_near_rows_tell, note_on_near_copies, note_on_twins, worth_of_near_rows

RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(60), 10)
SHARED = RNG.normal(size=(60, 3))[GROUP]
TABLES = {
    "all covariates shared": (SHARED, "share all covariates"),
    "one covariate, shared": (SHARED[:, :1], "share all covariates"),
    "time besides": (np.column_stack([SHARED, np.tile(np.arange(10.0), 60)]), "share all covariates|share all but 1"),
    "a measure besides": (np.column_stack([SHARED, RNG.normal(size=600)]), "share all but 1 of 4 columns"),
    "two measures besides": (np.column_stack([SHARED, RNG.normal(size=(600, 2))]), "share all but 2 of 5 columns"),
}
PLAIN = {
    "continuous": RNG.normal(size=(600, 3)),
    "one continuous": RNG.normal(size=(600, 1)),
    "few values": RNG.integers(0, 5, size=(600, 3)).astype(float),
    "a year": RNG.integers(1990, 2020, size=(600, 1)).astype(float),
    "two values and a continuous one": np.column_stack([RNG.integers(0, 2, 600), RNG.normal(size=600)]),
    "a few copies": np.vstack([RNG.normal(size=(500, 3)), np.zeros((100, 3))]),
    "constant": np.ones((50, 2)),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_share_covariates_are_told_of(name):
    x, words = TABLES[name]
    (note,) = note_on_twins(x[RNG.permutation(len(x))])
    assert any(part in note for part in words.split("|"))
    assert "groups=" in note


@pytest.mark.parametrize("name", PLAIN)
def test_other_tables_have_no_note(name):
    assert note_on_twins(PLAIN[name]) == ()


def test_rows_that_come_again_with_some_noise_are_told_of():
    x, y = RNG.normal(size=(100, 3)), RNG.normal(size=(100, 1))
    again = np.repeat(np.arange(100), 5)
    noise = 1e-3 * RNG.normal(size=(500, 3))
    (note,) = note_on_near_copies(x[again] + noise, y[again] + noise[:, :1])
    assert "100% of the rows" in note
    assert "groups=" in note
    assert note_on_near_copies(x[again] + noise, RNG.normal(size=(500, 1))) == ()  # outcomes of their own


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("is_exact", [False, True])
def test_near_copies_are_not_found_in_other_tables(name, is_exact):
    x = PLAIN[name]
    y = x[:, :1] if is_exact and name != "a few copies" else RNG.normal(size=(len(x), 1))
    assert note_on_near_copies(x, y) == ()


def test_a_curve_of_one_covariate_has_no_near_copies():
    for seed in range(20):
        x = np.random.default_rng(seed).exponential(size=(300, 1)) ** 3
        assert note_on_near_copies(x, np.sin(x)) == ()


def test_weights_that_few_rows_have_are_told_of():
    x = RNG.normal(size=(60, 2))
    weight = np.exp(4 * RNG.normal(size=60))
    model = TreeFlowRegressor(effort="fast", max_trees=2, random_state=0)
    assert "few of the 60 rows have most of the weight" in model.fit(x, x[:, 0], sample_weight=weight).summary()
    assert "most of the weight" not in model.fit(x, x[:, 0], sample_weight=np.full(60, 7.0)).summary()


def test_near_rows_are_worth_what_the_nearest_of_more_rows_tells_more():
    x = RNG.normal(size=(3000, 3))
    assert abs(worth_of_near_rows(x, RNG.normal(size=(3000, 1)), 0.4)) < 0.1
    copies = np.repeat(np.arange(1000), 3)[RNG.permutation(3000)]
    near, known = x[copies] + 1e-6 * RNG.normal(size=x.shape), RNG.normal(size=(1000, 2))[copies]
    near[:5, 0] = np.nan  # a row with missing values is not near
    # Of all rows 8 in 9 of those asked have a copy among the others, of .4 of them 5 in 9: the others err by about 1.
    assert 1.0 < worth_of_near_rows(near, known, 0.4) < 4.0
    assert worth_of_near_rows(near, known, 1.0) == 0.0


@pytest.mark.parametrize("odd", [np.nan, 1e300])
def test_near_rows_are_worth_the_same_beside_columns_of_nothing_and_in_huge_units(odd):
    x = RNG.normal(size=(2000, 2))
    y = np.sin(3 * x[:, :1])
    plain = worth_of_near_rows(x, y, 0.2)
    assert plain > 0.1
    assert worth_of_near_rows(np.column_stack([x, np.full(2000, odd)]), y, 0.2) == pytest.approx(plain, abs=1e-6)
    assert worth_of_near_rows(1e300 * x, 1e300 * y, 0.2) == pytest.approx(plain, abs=1e-6)


@pytest.mark.parametrize(
    ("least", "answers", "asked", "expected"),
    [
        (0.04, [0.03], [3000], False),
        (0.04, [0.1], [3000], True),
        (0.04, [0.06, 0.02], [3000, 12_000], False),
        (0.04, [0.06, 0.05], [3000, 12_000], True),
        (0.2, [0.15], [1000], False),
        (0.2, [0.22, 0.21], [1000, 12_000], True),
        (-np.inf, [-0.5], [3000], True),
    ],
)
def test_more_rows_are_asked_where_few_seem_to_say_that_near_rows_tell(monkeypatch, least, answers, asked, expected):
    found, left = [], list(answers)

    def worth(x, y, share, n_asked):
        found.append(n_asked)
        return left.pop(0)

    monkeypatch.setattr(twins, "worth_of_near_rows", worth)
    assert do_near_rows_tell(np.empty((5, 1)), np.empty((5, 1)), 0.4, least) is expected
    assert found == asked


def test_noise_seldom_says_that_near_rows_tell():
    rng = np.random.default_rng(8)
    tables = [(rng.normal(size=(20_000, 4)), rng.normal(size=(20_000, 1))) for _ in range(20)]
    assert sum(twins.worth_of_near_rows(x, y, 0.4, 1000) > 0.04 for x, y in tables) > 0
    assert not any(do_near_rows_tell(x, y, 0.4, 0.04) for x, y in tables)
