"""Control records: the types of records in a control batch (Kafka's ``ControlRecordType``).

The key of a control record begins with ``version i16, type i16``, big-endian. Types 0 and 1 are the
markers at the end of a transaction. The header of a marker's batch has the type, too
(`BatchHeader.marker`), so that readers need not read the record (docs/adr/0021).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

_KEY = struct.Struct(">hh")

MARKER_VALUE: Final = struct.pack(">hi", 0, 0)
"""The value of a marker: ``version i16, coordinator epoch i32``, as in Kafka. Spark-log's
coordinators have no epoch, so it is always 0."""


class ControlRecordType(IntEnum):
    """The types of control records that end a transaction."""

    ABORT = 0
    COMMIT = 1

    @property
    def key(self) -> bytes:
        """The key of a control record of this type."""
        return _KEY.pack(0, self)

    @staticmethod
    def of_key(key: bytes | None) -> ControlRecordType | None:
        """Return the type of a control record with this key; None if it is not a marker."""
        if key is None or len(key) < _KEY.size:
            return None
        version, kind = _KEY.unpack_from(key)
        is_known = version >= 0 and kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
        return ControlRecordType(kind) if is_known else None
