"""Flips one bit after another of a log's segment, and reports reads that return other records.

Run as ``python -m tests.log.segment.bit_flips SAMPLE STEP PROGRESS [WAY]``, in a process of its
own, since a flip may crash it. After a flip of each STEPth bit, the log is read in every way: as a
whole, from the middle, some columns as Spark reads them, by time, and the headers that plans and
snapshots use; and the segment is rewritten. Each read has to answer as without damage, or to raise
`CorruptRecordError`, and a rewrite that fails has to replace nothing. Prints all other outcomes,
and counts, as JSON. Before each flip it writes the number of the bit into PROGRESS.
"""

import json
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa

from spark_log.datasource.read.log_split import LogSplit
from spark_log.datasource.read.record_filter import ANY, Bounds
from spark_log.datasource.read.split_reader import read_split
from spark_log.errors import CorruptRecordError
from spark_log.log.clean.compactor import compact
from spark_log.log.directory import partition_directory
from spark_log.log.files.file_names import SegmentName
from spark_log.log.max_timestamp import offset_of_max_timestamp
from spark_log.log.rewrite import merger
from spark_log.log.rewrite.merger import merge
from spark_log.log.segment import file as segment_file
from spark_log.log.segment import writer as segment_writer
from spark_log.record.batch_header import encode_headers
from spark_log.record.checksum import array_crc32c
from spark_log.record.end_transaction_marker import EndTransactionMarker
from spark_log.record.producer_append import ProducerAppend
from spark_log.record.small_batch import SmallBatch
from spark_log.storage import Store
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.datasource.reading import options_of
from tests.log.support import DIRECTORY, TOPIC_ID, HookedStore, open_log
from tests.record.samples import START_US, record_batch, row

COMPACT = {"cleanup_policy": "compact"}
SETTLED_MS = 61_000
"""Time after which a log may be compacted again."""


# --- logs to damage ------------------------------------------------------------------------------


class Sample:
    """A small log in memory with one damaged segment.

    Attributes:
        log: the open log.
        path: the segment's path.
        content: the segment's bytes.
    """

    def __init__(self, name, config=None):
        self.clock = ManualClock()
        self.memory = MemoryStore(f"flips-{name}-{os.getpid()}", self.clock)
        self.store: Store = self.memory
        self.config = {"merge_tail_segments": 0, **(config or {})}
        self.path = ""

    @property
    def log(self):
        return open_log(self.store, clock=self.clock, **self.config)

    def append(self, *rows, compression="none", producer=None):
        """Append batches of rows as one segment."""
        batches = [record_batch(each) for each in rows]
        self.log.append(batches, compression=compression, producer=producer)
        self.clock.advance_ms(1_000)

    def pick(self, index):
        """Choose the live segment to be damaged."""
        self.path = self.log.observe().live.segments[index].file.path
        self.content = self.store.open_buffer(self.path).to_pybytes()
        files = self.memory._files  # noqa: SLF001 - to restore them with their times
        self.files = dict(files.data)
        self.times = dict(files.modified_us)
        return self

    def damage(self, data):
        """Restore the log, with other bytes for the chosen segment."""
        files = self.memory._files  # noqa: SLF001
        files.data.clear()
        files.data.update(self.files)
        files.modified_us.clear()
        files.modified_us.update(self.times)
        files.data[self.path] = pa.py_buffer(data)


def some_rows(first, count):
    return [
        row(
            None if number % 5 == 4 else b"value-%d" % number,
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 4 else [("name", b"content"), ("µ", None)],
            START_US + number * 10 + number * 7 % 5,
        )
        for number in range(first, first + count)
    ]


def keyed_rows(first, *keys, value=b"%d"):
    return [
        row(None if key < 0 else value % number, b"k%d" % abs(key), None, START_US + number * 10)
        for number, key in enumerate(keys, first)
    ]


def plain(compression):
    sample = Sample(f"plain-{compression}")
    sample.append(some_rows(0, 3))
    sample.append(some_rows(3, 5), some_rows(8, 1), some_rows(9, 4), compression=compression)
    sample.append(some_rows(13, 2))
    return sample.pick(1)


def small():
    """A batch of which the file is read by a template."""
    sample = Sample("small")
    sample.append(keyed_rows(0, 1, 2, 3, 4))
    sample.append(keyed_rows(4, 5, 6, 7, 8, 9, value=b"%d" + b"-" * 250))
    sample.append(keyed_rows(9, 1, 2))
    return sample.pick(1)


