"""Models and half-finished fits in files: written safely, checked before use."""

from treecdf.persist.checkpoint import Checkpoint, NoCheckpoint
from treecdf.persist.checks.values import ModelFileError
from treecdf.persist.files import read_model, write_model

__all__ = ["Checkpoint", "ModelFileError", "NoCheckpoint", "read_model", "write_model"]
