"""Training of what samples of one subject have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treecdf._common.typing import Array, Bools, Ints
from treecdf.flows.composition.drawing import At, draw_ratios
from treecdf.flows.composition.presence import Presence
from treecdf.flows.composition.ratios import Link, Ratios
from treecdf.flows.composition.subjects import Subjects, normal_scores, pairs

_MOST_ROWS = 400  # of whole subjects, whose distances decide how strong the correlations are
_NEAR = 0.25  # share of the pairs of samples of one subject, the nearest in time, whose distances are compared
_POWERS = (1.0, 12.0)  # between which the strength is sought
_STEPS = 7  # of halving


def fit_subjects(
    kin: tuple[Ints, Array],
    at: At,
    effects: Array,
    ratios: Ratios,
    presence: Presence,
    links: Sequence[Link],
    rng: np.random.Generator,
) -> Subjects:
    """The correlations between training samples of one subject, beyond what their covariates explain.

    The correlations of each taxon's own residuals give their pattern over taxa and time. Then all are made stronger,
    until draws of one subject are as near to one another as its samples are. Nearness is the Bray-Curtis distance
    divided by that between different subjects; otherwise draws that differ too much in general would be made too alike.
    The last step is needed because a residual is that of one link of a chain: what a sample shares with another one
    through neighbouring taxa is not in it, so that draws would be too far apart.
    """
    found = Subjects.fit(
        *kin, (ratios.present, presence.chances(effects, ratios.present)), _scores(at, effects, ratios, links)
    )
    rows = _some_subjects(kin[0], rng)
    subject, time = kin[0][rows], kin[1][rows]
    first, second = pairs(subject)
    other = _of_others(subject, first, rng)
    if not len(first) or other is None:
        return found
    gap = np.abs(time[first] - time[second])
    near = gap <= np.quantile(gap, _NEAR)
    first, second, other = first[near], second[near], other[near]
    here = At(at.x[rows], None if at.floor is None else at.floor[rows], None)
    real = _nearness(ratios.abundances()[rows], first, second, other)
    low, high = np.log(_POWERS)
    seed = int(rng.integers(2**31))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        uniforms = found.stronger(np.exp(middle)).uniforms(subject, time, (1, len(links)), np.random.default_rng(seed))
        drawn = draw_ratios(here, effects[rows], presence, links, uniforms, exact=True).abundances()
        low, high = (middle, high) if _nearness(drawn, first, second, other) > real else (low, middle)
    return found.stronger(float(np.exp((low + high) / 2)))


def _scores(at: At, effects: Array, ratios: Ratios, links: Sequence[Link]) -> Array:
    """Normal scores (n, K) of the log ratios given what comes before; NaN where there is none."""
    scores = np.full(ratios.present.shape, np.nan)
    for k, link in enumerate(links):
        rows = np.flatnonzero(ratios.follows[:, k])
        if len(rows):
            given = link.given(at.x[rows], effects[rows], ratios.features(k)[rows])
            floor = None if at.floor is None else at.floor[rows]
            scores[rows, k] = normal_scores(link.level(ratios.log_ratio(k)[rows], given, floor))
    return scores


def _some_subjects(subject: Ints, rng: np.random.Generator) -> Ints:
    """Rows of randomly drawn subjects, up to a limit on their number; in the order of the rows."""
    taken: Bools = np.zeros(len(subject), bool)
    for s in rng.permutation(np.unique(subject)):
        own = subject == s
        if taken.any() and taken.sum() + own.sum() > _MOST_ROWS:
            break
        taken |= own
    return np.flatnonzero(taken)


def _of_others(subject: Ints, rows: Ints, rng: np.random.Generator) -> Ints | None:
    """For each of the rows a row of another subject; None if there is only one subject."""
    if (subject == subject[0]).all():
        return None
    others = [np.flatnonzero(subject != s) for s in range(int(subject.max()) + 1)]
    return np.array([rng.choice(others[subject[row]]) for row in rows], np.int64)


def _nearness(y: Array, first: Ints, second: Ints, other: Ints) -> float:
    """Mean distance of pairs of samples of one subject, divided by that of samples of different subjects."""
    return _distance(y, first, second) / max(_distance(y, first, other), 1e-300)


def _distance(y: Array, first: Ints, second: Ints) -> float:
    """Mean Bray-Curtis distance of pairs of compositions."""
    return float(np.abs(y[first] - y[second]).sum(axis=1).mean() / 2)
