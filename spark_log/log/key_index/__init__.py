"""Key index of a segment: finds the record of a key by one small read.

A derived file beside a segment that a compaction wrote as Parquet: the records in the order of
their keys' hashes, in small blocks (`format`). `writer` writes it, in bounded memory; `reader`
finds records.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
