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
        "Intervals should cover as often as they promise, overall and in each third of x0, and the gap of simple "
        "truths should be small.",
        (*COVERAGE, PARTS, *GAPS, SECONDS),
    ),
    "heavy": Question(
        "Heavy tails, outliers, skewed noise",
        "The same questions where noise is not normal.",
        (*COVERAGE, PARTS, *GAPS, SECONDS),
    ),
    "independent": Question(
        "Nothing to learn",
        "The outcome does not depend on the covariates. The simple method is the best of a normal, a Student t and a "
        "kernel density fitted to y alone.",
        (*COVERAGE, *GAPS, SECONDS),
    ),
    "wide": Question(
        "Wide tables",
        "Hundreds of columns, of which three matter.",
        (*COVERAGE, PARTS, *GAPS, SECONDS),
    ),
    "same": Question(
        "The same rows in another form",
        "Linear normal rows: as they are, each twice, with weight 2, a bootstrap sample of them, in another order; "
        "from one file, from three files in another order, and from a Dask collection. Differences are between log "
        "densities of the models.",
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
        "The ten rows of a group share three of five columns and an effect on y; fresh rows are of new groups. "
        '"Passed": whether `groups=` was passed to `fit`. "Said so": whether a note of the model recommends it.',
        (*COVERAGE, *GAPS, _one("passed", "groups_passed", ".0%"), SAID, SECONDS),
    ),
    "outside": Question(
        "Where there are no rows",
        "On lines from the centre of the data, along the axes and at random: the width of the 90 % interval at 1.5 to "
        "5 times the distance of the edge, divided by the largest width inside the data on the same line. The table "
        "has the smallest ratio of all lines; it should not be below 1 (0.995 counts as 1). `square` is y = 3 x^2 on "
        "(-1, 1), `correlated` has two columns that differ by a twentieth. The last coverage is of outcomes drawn "
        "from the truth at these points; no model can know it there, so it has no target.",
        (
            *(_one(f"{distance} times", f"ratio_{distance}", ".2f") for distance in ("1.5", "2", "3", "5")),
            _one("90 % covers there", "coverage_90_outside"),
            SECONDS,
        ),
    ),
    "unknown": Question(
        "Missing values and levels that training rows did not have",
        'Fresh rows have missing values, or levels of a category, that no training row has. "Those rows" are the rows '
        "with them.",
        (*COVERAGE, *OF_PART, *GAPS, SAID, SECONDS),
    ),
    "levels": Question("Many levels", "A category with an effect of each level.", (*COVERAGE, *GAPS, SECONDS)),
    "values": Question(
        "Outcomes with few values",
        "The gap is computed from probabilities of values: by the CDF, of the cell of width 1 around a value. So fits "
        "with and without atoms or a grid can be compared.",
        (*GAPS, _one("draws are values", "draws_are_values"), SAID, SECONDS),
    ),
    "conventions": Question(
        "Conventions that should not matter",
        "The linear normal truth as it is, with exp(x0) in place of x0, and with all weights 0.05.",
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
        "Moments agree with draws",
        f"Moments and intervals that a model computes at {ROWS} rows, compared with {DRAWS:,} of its own draws at "
        "each. The table has the largest error of all rows and outcomes; its column of the tail is the marginals' CDF "
        "at the 0.0001 quantile of the draws, divided by 0.0001.",
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