def merged():
    """Appends of producers, so that headers are not joined, in several Arrow batches."""
    sample = Sample("merged")
    for number in range(8):
        producer = ProducerAppend(number % 3, 0, number // 3)
        sample.append(some_rows(number, 1), producer=producer)
    sample.append(some_rows(8, 2))
    with mock.patch.object(merger, "_JOINED_RECORDS", 3):
        merge(sample.log.files, sample.log.observe(), 0, 7)
    return sample.pick(0)


def parquet():
    """Row groups of several batches, with markers between their rows, and one aborted batch."""
    sample = Sample("parquet")
    for number in range(6):
        producer = ProducerAppend(number % 3, 0, number // 3, is_transactional=True)
        sample.append(some_rows(number, 1), producer=producer)
    markers = [EndTransactionMarker(each, 1, is_committed=each != 1) for each in range(3)]
    sample.log.append_markers(markers[:2])
    sample.append(some_rows(8, 3), some_rows(11, 2))
    sample.log.append_markers(markers[2:])
    sample.append(some_rows(14, 2))
    log = sample.log
    with mock.patch.object(merger, "_JOINED_RECORDS", 4):
        merge(log.files, log.observe(), 0, 8, to_parquet=log.transactions().is_aborted)
    return sample.pick(0)


def compacted(name, keys, later, **settings):
    """Several Arrow batches with several headers each; the last batch of a producer is empty."""
    sample = Sample(name, {**COMPACT, **settings})
    for number, each in enumerate(keys):
        producer = ProducerAppend(number % 2, 0, number // 2 * len(each)) if number < 4 else None
        sample.append(keyed_rows(10 * number, *each), producer=producer)
    sample.clock.advance_ms(SETTLED_MS)
    with mock.patch.object(merger, "_JOINED_RECORDS", 4):
        done = compact(sample.log, now_us=sample.clock.time_us())
    assert done.segments_written == 1, "there is one segment to damage"
    sample.append(keyed_rows(100, *later))
    sample.clock.advance_ms(2 * SETTLED_MS)
    return sample.pick(0)


def with_gaps(**settings):
    keys = [(1, 2, 3), (2, 4, -5), (5, 6, 1), (7, 8, 9), (-2, 3, 10), (11, 12, 7), (13, 14, 15)]
    return compacted("with-gaps", keys, (6, 9, 20), **settings)


def without_gaps():
    keys = [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)]
    return compacted("without-gaps", keys, (2, 30))


def older():
    """A segment of an earlier version, without a check of its headers."""
    no_check = mock.patch.object(segment_writer, "encode_check", return_value=b"")
    key = mock.patch.object(segment_writer, "CHECK_KEY", b"spark_log.another")
    by_arrow = mock.patch.object(SmallBatch, "of", return_value=None)
    with no_check, key, by_arrow:
        return with_gaps()


def last():
    """The last segment, which has the log end offset."""
    sample = Sample("last")
    sample.append(some_rows(0, 3))
    sample.append(some_rows(3, 5), some_rows(8, 3))
    return sample.pick(1)


SAMPLES = {
    "plain": lambda: plain("none"),
    "small": small,
    "lz4": lambda: plain("lz4"),
    "zstd": lambda: plain("zstd"),
    "last": last,
    "merged": merged,
    "with gaps": with_gaps,
    "without gaps": without_gaps,
    "older": older,
    "parquet": parquet,
    "compacted parquet": lambda: with_gaps(table_format="delta"),
}


# --- reads ---------------------------------------------------------------------------------------


def scan(start=None, end=None, **settings):
    def ask(sample, log):
        first = log.observe().log_start_offset if start is None else start
        return digests(log.scan(first, end, **settings))

    return ask


def digests(batches):
    """Return the offsets of each batch, and a checksum of each column instead of its values."""
    return [
        (batch.offsets().tolist(), [array_crc32c(column) for column in batch.records.columns])
        for batch in batches
        if batch.records.validate(full=True) is None
    ]


def fetched(sample, log):
    """Read as a consumer does: each fetch continues where the one before ended."""
    found, offset = [], 0
    for _ in range(100):
        batches, following = log.read(offset, 1)
        found += digests(batches)
        if following == offset:
            return found, offset
        offset = following
    raise AssertionError("100 fetches did not reach the log's end")


def by_spark(columns, low=None, high=None, **options):
    """Read these columns as a Spark task does; with bounds, the records between two times."""

    def ask(sample, log):
        times_us = ANY if low is None else Bounds(START_US + low, START_US + high)
        end_offset = log.observe().log_end_offset
        split = LogSplit("t", 0, TOPIC_ID, DIRECTORY, 0, end_offset, times_us)
        batches = read_split(split, columns, options_of(sample.store.url, **options))
        return [[array_crc32c(column) for column in batch.columns] for batch in batches]

    return ask


def by_time(*times):
    return lambda sample, log: [log.offset_for_time(START_US + each) for each in times]


def plans(sample, log):
    view = log.observe()
    return view.log_end_offset, log.segments(view)[0], offset_of_max_timestamp(log, view)


def producers(sample, log):
    return list(log.producers().entries())


def snapshot(sample, log):
    written = log.snapshots.write()
    return written.offset, written.segments, list(written.producers.entries())


READS = {
    "whole": scan(),
    "from the middle": lambda sample, log: [
        scan(at, min(at + 3, end))(sample, log)
        for end in [log.observe().log_end_offset]
        for at in range(1, end, 1 + end // 5)
    ],
    "from the middle on": lambda sample, log: [scan(at)(sample, log) for at in (5, 8)],
    "value": scan(columns=["value"]),
    "timestamps": scan(2, columns=["timestamp"]),
    "no column": scan(columns=[]),
    "fetched": fetched,
    "by Spark": by_spark(("key", "value", "offset", "timestamp")),
    "values by Spark": by_spark(("value", "offset")),
    "keys by Spark by time": by_spark(("key",), 40, 90),
    "by time": by_time(-1, 0, 25, 44, 71, 90, 100, 10_000),
    "plans": plans,
    "producers": producers,
    "snapshot": snapshot,
}

UNCHECKED = {
    "offsets, no checksums": lambda sample, log: [
        batch.offsets().tolist() for batch in log.scan(0, check_crcs=False)
    ],
    "offsets from the middle, no checksums": lambda sample, log: [
        [batch.offsets().tolist() for batch in log.scan(at, at + 4, check_crcs=False)]
        for at in (3, 6)
    ],
}
"""Reads without checksums: values may be wrong, but no record may be missing or added."""

FULL = ("whole", "by Spark", "fetched")
"""Reads that are protected in older segments too, which have no check of their headers."""


def rewritten(sample, log):
    """Merge or compact the log, and read it."""
    before = {segment.name for segment in log.observe().live.segments}
    try:
        if "cleanup_policy" in sample.config:
            compact(log, now_us=sample.clock.time_us())
        else:
            merge(log.files, log.observe(), 0, len(before) - 1)
    except CorruptRecordError:
        after = {segment.name for segment in sample.log.files.live_log().segments}
        if after != before:
            raise AssertionError("the rewrite failed, and replaced a segment") from None
        raise
    return digests(sample.log.scan(0))


def answer(ask, sample):
    """Return the answer; the class `CorruptRecordError` if the read found the damage."""
    try:
        return ask(sample, sample.log)
    except CorruptRecordError:
        return CorruptRecordError


def questions(name):
    asked = {each: READS[each] for each in FULL} if name == "older" else {**READS, **UNCHECKED}
    return {**asked, "rewritten": rewritten}


def main(name, step, progress, way="mapped"):
    sample = SAMPLES[name]()
    if way == "in ranges":
        in_ranges(sample)
    if way == "by template":
        vars(partition_directory).update(_FEW_SMALL_FILES=0)
    asked = questions(name)
    right = {}
    for each, ask in asked.items():
        sample.damage(sample.content)
        right[each] = ask(sample, sample.log)
    counts: Counter[str] = Counter()
    found = []
    descriptor = os.open(progress, os.O_WRONLY | os.O_CREAT)
    for bit in chosen(sample, way)[:: int(step)]:
        os.pwrite(descriptor, f"bit {bit}".ljust(40).encode(), 0)
        data = bytearray(sample.content)
        data[bit // 8] ^= 1 << bit % 8
        refused = 0
        for each, ask in asked.items():
            sample.damage(bytes(data))
            try:
                said = answer(ask, sample)
            except Exception as error:  # any other error is a finding
                said = f"{type(error).__name__}: {error}"
            refused += said is CorruptRecordError
            if said is not CorruptRecordError and said != right[each]:
                found.append(f"bit {bit % 8} of byte {bit // 8}, {each}: {str(said)[:300]}")
        counts["flips"] += 1
        all_refused = "refused by all" if refused == len(asked) else "refused by some"
        counts[all_refused if refused else "changed nothing"] += 1
    last_try = Path(progress).read_text().strip()
    json.dump({"last": last_try, "counts": counts, "found": found}, sys.stdout)


def chosen(sample, way):
    """Numbers of the bits to flip: all, or those of headers, or of offsets."""
    if way not in ("headers", "offsets"):
        return range(8 * len(sample.content))
    reader = sample.log.files.open(SegmentName.parse(sample.path.rpartition("/")[2]))
    bits: list[int] = []
    for ordinal in range(reader.batch_count):
        if way == "headers":
            chosen_bytes = encode_headers(reader.headers(ordinal))
        else:
            column = reader.read_batch(ordinal)[1].column("offset_delta")
            chosen_bytes = column.to_numpy().astype("<i4").tobytes()
        at = sample.content.index(chosen_bytes, reader.position(ordinal))
        bits += range(8 * at, 8 * (at + len(chosen_bytes)))
    return bits


def in_ranges(sample):
    """Read the log as from an object store, in small pieces."""
    vars(segment_file).update(WHOLE_BYTES=100, TAIL_BYTES=100, PROBE_BYTES=100)
    vars(segment_file).update(RANGE_BYTES=1_500, FIRST_RANGE_BYTES=1_500)
    sample.store = HookedStore(sample.store, is_mapped=False)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(*sys.argv[1:])
