"""Batches of a produce request, before they are appended."""

from spark_log.gateway.partitions.produced_batch import ProducedBatch, batch_appends
from spark_log.gateway.record_batches import (
    BatchErrorCode,
    BatchTarget,
    CompressionType,
    from_arrow,
)
from spark_log.record import SmallBatch
from tests.gateway.record_batches.kafka_records import TIME_MS, Row
from tests.gateway.record_batches.rows import arrow, rows_of
from tests.gateway.record_batches.test_conversion import with_crc

SMALL: list[Row] = [(None, b"small", None, TIME_MS)]
WITH_HEADERS: list[Row] = [(b"key", b"headers", [("name", b"1")], TIME_MS)]
LARGE: list[Row] = [(None, b"large" * 10_000, None, TIME_MS)]
LIMIT = 1 << 20


def produced(rows, compression=CompressionType.NONE, **fields):
    data = from_arrow(
        arrow(rows), base_offset=0, target=BatchTarget(**fields), compression=compression
    )
    found = ProducedBatch(memoryview(data))
    assert found.parse(LIMIT) is not None
    return found


def damaged():
    """A batch with a header whose name is not UTF-8."""
    data = bytearray(from_arrow(arrow(WITH_HEADERS), base_offset=0, target=BatchTarget()))
    data[data.index(b"name")] = 0xFF
    found = ProducedBatch(memoryview(with_crc(data)))
    assert found.parse(LIMIT) is not None
    return found


def test_small_and_large_batches_keep_their_order():
    sent = [SMALL, LARGE, WITH_HEADERS, SMALL, LARGE]
    batches = [
        produced(rows, producer_id=number, producer_epoch=1, base_sequence=7)
        for number, rows in enumerate(sent)
    ]
    accepted, appends = batch_appends(batches, LIMIT)
    assert accepted == batches
    assert [rows_of(each.records) for each in appends] == sent
    producers = [each.producer for each in appends]
    assert [each and each.producer_id for each in producers] == [0, 1, 2, 3, 4]
    assert [isinstance(each.content, SmallBatch) for each in appends] == [
        rows is SMALL for rows in sent
    ]


def test_a_batch_that_is_refused_is_left_out_between_others():
    batches = [produced(SMALL), produced(LARGE), damaged(), produced(SMALL), produced(LARGE)]
    accepted, appends = batch_appends(batches, LIMIT)
    assert accepted == [each for number, each in enumerate(batches) if number != 2]
    assert [rows_of(each.records) for each in appends] == [SMALL, LARGE, SMALL, LARGE]
    assert batches[2].result.error == BatchErrorCode.INVALID_RECORD
    assert [each.result for each in accepted] == [None] * 4


def test_the_limit_counts_small_batches_too():
    """Many small batches, compressed well, could take much memory otherwise."""
    batches = [
        produced([(None, b"v" * 8_000, None, TIME_MS)], CompressionType.GZIP) for _ in range(30)
    ]
    _, ten = batch_appends(batches[:10], LIMIT)
    accepted, _ = batch_appends(batches, sum(len(each.content.content) for each in ten))
    assert accepted == batches[:10]
    codes = [each.result.error for each in batches[10:]]
    assert codes == [BatchErrorCode.MESSAGE_TOO_LARGE] * 20
