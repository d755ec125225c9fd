"""Parts of a model of compositions: which taxa are present, and the log ratios of those that are."""

from treecdf.flows.composition.presence import Effects, EffectsWithTrend, Presence
from treecdf.flows.composition.ratios import Link, Ratios

__all__ = ["Effects", "EffectsWithTrend", "Link", "Presence", "Ratios"]
