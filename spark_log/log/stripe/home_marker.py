"""A home marker: the state of a stripe at a number, below which all records are at home.

On storage: ``<number>.home``, an Arrow IPC file with a row for each partition that has had entries:
``partition``, ``end_offset``, and ``producers``, a list with the state of each producer, as in a
snapshot. The custom metadata have the open transactions, and runs of earlier epochs; if they are
not empty the leader epochs, and whether the stripe has ended. The schema metadata have the topic
id, the stripe, the number and a checksum of the rows. It is put only after the records before its
number are in the directories of their partitions, so a crash leaves no marker, and the next process
takes them home again. A reader begins at the newest marker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.log.producers import ProducerState
from spark_log.log.snapshot import (
    PRODUCER_TYPE,
    checked,
    columns_crc32c,
    producer_column,
    producer_of,
    readable_schema,
    transactions_content,
    transactions_of,
    with_checksum,
)
from spark_log.log.stripe.state import StripeState
from spark_log.record import FORMAT_VERSION, STRIPE_KEY, int_array
from spark_log.util import parse_json

HOME_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("producers", pa.list_(PRODUCER_TYPE), nullable=False),
    ]
)
"""Columns of a home marker."""

_TRANSACTIONS_KEY: Final = b"spark_log.transactions"
_NUMBER_KEY: Final = b"spark_log.number"
_EPOCHS_KEY: Final = b"spark_log.leader_epochs"
_CRC_KEY: Final = b"spark_log.crc32c"


def encode_home(
    state: StripeState, *, topic_id: str, stripe: int, now_us: int, expiration_ms: int
) -> pa.Buffer:
    """Return the content of the home marker of a state.

    Args:
        state: the state. Its aborted transactions are left out: those before the marker are found
            at home.
        topic_id: the topic's id.
        stripe: number of the stripe.
        now_us: the storage's time, or an earlier one.
        expiration_ms: ``producer.id.expiration.ms``; producers that have expired are left out.
    """
    partitions = [
        (partition, each.without_expired(now_us=now_us, expiration_ms=expiration_ms))
        for partition, each in state.partitions()
    ]
    entries = [tuple(each.entries()) for _, each in partitions]
    producers = pa.ListArray.from_arrays(
        int_array(np.cumsum([0, *map(len, entries)]), pa.int32()),
        producer_column([pair for each in entries for pair in each]),
    )
    batch = pa.RecordBatch.from_arrays(
        [
            int_array([partition for partition, _ in partitions], pa.int32()),
            int_array([each.offset for _, each in partitions], pa.int64()),
            producers,
        ],
        schema=HOME_SCHEMA,
    )
    metadata: dict[bytes, bytes] = {
        b"spark_log.format": FORMAT_VERSION.encode(),
        b"spark_log.topic_id": topic_id.encode(),
        STRIPE_KEY: b"%d" % stripe,
        _NUMBER_KEY: b"%d" % state.next_number,
        _CRC_KEY: b"%d" % columns_crc32c(batch),
    }
    transactions = {str(partition): _open_transactions(each) for partition, each in partitions}
    content = {partition: each for partition, each in transactions.items() if any(each.values())}
    custom = {_TRANSACTIONS_KEY: with_checksum(json.dumps(content))}
    if state.leader_epochs or state.is_ended:
        epochs = {"leader_epochs": state.leader_epochs, "is_ended": state.is_ended}
        custom[_EPOCHS_KEY] = with_checksum(json.dumps(epochs))
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, HOME_SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(
            batch.replace_schema_metadata(metadata),
            custom_metadata=custom,
        )
    return sink.getvalue()


def decode_home(data: pa.Buffer, number: int, *, topic_id: str, stripe: int) -> StripeState:
    """Return the state in a home marker.

    Args:
        data: content of the file.
        number: the number in the file's name; the file must have the same.
        topic_id: the topic's id; the file must have the same.
        stripe: number of the stripe; the file must have the same.

    Raises:
        ValueError: the file is damaged, or belongs to another stripe or number.
    """
    try:
        file = ipc.open_file(data)
        metadata = file.schema.metadata or {}
        keys = (b"spark_log.format", b"spark_log.topic_id", STRIPE_KEY, _NUMBER_KEY)
        owner = tuple(metadata.get(key) for key in keys)
        expected = (FORMAT_VERSION.encode(), topic_id.encode(), b"%d" % stripe, b"%d" % number)
        if owner != expected:
            raise ValueError(f"it is of {owner}, and a marker of {expected} is expected")
        if not file.schema.equals(HOME_SCHEMA) or file.num_record_batches != 1:
            raise ValueError("its columns are not a home marker's")
        batch, custom_metadata = file.get_batch_with_custom_metadata(0)
        batch.validate(full=True)
        if metadata.get(_CRC_KEY) != b"%d" % columns_crc32c(batch):
            raise ValueError("its checksum does not fit")
        rows = batch.cast(readable_schema(HOME_SCHEMA)).to_pylist()
        text = (custom_metadata or {}).get(_TRANSACTIONS_KEY, b"")
        transactions = parse_json(checked(text, "transactions"))
        of_epochs = (custom_metadata or {}).get(_EPOCHS_KEY)
        epochs = parse_json(checked(of_epochs, "leader epochs")) if of_epochs else {}
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"it is not a readable Arrow file: {error}") from None
    return StripeState(
        number,
        {row["partition"]: _producers(row, transactions) for row in rows},
        leader_epochs={int(key): each for key, each in epochs.get("leader_epochs", {}).items()},
        is_ended=epochs.get("is_ended", False),
    )


def _open_transactions(producers: ProducerState) -> dict[str, Any]:
    content = transactions_content(producers)
    return {key: content[key] for key in ("open", "earlier_runs") if key in content}


def _producers(row: dict[str, Any], transactions: Mapping[str, Any]) -> ProducerState:
    content: dict[str, Any] = {"open": [], "aborted": [], "unlisted": []}
    content |= transactions.get(str(row["partition"]), {})
    index, earlier_runs = transactions_of(content, row["end_offset"])
    entries = [producer_of(each, earlier_runs) for each in row["producers"]]
    return ProducerState(row["end_offset"], entries, index)
