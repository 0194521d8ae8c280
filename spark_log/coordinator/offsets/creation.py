"""Creates the offsets table, and tells a root that never had one from a root that has lost it.

On storage: version 0 of ``__consumer_offsets`` defines the table, and then the marker
``offsets.properties`` beside it is created. If the marker exists without the table, the table was
lost, and no new one is created automatically. A crash between the two leaves a table without the
marker; the next process that opens it creates the marker.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress

from spark_log.coordinator.offsets.rows import OFFSETS_SCHEMA
from spark_log.delta import DeltaLog
from spark_log.errors import (
    AlreadyExistsError,
    LogEndOffsetMismatchError,
    NotFoundError,
    StorageError,
)
from spark_log.storage import OFFSETS_TABLE, Store
from spark_log.util import Clock

MARKER = "offsets.properties"

RETENTION_MINUTES = "offsets.retention.minutes"

TABLE_PROPERTIES = {
    "delta.checkpointInterval": "100",
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 1 days",
    RETENTION_MINUTES: "10080",
}
"""Properties of a new table; ``ALTER TABLE … SET TBLPROPERTIES`` changes them."""

_DELTA_TYPES = {"string": "string", "int32": "integer", "int64": "long"}


def create_table(log: DeltaLog, clock: Clock) -> None:
    """Create the table from its empty log. Several processes may do so at the same time.

    Raises:
        StorageError: it was not created.
    """
    time_ms = clock.time_us() // 1000  # wall clock: Delta's createdTime, for users
    with suppress(LogEndOffsetMismatchError):
        log.append(definition(time_ms), "CREATE TABLE")
    # Others have created it, or it took long.
    if log.state.version < 0 or not log.has_valid_listing():
        log.refresh()


def definition(time_ms: int) -> list[dict[str, object]]:
    """Return the actions that define the table: ``protocol`` and ``metaData``."""
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "name": OFFSETS_TABLE,
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
    """Create the marker that says that the table exists, after checking that it is missing."""
    try:
        store.head(MARKER)
    except NotFoundError:
        mark_new(store)


def mark_new(store: Store) -> None:
    """Create the marker of a table that was just created; no effect if the marker exists."""
    with suppress(AlreadyExistsError):
        store.put_if_absent(MARKER, b"# __consumer_offsets was made\nversion=1\n")


def check_not_lost(store: Store, directory: str) -> None:
    """Check that a root without an offsets table never had one.

    Raises:
        StorageError: the table was lost.
    """
    try:
        store.head(MARKER)
    except NotFoundError:
        return
    raise StorageError(
        f"{store.url}/{directory} is gone, and with it the committed offsets of all groups: "
        f"restore it from a backup, or create a new one with spark-log groups repair",
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
