"""Everything that changes while a fit runs: plan, growing of trees (Algorithms 1 and 2), jobs, sources of rows."""

from treecdf.training.ensemble import Ensemble, fit_ensemble
from treecdf.training.plan import Plan, make_plan
from treecdf.training.settings import Growth, Recipe, Stage

__all__ = ["Ensemble", "Growth", "Plan", "Recipe", "Stage", "fit_ensemble", "make_plan"]
