"""The end of a compaction, in the file with which it takes its generation (ADR 42).

On storage, the content of ``<generation>.generation``::

    bytes 0-7    the end: an offset, big-endian
    bytes 8-11   random, so that of two compactions that take a generation each knows its own
    bytes 12-15  CRC-32C of the generation's number and the bytes before
    then         a random byte for each generation since the last that read all keys (ADR 16)

Without a table the content is random, as it always was: it names no end. The length is the same, so
a client that knows nothing of ends reads such a file as before.
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
        end: the end.
        generation: the generation.
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
    """Return the end that a compaction names: never one below an earlier one's (protocol B6).

    A compaction that left a record out has left it to a newer one before the end that it named,
    whether it was finished or not. So no later one may be taken for whole before that end. If its
    own files end before, it is never whole, and the next one may be.

    Args:
        own_end: the offset that its files will reach.
        newest: the end that the newest generation in its listing names; None if it names none.
        log_end_offset: the log's end in its listing.
        is_first: whether the listing shows no generation.
    """
    if newest is not None:
        return max(own_end, newest)
    # One that named no end may have read all of the log that it saw.
    return own_end if is_first else max(own_end, log_end_offset)


def _checksum(generation: int, head: bytes) -> bytes:
    return struct.pack(">I", extend(0, _GENERATION.pack(generation) + head))
