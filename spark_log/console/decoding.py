"""Shows the bytes of records as text, JSON, a decoded Avro value, or in hexadecimal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

from spark_log.console.settings import AvroDecoder

Form = Literal["auto", "text", "json", "avro", "hex"]
"""The form in which a user wants to see bytes; ``auto`` takes the first form that fits."""

_MAX_PARSED_BYTES: Final = 262_144
"""Maximum bytes of a value that is parsed. Longer values are shown as text or in hexadecimal."""


@dataclass(frozen=True, slots=True)
class DecodedBytes:
    """Bytes in a form that a person can read.

    Attributes:
        form: the form of the text: ``null``, ``text``, ``json``, ``avro`` (as JSON text) or
            ``hex``.
        text: the text; empty for null.
        size_bytes: the number of bytes; 0 for null.
        is_cut: whether the text shows only the first bytes.
    """

    form: Literal["null", "text", "json", "avro", "hex"]
    text: str
    size_bytes: int
    is_cut: bool = False


NULL: Final = DecodedBytes("null", "", 0)


def show(
    data: bytes | None, form: Form = "auto", *, max_bytes: int, avro: AvroDecoder | None = None
) -> DecodedBytes:
    """Return bytes in the wanted form if it fits, else as UTF-8 text, else in hexadecimal.

    Args:
        data: the bytes; None for null.
        form: the wanted form.
        max_bytes: the maximum number of bytes that are shown.
        avro: the decoder of Avro; None without a decoder.
    """
    if data is None:
        return NULL
    if form in ("auto", "avro") and avro is not None and len(data) <= _MAX_PARSED_BYTES:
        try:
            text = json.dumps(avro(data), ensure_ascii=False)
            return DecodedBytes("avro", *_cut(text, len(data), max_bytes))
        except (ValueError, RecursionError):
            pass
    text = "" if form == "hex" else _text(data, max_bytes)
    if text or (not data and form != "hex"):
        is_json = form in ("auto", "json") and _is_json(data)
        return DecodedBytes("json" if is_json else "text", text, len(data), len(data) > max_bytes)
    return DecodedBytes(
        "hex", data[: max_bytes // 2].hex(" "), len(data), len(data) > max_bytes // 2
    )


def _cut(text: str, size_bytes: int, max_bytes: int) -> tuple[str, int, bool]:
    return text[:max_bytes], size_bytes, len(text) > max_bytes


def _text(data: bytes, max_bytes: int) -> str:
    """Return the beginning of UTF-8 text, cut between two characters; empty for other bytes."""
    head = data[:max_bytes]
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        is_cut_inside = len(head) < len(data) and error.start > len(head) - 4
        return head[: error.start].decode() if is_cut_inside else ""


def _is_json(data: bytes) -> bool:
    """Return whether the bytes are a JSON object or array; a single number counts as text."""
    if len(data) > _MAX_PARSED_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
