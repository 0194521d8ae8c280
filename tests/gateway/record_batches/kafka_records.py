"""The records that `MakeBatches.java` and `make_librdkafka_batches.py` write into bytes/."""

from __future__ import annotations

from pathlib import Path

BYTES = Path(__file__).parent / "bytes"
TIME_MS = 1_700_000_000_000

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
"""Key, value, headers (None without any), timestamp in ms."""

EDGE_CASES: list[Row] = [
    (b"key", b"value", None, TIME_MS + 5),
    (None, b"earlier, without a key", None, TIME_MS),
    (b"tombstone", None, None, TIME_MS + 1_000_000),
    (b"", b"", None, TIME_MS - 1_000_000_000_000),
    (None, None, None, TIME_MS),
    (b"headers", b"three", [("a", b"1"), ("a", b"2"), ("größe", None)], TIME_MS),
    (b"x" * 63, b"y" * 64, [("", b"")], TIME_MS),
    (b"x" * 8191, b"y" * 8192, None, TIME_MS),
    (b"no", b"timestamp", None, -1),
]

MANY: list[Row] = [
    (
        None if number % 7 == 0 else b"key-%d" % number,
        b"value " * (number % 20) + b"%d" % number,
        None,
        TIME_MS + 3 * number,
    )
    for number in range(600)
]
