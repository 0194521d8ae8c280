"""Gateways in Spark tasks: started, watched, ended, and as many as their load needs.

- `gateway_tasks`: the tasks, as the driver sees them.
- `scaling`: decides, from a history of loads, how many gateways there are to be.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
