"""The end of a compaction, in the file with which it takes its generation (ADR 42).

On storage, the content of ``<generation>.generation``::

    bytes 0-7    the end: an offset, big-endian
    bytes 8-11   random, so that each of two compactions that put it recognises its own file
    bytes 12-15  CRC-32C of the generation's number and the bytes before
    then         a random byte for each generation since the last that read all keys (ADR 16)

Without a table the content is random, and names no end. The length is the same, so an older version
of spark-log, which writes and expects random bytes, can read both.
"""

from __future__ import annotations

import os
import struct

from google_crc32c import extend

from spark_log.log.files import GENERATION_BYTES

_HEAD = struct.Struct(">q4s")
_GENERATION = struct.Struct(">q")


def encode_compaction_end(end: int, generation: int, passes: int = 0) -> bytes:
    """Return the content of a generation's file that names an end (protocol B6).

    Args:
        end: the offset up to which the compaction cleans.
        generation: the compaction's generation.
        passes: number of generations since the last that read all keys.
    """
    head = _HEAD.pack(end, os.urandom(4))
    return head + _checksum(generation, head) + os.urandom(passes)


def decode_compaction_end(content: bytes, generation: int) -> int | None:
    """Return the end that a generation's file names; None if it names none."""
    head, checksum = content[: _HEAD.size], content[_HEAD.size : GENERATION_BYTES]
    if len(content) < GENERATION_BYTES or checksum != _checksum(generation, head):
        return None
    return int(_HEAD.unpack(head)[0])


def end_to_name(own_end: int, newest: int | None, log_end_offset: int, *, is_first: bool) -> int:
    """Return the end that a compaction names, which is not below that of any earlier one (B6).

    An earlier compaction may have left a record out, even if it did not finish, because a newer
    record with the same key exists before the end that it named. The files of later compactions
    are therefore complete only if they reach that end. If the files of this compaction do not, it
    is never complete, and a later one may be.

    Args:
        own_end: the offset that the compaction's files will reach.
        newest: the end that the newest generation in its listing names; None if it names none.
        log_end_offset: the log's end in its listing.
        is_first: whether the listing shows no generation.
    """
    if newest is not None:
        return max(own_end, newest)
    # The earlier compaction named no end, and may have read the log up to its end.
    return own_end if is_first else max(own_end, log_end_offset)


def _checksum(generation: int, head: bytes) -> bytes:
    return struct.pack(">I", extend(0, _GENERATION.pack(generation) + head))
