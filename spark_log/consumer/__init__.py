"""Reading topics from a Python process: `Consumer`, and the types that its users see.

`operations/` has the methods of `Consumer` by subject, `fetch/` the thread that reads ahead, and
`group/` the consumer's part in its group.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
