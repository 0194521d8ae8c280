"""Reads a segment with one damage after another, and reports wrong results.

Run as ``python -m tests.log.segment.segment_fuzz``, in a process of its own, since damage may crash
it. Prints violations as JSON. Before each try it writes the damage into the file that its last
argument names, so that a crash can be traced to it.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment import file as segment_file
from spark_log.storage.memory import MemoryStore
from tests.log.segment.parquet.support import put_parquet
from tests.log.support import (
    HookedStore,
    Part,
    put_bytes,
    put_segment,
    records_of,
    segment_reader,
)
from tests.record.samples import START_US, record_batch, row


def sample(compression):
    """A small segment with all kinds of content."""
    rows = [
        row(
            None if number % 5 == 4 else b"value-%d" % number * (number % 3),
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 2 else [("name", b"content"), ("µ", None)][: number % 3],
            START_US + number * 7 % 5,
        )
        for number in range(18)
    ]
    store = MemoryStore("fuzz")
    if compression == "parquet":
        name = SegmentName(0, 17, 1, is_parquet=True)
        parts = [
            [Part(rows[first:end], list(range(first, end)))]
            for first, end in ((0, 7), (7, 12), (12, 18))
        ]
        return store, name, put_parquet(store, parts, name)
    batches = [record_batch(rows[:7]), record_batch(rows[7:12]), record_batch(rows[12:])]
    return store, SegmentName(0), put_segment(store, batches, compression=compression)


def damages(original, step):
    """Yield a name and the bytes of each damage: one bit, a cut, a hole of zeros."""
    for at in range(0, len(original), step):
        bit = at * 5 % 8
        flipped = bytearray(original)
        flipped[at] ^= 1 << bit
        yield f"bit {bit} of byte {at}", bytes(flipped)
    for at in range(0, len(original), 40):
        yield f"cut at {at}", original[:at]
        hole = bytes(min(64, len(original) - at))
        yield f"zeros at {at}", original[:at] + hole + original[at + len(hole) :]


def everything(reader):
    """All answers of a reader: its end offset, and its records converted to Python values."""
    return reader.end_offset, records_of(reader.read(0))


def outcome(store, name, data, expected):
    """Return the violation of reading damaged data, or None."""
    try:
        if everything(put_bytes(store, data, name)) != expected:
            return "other records were read"
    except CorruptRecordError as error:
        if not error.path.endswith(name.file_name):
            return "the error does not name the file"
    return None


def read_unchecked(store, name):
    """Read without checksums: records may be wrong, but the process must not crash."""
    for read in (
        lambda: records_of(segment_reader(store, name).read(0, check_crcs=False)),
        lambda: [
            batch.records.to_pylist()
            for batch in segment_reader(store, name).read(3, columns=["key"])
        ],
        lambda: segment_reader(store, name).offset_for_time(START_US + 3, 2),
    ):
        with suppress(CorruptRecordError):
            read()


def main(compression, way, progress):
    store, name, reader = sample(compression)
    if way == "in ranges":
        store = HookedStore(store, is_mapped=False)
        vars(segment_file).update(WHOLE_BYTES=100, TAIL_BYTES=100, PROBE_BYTES=100)
        vars(segment_file).update(RANGE_BYTES=1_500, FIRST_RANGE_BYTES=1_500)
    expected = everything(reader)
    original = store.open_buffer(reader.path).to_pybytes()
    found = []
    descriptor = os.open(progress, os.O_WRONLY | os.O_CREAT)
    for number, (damage, data) in enumerate(damages(original, 1 if compression == "none" else 7)):
        os.pwrite(descriptor, damage.ljust(40).encode(), 0)
        try:
            wrong = outcome(store, name, pa.py_buffer(data), expected)
            if number % 3 == 0:
                read_unchecked(store, name)
        except Exception as error:  # any other error is a finding
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            found.append(f"{damage}: {wrong}")
    json.dump({"last": Path(progress).read_text(), "found": found}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
