"""One segment of a log: its file, its reader and writer, and its offset and time index.

`batch_pruning` decides which batches of a segment a read skips.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
