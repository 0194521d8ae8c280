"""Reading topics from a Python process: `Consumer`, and the types that its users see.

`operations/` has the methods of `Consumer` by subject, `fetch/` the thread that reads ahead, and
`group/` the consumer's part in its group.
"""

from spark_log.consumer.consumer import Consumer
from spark_log.consumer.consumer_records import TABLE_SCHEMA
from spark_log.consumer.interceptors import ConsumerInterceptor
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListener

__all__ = [
    "TABLE_SCHEMA",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
]
