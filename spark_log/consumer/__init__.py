"""Reading topics from a Python process: `Consumer`, and the types that its users see.

``consumer`` has the methods of `Consumer`, and ``_runtime`` connects the parts that they call. A
poll is read from `Consumer.poll` down: ``record_poller``, then ``group`` (the consumer's part in
its group, and the assignment), ``position`` (the offsets at which partitions continue) and
``fetch`` (the thread that reads ahead).
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
