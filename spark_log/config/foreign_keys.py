"""Settings that Kafka's clients or brokers have and that do not exist here.

Most of them configure connections to brokers, and have no effect: a program may keep them. Others
would change the behaviour of the program, and are refused with advice on a replacement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_log.config.spelling import misspelled

_NO_BROKERS: Final = (
    "there are no brokers here: the log is a directory on storage. Give root, its path or URL, "
    "such as root='/data/log' or root='s3://bucket/log'"
)
_SECURITY_PREFIXES: Final = ("ssl.", "sasl.", "security.", "enable.ssl.")


@dataclass(frozen=True, slots=True)
class ForeignKeys:
    """Keys of Kafka that a model lacks, dotted and in lower case.

    Attributes:
        advice: the advice on a replacement of each refused key.
        ignored: the keys that have no effect here.
        ignored_prefixes: the prefixes of further keys that have no effect.
    """

    advice: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    ignored_prefixes: tuple[str, ...] = ()

    def advice_for(self, name: str) -> str | None:
        """Return the advice on a key, dotted or in snake_case; None without advice."""
        return self.advice.get(_dotted(name))

    def is_ignored(self, name: str, known: Collection[str]) -> bool:
        """Whether a key, dotted or in snake_case, has no effect.

        Args:
            name: the key.
            known: the keys that have an effect. A misspelled one is not ignored, even if it begins
                with an ignored prefix.
        """
        key = _dotted(name)
        if key in known or key in self.advice:
            return False
        return key in self.ignored or (
            key.startswith(self.ignored_prefixes) and misspelled(key, known) is None
        )


NO_KEYS: Final = ForeignKeys()

CLIENT_KEYS: Final = ForeignKeys(
    advice={
        "bootstrap.servers": _NO_BROKERS,
        "metadata.broker.list": _NO_BROKERS,
        "transactional.id": "give it to Producer as transactional_id='…'",
        "transaction.timeout.ms": "give it to Producer as transaction_timeout_ms=…",
        "group.id": "give it to Consumer as group_id='…'; a producer has no group",
        "key.serializer": "give key_serializer= to Producer, a function that returns bytes",
        "value.serializer": "give value_serializer= to Producer, a function that returns bytes",
        "key.deserializer": "give key_deserializer= to Consumer, a function of a key's bytes",
        "value.deserializer": "give value_deserializer= to Consumer, a function of a value's bytes",
        "metric.reporters": "give metric_reporters= to Producer or Consumer, a list of reporters",
        "enable.partition.eof": "no record marks the end of a partition: compare position() with "
        "end_offsets(), or give consumer_timeout_ms",
        "message.send.max.retries": "its name here is retries",
        "message.timeout.ms": "its name here is delivery_timeout_ms",
        "request.required.acks": "its name here is acks",
        "queue.buffering.max.ms": "its name here is linger_ms",
        "message.max.bytes": "its name here is max_request_size",
        "compression.codec": "its name here is compression_type",
        "queue.buffering.max.kbytes": "its name here is buffer_memory, in bytes",
        "fetch.message.max.bytes": "its name here is max_partition_fetch_bytes",
        "auto.commit.enable": "its name here is enable_auto_commit",
    },
    ignored=frozenset(
        {
            "allow.auto.create.topics",
            "auto.include.jmx.reporter",
            "batch.num.messages",
            "client.id",
            "enable.metrics.push",
            "group.protocol",
            "kafka.client",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "metric.group.prefix",
            "queue.buffering.max.messages",
            "queued.max.messages.kbytes",
            "queued.min.messages",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
        }
    ),
    ignored_prefixes=(
        *_SECURITY_PREFIXES,
        *("api.version", "bootstrap.timeout", "broker.", "client.dns", "connections.max.idle"),
        *("compression.gzip.", "compression.level", "compression.lz4.", "compression.zstd."),
        *("debug", "enable.incremental.fetch", "log.connection", "max.in.flight"),
        *("metadata.recovery.", "metrics.", "partitioner.adaptive.", "partitioner.availability."),
        *("proxy.", "receive.", "reconnect.backoff", "selector", "send.buffer", "socket."),
        *("socks5.", "statistics.", "topic.metadata."),
    ),
)
"""Keys of kafka-python, of confluent-kafka (librdkafka) and of the Java clients."""

TOPIC_KEYS: Final = ForeignKeys(
    ignored=frozenset(
        {
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.zstd.level",
            "flush.messages",
            "flush.ms",
            "follower.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            "local.retention.bytes",
            "local.retention.ms",
            "message.downconversion.enable",
            "message.format.version",
            "preallocate",
            "remote.log.copy.disable",
            "remote.log.delete.on.disable",
            "remote.storage.enable",
            "segment.index.bytes",
            "segment.jitter.ms",
        }
    ),
)
"""Settings of topics that only brokers need, for their disks, memory and connections."""


def is_security_key(name: str) -> bool:
    """Whether a client's key concerns encryption or authentication."""
    return _dotted(name).startswith(_SECURITY_PREFIXES)


def _dotted(name: str) -> str:
    return name.lower().replace("_", ".")
