"""What a training job gets besides its data: threads, a function for reports of progress, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from treecdf._common.steps import Steps
from treecdf.flows.results import History


@dataclass(frozen=True)
class News:
    """Progress of a fit: the history and validation score of a flow so far, and which flow of how many it is.

    what: what is being trained, in words. doing: current work other than growing trees; the history is empty then.
    done: share of the flow's training that is done, roughly. begins: whether this is something new. ends: whether the
    flow is trained.
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
        """News of work other than growing trees, and the share of the flow's training that is done."""
        return News(History(), float("nan"), doing=doing, done=done, begins=begins)


Report = Callable[[News], None]


def silent(news: News) -> None:
    """Ignore the news."""


@dataclass(frozen=True)
class TrainingContext:
    """Threads for passes over the rows (None: the current thread), a function for news, and the steps of the job."""

    pool: Executor | None = None
    report: Report = silent
    steps: Steps = field(default_factory=Steps)
