"""The methods of `Consumer`, by subject: subscription, polls, positions, topics, commits.

Each subject is a file with the methods that `Consumer` has for it. `consumer_access` has the parts
to which they delegate.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
