"""Growing one tree (Algorithm 2), level by level, from sums over all rows: splits, nodes, and the rows they meet."""

from treecdf.training.growing.grower import TreeGrower

__all__ = ["TreeGrower"]
