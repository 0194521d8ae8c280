"""Batches of Kafka's clients as Arrow records and back, in both ways, beside other readers."""

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_log.gateway.record_batches import (
    BatchError,
    BatchErrorCode,
    BatchTarget,
    CompressionType,
    control_batch,
    from_arrow,
    marker_of,
    split,
    to_arrow,
    to_arrow_with_offsets,
    to_small,
)
from spark_log.record import COLUMN_SUMS_BYTES, HEADERS_TYPE, EndTransactionMarker, SmallBatch
from tests.gateway.record_batches.kafka_records import BYTES, EDGE_CASES, MANY, TIME_MS, Row
from tests.gateway.record_batches.rows import arrow, rows_of

COMPRESSIONS = [each.name.lower() for each in CompressionType]
LIMIT = 1 << 24


def decoded(data, codec, limit=LIMIT):
    return rows_of(to_arrow(split(data, max_batches=9), max_uncompressed_bytes=limit, codec=codec))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_batch_of_javas_producer_is_read(compression, codec):
    data = (BYTES / f"java-v2-{compression}.bin").read_bytes()
    assert decoded(data, codec) == MANY


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_batch_of_librdkafka_is_read(compression, codec):
    data = (BYTES / f"librdkafka-{compression}.bin").read_bytes()
    (batch,) = split(data, max_batches=1)
    assert (batch.base_sequence, batch.record_count) == (0, len(MANY))
    expected = [
        (key, value, None if key else [("n", (value or b"")[-1:]), ("none", None)], time)
        for key, value, _, time in MANY
    ]
    assert decoded(data, codec) == expected


def test_javas_edge_cases_are_read_and_written_with_the_same_bytes(codec):
    data = (BYTES / "java-edge-cases.bin").read_bytes()
    assert decoded(data, codec) == EDGE_CASES
    written = from_arrow(arrow(EDGE_CASES), base_offset=42, target=BatchTarget(), codec=codec)
    assert written == data


def test_many_records_of_java_are_written_with_the_same_bytes(codec):
    data = (BYTES / "java-v2-none.bin").read_bytes()
    assert from_arrow(arrow(MANY), base_offset=0, target=BatchTarget(), codec=codec) == data


def test_append_time_counts_for_all_records(codec):
    data = (BYTES / "java-append-time.bin").read_bytes()
    (batch,) = split(data, max_batches=1)
    assert batch.timestamp_type == 1
    times = {time for *_, time in decoded(data, codec)}
    assert times == {TIME_MS + 7}


