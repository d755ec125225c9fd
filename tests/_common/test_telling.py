"""Telling how far a computation is: shares of parts of parts, in order, and nothing without a listener."""

from treecdf._common.telling import each_fold, listening, part, share_done, tell


def test_parts_of_parts_tell_shares_of_the_whole():
    heard = []
    with listening(lambda *news: heard.append(news)):
        with part("base", 0.0, 0.5), part("learner 2 of 2", 0.5, 1.0):
            assert list(each_fold(2)) == [0, 1]
        with part("", 0.5, 1.0):
            tell("tree 1", 0.5)
            assert share_done(1.0) == 1.0
    assert heard == [
        ("base", 0.0, True),
        ("base: learner 2 of 2", 0.25, True),
        ("base: learner 2 of 2: fold 1 of 2", 0.25, False),
        ("base: learner 2 of 2: fold 2 of 2", 0.375, False),
        ("tree 1", 0.75, False),
    ]


def test_nobody_hears_without_a_listener():
    with part("base", 0.0, 0.5):
        tell("round 1", 0.5)
        assert share_done(0.25) == 0.25
