"""Results of `Admin` as Arrow tables: one row per partition, config, offset or replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_log.types import (
    ConfigEntry,
    LogDirDescription,
    OffsetAndTimestamp,
    PartitionProducerState,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
)

_BROKERS = pa.list_(pa.int32())

TOPICS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("replicas", _BROKERS),
        ("isr", _BROKERS),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("size_bytes", pa.int64()),
        ("segments", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("eligible_leader_replicas", _BROKERS),
        ("last_known_elr", _BROKERS),
        ("offline_replicas", _BROKERS),
        ("adding_replicas", _BROKERS),
        ("removing_replicas", _BROKERS),
        ("min_insync_replicas", pa.int32()),
    ]
)
CONFIGS_SCHEMA = pa.schema(
    [
        ("resource_type", pa.string()),
        ("resource_name", pa.string()),
        ("name", pa.string()),
        ("value", pa.string()),
        ("source", pa.string()),
        ("default", pa.string()),
        ("is_default", pa.bool_()),
        ("is_sensitive", pa.bool_()),
        ("is_read_only", pa.bool_()),
        ("type", pa.string()),
        ("documentation", pa.string()),
    ]
)
OFFSETS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("leader_epoch", pa.int32()),
    ]
)
LOG_DIRS_SCHEMA = pa.schema(
    [
        ("broker", pa.int32()),
        ("log_dir", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("size_bytes", pa.int64()),
        ("offset_lag", pa.int64()),
        ("is_future", pa.bool_()),
        ("segments", pa.int64()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("path", pa.string()),
    ]
)

TRANSACTIONS_SCHEMA = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("state", pa.string()),
        ("transaction_timeout_ms", pa.int32()),
        ("transaction_start_time", pa.timestamp("ms", "UTC")),
        (
            "topic_partitions",
            pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
        ),
        ("participants", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.string())),
        ("batch_id", pa.int64()),
    ]
)
PRODUCERS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("last_sequence", pa.int32()),
        ("last_timestamp", pa.timestamp("ms", "UTC")),
        ("current_transaction_start_offset", pa.int64()),
        ("transactional_id", pa.string()),
    ]
)


def topics_table(topics: Iterable[TopicDescription]) -> pa.Table:
    """Return the result of `Admin.describe_topics` as a table of `TOPICS_SCHEMA`.

    A -1 in the result becomes null: no leader exists, or the partition was not read.
    """
    known = ("leader", "log_start_offset", "log_end_offset", "size_bytes", "segments")
    return _table(
        TOPICS_SCHEMA,
        (
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                **_fields(partition),
                **{name: _known(getattr(partition, name)) for name in known},
            }
            for topic in topics
            for partition in topic.partitions
        ),
    )


def configs_table(
    configs: Mapping[str, Mapping[str, Mapping[str, ConfigEntry]]],
) -> pa.Table:
    """Return the result of `Admin.describe_configs` as a table of `CONFIGS_SCHEMA`."""
    return _table(
        CONFIGS_SCHEMA,
        (
            {"resource_type": kind, "resource_name": name, **_fields(entry)}
            for kind, resources in configs.items()
            for name, entries in resources.items()
            for entry in entries.values()
        ),
    )


def offsets_table(offsets: Mapping[TopicPartition, OffsetAndTimestamp]) -> pa.Table:
    """Return the result of `Admin.list_offsets` as a table of `OFFSETS_SCHEMA`.

    A -1 in the result becomes null: no such record exists, or the lookup was not by time.
    """
    return _table(
        OFFSETS_SCHEMA,
        (
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": _known(found.offset),
                "timestamp": _known(found.timestamp),
                "leader_epoch": _known(found.leader_epoch),
            }
            for partition, found in offsets.items()
        ),
    )


def log_dirs_table(log_dirs: Iterable[LogDirDescription]) -> pa.Table:
    """Return the result of `Admin.describe_log_dirs` as a table of `LOG_DIRS_SCHEMA`."""
    return _table(
        LOG_DIRS_SCHEMA,
        (
            {"broker": log_dir.broker, "log_dir": log_dir.log_dir, **_fields(replica)}
            for log_dir in log_dirs
            for replica in log_dir.replicas
        ),
    )


def transactions_table(transactions: Mapping[str, TransactionDescription]) -> pa.Table:
    """Return the result of `Admin.describe_transactions` as a table of `TRANSACTIONS_SCHEMA`.

    A -1 in the result becomes null: no transaction has begun, or no micro-batch is committed.
    """
    return _table(
        TRANSACTIONS_SCHEMA,
        (
            {
                "transactional_id": transactional_id,
                **_fields(described),
                "transaction_start_time": _known(described.transaction_start_time_ms),
                "topic_partitions": [each._asdict() for each in sorted(described.topic_partitions)],
                "batch_id": _known(described.batch_id),
            }
            for transactional_id, described in transactions.items()
        ),
    )


def producers_table(producers: Mapping[TopicPartition, PartitionProducerState]) -> pa.Table:
    """Return the result of `Admin.describe_producers` as a table of `PRODUCERS_SCHEMA`.

    A -1 in the result becomes null, except ``last_sequence``.
    """
    return _table(
        PRODUCERS_SCHEMA,
        (
            {
                "topic": partition.topic,
                "partition": partition.partition,
                **_fields(producer),
                "last_timestamp": _known(producer.last_timestamp),
                "current_transaction_start_offset": _known(
                    producer.current_transaction_start_offset
                ),
            }
            for partition, state in producers.items()
            for producer in state.active_producers
        ),
    )


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    listed: Sequence[Mapping[str, Any]] = list(rows)
    columns = [pa.array([row[field.name] for row in listed], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _known(number: int) -> int | None:
    return None if number == -1 else number
