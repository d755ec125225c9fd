"""The parts of the default model that can be taken out, and estimators without them."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace


def _less_learners(*kinds: str) -> Callable:
    """Change of a plan: a stack without learners of these kinds."""

    def change(plan):
        def base(n, q):
            stack = plan.base(n, q)
            return replace(stack, learners=[one for one in stack.learners if one.kind not in kinds])

        return replace(plan, base=base)

    return change


def _less_mixtures(*names: str) -> Callable:
    """Change of a plan: no mixtures of these names beside the stack."""
    return lambda plan: replace(plan, mixtures={name: how for name, how in plan.mixtures.items() if name not in names})


def _less_nearness(plan):
    return replace(plan, base=lambda n, q: replace(plan.base(n, q), n_remembered=0))


def _less_trees(plan):
    return replace(plan, conditional=replace(plan.conditional, max_trees=0))


# What each part is in words, and the plan without it
PARTS: dict[str, tuple[str, Callable]] = {
    "polynomial": ("polynomials of the mean", _less_learners("polynomial")),
    "process": ("Gaussian process", _less_learners("process")),
    "trees": ("boosted trees of the mean", _less_learners("trees")),
    "lasso": ("lasso of the mean", _less_learners("lasso")),
    "network_mean": ("network of the mean", _less_learners("network")),
    "nearness": ("nearness of training rows", _less_nearness),
    "flow_trees": ("trees after the base", _less_trees),
    "mixture": ("boosted mixture", _less_mixtures("mixture")),
    "network": ("network mixture", _less_mixtures("network")),
    "mixtures": ("both mixtures", _less_mixtures("mixture", "network")),
}
METHODS = tuple(f"without_{part}" for part in PARTS)


def without(part: str, **settings):
    """The default estimator, whose plan lacks a part of `PARTS`."""
    from treecdf import TreeFlowRegressor

    class Without(TreeFlowRegressor):
        lacks = part

        def fit(self, *args, **others):
            with _changed_plan(PARTS[part][1]):
                return super().fit(*args, **others)

    return Without(n_jobs=1, **settings)


@contextmanager
def _changed_plan(change: Callable):
    """While it lasts fits make other plans."""
    from treecdf.estimators import fitting

    usual = fitting.make_plan
    fitting.make_plan = lambda *args: change(usual(*args))
    try:
        yield
    finally:
        fitting.make_plan = usual
