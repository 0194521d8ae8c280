"""How the offsets table comes to be, and how it is told from one that was lost.

On storage: version 0 of ``__consumer_offsets`` says what the table is; ``offsets.properties``
beside it says that there is one. Where the second is there without the first, the table is gone:
then nothing begins anew by itself. A crash between the two leaves a table that is found when it is
opened next.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress

from spark_log.clock import Clock
from spark_log.coordinator.offsets.rows import OFFSETS_SCHEMA
from spark_log.delta.delta_log import DeltaLog
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    NotFoundError,
    StorageError,
)
from spark_log.storage import Store

MARKER = "offsets.properties"

RETENTION_MINUTES = "offsets.retention.minutes"

TABLE_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 1 days",
    RETENTION_MINUTES: "10080",
}
"""What a new table is made with; ``ALTER TABLE … SET TBLPROPERTIES`` changes them."""

_DELTA_TYPES = {"string": "string", "int32": "integer", "int64": "long"}


def create_table(log: DeltaLog, clock: Clock) -> None:
    """Make the table of an opened log that has none; harmless when others do so too.

    Raises:
        StorageError: it was not made.
    """
    time_ms = clock.time_us() // 1000  # wall clock: Delta's createdTime, for people
    with suppress(LogEndOffsetMismatchError):
        log.append(definition(time_ms), "CREATE TABLE")
    log.refresh()


def definition(time_ms: int) -> list[dict[str, object]]:
    """Return the actions that say what the table is."""
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "name": "__consumer_offsets",
                "description": "Committed offsets of consumer groups; see docs/offsets-table.md",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": _schema_string(),
                "partitionColumns": [],
                "configuration": TABLE_PROPERTIES,
                "createdTime": time_ms,
            }
        },
    ]


def mark(store: Store) -> None:
    """Note that the table was made; harmless when that is noted already."""
    try:
        store.head(MARKER)
    except NotFoundError:
        with suppress(AlreadyExistsError):
            store.put_if_absent(MARKER, b"# __consumer_offsets was made\nversion=1\n")


def check_not_lost(store: Store, directory: str) -> None:
    """Check, where there is no table, that there never was one.

    Raises:
        StorageError: it is gone.
    """
    try:
        store.head(MARKER)
    except NotFoundError:
        return
    raise StorageError(
        f"{store.url}/{directory} is gone, and with it the positions of all groups: bring it back "
        f"from a copy, or begin a new one with spark-log groups repair",
        path=directory,
    )


def _schema_string() -> str:
    fields = [
        {
            "name": field.name,
            "type": _DELTA_TYPES.get(str(field.type), "timestamp"),
            "nullable": False,
            "metadata": {},
        }
        for field in OFFSETS_SCHEMA
    ]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
