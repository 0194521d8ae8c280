"""Key index of a Parquet segment: tells by one small read which rows may have a key.

A derived file beside the segment: the hashes of all keys with the numbers of their rows, in small
blocks, and where the pages of the rows lie (`format`). `writer` builds it, in bounded memory;
`reader` finds rows.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
