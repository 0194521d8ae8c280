"""Control records: what a control batch says, in Kafka's keys (``ControlRecordType``).

The key begins with ``version i16, type i16``, big-endian. Types 0 and 1 are the markers at the end
of a transaction.
"""

from __future__ import annotations

import struct
from enum import IntEnum

_KEY = struct.Struct(">hh")


class ControlRecordType(IntEnum):
    """The types that a compaction tells apart."""

    ABORT = 0
    COMMIT = 1

    @property
    def key(self) -> bytes:
        """The key of such a record."""
        return _KEY.pack(0, self)

    @staticmethod
    def of_key(key: bytes | None) -> ControlRecordType | None:
        """Return what a control record with this key is; None for any that is no marker."""
        if key is None or len(key) < _KEY.size:
            return None
        version, kind = _KEY.unpack_from(key)
        is_known = version >= 0 and kind in (ControlRecordType.ABORT, ControlRecordType.COMMIT)
        return ControlRecordType(kind) if is_known else None
