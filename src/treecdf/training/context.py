"""What a training job is given besides its data: threads, somebody to report to, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from treecdf._common.steps import Steps
from treecdf.flows.results import History


@dataclass(frozen=True)
class News:
    """How far a fit is: the history of a flow so far and its validation score, and which flow of how many it is.

    what: what is being trained, in words. doing: what is being done besides growing trees; the history says nothing
    then. done: share of the flow's training that is done, roughly. begins: something new. ends: the flow is trained.
    """

    history: History
    score: float
    flow: int = 0
    n_flows: int = 1
    what: str = ""
    doing: str = ""
    done: float = 0.0
    begins: bool = False
    ends: bool = False

    @staticmethod
    def of_doing(doing: str, done: float = 0.0, begins: bool = True) -> News:
        """What is being done, and which share of the flow's training is done."""
        return News(History(), float("nan"), doing=doing, done=done, begins=begins)


Report = Callable[[News], None]


def silent(news: News) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class TrainingContext:
    """Threads for passes over the rows (None: this one only), who hears of progress, and what keeps or stops steps."""

    pool: Executor | None = None
    report: Report = silent
    steps: Steps = field(default_factory=Steps)
