"""The schema, the protocol and the properties of a topic's Delta table.

The columns are those of the Parquet segments, in their order, and the partition column behind them.
No program but ours knows the writer feature, so all others refuse to write, and to VACUUM: that
would delete the files of the log that are not in the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Final

from spark_log.delta import TableProtocol

PARTITION_COLUMN: Final = "partition"

TABLE_PROTOCOL: Final = TableProtocol(7, frozenset({"sparkLog"}), (PARTITION_COLUMN,))
"""The protocol of a topic's table."""

CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"

_PROPERTIES: Final = {CHECKPOINT_INTERVAL: "10", "delta.enableExpiredLogCleanup": "false"}


def table_metadata(
    topic: str, configuration: Mapping[str, str], time_ms: int, known: Mapping[str, object]
) -> dict[str, object]:
    """Return the ``metaData`` action of a topic's table.

    Args:
        topic: the topic's name.
        configuration: the table properties that change.
        time_ms: the time that Delta's history shows.
        known: the action of the newest version; empty if there is none.
    """
    before = known.get("configuration")
    properties = _PROPERTIES | (dict(before) if isinstance(before, Mapping) else {})
    return {
        "metaData": {
            "id": known.get("id") or str(uuid.uuid4()),
            "name": topic,
            "description": "A topic of spark-log; programs may read it, and must not change it",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_SCHEMA, separators=(",", ":")),
            "partitionColumns": [PARTITION_COLUMN],
            "configuration": properties | dict(configuration),
            "createdTime": known.get("createdTime") or time_ms,
        }
    }


def _field(name: str, kind: object) -> dict[str, object]:
    # No column is "not null", though the offset never is: Delta's protocol would have to name a
    # feature for it (invariants), and Spark refuses to read the table without.
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


_HEADER = {"type": "struct", "fields": [_field("key", "string"), _field("value", "binary")]}
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        _field("offset", "long"),
        _field("timestamp", "timestamp"),
        _field("key", "binary"),
        _field("value", "binary"),
        _field("headers", {"type": "array", "elementType": _HEADER, "containsNull": True}),
        _field(PARTITION_COLUMN, "integer"),
    ],
}
