"""The barrier at the beginning of a leader epoch: a control batch with one record.

Nobody appends in a leader epoch before its barrier stands in the leader's log (docs/protocol.md,
"Replication"). The key of the control record has type 2, as Kafka's ``LeaderChangeMessage``; its
value is JSON. The batch header alone tells what readers and writers need: a control batch of no
producer, and the epoch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array

LEADER_CHANGE_KEY: Final = struct.pack(">hh", 0, 2)
"""The key of the control record: version 0, type 2 (``ControlRecordType.LEADER_CHANGE``)."""


def leader_change_records(
    leader_epoch: int, isr: Sequence[int], joining: Sequence[int], timestamp_us: int
) -> pa.RecordBatch:
    """Return the control record of a barrier, with the columns of `RECORD_SCHEMA`.

    Args:
        leader_epoch: the epoch that begins.
        isr: ids of the in-sync replicas, the leader first.
        joining: ids of the replicas that will join them.
        timestamp_us: microseconds since the epoch.
    """
    value = {"leaderEpoch": leader_epoch, "isr": list(isr), "joining": list(joining)}
    columns = [
        binary_array([LEADER_CHANGE_KEY]),
        binary_array([json.dumps(value).encode()]),
        pa.nulls(1, HEADERS_TYPE),
        timestamp_array(np.full(1, timestamp_us, np.int64)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
