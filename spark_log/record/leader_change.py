"""The barrier at the beginning of a leader epoch: a control batch with one record.

Nobody appends in a leader epoch before its barrier is in the leader's log (protocol R4). The key of
the control record has type 2, as Kafka's ``LeaderChangeMessage``; its value is JSON. Readers and
writers need only the batch header: a control batch without a producer id, with the epoch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA
from spark_log.util import parse_json

LEADER_CHANGE_KEY: Final = struct.pack(">hh", 0, 2)
"""The key of the control record: version 0, type 2 (``ControlRecordType.LEADER_CHANGE``)."""


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The content of a barrier (Kafka's ``LeaderChangeMessage``).

    Attributes:
        leader_epoch: the epoch that begins.
        isr: ids of the in-sync replicas, the leader first.
        joining: ids of the replicas that will join them.
    """

    leader_epoch: int
    isr: tuple[int, ...]
    joining: tuple[int, ...]

    def __str__(self) -> str:
        isr, joining = (", ".join(map(str, ids)) for ids in (self.isr, self.joining))
        return (
            f"leader epoch {self.leader_epoch} begins, leader {self.isr[0]}, isr [{isr}], joining "
            f"[{joining}]"
        )


def parse_leader_change(key: bytes | None, value: bytes | None) -> LeaderChange | None:
    """Return the content of a barrier's control record; None for another control record.

    Raises:
        ValueError: the value is not the JSON of a barrier.
    """
    if key != LEADER_CHANGE_KEY:
        return None
    try:
        fields: dict[str, Any] = parse_json(value or b"")
        isr, joining = (tuple(map(int, fields[name])) for name in ("isr", "joining"))
        change = LeaderChange(int(fields["leaderEpoch"]), isr, joining)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"is not that of a leader change: {error}") from None
    if not isr:
        raise ValueError("has no in-sync replica")
    return change


def leader_change_records(
    leader_epoch: int, isr: Sequence[int], joining: Sequence[int], timestamp_us: int
) -> pa.RecordBatch:
    """Return the control record of a barrier, with the columns of `RECORD_SCHEMA`.

    Args:
        leader_epoch: the epoch that begins.
        isr: ids of the in-sync replicas, the leader first.
        joining: ids of the replicas that will join them.
        timestamp_us: the record's timestamp, in microseconds since the epoch.
    """
    value = {"leaderEpoch": leader_epoch, "isr": list(isr), "joining": list(joining)}
    columns = [
        binary_array([LEADER_CHANGE_KEY]),
        binary_array([json.dumps(value).encode()]),
        pa.nulls(1, HEADERS_TYPE),
        timestamp_array(np.full(1, timestamp_us, np.int64)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
