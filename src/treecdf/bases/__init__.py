"""The first map of a flow, from outcomes into the unit cube: a box, a Student t, or a mixture that depends on x."""

from treecdf.bases.atoms import Atoms
from treecdf.bases.box import Support
from treecdf.bases.components import ComponentLearner
from treecdf.bases.conditional import Conditional
from treecdf.bases.mean import TrainingRows
from treecdf.bases.protocol import Base, Bound
from treecdf.bases.rotation import Rotation
from treecdf.bases.stacked import Stack
from treecdf.bases.student import Student
from treecdf.bases.transform import OutcomeTransform

__all__ = [
    "Atoms",
    "Base",
    "Bound",
    "ComponentLearner",
    "Conditional",
    "OutcomeTransform",
    "Rotation",
    "Stack",
    "Student",
    "Support",
    "TrainingRows",
]
