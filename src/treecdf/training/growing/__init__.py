"""Growing one tree (Algorithm 2), level by level, from sums over all rows: splits, nodes, and the located rows."""

from treecdf.training.growing.grower import TreeGrower

__all__ = ["TreeGrower"]