def test_records_with_different_append_times_become_several_batches(codec):
    rows: list[Row] = [(None, b"%d" % n, None, TIME_MS + n // 2) for n in range(6)]
    offsets = np.array([10, 12, 13, 14, 20, 21])
    target = BatchTarget(leader_epoch=4, timestamp_type=1)
    data = from_arrow(
        arrow(rows), base_offset=9, last_offset=30, offsets=offsets, target=target, codec=codec
    )
    batches = split(data, max_batches=3)
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [
        (9, 12),
        (13, 19),
        (20, 30),
    ]
    read, of_rows = to_arrow_with_offsets(batches, max_uncompressed_bytes=LIMIT, codec=codec)
    assert rows_of(read) == rows
    assert of_rows.tolist() == offsets.tolist()


def test_a_transactional_batch_of_java_is_read_and_written(codec):
    data = (BYTES / "java-transactional.bin").read_bytes()
    (batch,) = split(data, max_batches=1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4321, 7, 2**31 - 1)
    assert batch.is_transactional
    rows: list[Row] = [(b"a", b"1", None, TIME_MS), (b"b", b"2", None, TIME_MS + 1)]
    assert decoded(data, codec) == rows
    target = BatchTarget(5, 0, True, 4321, 7, 2**31 - 1)
    assert from_arrow(arrow(rows), base_offset=100, target=target, codec=codec) == data


def test_offsets_with_gaps_are_read_and_written_as_java_writes_them(codec):
    data = (BYTES / "java-gaps.bin").read_bytes()
    batches = split(data, max_batches=1)
    records, offsets = to_arrow_with_offsets(batches, max_uncompressed_bytes=LIMIT, codec=codec)
    assert offsets.tolist() == [1003, 1004, 1090]
    with pytest.raises(BatchError, match="record 0 of a batch has offset delta 3; expected 0"):
        to_arrow(batches, max_uncompressed_bytes=LIMIT, codec=codec)
    written = from_arrow(
        records,
        base_offset=1000,
        offsets=offsets,
        last_offset=1100,
        target=BatchTarget(),
        codec=codec,
    )
    assert written == data


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_marker_has_the_bytes_of_kafkas(outcome, codec):
    data = (BYTES / f"java-{outcome}.bin").read_bytes()
    marker = EndTransactionMarker(4321, 8, outcome == "commit")
    time_us = TIME_MS * 1000 + 999
    written = control_batch(marker, offset=77, timestamp_us=time_us, leader_epoch=5, codec=codec)
    assert written == data
    assert marker_of(split(data, max_batches=1)[0]) == marker
    moved = control_batch(
        marker, offset=77, timestamp_us=time_us, leader_epoch=5, base_offset=70, codec=codec
    )
    (batch,) = split(moved, max_batches=1)
    assert (batch.base_offset, batch.last_offset) == (70, 77)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_written_is_read_again_with_each_compression(compression, codec):
    records = arrow(MANY)
    kind = CompressionType[compression.upper()]
    data = from_arrow(records, base_offset=7, target=BatchTarget(3), compression=kind, codec=codec)
    (batch,) = split(data, max_batches=1)
    assert (batch.compression_type, batch.leader_epoch, batch.last_offset) == (kind, 3, 606)
    assert decoded(data, codec) == MANY


def test_kafka_python_reads_what_is_written(codec):
    headers: list[Row] = [(b"k", b"v", [("a", b"1"), ("é", None)], TIME_MS + n) for n in range(100)]
    rows = EDGE_CASES + headers
    data = from_arrow(arrow(rows), base_offset=1000, target=BatchTarget(), codec=codec)
    batches = MemoryRecords(bytes(data))
    found = []
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            (record.key, record.value, record.headers or None, record.timestamp) for record in batch
        ]
    assert found == rows


def test_kafka_pythons_batches_are_read(codec):
    builder = DefaultRecordBatchBuilder(2, 0, True, 77, 3, 9, 1 << 20)
    for offset, (key, value, headers, time) in enumerate(EDGE_CASES):
        builder.append(offset, time, key, value, headers or [])
    data = bytes(builder.build())
    assert decoded(data, codec) == EDGE_CASES
    target = BatchTarget(0, 0, True, 77, 3, 9)  # its builder writes the leader epoch 0
    ours = from_arrow(arrow(EDGE_CASES), base_offset=0, target=target, codec=codec)
    assert ours == data


def test_several_batches_become_one_of_arrow(codec):
    parts = [MANY[:1], MANY[1:300], MANY[300:]]
    data = b"".join(
        from_arrow(arrow(rows), base_offset=5, target=BatchTarget(), codec=codec) for rows in parts
    )
    assert decoded(data, codec) == MANY


def small_of(rows, codec, limit=LIMIT, **fields):
    data = from_arrow(arrow(rows), base_offset=5, target=BatchTarget(), codec=codec, **fields)
    (batch,) = split(data, max_batches=1)
    return to_small(batch, max_uncompressed_bytes=limit, codec=codec)


FEW: list[list[Row]] = [
    [(None, b"value", None, TIME_MS)],
    [(b"key", b"", None, TIME_MS), (b"", b"v", None, TIME_MS - 3)] * 9,
    [(b"key", None, None, -5)] * 9,
    [(None, None, None, TIME_MS)] * 8,
]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", FEW)
def test_few_records_become_the_buffers_of_a_small_batch(rows, compression, codec):
    small = small_of(rows, codec, compression=CompressionType[compression.upper()])
    keys, values, _, times = zip(*rows, strict=True)
    assert small == SmallBatch.of_records(keys, values, [1_000 * time for time in times])
    assert rows_of(small.records()) == rows


@pytest.mark.parametrize(
    "rows",
    [
        [(b"k", b"v", None, TIME_MS), (None, b"v", None, TIME_MS)],
        [(b"k", b"v", None, TIME_MS), (b"k", None, None, TIME_MS)],
        [(b"k", b"v", [("name", b"1")], TIME_MS)],
        [(None, b"v" * COLUMN_SUMS_BYTES, None, TIME_MS)],
        [(None, b"v" * 40, None, TIME_MS)] * 205,
        [(None, None, None, TIME_MS)] * 410,
    ],
    ids=["some keys", "some values", "headers", "large", "large in memory", "many"],
)
def test_other_records_are_no_small_batch(rows, codec):
    assert small_of(rows, codec) is None


def test_records_that_are_refused_are_no_small_batch(codec):
    """`to_arrow` then tells what is wrong with them."""
    rows, gzip = [(None, b"v" * 100, None, TIME_MS)] * 20, CompressionType.GZIP
    assert small_of(rows, codec, offsets=np.arange(6, 26)) is None
    assert small_of(rows, codec, 500, compression=gzip) is None
    assert small_of([(None, b"v" * (1 << 20), None, TIME_MS)], codec, compression=gzip) is None


def test_microseconds_are_rounded_down_and_negative_ones_too(codec):
    rows: list[Row] = [(None, b"", None, TIME_MS), (None, b"", None, -5)]
    data = from_arrow(arrow(rows, extra_us=999), base_offset=0, target=BatchTarget(), codec=codec)
    assert decoded(data, codec) == rows


def test_a_timestamp_that_does_not_fit_microseconds_is_refused(codec):
    largest = (2**63 - 1) // 1000
    for time, fits in ((largest, True), (largest + 1, False), (-largest, True), (2**62, False)):
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
        builder.append(0, 0, None, b"first", [])
        builder.append(1, time, None, b"second", [])
        data = bytes(builder.build())
        if fits:
            assert [row[3] for row in decoded(data, codec)] == [0, time]
            continue
        with pytest.raises(BatchError) as caught:
            decoded(data, codec)
        assert caught.value.code == BatchErrorCode.INVALID_TIMESTAMP
        assert caught.value.record_index == 1


def test_the_sum_of_base_and_delta_may_not_wrap_around(codec):
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, -(2**62), None, b"first", [])
    builder.append(1, 2**62, None, b"second", [])
    with pytest.raises(BatchError) as caught:
        decoded(bytes(builder.build()), codec)
    assert caught.value.code == BatchErrorCode.INVALID_TIMESTAMP


