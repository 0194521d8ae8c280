"""The framing of Avro values: a value may stand behind the id of a schema in a registry.

Confluent's serializers write a zero byte, an id of four bytes, and the value. The id is not looked
up. A plain value may begin with a zero byte, too, so all bytes are tried as a plain value first:
the zeros of an id are short fields, and such a value is then too long, while a text in the middle
of a plain value may well be a value by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FRAME_PREFIX: Final = b"\0"
FRAME_BYTES: Final = 5
"""The prefix and the id of a schema."""


def unframed(data: bytes) -> Iterator[bytes]:
    """Yield the bytes that may be a plain value, in the order in which they are tried.

    Args:
        data: the bytes of a value, with or without framing.
    """
    yield data
    if data.startswith(FRAME_PREFIX) and len(data) >= FRAME_BYTES:
        yield data[FRAME_BYTES:]
