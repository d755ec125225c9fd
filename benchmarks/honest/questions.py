"""The questions of the page, each a table: what is asked, and the metrics in its columns."""

from dataclasses import dataclass

from benchmarks.honest.measures import THIRDS
from benchmarks.honest.moments import DRAWS, ROWS


@dataclass(frozen=True)
class Column:
    """Metrics that share a column of a table, the format of their means, and the heading."""

    heading: str
    keys: tuple[str, ...]
    form: str = ".3f"


@dataclass(frozen=True)
class Question:
    """A heading, what is asked in words, and the columns of the table."""

    title: str
    words: str
    columns: tuple[Column, ...]


def _one(heading: str, key: str, form: str = ".3f") -> Column:
    return Column(heading, (key,), form)


COVERAGE = tuple(_one(f"{level} %", f"coverage_{level}") for level in (50, 90, 99))
PARTS = Column("90 % by third of x0", THIRDS, ".2f")
GAPS = (_one("gap", "gap"), _one("simple gap", "simple_gap"))
OF_PART = (_one("90 %, those rows", "part_coverage_90"), _one("gap, those rows", "part_gap"))
SAID = _one("said so", "said", ".0%")
SECONDS = _one("fit, s", "fit_cpu", ".1f")


def _variant(words: str, name: str) -> tuple[Column, ...]:
    """The 90 % coverage of a form of the rows, and what it costs."""
    return _one(f"90 %, {words}", f"{name}_coverage_90"), _one(f"gap, {words}", f"{name}_gap")


QUESTIONS = {
    "normal": Question(
        "Normal noise",
        "Intervals should cover what they say, overall and in each third of x0, and simple truths should be cheap.",
        (*COVERAGE, PARTS, *GAPS, SECONDS),
    ),
    "heavy": Question("Heavy tails, outliers, skewed noise", "The same.", (*COVERAGE, PARTS, *GAPS, SECONDS)),
    "independent": Question(
        "Nothing to learn",
        "No covariate tells of y. Beside us the best of a normal, a Student t and a kernel density fitted to y alone.",
        (*COVERAGE, *GAPS, SECONDS),
    ),
    "wide": Question(
        "Wide tables",
        "More columns than are good for most learners.",
        (*COVERAGE, PARTS, *GAPS, SECONDS),
    ),
    "same": Question(
        "The same rows in another form",
        "Linear normal rows: as they are, twice, with weight 2, a bootstrap sample of them, in another order; from "
        "one file, from three in another order, and from a Dask collection. Differences are those of log densities.",
        (
            *_variant("plain", "plain"),
            *_variant("twice", "twice"),
            *_variant("weight 2", "weight_2"),
            *_variant("bootstrap", "bootstrap"),
            _one("order: mean difference", "order_mean_difference", ".1e"),
            _one("twice: mean difference", "twice_mean_difference", ".1e"),
            SECONDS,
        ),
    ),
    "groups": Question(
        "Rows that belong together",
        "Ten rows a group share three of five columns and an effect on y; new rows are of new groups. The last columns "
        "say whether `groups=` was passed (where `fit` does not have it, it was not), and whether a note named it.",
        (*COVERAGE, *GAPS, _one("passed", "groups_passed", ".0%"), SAID, SECONDS),
    ),
    "outside": Question(
        "Where there are no rows",
        "Lines from the centre of the data, along the axes and at random: the width of the 90 % interval at so many "
        "times the distance of the edge, over the largest width inside on the same line; the narrowest of all lines. "
        "`square` is y = 3 x^2 on (-1, 1), `correlated` has two columns that agree to a twentieth. 0.995 counts as 1. "
        "Coverage is that of the truth at these points; nobody can know it there, so it has no target.",
        (
            *(_one(f"{distance} times", f"ratio_{distance}", ".2f") for distance in ("1.5", "2", "3", "5")),
            _one("90 % covers there", "coverage_90_outside"),
            SECONDS,
        ),
    ),
    "unknown": Question(
        "Gaps and levels that training rows did not have",
        "No training row has a gap, no training row has these levels.",
        (*COVERAGE, *OF_PART, *GAPS, SAID, SECONDS),
    ),
    "levels": Question("Many levels", "A category with an effect of each level.", (*COVERAGE, *GAPS, SECONDS)),
    "values": Question(
        "Outcomes with few values",
        "The probability of a value is that of the cell of width 1 about it, by the CDF, so that fits with and without "
        "atoms or a grid are compared by the same figure.",
        (*GAPS, _one("draws are values", "draws_are_values"), SAID, SECONDS),
    ),
    "conventions": Question(
        "Conventions that should not matter",
        "The linear normal truth with exp(x0) in place of x0, and with all weights 0.05.",
        (
            *_variant("plain", "plain"),
            *_variant("exp(x0)", "exponential"),
            *_variant("weights 0.05", "weights_05"),
            SECONDS,
        ),
    ),
    "joint": Question(
        "Several outcomes",
        "Linear in three columns, normal noise with correlations; coverage is the mean over the outcomes' marginals.",
        (*COVERAGE, *GAPS, SECONDS),
    ),
    "moments": Question(
        "Moments that are moments",
        f"What a model says of itself at {ROWS} rows against {DRAWS:,} draws of its own at each. The largest error of "
        "all rows and outcomes; the tail is the marginals' CDF at the 0.0001 quantile of the draws, over 0.0001.",
        (
            _one("std", "std_error", ".2%"),
            _one("mean", "mean_error", ".2%"),
            _one("99 % interval", "marginal_99_error", ".2%"),
            _one("cells", "cells_error", ".2%"),
            _one("CRPS", "crps_error", ".2%"),
            _one("tail", "marginal_tail", ".2f"),
            SECONDS,
        ),
    ),
}
