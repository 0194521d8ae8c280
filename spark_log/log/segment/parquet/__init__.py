"""Parquet segments: a rewritten segment as a Parquet file, written, and read like an Arrow file."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
