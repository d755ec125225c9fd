"""What every floor uses: types of arrays, checks of settings, random generators, and steps of a training job."""

from treecdf._common.random import as_generator, child
from treecdf._common.steps import Interrupted, Steps, Stop
from treecdf._common.typing import Array, Bools, Ints
from treecdf._common.validation import check_setting, is_int, is_real

__all__ = [
    "Array",
    "Bools",
    "Interrupted",
    "Ints",
    "Steps",
    "Stop",
    "as_generator",
    "check_setting",
    "child",
    "is_int",
    "is_real",
]
