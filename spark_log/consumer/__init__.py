"""Reading topics from a Python process: `Consumer`, and the types that its users see.

``consumer.py`` has the methods of `Consumer`; ``_runtime.py`` connects the parts that they call.
`fetch/` is the thread that reads ahead, `position/` the offsets at which partitions continue, and
`group/` the consumer's part in its group.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
