"""Kafka's record batches: read into Arrow, and written from it.

- `client_batch`: the header of a v2 batch, and its checksum; `compression`: its five compressions.
- `conversion`: batches to Arrow records and back; `record_codec`: the loops over records, in C
  (``_native.c``) or in numpy; `message_set`: the older formats v0 and v1.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
