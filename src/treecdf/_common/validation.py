"""Checks of settings, with one form of error message."""

from __future__ import annotations

import math
from numbers import Integral, Real


def check_setting(name: str, value: object, is_valid: bool, expected: str) -> None:
    """Raise a ValueError, unless `is_valid`, that says what was expected and what was given."""
    if not is_valid:
        raise ValueError(f"Expected {name} to be {expected}; got {value!r}.")


def is_real(value: object) -> bool:
    """Whether a value is a finite number, and no boolean."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def is_int(value: object) -> bool:
    """Whether a value is an integer, and no boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)
