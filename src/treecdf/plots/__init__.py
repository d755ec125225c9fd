"""Pictures of fitted models, in the manner of scikit-learn's displays.

Every display has `from_estimator(model, ...)`, which computes, keeps plain arrays as attributes and draws, and
`plot(ax=None)`, which draws again; `ax_` and `figure_` are what was drawn on. They need matplotlib
(`pip install "treecdf[plots]"`), which is imported when the first picture is drawn.
"""

from treecdf.plots.calibration import CalibrationDisplay, PITDisplay
from treecdf.plots.compositions import AbundanceDisplay, PrevalenceDisplay
from treecdf.plots.density import ConditionalDensityDisplay
from treecdf.plots.effect import CovariateEffectDisplay
from treecdf.plots.fan import FanChartDisplay
from treecdf.plots.history import HistoryDisplay
from treecdf.plots.importance import ImportanceDisplay
from treecdf.plots.interval import IntervalDisplay
from treecdf.plots.ordination import OrdinationDisplay

__all__ = [
    "AbundanceDisplay",
    "CalibrationDisplay",
    "ConditionalDensityDisplay",
    "CovariateEffectDisplay",
    "FanChartDisplay",
    "HistoryDisplay",
    "ImportanceDisplay",
    "IntervalDisplay",
    "OrdinationDisplay",
    "PITDisplay",
    "PrevalenceDisplay",
]
