"""Families of flows: trained side by side, then weighed by their likelihood on left-out rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.special import logsumexp

from treecdf._common.steps import Interrupted, Sizes, Stopped
from treecdf._common.typing import Array, Ints, Units
from treecdf.bases.components import ComponentLearner, MixtureLearner
from treecdf.bases.looking import look_at_mixture
from treecdf.bases.network_mixture import MixtureNetwork
from treecdf.bases.protocol import Base
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table
from treecdf.data.units import draw_folds, set_aside
from treecdf.flows.chain import Chain
from treecdf.flows.flow import TreeFlow
from treecdf.flows.mixture import Mixture
from treecdf.flows.regions import Regions, fit_regions
from treecdf.flows.results import EndedStage, Family, Fitted, History, ended_stages
from treecdf.flows.weights import TRAINING_RULES, equal_weights, likelihood_weights, maximise, stacked_weights
from treecdf.training.boosting import LeftOut, fit_conditional_flows, fit_flow, fit_streamed_flow
from treecdf.training.contest import USUAL
from treecdf.training.context import TrainingContext
from treecdf.training.defaults import are_enough_for_network_mixtures
from treecdf.training.jobs import Job, Workers
from treecdf.training.plan import Plan
from treecdf.training.settings import Recipe
from treecdf.training.sources.rows import Source

ALONE, LINKS = "the family 'flow'", "links of the chains"  # what is being trained, in the line of progress
_HOPELESS = 0.1  # nats a row behind the best family: not worth training the rest of a family
_NOT_WORTH_IT = 0.2  # nats a row that a mixture may be behind at a first look, on few rows, to be trained
_NOT_WORTH_A_LOOK = 0.15  # nats a row that the boosted mixture may be behind for a look at networks
# Nats a row that networks may be behind at that look, of few steps, to be trained; nothing where outcomes are on few
# values: a network's loss takes two CDFs a row there, two thirds of the time of such a fit
_NOT_WORTH_A_NETWORK = 0.03
_WORTH_A_FAMILY = 0.001  # nats a row that a family of little weight has to add to the others
_WORTH_A_FAMILY_IN_ALL = 5.0  # nats that any family has to add to the others, all rows together
_SURE = 2.0  # standard errors that this has to be besides
_LITTLE_WEIGHT = 0.1
_NO_WEIGHT = 1e-3  # families of less weight are dropped
Link = tuple[int, tuple[int, ...]]  # of a chain: an outcome, and those that are covariates of it


@dataclass(frozen=True)
class Ensemble:
    """Families and their weights; what is missing because the fit was stopped; stages that ended at repeats."""

    families: tuple[Family, ...]
    weights: Array
    histories: tuple[History, ...]
    missing: tuple[str, ...]
    ended: tuple[EndedStage, ...]  # of the families above

    def left_out(self, weight: Array) -> float:
        """Mean log density of the left-out rows of these weights (n,) whose densities all families know."""
        parts = np.column_stack([family.left_out for family in self.families])
        known = np.isfinite(parts).all(axis=1)
        total = logsumexp(parts[known], axis=1, b=self.weights)
        return float(np.average(total, weights=weight[known])) if known.any() else np.nan

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
    plan: Plan, table: Table, validation: Table | None, rng: np.random.Generator, workers: Workers
) -> Ensemble:
    """Train all families and weigh them; given validation rows replace those set aside from the table.

    If training is stopped, the ensemble has what was trained so far; if that is nothing, Stopped is raised.
    """
    trainer = _Trainer(plan, table, validation, rng, workers)
    families = trainer.chains()
    families += trainer.joint_families(families)
    if not families:
        raise Stopped
    left_out = np.column_stack([family.left_out for family in families])
    kept, weights = weigh_families(left_out, trainer.left_out_rows.weight)
    chosen = tuple(families[k] for k in kept)
    ended = [stage for family in chosen for stage in ended_stages(family.name, trainer.histories[family.name])]
    return Ensemble(chosen, weights, tuple(workers.histories), workers.all_missing(), tuple(ended))


def weigh_families(left_out: Array, weight: Array) -> tuple[list[int], Array]:
    """The families worth keeping, by number, and their weights.

    left_out (n, families) are log densities of rows, NaN where all members were trained on them; weight (n,) is that of
    the rows. A family is dropped if left-out rows are hardly less likely without it, the last families first because
    the first ones are simpler: every family costs time in prediction, and one may be the best on few rows by chance.
    """
    kept = list(range(left_out.shape[1]))
    known = np.isfinite(left_out).all(axis=1)
    left_out, weight = left_out[known], weight[known]
    weights = maximise(left_out, weight, np.ones(len(kept)))
    while len(kept) > 1 and known.any():
        whole = logsumexp(left_out[:, kept], axis=1, b=weights)
        for last in reversed(range(len(kept))):  # the first are simpler
            rest = kept[:last] + kept[last + 1 :]
            without = maximise(left_out[:, rest], weight, np.ones(len(rest)))
            lost = whole - logsumexp(left_out[:, rest], axis=1, b=without)
            added = weight @ lost
            error = np.sqrt(weight @ (lost - added / weight.sum()) ** 2)
            is_small = weights[last] <= _LITTLE_WEIGHT and added < _WORTH_A_FAMILY * weight.sum()
            if is_small or weights[last] < _NO_WEIGHT or added < max(_WORTH_A_FAMILY_IN_ALL, _SURE * error):
                break
        else:
            break
        kept, weights = rest, without
    return kept, weights


def fit_streamed(
    recipe: Recipe,
    open_sources: Callable[[Ints, Executor | None], contextlib.AbstractContextManager[tuple[Source, Source | None]]],
    units: Units,
    n_covariates: int,
    validation_fraction: float,
    rng: np.random.Generator,
    workers: Workers,
    given: tuple[Standardizer, Base] | None = None,
    name: str = "joint",
) -> Ensemble:
    """Train one flow of all outcomes on the rows of a source, with the same validation rows as for a table.

    open_sources: returns the sources of training and of validation rows, given which rows are the latter. units: those
    of all rows, in the order of the source. given: scales of the covariates and base, if they are known. name: of the
    family.
    """
    aside = set_aside(units, validation_fraction, 1, rng)[0] if validation_fraction > 0 else np.empty(0, np.int64)
    fit = partial(fit_streamed_flow, recipe, partial(open_sources, aside), given)
    (fitted,) = workers.run([Job(fit, Sizes(n_covariates, len(recipe.bounds), 1 if len(aside) else None))], rng)
    if fitted is None:
        raise Stopped
    left_out = np.full(1, np.nan) if fitted.left_out is None else fitted.left_out
    family = Family(name, fitted.flows, left_out, equal_weights(1))
    ended = ended_stages(family.name, [fitted.history])
    return Ensemble((family,), np.ones(1), (fitted.history,), workers.all_missing(), tuple(ended))


@dataclass(frozen=True)
class _Trainer:
    """Trains the families of a plan on a table."""

    plan: Plan
    table: Table
    validation: Table | None
    rng: np.random.Generator
    workers: Workers
    histories: dict[str, list[History]] = field(default_factory=dict)  # of the families trained so far, by name

    @property
    def left_out_rows(self) -> Table:
        """The rows for which families have left-out log densities."""
        return self.table if self.validation is None else self.validation

    def chains(self) -> list[Family]:
        """One family for each order of the outcomes; orders share the links they have in common."""
        plan = self.plan
        if plan.conditional is None:
            return []
        fold = draw_folds(self.table.unit, plan.n_folds, self.rng)
        links = sorted({(order[k], tuple(sorted(order[:k]))) for order in plan.orders for k in range(len(order))})
        worth = {link: self._winners(link, fold) for link in links}
        jobs = [self._link_job(plan.conditional, *link, fold, self._first_learner(link, worth[link])) for link in links]
        parts = self.workers.run(jobs, self.rng, ALONE if len(jobs) == 1 else LINKS)
        fitted = {link: {"flow": part} for link, part in zip(links, parts, strict=True)}
        for name, learner in plan.mixtures.items():
            self._add_mixtures(name, learner, fitted, fold, worth)
        families = []
        for order in plan.orders:
            of_order = [fitted[order[k], tuple(sorted(order[:k]))] for k in range(len(order))]
            name = "flow" if len(order) == 1 else "chain " + " ".join(map(str, order))
            if any(parts["flow"] is None for parts in of_order):
                self.workers.missing.append(f"the family {name!r}")
            elif len(order) == 1:
                families += [self._alone(way, part) for way, part in of_order[0].items() if part is not None]
            else:
                families.append(self._chain(name, order, [_trained(parts.values()) for parts in of_order]))
        return families

    def _winners(self, link: Link, fold: Ints) -> list[str]:
        """The kinds of bases that a contest found worth training for a link, the first to begin with; none without."""
        if self.plan.contest is None or self.plan.conditional is None:
            return []
        self.workers.look(ALONE)
        recipe = replace(self.plan.conditional, bounds=(self.plan.conditional.bounds[link[0]],))
        return self.plan.contest.winners(recipe, self.table.link(*link), fold)

    def _first_learner(self, link: Link, winners: Sequence[str]) -> ComponentLearner | None:
        """What learns the base that comes first; None if it is the usual one."""
        if not winners or winners[0] == USUAL:
            return None
        return self.plan.mixtures[winners[0]](len(self.table), self.table.x.shape[1] + len(link[1]))

    def _add_mixtures(
        self,
        name: str,
        learner: Callable[[int, int], MixtureLearner],
        fitted: dict[Link, dict[str, Fitted | None]],
        fold: Ints,
        worth: Mapping[Link, Sequence[str]],
    ) -> None:
        """Train bases of another kind for those links where a quick look, or a contest, is promising.

        They get no trees.
        """
        assert self.plan.conditional is not None
        recipe, jobs = replace(self.plan.conditional, max_trees=0), dict[Link, Job]()
        self.workers.look(f"the family {name!r}")
        for link, parts in fitted.items():
            table = self.table.link(*link)
            components: ComponentLearner | None = learner(*table.x.shape)
            if self.plan.contest is None:
                components = self._worth_training(learner(*table.x.shape), table, fold, parts)
            elif name not in worth[link][1:] or parts["flow"] is None:
                components = None
            if components is not None:
                jobs[link] = self._link_job(recipe, *link, fold, components)
        if not jobs:
            return
        trained = self.workers.run(list(jobs.values()), self.rng, f"the family {name!r}")
        for link, part in zip(jobs, trained, strict=True):
            fitted[link][name] = part
            if part is None:
                self.workers.missing.append(f"the family {name!r}")

    def _worth_training(
        self, learner: MixtureLearner, table: Table, fold: Ints, parts: Mapping[str, Fitted | None]
    ) -> MixtureLearner | None:
        """The mixture with settings chosen by a quick look; None if it is far behind the trained parts."""
        flow, boosted = parts["flow"], parts.get("mixture")
        if flow is None or flow.left_out is None:
            return None
        is_network = isinstance(learner, MixtureNetwork)
        if is_network and not are_enough_for_network_mixtures(*table.x.shape):
            if boosted is None or boosted.left_out is None:
                return None
            ahead = float(np.average(boosted.left_out - flow.left_out, weights=self.left_out_rows.weight))
            if ahead < -_NOT_WORTH_A_LOOK:
                return None
        decided, value, seen = look_at_mixture(learner, table, fold)
        if self.validation is not None:
            seen = np.arange(len(self.validation))
        others = float(np.average(flow.left_out[seen], weights=self.left_out_rows.weight[seen]))
        few_values = table.cells is not None
        behind = (0.0 if few_values else _NOT_WORTH_A_NETWORK) if is_network else _NOT_WORTH_IT
        return decided if value > others - behind else None

    def _link_job(
        self, recipe: Recipe, outcome: int, given: Sequence[int], fold: Ints, learner: ComponentLearner | None = None
    ) -> Job:
        """Training of p(outcome | x, given outcomes)."""
        plan, train = self.plan, self.table.link(outcome, given)
        validation = None if self.validation is None else self.validation.link(outcome, given)
        own = replace(recipe, bounds=(recipe.bounds[outcome],))
        stops = plan.validation_fraction > 0
        n_left_out = len(validation) if validation is not None else len(train) if stops else None
        left_out = LeftOut(fold, validation, stops)
        fit = partial(fit_conditional_flows, own, learner or plan.base(*train.x.shape), train, left_out)
        return Job(fit, Sizes(train.x.shape[1], 1, n_left_out))

    def _alone(self, name: str, part: Fitted) -> Family:
        """A family of flows of the only outcome."""
        self.histories[name] = [part.history]
        left_out = np.full(len(self.left_out_rows), np.nan) if part.left_out is None else part.left_out
        return Family(name, part.flows, left_out, equal_weights(len(part.flows)))

    def _chain(self, name: str, order: tuple[int, ...], links: Sequence[Sequence[Fitted]]) -> Family:
        """The family of an order of the outcomes; each link combines the flows on one or several bases by weights."""
        self.histories[name] = [part.history for link in links for part in link]
        mixtures, left_out = zip(*(self._link(link) for link in links), strict=True)
        return Family(name, (Chain(mixtures, order),), np.sum(left_out, axis=0), equal_weights(1))

    def _link(self, parts: Sequence[Fitted]) -> tuple[Mixture, Array]:
        """A link of a chain, and its log densities (n,) of left-out rows."""
        unknown = np.full(len(self.left_out_rows), np.nan)
        left_out = np.column_stack([unknown if part.left_out is None else part.left_out for part in parts])
        kept, weights = weigh_families(left_out, self.left_out_rows.weight)
        flows = [parts[k].flows for k in kept]
        log_weights = [np.log(weight) + equal_weights(len(own)) for weight, own in zip(weights, flows, strict=True)]
        mixture = Mixture(tuple(flow for own in flows for flow in own), np.hstack(log_weights))
        return mixture, logsumexp(left_out[:, kept], axis=1, b=weights)

    def joint_families(self, others: Sequence[Family]) -> list[Family]:
        """The families of flows of all outcomes, without those far behind the other families."""
        plan = self.plan
        # All joint families set aside the same rows: they are compared on rows that none of them saw.
        aside = self._set_aside()
        regions = None
        if plan.joint and len(plan.rotations) > 1 and plan.weights != "equal":
            regions = fit_regions(plan.regions, self.table.x, self.table.weight, self.rng)
        families: list[Family] = []
        for name, recipe in plan.joint.items():
            families += self._joint(name, recipe, aside, [*others, *families], regions)
        return families

    def _joint(
        self,
        name: str,
        recipe: Recipe,
        aside: Sequence[Table | Ints | None],
        others: Sequence[Family],
        regions: Regions | None,
    ) -> list[Family]:
        """A family of flows of all outcomes; none if its first member is far behind the best of the other families."""
        table, workers = self.table, self.workers
        jobs = []
        for matrix, held_out in zip(self.plan.rotations, aside, strict=True):
            sizes = Sizes(table.x.shape[1], table.y.shape[1], None if held_out is None else len(held_out))
            jobs.append(Job(partial(_fit_joint_flow, replace(recipe, rotation=matrix), table, held_out), sizes))
        fitted: list[Fitted | None] = []
        if others:
            (first,) = workers.run(jobs[:1], self.rng, f"the family {name!r}")
            if first is not None and first.is_whole and _is_hopeless(first, aside[0], others, self.left_out_rows):
                return []
            fitted.append(first)
        fitted += workers.run(jobs[len(fitted) :], self.rng, f"the family {name!r}")
        # A flow that was cut short would spoil those that were not.
        any_whole = any(part.is_whole for part in _trained(fitted))
        chosen = [k for k, part in enumerate(fitted) if part is not None and part.is_whole >= any_whole]
        if len(chosen) < len(jobs):
            workers.missing.append(f"{len(jobs) - len(chosen)} of {len(jobs)} flows of the family {name!r}")
        if not chosen:
            return []
        trained = _trained(fitted[k] for k in chosen)
        self.histories[name] = [part.history for part in trained]
        flows = tuple(part.flows[0] for part in trained)
        left_out = _left_out([part.left_out for part in trained], [aside[k] for k in chosen], len(self.left_out_rows))
        log_weights = _weigh(self.plan, flows, table, aside[0], regions)
        return [Family(name, flows, left_out, log_weights, regions)]

    def _set_aside(self) -> Sequence[Table | Ints | None]:
        """For each member of a joint family the validation table, or the rows that it sets aside, or None."""
        plan, n_members = self.plan, len(self.plan.rotations)
        if self.validation is not None:
            return [self.validation] * n_members
        if plan.validation_fraction == 0:
            return [None] * n_members
        if plan.weights == "equal":
            return set_aside(self.table.unit, plan.validation_fraction, n_members, self.rng)
        # Members are weighed by rows that all of them, or none of them, were trained on.
        return set_aside(self.table.unit, plan.validation_fraction, 1, self.rng) * n_members


def _trained(fitted: Iterable[Fitted | None]) -> list[Fitted]:
    return [part for part in fitted if part is not None]


def _is_hopeless(first: Fitted, aside: Table | Ints | None, others: Sequence[Family], rows: Table) -> bool:
    if first.left_out is None:
        return False
    here = slice(None) if not isinstance(aside, np.ndarray) else aside
    weight = rows.weight[here]
    best = max(float(weight @ family.left_out[here]) for family in others)
    return float(weight @ first.left_out) < best - _HOPELESS * weight.sum()


def _left_out(parts: Sequence[Array | None], aside: Sequence[Table | Ints | None], n: int) -> Array:
    """Log density (n,) of each row by the mixture of the members that were not trained on it."""
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
    rule, rows = TRAINING_RULES.get(plan.weights, likelihood_weights), train
    if plan.weights == "stacked" and held_out is not None:
        rule, rows = stacked_weights, held_out
    log_prob = np.column_stack([flow.forward_and_log_det(rows.y[:, None], rows.x)[1] for flow in flows])
    return rule(log_prob, rows.weight, regions(rows.x), regions.n_regions)


def _fit_joint_flow(
    recipe: Recipe,
    table: Table,
    validation: Table | Ints | None,
    rng: np.random.Generator,
    context: TrainingContext,
) -> Fitted:
    """A flow of all outcomes; raises if training was stopped before the first tree."""
    train, held_out = split(table, validation)
    fitted = fit_flow(recipe, train, held_out, rng, context)
    if not fitted.is_whole and not any(fitted.history.kept):
        raise Interrupted
    return fitted


def split(table: Table, validation: Table | Ints | None) -> tuple[Table, Table | None]:
    """Training and validation rows."""
    if validation is None or isinstance(validation, Table):
        return table, validation
    aside = np.isin(np.arange(len(table)), validation)
    return table.take(~aside), table.take(aside)
