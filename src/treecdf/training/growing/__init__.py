"""Algorithm 2: one tree, level by level, from sums over all rows."""

from treecdf.training.growing.grower import TreeGrower

__all__ = ["TreeGrower"]
