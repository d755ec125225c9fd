"""How a run fits its method, and what it keeps of that."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.methods import METHODS, settings
from benchmarks.rows import Run
from benchmarks.scoring import Clock, warm_up

Generator = np.random.Generator
Metrics = dict[str, float]


class Fitter:
    """Fits the method of a run, and keeps the seconds and what the models said.

    `heard` is the list in which warnings are recorded while the run goes on.
    """

    def __init__(self, run: Run, heard: list):
        self._run, self._heard = run, heard
        self._seconds: list[dict[str, float]] = []
        self._notes: list[str] = []
        self.settings: dict = {}

    def __call__(self, x, y: np.ndarray, params: dict | None = None, **given) -> Any:
        """A model fitted to rows, with parameters `params` and further arguments `given` of `fit`."""
        return self.by(lambda model: model.fit(x, y, **given), params, d=1 if y.ndim == 1 else y.shape[1])

    def by(self, fit: Callable[[Any], Any], params: dict | None = None, d: int = 1) -> Any:
        """A model of d outcomes that the function `fit` has fitted."""
        warm_up(self._run.method, several=d > 1)
        model = METHODS[self._run.method](self._run.seed, d).set_params(**params or {})
        clock = Clock()
        fit(model)
        self._seconds.append(clock.seconds())
        self._notes += model.notes_
        self.settings = settings(model)
        return model

    def takes(self, argument: str) -> bool:
        """Whether the `fit` of the method has such an argument."""
        return argument in inspect.signature(METHODS[self._run.method](0, 1).fit).parameters

    @property
    def seconds(self) -> dict[str, float]:
        """Mean seconds of the fits."""
        return {name: float(np.mean([each[name] for each in self._seconds])) for name in self._seconds[0]}

    @property
    def told(self) -> list[str]:
        """All different notes of the models and warnings so far."""
        return list(dict.fromkeys([*self._notes, *(str(warning.message) for warning in self._heard)]))

    def said(self, *words: str) -> float:
        """1 if a note or a warning has one of the words, else 0."""
        return float(any(word in text for word in words for text in self.told))
