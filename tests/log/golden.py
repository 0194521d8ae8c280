"""Golden segment files of format 1, which every later version must read.

The files are in ``data/``. ``python -m tests.log.golden`` wrote them; it is kept to show how, and
is not run again for format 1.
"""

import os
from pathlib import Path
from unittest import mock

from spark_log.log.files.file_names import SegmentName
from spark_log.storage.local import LocalStore
from tests.log.support import DIRECTORY, Part, put_bytes, put_segment, segment_bytes
from tests.record.samples import START_US, record_batch, row

DATA = Path(__file__).parent / "data"
APPEND_ID = "AAECAwQFBgcICQoLDA0ODw"
"""Base64url of the bytes 0 to 15, which replace random ones."""

PLAIN = SegmentName(1_000)
REWRITTEN = SegmentName(2_000, 2_019, 3)
COMPRESSIONS = ("none", "lz4", "zstd")

PLAIN_ROWS = [
    row(b"a value", b"a key", [("name", b"content"), ("name", None), ("", b"")], START_US),
    row(None, b"", [], START_US - 1_000_000),
    row(b"", None, None, START_US + 86_400_000_000),
    row("µ".encode() * 40, b"\0\xff", [("µ", b"\0")], -1),
    *(row(b"%d" % number * 9, b"k%d" % number, None, START_US + number) for number in range(16)),
]
PLAIN_SPLITS = [4, 10, 1, 5]
PLAIN_SUMS = [0x367BC917, 0x5D7439CF, 0x9FB1152E, 0x78E89B0C]

REWRITTEN_PARTS = [
    [
        Part([row(b"one")], deltas=[0], leader_epoch=1),
        Part([row(b"two"), row(b"three")], deltas=[3, 4], last_delta=7, leader_epoch=1),
        Part([row(b"marker", b"\0\0\0\1")], deltas=[8], attributes=0b110000, leader_epoch=2),
    ],
    [Part([row(b"four", timestamp=-5)], deltas=[15], last_delta=19, attributes=0b1000)],
]
REWRITTEN_OFFSETS = [2_000, 2_003, 2_004, 2_008, 2_015]


def plain_batches():
    rows = iter(PLAIN_ROWS)
    return [record_batch([next(rows) for _ in range(count)]) for count in PLAIN_SPLITS]


def make():
    with mock.patch.object(os, "urandom", lambda count: bytes(range(count))):
        for compression in COMPRESSIONS:
            store = LocalStore(str(DATA / compression))
            put_segment(
                store, plain_batches(), PLAIN, compression=compression, index_interval_bytes=0
            )
            arrows = None if compression == "none" else compression
            put_bytes(store, segment_bytes(REWRITTEN_PARTS, compression=arrows), REWRITTEN)
            for path in (DATA / compression / DIRECTORY).iterdir():
                path.rename(DATA / compression / path.name)
            for directory in (DIRECTORY, os.path.dirname(DIRECTORY)):
                (DATA / compression / directory).rmdir()


if __name__ == "__main__":
    make()
