"""Fitted models, frozen: trees, flows, mixtures and chains of them, and the distributions they give."""

from treecdf.flows.chain import Chain
from treecdf.flows.continuous import FlowDistribution
from treecdf.flows.distribution import ConditionalDistribution
from treecdf.flows.flow import TreeFlow
from treecdf.flows.marginal import Marginal
from treecdf.flows.mixture import Flow, Mixture
from treecdf.flows.recorded import RecordedDistribution, as_recorded
from treecdf.flows.results import Family, Fitted, History
from treecdf.flows.tree import TreeSequence

__all__ = [
    "Chain",
    "ConditionalDistribution",
    "Family",
    "Fitted",
    "Flow",
    "FlowDistribution",
    "History",
    "Marginal",
    "Mixture",
    "RecordedDistribution",
    "TreeFlow",
    "TreeSequence",
    "as_recorded",
]
