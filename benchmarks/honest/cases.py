"""All that is run: cases by name, each with its question, the number of rows, the way it is tried, and its targets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.honest import simple
from benchmarks.honest.fitter import Metrics
from benchmarks.honest.measures import THIRDS
from benchmarks.honest.moments import try_grid, try_moments
from benchmarks.honest.outside import OUTSIDE
from benchmarks.honest.scoring import (
    try_gaps,
    try_groups,
    try_joint,
    try_levels,
    try_outside,
    try_rows,
    try_values,
)
from benchmarks.honest.truths import NOISES
from benchmarks.honest.variants import try_files, try_variants

METHODS = ("treecdf", "treecdf_fast")
DEFAULT = ("treecdf",)  # methods that most targets are for


@dataclass(frozen=True)
class Target:
    """Limits of a metric, what it is in words, and the methods that it is for."""

    key: str
    words: str
    low: float | None = None
    high: float | None = None
    methods: tuple[str, ...] = DEFAULT

    def is_met(self, value: float) -> bool:
        """Whether a figure is within the limits."""
        above = self.low is None or value >= self.low
        return bool(above and (self.high is None or value <= self.high))


@dataclass(frozen=True)
class Case:
    """One truth with a number of rows; `work(fit, rng, n=n)` tries a method on it."""

    question: str
    words: str
    n: int
    work: Callable[..., Metrics]
    beside: str = ""  # the simple method
    targets: tuple[Target, ...] = ()


def _within(key: str, words: str, level: float, by: float) -> Target:
    return Target(key, words, level - by, level + by)


def _normal(n: int, behind: float | None = None, beside: str = "least squares") -> tuple[Target, ...]:
    """Targets of coverage under normal noise, and of the distance from the simple method."""
    if n >= 1000:
        overall = (
            Target("coverage_50", "50 % interval covers", 0.48, 0.52),
            Target("coverage_90", "90 % interval covers", 0.885, 0.915),
            Target("coverage_99", "99 % interval covers", 0.983, 0.995),
        )
    else:
        overall = (
            _within("coverage_50", "50 % interval covers", 0.5, 0.05),
            _within("coverage_90", "90 % interval covers", 0.9, 0.03),
        )
    parts = ("low", "middle", "high")
    thirds = tuple(
        _within(key, f"90 % interval covers, {part} third of x0", 0.9, 0.04)
        for key, part in zip(THIRDS, parts, strict=True)
    )
    return overall + thirds + (_behind(behind, beside) if behind is not None else ())


def _behind(nats: float, beside: str, methods: tuple[str, ...] = DEFAULT) -> tuple[Target, ...]:
    return (Target("behind", f"nats behind {beside}", high=nats, methods=methods),)


def _rows(question: str, truth: str, words: str, n: int, beside: Callable, targets: tuple[Target, ...] = ()) -> Case:
    """A case of `try_rows`."""
    told = BESIDE[beside]
    return Case(question, words, n, partial(try_rows, truth=truth, beside=beside), told, targets)


def _values(truth: str, words: str, option: dict) -> Case:
    """A case of an outcome with few values, with the option that a user may give for it."""
    given = ", ".join(f"{name}={value!r}" for name, value in option.items()) or "no option"
    targets = (Target("draws_are_values", "share of draws that are values of y", 1.0),)
    if not option:
        targets = (*targets, Target("said", "a note names atoms or resolution", 1.0))
    work = partial(try_values, truth=truth, params=option)
    return Case("values", f"{words}, {given}", 1000, work, "logistic regression", targets)


BESIDE = {
    simple.least_squares: "least squares",
    simple.linear_scales: "normal, log scale linear in x",
    simple.student: "t regression",
    simple.polynomial: "least squares, cubic",
    simple.lasso: "lasso",
    simple.best_without_covariates: "the best without covariates",
}
NORMAL, SCALES, SMOOTH = "linear, normal", "linear, normal with scale exp(0.6 x0)", "smooth, normal"
_OPTIONS = {
    "plain": {},
    "atoms": {"atoms": "auto"},
    "resolution": {"resolution": "auto"},
    "step": {"resolution": 1},
}
_SAME = 1e-8  # largest difference of log densities that rounding explains
_NEAR = 0.002  # mean difference of log densities of models from files
_ACCURATE = 0.01  # of moments and probabilities
CASES = {
    **{
        f"linear_{n}": _rows("normal", "linear", NORMAL, n, simple.least_squares, _normal(n, nats))
        for n, nats in ((200, 0.02), (1000, 0.006), (5000, 0.006))
    },
    **{f"scales_{n}": _rows("normal", "scales", SCALES, n, simple.linear_scales, _normal(n)) for n in (200, 1000)},
    "smooth_1000": _rows("normal", "smooth", SMOOTH, 1000, simple.polynomial, _normal(1000)),
    **{
        f"{truth}_{n}": _rows("heavy", truth, words, n, simple.student, targets)
        for truth, words, targets in (
            ("t3", "linear, t with 3 degrees of freedom", ()),
            ("cauchy", "linear, Cauchy", _behind(0.05, "a t regression", METHODS)),
            ("outliers", "linear, normal with 5 % of ten times the scale", _behind(0.05, "a t regression", METHODS)),
        )
        for n in (1000, 5000)
    },
    "skewed_1000": _rows("heavy", "skewed", "linear, gamma of shape 2", 1000, simple.least_squares),
    **{
        f"nothing_{noise}_{q}_{n}": _rows(
            "independent",
            f"nothing_{noise}_{q}",
            f"{noise}, {q} columns",
            n,
            simple.best_without_covariates,
            _behind(0.02 if noise == "normal" else 0.05, "the best without covariates"),
        )
        for noise in NOISES
        for q in (5, 30)
        for n in (50, 200, 1000)
    },
    **{
        f"wide_{q}": _rows(
            "wide",
            f"wide_{q}",
            f"{q} columns, three matter",
            n,
            simple.lasso,
            (*_behind(0.03, "the lasso"), Target("fit_cpu", "processor seconds of the fit", high=15.0)),
        )
        for q, n in ((200, 300), (500, 200))
    },
    "repeated_400": Case(
        "same",
        "in memory",
        400,
        partial(try_variants, names=("weight_2", "twice", "bootstrap", "order")),
        targets=(
            Target("twice_largest_difference", "twice and weight 2: largest difference", high=_SAME, methods=METHODS),
            Target("order_largest_difference", "another order: largest difference", high=_SAME, methods=METHODS),
            Target("bootstrap_coverage_change", "bootstrap: 90 % coverage minus plain", -0.03, 0.03, METHODS),
        ),
    ),
    "files_2000": Case(
        "same",
        "from Parquet and Dask",
        2000,
        try_files,
        targets=(
            Target("twice_mean_difference", "rows twice and weight 2 in files: mean difference", high=_NEAR),
            Target("order_mean_difference", "another order, other files: mean difference", high=_NEAR),
            Target("dask_mean_difference", "another order, on Dask: mean difference", high=_NEAR),
        ),
    ),
    "groups_600": Case("groups", "without `groups=`", 600, partial(try_groups, given=False), "mixed model"),
    "groups_600_given": Case(
        "groups",
        "with `groups=`",
        600,
        partial(try_groups, given=True),
        "mixed model",
        (_within("coverage_90", "90 % interval covers", 0.9, 0.04),),
    ),
    **{
        f"outside_{truth}": Case(
            "outside",
            truth,
            400,
            partial(try_outside, truth=truth),
            targets=(Target("narrowest", "narrowest outside over widest inside", 0.995),),
        )
        for truth in OUTSIDE
    },
    "gaps_1000": Case(
        "unknown",
        "x0 missing in 10 % of the new rows",
        1000,
        try_gaps,
        "least squares without x0",
        (Target("part_coverage_90", "90 % interval covers, rows with a gap", 0.85),),
    ),
    "unseen_1000": Case(
        "unknown",
        "20 levels, half of the new rows with others",
        1000,
        partial(try_levels, n_levels=20, new=0.5),
        "mixed model",
        (Target("part_coverage_90", "90 % interval covers, rows with unseen levels", 0.85),),
    ),
    **{
        f"levels_{n}": Case(
            "levels",
            f"300 levels, {n // 300} rows each",
            n,
            partial(try_levels, n_levels=300, new=0.0),
            "mixed model",
        )
        for n in (1500, 3000)
    },
    **{f"binary_{name}": _values("binary", "0/1", option) for name, option in _OPTIONS.items()},
    "binary_given": _values("binary", "0/1", {"atoms": [0, 1]}),
    **{f"counts_{name}": _values("counts", "counts 0 to 5", option) for name, option in _OPTIONS.items()},
    "counts_given": _values("counts", "counts 0 to 5", {"atoms": [0, 1, 2, 3, 4, 5]}),
    "exponential_1000": Case("conventions", "exp(x0) for x0", 1000, partial(try_variants, names=("exponential",))),
    "weights_1000": Case("conventions", "all weights 0.05", 1000, partial(try_variants, names=("weights_05",))),
    **{
        f"joint_{d}": Case("joint", f"{d} outcomes", 500, partial(try_joint, truth=f"joint_{d}"), "least squares")
        for d in (2, 4, 8)
    },
    "moments_500": Case(
        "moments",
        "two outcomes",
        500,
        try_moments,
        targets=(
            Target("std_error", "std() against draws, relative", high=_ACCURATE),
            Target("marginal_99_error", "width of a marginal's 99 % interval, relative", high=_ACCURATE),
            Target("cells_error", "probabilities of all cells: sum minus 1", high=_ACCURATE),
        ),
    ),
    "grid_500": Case(
        "moments",
        "one rounded outcome",
        500,
        try_grid,
        targets=(
            Target("std_error", "std() against draws, relative", high=_ACCURATE),
            Target("mean_error", "mean() against draws, in standard deviations", high=_ACCURATE),
            Target("crps_error", "crps() against draws, relative", high=_ACCURATE),
        ),
    ),
}
