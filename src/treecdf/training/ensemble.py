"""Many flows, one distribution: families of members trained side by side, then weighed by rows they did not see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from treecdf._common.random import child
from treecdf._common.steps import Sizes, Steps, Stopped
from treecdf._common.typing import Array, Ints
from treecdf.data.table import Table
from treecdf.flows.chain import Chain
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Flow, Mixture
from treecdf.flows.regions import Regions, fit_regions
from treecdf.flows.results import Family, Fitted, History
from treecdf.flows.weights import equal_weights, likelihood_weights, maximise, stacked_weights
from treecdf.training.boosting import fit_conditional_flows, fit_flow, fit_streamed_flow
from treecdf.training.jobs import Job, Report, StepsOf, Workers, run_job
from treecdf.training.plan import Plan
from treecdf.training.settings import Recipe
from treecdf.training.sources.rows import Source

_HOPELESS = 0.1  # nats a row behind the best family: not worth training the rest of a family
_SMALLEST_FAMILY = 1e-3  # families of less weight are dropped


@dataclass(frozen=True)
class Ensemble:
    """Families and their weights; what is missing because the fit was stopped."""

    families: tuple[Family, ...]
    weights: Array
    histories: tuple[History, ...]
    missing: tuple[str, ...]

    def mixture(self) -> Mixture:
        """All members as one mixture."""
        members = [member for family in self.families for member in family.members]
        if len(self.families) == 1:
            return Mixture(tuple(members), self.families[0].log_weights, self.families[0].regions)
        with np.errstate(divide="ignore"):
            parts = [
                log_weight + family.log_weights
                for log_weight, family in zip(np.log(self.weights), self.families, strict=True)
            ]
        regions = next((family.regions for family in self.families if family.regions is not None), None)
        n_rows = max(map(len, parts))
        return Mixture(tuple(members), np.hstack([np.broadcast_to(p, (n_rows, p.shape[1])) for p in parts]), regions)


def fit_ensemble(
    plan: Plan,
    table: Table,
    validation: Table | None,
    rng: np.random.Generator,
    n_jobs: int | None,
    n_threads: int,
    report: Report,
    steps_of: StepsOf = lambda number, sizes: Steps(),
) -> Ensemble:
    """Train all families and weigh them. Validation rows, if there are any, replace those set aside of the table.

    If it is stopped, what was trained so far is all there is; if that is nothing, KeyboardInterrupt is raised.
    """
    workers = Workers(n_jobs, n_threads, report, steps_of)
    families: list[Family] = []
    if plan.conditional is not None:
        families += _fit_chains(plan, plan.conditional, table, validation, rng, workers)
    # All joint families set aside the same rows: they are compared on rows that none of them saw.
    aside = _set_aside(plan, table, validation, rng)
    regions = None
    if plan.joint and len(plan.rotations) > 1 and plan.weights != "equal":
        regions = fit_regions(plan.regions, table.x, table.weight, rng)
    for name, recipe in plan.joint.items():
        families += _fit_joint(plan, name, recipe, table, validation, aside, rng, workers, families, regions)
    if not families:
        raise KeyboardInterrupt
    weights = np.ones(1)
    if len(families) > 1:
        rows = table if validation is None else validation
        left_out = np.column_stack([family.left_out for family in families])
        known = np.isfinite(left_out).all(axis=1)
        weights = maximise(left_out[known], rows.weight[known], np.ones(len(families)))
    kept = weights >= _SMALLEST_FAMILY
    chosen = tuple(family for family, keep in zip(families, kept, strict=True) if keep)
    return Ensemble(chosen, weights[kept] / weights[kept].sum(), tuple(workers.histories), workers.all_missing())


def fit_streamed(
    recipe: Recipe,
    open_sources: Callable[[Ints, Executor | None], contextlib.AbstractContextManager[tuple[Source, Source | None]]],
    n: int,
    validation_fraction: float,
    rng: np.random.Generator,
    n_threads: int,
    report: Report,
    steps: Steps,
) -> Ensemble:
    """Train one flow of all outcomes on n rows that a source has; it sets aside the rows that a table would.

    open_sources: gives the sources of training and of validation rows, told which of the n rows are the latter.
    """
    aside = validation_folds(n, validation_fraction, 1, rng)[0] if validation_fraction > 0 else np.empty(0, np.int64)
    fitted = run_job(
        fit_streamed_flow,
        recipe,
        partial(open_sources, aside),
        child(rng),
        steps=steps,
        n_threads=n_threads,
        report=partial(report, 1, 0),
    )
    if fitted is None:
        raise KeyboardInterrupt
    missing = () if fitted.is_whole else ("some trees",)
    left_out = np.full(1, np.nan) if fitted.left_out is None else fitted.left_out
    return Ensemble(
        (Family("joint", fitted.flows, left_out, equal_weights(1)),), np.ones(1), (fitted.history,), missing
    )


def _fit_chains(
    plan: Plan,
    recipe: Recipe,
    table: Table,
    validation: Table | None,
    rng: np.random.Generator,
    workers: Workers,
) -> list[Family]:
    """One family for each order of the outcomes; orders share the links they have in common."""
    fold = rng.permutation(len(table)) % min(plan.n_folds, len(table))
    links = sorted({(order[k], tuple(sorted(order[:k]))) for order in plan.orders for k in range(len(order))})
    jobs = []
    for outcome, given in links:
        train = _link_table(table, outcome, given)
        held_out = None if validation is None else _link_table(validation, outcome, given)
        own = replace(recipe, bounds=(recipe.bounds[outcome],))
        learners = plan.learners(*train.x.shape)
        is_stopped = plan.validation_fraction > 0
        n_left_out = len(held_out) if held_out is not None else len(train) if is_stopped else None
        args = (own, learners, train, fold, held_out, is_stopped)
        jobs.append(Job(fit_conditional_flows, args, Sizes(train.x.shape[1], 1, n_left_out)))
    fitted = dict(zip(links, workers.run(jobs, rng), strict=True))
    families = []
    for order in plan.orders:
        name = "flow" if len(order) == 1 else "chain " + " ".join(map(str, order))
        of_order = _trained(fitted[order[k], tuple(sorted(order[:k]))] for k in range(len(order)))
        if len(of_order) < len(order):
            workers.missing.append(f"the family {name!r}")
            continue
        n_rows = len(table if validation is None else validation)
        left_out = np.sum(
            [np.full(n_rows, np.nan) if link.left_out is None else link.left_out for link in of_order], axis=0
        )
        if len(order) == 1:
            flows: tuple[Flow, ...] = of_order[0].flows
            families.append(Family(name, flows, left_out, equal_weights(len(flows))))
        else:
            mixtures = tuple(Mixture(link.flows, equal_weights(len(link.flows))) for link in of_order)
            families.append(Family(name, (Chain(mixtures, order),), left_out, equal_weights(1)))
    return families


def _trained(fitted: Iterable[Fitted | None]) -> list[Fitted]:
    return [part for part in fitted if part is not None]


def _link_table(table: Table, outcome: int, given: Sequence[int]) -> Table:
    """One outcome, with others among the covariates."""
    x = np.ascontiguousarray(np.hstack([table.x, table.y[:, list(given)]])) if given else table.x
    return Table(x, table.y[:, [outcome]], table.weight, table.number)


def _fit_joint(
    plan: Plan,
    name: str,
    recipe: Recipe,
    table: Table,
    validation: Table | None,
    aside: Sequence[Table | Ints | None],
    rng: np.random.Generator,
    workers: Workers,
    others: Sequence[Family],
    regions: Regions | None,
) -> list[Family]:
    """A family of flows of all outcomes; none if its first member is far behind the best of the other families."""
    jobs = []
    for matrix, held_out in zip(plan.rotations, aside, strict=True):
        sizes = Sizes(table.x.shape[1], table.y.shape[1], None if held_out is None else len(held_out))
        jobs.append(Job(_fit_joint_flow, (replace(recipe, rotation=matrix), table, held_out), sizes))
    fitted: list[Fitted | None] = []
    if others:
        (first,) = workers.run(jobs[:1], rng)
        rows = table if validation is None else validation
        if first is not None and first.is_whole and _is_hopeless(first, aside[0], others, rows):
            return []
        fitted.append(first)
    fitted += workers.run(jobs[len(fitted) :], rng)
    # A flow that was cut short would spoil those that were not.
    any_whole = any(part.is_whole for part in _trained(fitted))
    chosen = [k for k, part in enumerate(fitted) if part is not None and part.is_whole >= any_whole]
    if len(chosen) < len(jobs):
        workers.missing.append(f"{len(jobs) - len(chosen)} of {len(jobs)} flows of the family {name!r}")
    if not chosen:
        return []
    trained = _trained(fitted[k] for k in chosen)
    flows = tuple(part.flows[0] for part in trained)
    n_rows = len(table if validation is None else validation)
    left_out = _left_out([part.left_out for part in trained], [aside[k] for k in chosen], n_rows)
    log_weights = _weigh(plan, flows, table, aside[0], regions)
    return [Family(name, flows, left_out, log_weights, regions)]


def _set_aside(
    plan: Plan, table: Table, validation: Table | None, rng: np.random.Generator
) -> Sequence[Table | Ints | None]:
    """For each member the validation table, or the rows it sets aside, or None."""
    n_members = len(plan.rotations)
    if validation is not None:
        return [validation] * n_members
    if plan.validation_fraction == 0:
        return [None] * n_members
    if plan.weights == "equal":
        return validation_folds(len(table), plan.validation_fraction, n_members, rng)
    # Members are weighed by rows that all of them, or none of them, were trained on.
    return validation_folds(len(table), plan.validation_fraction, 1, rng) * n_members


def _is_hopeless(first: Fitted, aside: Table | Ints | None, others: Sequence[Family], rows: Table) -> bool:
    if first.left_out is None:
        return False
    here = slice(None) if not isinstance(aside, np.ndarray) else aside
    weight = rows.weight[here]
    best = max(float(weight @ family.left_out[here]) for family in others)
    return float(weight @ first.left_out) < best - _HOPELESS * weight.sum()


def _left_out(parts: Sequence[Array | None], aside: Sequence[Table | Ints | None], n: int) -> Array:
    """Log density (n,) of each row by the mixture of the members that did not see it."""
    total, count = np.full(n, -np.inf), np.zeros(n)
    for log_density, rows in zip(parts, aside, strict=True):
        if log_density is not None:
            here = rows if isinstance(rows, np.ndarray) else np.arange(n)
            total[here] = np.logaddexp(total[here], log_density)
            count[here] += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count > 0, total - np.log(count), np.nan)


def _weigh(
    plan: Plan, flows: Sequence[TreeFlow], table: Table, validation: Table | Ints | None, regions: Regions | None
) -> Array:
    """Log weights (regions + 1, members) of the joint flows, by the plan's rule."""
    if regions is None:
        return equal_weights(len(flows))
    train, held_out = split(table, validation)
    rule, rows = likelihood_weights, train
    if plan.weights == "stacked" and held_out is not None:
        rule, rows = stacked_weights, held_out
    log_prob = np.column_stack([flow.forward_and_log_det(rows.y[:, None], rows.x)[1] for flow in flows])
    return rule(log_prob, rows.weight, regions(rows.x), regions.n_regions)


def validation_folds(n: int, fraction: float, n_members: int, rng: np.random.Generator) -> list[Ints]:
    """Rows each member sets aside, in order: every row is set aside about equally often."""
    count = min(max(1, round(fraction * n)), n - 1)
    order = rng.permutation(n)
    return [np.sort(order[(j * count + np.arange(count)) % n]) for j in range(n_members)]


def _fit_joint_flow(
    recipe: Recipe, table: Table, validation: Table | Ints | None, rng: np.random.Generator, *how: Any
) -> Fitted:
    train, held_out = split(table, validation)
    fitted = fit_flow(recipe, train, held_out, rng, *how)
    if not fitted.is_whole and not any(fitted.history.kept):
        raise Stopped
    return fitted


def split(table: Table, validation: Table | Ints | None) -> tuple[Table, Table | None]:
    """Training and validation rows."""
    if validation is None or isinstance(validation, Table):
        return table, validation
    aside = np.zeros(len(table), bool)
    aside[validation] = True
    return table.take(~aside), table.take(aside)