def test_a_header_name_that_is_not_utf8_is_refused_with_its_record(codec):
    good = from_arrow(arrow(MANY[:5]), base_offset=0, target=BatchTarget(), codec=codec)
    rows: list[Row] = [(b"k", None, [("name", b"1")], TIME_MS)] * 3
    bad = bytearray(from_arrow(arrow(rows), base_offset=0, target=BatchTarget(), codec=codec))
    at = bad.rindex(b"name")
    bad[at + 1] = 0xFF
    with pytest.raises(BatchError, match="record 2 of a batch has a header whose name is not") as e:
        decoded(bytes(good) + with_crc(bad), codec)
    assert (e.value.code, e.value.batch_index) == (BatchErrorCode.INVALID_RECORD, 1)


def test_a_header_without_a_name_in_the_log_gets_an_empty_one(codec):
    items = pa.StructArray.from_arrays(
        [pa.array([None, "a"], pa.string()), pa.array([b"1", None], pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    headers = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), items, type=HEADERS_TYPE)
    records = arrow([(None, None, None, TIME_MS)]).set_column(2, "headers", headers)
    data = from_arrow(records, base_offset=0, target=BatchTarget(), codec=codec)
    assert decoded(data, codec)[0][2] == [("", b"1"), ("a", None)]


def test_slices_and_empty_headers_are_written(codec):
    rows: list[Row] = [
        (b"%d" % n if n % 3 else None, b"v" * n, [("h", b"%d" % n)] * (n % 4), TIME_MS)
        for n in range(50)
    ]
    part = arrow(rows).slice(13, 21)
    data = from_arrow(part, base_offset=3, target=BatchTarget(), codec=codec)
    expected = [(key, value, headers or None, time) for key, value, headers, time in rows[13:34]]
    assert decoded(data, codec) == expected


def test_offsets_outside_of_the_batch_are_refused(codec):
    for offsets, base, last in (([4], 5, None), ([5], 5, 4), ([5 + 2**31], 5, None)):
        with pytest.raises(BatchError, match="do not fit a batch of the offsets"):
            from_arrow(
                arrow(MANY[:1]),
                base_offset=base,
                last_offset=last,
                offsets=np.array(offsets),
                target=BatchTarget(),
                codec=codec,
            )


def test_more_records_than_bytes_are_refused_before_they_are_allocated(codec):
    kind = CompressionType.GZIP
    data = bytearray(
        from_arrow(arrow(MANY), base_offset=0, target=BatchTarget(), compression=kind, codec=codec)
    )
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(BatchError, match="are said to be 2147483647"):
        decoded(with_crc(data), codec)


def test_the_limit_counts_the_records_of_all_batches(codec):
    data = from_arrow(arrow(MANY), base_offset=0, target=BatchTarget(), codec=codec)
    size = len(data) - 61
    assert len(decoded(data + data, codec, limit=2 * size)) == 2 * len(MANY)
    with pytest.raises(BatchError) as caught:
        decoded(data + data, codec, limit=2 * size - 1)
    assert (caught.value.code, caught.value.batch_index) == (BatchErrorCode.MESSAGE_TOO_LARGE, 1)


def with_crc(batch: bytearray) -> bytes:
    """Return the batch with the checksum of its present bytes."""
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)
