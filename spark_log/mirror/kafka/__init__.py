"""Kafka by its client confluent-kafka, which only this folder imports.

- `kafka_cluster`: clients of one cluster, its topics and groups; `errors`: its errors as our own.
- `message_table`: messages that were consumed, as Arrow tables; `row_producer`: rows as messages.
- `topic_settings`: settings of topics, from Kafka's values to those of the log and back.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
