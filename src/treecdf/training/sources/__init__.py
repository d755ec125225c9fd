"""Sources of rows: in memory, in Parquet files, in temporary files, or on the workers of a Dask cluster.

`shard` has the rows of one kernel call, `operations` what can be asked of them, `rows` how sources are asked.
`dask` and the modules that begin with it need the extra `dask` and are imported only when a Dask collection is used.
"""

from treecdf.training.sources.rows import Local, Rows, Source
from treecdf.training.sources.shard import Block, Shard

__all__ = ["Block", "Local", "Rows", "Shard", "Source"]
