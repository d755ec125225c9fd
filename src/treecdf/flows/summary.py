"""The description of a fitted model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treecdf._common.typing import Array
from treecdf.bases.components import describe_tail
from treecdf.bases.conditional import Conditional
from treecdf.bases.stacked import Stacked
from treecdf.bases.student import NORMAL, Student
from treecdf.data.columns import Covariates, Date, Ordered
from treecdf.flows.chain import Chain
from treecdf.flows.flow import TreeFlow
from treecdf.flows.learnt import Learnt, flows_inside, flows_of_bases
from treecdf.flows.mixture import Mixture
from treecdf.flows.regions import NearestPoint
from treecdf.flows.results import EndedStage, Family

# What the families of a model are, by name
KINDS = {
    "flow": "flows of one outcome on a conditional base",
    "mixture": "a flow of one outcome on a boosted mixture",
    "network": "a flow of one outcome on a network mixture",
    "joint": "flows of all outcomes",
    "refined": "a flow on the model of a sample of the rows",
    "repeats": "flows on an unconditional base, for outcomes that come again in the same combinations",
}
_FOR_REPEATS = "repeats"  # the family of outcomes that come again in the same combinations (ADR 16)


def summarize(families: Sequence[Family], weights: Array, outcomes: Sequence[str]) -> str:
    """Lines of text: each family, its weight, its mean log-likelihood of left-out rows, and its base."""
    pairs = zip(families, weights, strict=True)
    return "\n".join(line for family, weight in pairs for line in _family(family, weight, outcomes))


def note_on_memory(mixture: Mixture, remember_rows: bool) -> str:
    """A line of the summary: how many training rows the model contains; parts that share rows count each."""
    bases = {id(flow.base): flow.base for flow in flows_inside(mixture) if isinstance(flow.base, Conditional)}
    regions = mixture.regions
    has_rows = isinstance(regions, NearestPoint) and len(regions.points) > regions.n_regions  # of HDBSCAN
    if not remember_rows or not (bases or has_rows):
        return "training rows that the model remembers: none"
    with_outcomes, covariates = 0, len(regions.points) if isinstance(regions, NearestPoint) and has_rows else 0
    for base in bases.values():
        covariates += len(base.reach.points)
        if isinstance(base.components, Stacked):
            more = base.components.n_held()
            with_outcomes, covariates = with_outcomes + more[0], covariates + more[1]
    return (
        f"training rows that the model remembers: {with_outcomes:,} with their outcomes, "
        f"standardised covariates of {covariates:,} more at most (remember_rows=False: none)"
    )


def notes_on_columns(covariates: Covariates, names: Sequence[str]) -> list[str]:
    """Lines of the summary about columns whose encoding is not obvious: dates and ordered categories."""
    told = []
    for name, part in zip(names, covariates.columns, strict=True):
        if isinstance(part, Date):
            told.append(f"note: column {name!r} holds dates, read as {part}")
        elif isinstance(part, Ordered):
            told.append(f"note: the levels of column {name!r} have an order, read as a number beside them")
    return told


def note_on_repeats(stage: EndedStage) -> str:
    """A line of the summary about a stage that ended at outcomes that repeat."""
    return f"note: {_ended(stage)}, at outcomes that repeat: their density grows without bound"


def note_on_compacting(
    tolerance: float, flows: tuple[int, ...], trees: tuple[int, int], change: float, n_rows: int
) -> str:
    """A line of the summary about a compacted model; flows, trees: how many are left, and how many there were."""
    return (
        f"note: compacted with the tolerance {tolerance:g}: {flows[0]} of {flows[1]} flow(s) and {trees[0]} of "
        f"{trees[1]} trees are left; log densities of {n_rows} rows changed by {change:.2g} on average"
    )


def warning_about_repeats(stages: Sequence[EndedStage]) -> str | None:
    """A warning about stages that ended at outcomes that repeat; None if no warning is needed.

    None is needed for the family that is trained because outcomes repeat: its first stage learns the repeats as far as
    it can.
    """
    told = [_ended(stage) for stage in stages if stage.family != _FOR_REPEATS]
    if not told:
        return None
    return (
        f"Training was cut short: {', '.join(told)}. Some outcomes repeat exactly, or differ by next to nothing "
        "compared with their range, so that their density grows without bound. What helps: atoms, for values of one "
        "outcome that have a probability of their own; resolution, for outcomes that were rounded; CompositionalFlow, "
        "for compositions with zeros."
    )


def _ended(stage: EndedStage) -> str:
    """Which stage ended and how many trees were kept, in words."""
    fewest, most = stage.n_trees
    numbers = f"{most} tree{'s' * (most != 1)}" if fewest == most else f"{fewest} to {most} trees"
    return f"stage {stage.number} of the family {stage.family!r} ended after {numbers}"


def _family(family: Family, weight: float, outcomes: Sequence[str]) -> Iterator[str]:
    """Lines about one family; only its first member is described."""
    known = np.isfinite(family.left_out)
    score = f"{family.left_out[known].mean():.3f}" if known.any() else "unknown"
    meaning = "(mean log density, more is better)"
    yield f"{family.name}, weight {weight:.2f}: log-likelihood of left-out rows {meaning} {score}"
    for member in family.members[:1]:
        if isinstance(member, Chain):
            yield "  a chain of flows of one outcome on conditional bases"
            for number, link in zip(member.order, member.links, strict=True):
                yield f"  outcome {outcomes[number]}: {_flows(link.tree_flows())}"
                yield from _base(link.tree_flows()[0], "    ")
        else:
            yield f"  {KINDS[family.name]}: {_flows([flow for m in family.members for flow in m.tree_flows()])}"
            yield from _base(member.tree_flows()[0], "  ")


def _flows(flows: Sequence[TreeFlow]) -> str:
    """Numbers of flows and of their trees, in words."""
    trees = sum(len(stage) for flow in flows for stage in flow.stages)
    return f"{len(flows)} flow{'s' * (len(flows) > 1)}, {trees} trees"


def _base(flow: TreeFlow, indent: str) -> Iterator[str]:
    """Lines about the base of a flow."""
    base = flow.base
    if isinstance(base, Conditional):
        yield from (indent + line for line in base.components.describe())
        parts, broad = f"{base.components.n_components} {describe_tail(base.tail)}", f"{np.exp(base.log_broad):.2%}"
        yield f"{indent}components: {parts}, and a broad one of weight {broad} for what nobody foresaw"
        yield f"{indent}transform of the outcome: {base.transform.name}"
    elif isinstance(base, Student) and (base.dof == NORMAL).all():
        yield f"{indent}base: normal"
    elif isinstance(base, Student):
        yield f"{indent}base: Student t, degrees of freedom {', '.join(f'{dof:g}' for dof in base.dof)}"
    elif isinstance(base, Learnt):
        weights = np.exp(base.mixture.log_weights[-1])
        for inner in flows_of_bases(base.mixture):
            share = sum(weights[[member.base is inner.base for member in base.mixture.tree_flows()]])
            yield f"{indent}of the sample, weight {share:.2f}:"
            yield from _base(inner, indent + "  ")
    else:
        yield f"{indent}base: box with tails"
