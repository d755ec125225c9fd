"""Checks of every part that a model file may hold, so that compiled code can trust what it is given."""

from treecdf.persist.checks.models import CHECKS, check_compositional, check_fitted
from treecdf.persist.checks.values import ModelFileError, expect

__all__ = ["CHECKS", "ModelFileError", "check_compositional", "check_fitted", "expect"]
