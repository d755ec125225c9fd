"""From frames and arrays to tables of numbers: columns, outcomes, weights, recording, blocks of rows."""

from treecdf.data.basis import Basis
from treecdf.data.binning import Bins
from treecdf.data.columns import Covariates
from treecdf.data.recording import Grid
from treecdf.data.scaling import Standardizer
from treecdf.data.table import Table

__all__ = ["Basis", "Bins", "Covariates", "Grid", "Standardizer", "Table"]
