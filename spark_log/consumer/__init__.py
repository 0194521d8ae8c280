"""Reading topics from a Python process: `Consumer`, and what it is made of."""

from spark_log.consumer.consumer import Consumer, ConsumerInterceptor
from spark_log.consumer.consumer_records import TABLE_SCHEMA
from spark_log.consumer.membership import ConsumerRebalanceListener

__all__ = [
    "TABLE_SCHEMA",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
]
