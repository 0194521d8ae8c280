"""Options of a write with ``format("spark_log")``: a table of them, and the parsed result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from spark_log.config import BrokerOptions
from spark_log.datasource.options.external_transaction import JOIN_TRANSACTION, ExternalTransaction
from spark_log.datasource.options.kafka_options import WRITE_TRANSLATION, substitute_codec
from spark_log.datasource.options.option_parser import OptionParser
from spark_log.errors import InvalidConfigurationError, InvalidOptionError
from spark_log.types import NewTopic

Acks = Literal["all", "1", "0"]

ACKS_BY_TOPIC: Final = "acksByTopic"
CREATE_TOPIC: Final = "createTopic"
TRANSACTIONAL: Final = "transactional"
_TIMEOUT: Final = "transaction.timeout.ms"
_PARTITIONS: Final = "createTopic.partitions"
_CONFIG: Final = "createTopic.config."
WRITE_OPTIONS: Final = {
    "topic": "the topic to write to; takes precedence over the column topic",
    CREATE_TOPIC: "whether the topic of the option topic is created if it does not exist, and the "
    "root too (default false)",
    _PARTITIONS: "number of partitions of a topic that createTopic creates (default 1)",
    _CONFIG: "createTopic.config.<key>: a setting of a topic that createTopic creates, such as "
    "createTopic.config.cleanup.policy",
    "compression.type": "none, lz4 or zstd; gzip is written as zstd, and snappy as lz4. Applies if "
    "the topic's compression.type is producer",
    "acks": "all: a task waits until all in-sync replicas have its records; 1 or 0: it waits for "
    "the leader alone, whose loss may lose them, and the write is not idempotent (default all)",
    ACKS_BY_TOPIC: 'acks of single topics, as JSON such as {"clicks": "1", "orders": "all"}; other '
    "topics have that of the option acks",
    "idempotent": "whether a task or micro-batch that runs again appends no record twice (default "
    "true)",
    TRANSACTIONAL: "whether each micro-batch, or a batch write, is one transaction: readers with "
    "isolation.level=read_committed see all of it or nothing (default false)",
    _TIMEOUT: "milliseconds after which others abort a transaction that is not committed (default "
    "900000, or the cluster's transaction.max.timeout.ms if that is less)",
    JOIN_TRANSACTION: "JSON with transactionalId, producerId and producerEpoch of a transaction "
    "that the caller owns: tasks of a batch write join it, and the summary has their producers, "
    "which the caller commits",
    "txnAppId": "with txnVersion: identifies a batch write, like Delta's options of the same "
    "names. If the write runs again, also by another program, no record is appended twice",
    "txnVersion": "a number that increases with each write of one txnAppId",
    "summaryPath": "local file on the driver to which a batch write writes a JSON summary",
    "checkpointLocation": "the checkpoint of a streaming query; used by Spark",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Parsed options of a write.

    Attributes:
        root: URL of the cluster root.
        storage_options: options of the file system.
        broker_options: broker id → options of the file system of its root.
        topic: topic of all records; None if the column ``topic`` contains it.
        compression: codec for topics whose ``compression.type`` is ``producer``.
        acks: the replicas that a task waits for: all in-sync ones (``all``), or the leader alone.
        acks_by_topic: topic → its own ``acks``, which takes precedence.
        new_topic: the topic to create if ``topic`` does not exist; None to refuse the write then.
        idempotent: detect records that an earlier attempt has appended (`WriteIdentity`), in
            topics with ``acks=all``.
        transactional: commit each micro-batch, or the batch write, as one transaction.
        transaction_timeout_ms: ``transaction.timeout.ms``; None for the default.
        external_transaction: the caller's transaction, which the write joins and does not end; None
            for a transaction of its own.
        transaction: ``txnAppId`` and ``txnVersion`` of a batch write; None to generate an identity.
        summary_path: file for the summary of a batch write; None for none.
        ignored: options that were given and have no effect.
        warnings: other warnings for the user, one sentence each.
    """

    root: str
    storage_options: Mapping[str, str] = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    topic: str | None
    compression: str
    acks: Acks = "all"
    acks_by_topic: Mapping[str, Acks] = field(default_factory=dict)
    new_topic: NewTopic | None = None
    idempotent: bool = True
    transactional: bool = False
    transaction_timeout_ms: int | None = None
    external_transaction: ExternalTransaction | None = None
    transaction: tuple[str, int] | None = None
    summary_path: str | None = None
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def acks_of(self, topic: str) -> Acks:
        """Return which replicas a task waits for with records of a topic."""
        return self.acks_by_topic.get(topic, self.acks)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write.

    Raises:
        InvalidOptionError: an option is misspelled (the error names the nearest), missing, or has
            an invalid value.
    """
    from spark_log.config import ProducerConfig  # late: tasks import this module, and parse nothing

    parser = OptionParser(options, WRITE_OPTIONS, WRITE_TRANSLATION)
    instead = substitute_codec(options)
    compression = (
        ProducerConfig.parse(parser.subset("compression.type")).compression_type
        if instead is None
        else instead[0]
    )
    topic = parser.get("topic").strip() or None
    acks = ProducerConfig.parse(parser.subset("acks")).acks
    acks_by_topic = _acks_by_topic(parser, topic)
    used = {acks, *acks_by_topic.values()} if topic is None else {acks_by_topic.get(topic, acks)}
    idempotent, transactional = _guarantees(parser, options, used)
    external = parser.get(JOIN_TRANSACTION)
    ignored = set(parser.ignored)
    if not transactional:
        ignored |= {name for name in options if name.lower() == f"kafka.{_TIMEOUT}"}
    return WriteOptions(
        root=parser.root(),
        storage_options=parser.storage_options,
        broker_options=parser.broker_options,
        topic=topic,
        compression=compression,
        acks=acks,
        acks_by_topic=acks_by_topic,
        new_topic=_new_topic(parser, topic),
        idempotent=idempotent,
        transactional=transactional or bool(external),
        transaction_timeout_ms=parser.integer(_TIMEOUT, minimum=1, maximum=2**31 - 1),
        external_transaction=ExternalTransaction.from_json(external) if external else None,
        transaction=_transaction(parser),
        summary_path=parser.get("summaryPath") or None,
        ignored=tuple(sorted(ignored)),
        warnings=() if instead is None else (instead[1],),
    )


def _acks_by_topic(parser: OptionParser, topic: str | None) -> dict[str, Acks]:
    text = parser.get(ACKS_BY_TOPIC)
    if not text:
        return {}
    from spark_log.config import ProducerConfig

    try:
        found = {
            name: ProducerConfig.parse({"acks": str(value)}).acks
            for name, value in json.loads(text).items()
        }
    except (ValueError, AttributeError, InvalidConfigurationError):
        raise InvalidOptionError(
            f"option {ACKS_BY_TOPIC!r} is {text!r}, expected all, 1 or 0 for each topic, as JSON "
            f'such as {{"clicks": "1", "orders": "all"}}',
            key=ACKS_BY_TOPIC,
        ) from None
    others = sorted(found.keys() - {topic})
    if topic is not None and others:
        raise InvalidOptionError(
            f"option {ACKS_BY_TOPIC!r} has no effect on topic {others[0]!r}: the option 'topic' "
            f"sends all records to {topic!r}; leave one of the two out",
            key=ACKS_BY_TOPIC,
        )
    return found


def _guarantees(
    parser: OptionParser, options: Mapping[str, str], acks: set[Acks]
) -> tuple[bool, bool]:
    """Return whether the write is idempotent, and whether it is transactional.

    Args:
        parser: the parser of the options.
        options: the same options, with the names that the user wrote.
        acks: all values of ``acks`` that the topics of the write may have.
    """
    idempotent = parser.boolean("idempotent", default="all" in acks)
    transactional = parser.boolean(TRANSACTIONAL, default=False)
    for name in ("idempotent", TRANSACTIONAL):
        if name in parser and parser.boolean(name, default=False) and acks != {"all"}:
            raise InvalidOptionError(
                f"option '{name}=true' needs acks=all, but acks is {min(acks)}: a record that a "
                f"replica lacks could be written again or lost; leave one of the two out",
                key="acks",
            )
    if transactional and not idempotent:
        raise InvalidOptionError(
            f"options '{TRANSACTIONAL}=true' and 'idempotent=false' contradict each other: a "
            f"transaction is written once; leave one of the two out",
            key="idempotent",
        )
    if not transactional and _TIMEOUT in {name.lower() for name in options}:
        raise InvalidOptionError(
            f"option {_TIMEOUT!r} has no effect without '{TRANSACTIONAL}=true'; set this option "
            f"too, or leave {_TIMEOUT!r} out",
            key=_TIMEOUT,
        )
    return idempotent, transactional


def _new_topic(parser: OptionParser, topic: str | None) -> NewTopic | None:
    partitions = parser.integer(_PARTITIONS, minimum=1)
    configs = {key.lower(): value for key, value in parser.prefixed(_CONFIG).items()}
    if not parser.boolean(CREATE_TOPIC, default=False):
        given = [_PARTITIONS] * (partitions is not None) + [_CONFIG + key for key in configs]
        if given and CREATE_TOPIC not in parser:
            raise InvalidOptionError(
                f"option {given[0]!r} has no effect without '{CREATE_TOPIC}=true'; set this option "
                f"too, or leave {given[0]!r} out",
                key=given[0],
            )
        return None
    if topic is None:
        raise InvalidOptionError(
            f"option {CREATE_TOPIC!r} needs the option 'topic': topics of a column are not known "
            f"before the tasks read them; create these topics first",
            key=CREATE_TOPIC,
        )
    return NewTopic(topic, partitions or 1, topic_configs=configs)


def _transaction(parser: OptionParser) -> tuple[str, int] | None:
    name, number = parser.get("txnAppId"), parser.integer("txnVersion")
    if not name and number is None:
        return None
    if not name or number is None:
        lacking = "txnVersion" if name else "txnAppId"
        raise InvalidOptionError(
            f"option {lacking!r} is missing: 'txnAppId' and 'txnVersion' together identify a write",
            key=lacking,
        )
    return name, number
