"""Checks of single values, which raise ModelFileError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

# A value as a file has it: nothing is known about it before it is checked.
FromFile = Any
# An array of any type of number.
Numbers = NDArray[Any]
ABOVE_ZERO = 5e-324  # the smallest number above zero


class Visit(Protocol):
    """A function that checks parts of parts."""

    def __call__(self, part: FromFile, q: int, *allowed: type) -> None:
        """Raise ModelFileError unless `part` is of an allowed class and fits to q columns of input."""


# Raises ModelFileError unless a part of one class is consistent and fits to that many columns of input.
Check = Callable[[Any, int, Visit], None]


class ModelFileError(ValueError):
    """A model that cannot be saved, or a file that cannot be loaded."""


def expect(is_true: object, what: str) -> None:
    """Raise a ModelFileError that says what was expected, unless the condition is true."""
    if not is_true:
        raise ModelFileError(f"expected {what}.")


def expect_tuple(value: FromFile, name: str, length: int | None = None) -> None:
    """Raise ModelFileError unless the value is a tuple, of this length if one is given."""
    expect(isinstance(value, tuple) and len(value) > 0, f"{name} to be a tuple that is not empty")
    expect(length is None or len(value) == length, f"{length} of {name}; got {len(value)}")


def expect_texts(value: FromFile, name: str, length: int | None = None) -> None:
    """Raise ModelFileError unless the value is a tuple of texts, of this length if one is given."""
    expect(isinstance(value, tuple) and all(type(part) is str for part in value), f"{name} to be a tuple of texts")
    expect(length is None or len(value) == length, f"{length} of {name}; got {len(value)}")


def expect_array(
    value: FromFile,
    name: str,
    shape: tuple[int, ...],
    dtype: DTypeLike = np.float64,
    low: float = -np.inf,
    high: float = np.inf,
    finite: bool = True,
) -> None:
    """Complain unless it is an array of this shape (-1: any length), with numbers from low to high and no NaN."""
    expect(isinstance(value, np.ndarray) and value.dtype == np.dtype(dtype), f"{name} to be an array of {dtype}")
    fits = len(value.shape) == len(shape) and all(
        want in (-1, side) for want, side in zip(shape, value.shape, strict=True)
    )
    expect(fits, f"{name} of shape {shape}; got {value.shape}")
    expect(((value >= low) & (value <= high)).all(), f"{name} between {low:g} and {high:g}")
    expect(not finite or np.isfinite(value).all(), f"{name} to be finite")


def expect_contiguous(*arrays: Numbers) -> None:
    """Raise ModelFileError unless the arrays are contiguous in C order, for which kernels are compiled."""
    expect(all(array.flags.c_contiguous for array in arrays), "arrays of kernels with rows next to each other")


def expect_number(value: FromFile, name: str, low: float = -np.inf, high: float = np.inf, finite: bool = True) -> None:
    """Raise ModelFileError unless the value is a number from low to high."""
    expect(isinstance(value, float | int) and not isinstance(value, bool), f"{name} to be a number")
    expect(low <= value <= high and (not finite or np.isfinite(value)), f"{name} from {low:g} to {high:g}; got {value}")


def expect_pair(value: FromFile, name: str) -> None:
    """Raise ModelFileError unless the value is a tuple of two."""
    expect(isinstance(value, tuple) and len(value) == 2, f"{name} to be a pair")


def expect_range(value: FromFile, name: str) -> None:
    """Raise ModelFileError unless the value is a pair of numbers in order."""
    expect_pair(value, name)
    for end in value:
        expect_number(end, name, finite=False)
    expect(value[0] < value[1], f"{name} with its ends in order")
