"""Settings of other Kafka clients that do not exist here, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NO_BROKERS: Final = (
    "there are no brokers here: the log is a directory on storage. Give root, its path or URL, "
    "such as root='/data/log' or root='s3://bucket/log'"
)
_NO_CONNECTIONS: Final = (
    "there are no connections to brokers: the storage's permissions decide who may read and write "
    "the log. Set these, and give credentials as storage_options={…}"
)
_CONNECTION_SETTING: Final = (
    "it configures connections to brokers, and this client has none. Leave it out"
)
_FIXED_METRICS: Final = (
    "metrics are always on, under Kafka's names, with a fixed time window. Leave it out"
)

_ADVICE: Final[Mapping[str, str]] = {
    "bootstrap.servers": _NO_BROKERS,
    "metadata.broker.list": _NO_BROKERS,
    "allow.auto.create.topics": "a client creates no topics: create them with "
    "Admin.create_topics or `spark-log topics create`. Leave it out",
    "client.id": "nothing here shows the name of an admin client. Leave it out",
    "metadata.max.age.ms": "every call of an admin client reads the metadata. Leave it out",
    "retry.backoff.ms": "default_api_timeout_ms limits a call of an admin client with all of its "
    "retries. Leave it out",
    "metric.group.prefix": _FIXED_METRICS,
    "transactional.id": "give it to Producer as transactional_id='…'",
    "transaction.timeout.ms": "give it to Producer as transaction_timeout_ms=…",
    "group.id": "give it to Consumer as group_id='…'; a producer has no group",
    "key.serializer": "give key_serializer= to Producer, a function that returns bytes",
    "value.serializer": "give value_serializer= to Producer, a function that returns bytes",
    "key.deserializer": "give key_deserializer= to Consumer, a function of a key's bytes",
    "value.deserializer": "give value_deserializer= to Consumer, a function of a value's bytes",
    "metric.reporters": "give metric_reporters= to Producer or Consumer, a list of reporters",
    "message.send.max.retries": "its name here is retries",
    "queue.buffering.max.ms": "its name here is linger_ms",
    "message.max.bytes": "its name here is max_request_size",
    "compression.codec": "its name here is compression_type",
    "queue.buffering.max.kbytes": "its name here is buffer_memory, in bytes",
}

_SECURITY_PREFIXES: Final = ("ssl.", "sasl.", "security.", "enable.ssl.")
_CONNECTION_PREFIXES: Final = (
    *("api.version", "bootstrap.timeout", "broker.", "client.dns", "connections.max.idle"),
    *("debug", "enable.incremental.fetch", "enable.partition.eof", "kafka.client"),
    *("log.connection", "max.in.flight", "proxy.", "receive.", "reconnect.backoff", "selector"),
    *("send.buffer", "socket.", "socks5.", "statistics."),
)


def foreign_key_advice(name: str) -> str | None:
    """Return what to do instead of a setting of kafka-python or librdkafka.

    Args:
        name: the key, dotted or as a keyword argument.

    Returns:
        None if the key is not known as a setting of another client.
    """
    key = name.lower().replace("_", ".")
    if key.startswith(_SECURITY_PREFIXES):
        return _NO_CONNECTIONS
    if key in _ADVICE:
        return _ADVICE[key]
    if key.startswith("metrics."):
        return _FIXED_METRICS
    return _CONNECTION_SETTING if key.startswith(_CONNECTION_PREFIXES) else None
