"""Large batches are split into batches that tell the same."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.producers import ProducerState
from spark_log.log.rewrite.split_batches import split_batches
from spark_log.record.batch_header import BatchHeader
from spark_log.record.checksum import batch_crc32c
from tests.log.segment.parquet.support import batch_of
from tests.log.support import Part
from tests.record.samples import START_US, row


def part(first, count, *, gap=0, **fields):
    rows = [row(b"%d" % n, timestamp=START_US + n * 7 % 50) for n in range(count)]
    deltas = [first + n * (1 + gap) for n in range(count)]
    return Part(rows, deltas, base_delta=first, last_delta=first + count * (1 + gap) - 1, **fields)


def split(parts, most, most_bytes=10**9):
    headers, records = batch_of(parts)
    return list(split_batches(headers, records, most, most_bytes))


def test_a_large_batch_becomes_several_that_follow_each_other():
    found = split([part(0, 10, producer_id=7, producer_epoch=0, base_sequence=3)], 4)
    assert [len(records) for _, records in found] == [4, 4, 2]
    headers = [header for group, _ in found for header in group]
    told = [
        (each.base_offset_delta, each.last_offset_delta, each.base_sequence) for each in headers
    ]
    assert told == [(0, 3, 3), (4, 7, 7), (8, 9, 11)]


def test_small_batches_are_grouped_and_stay_as_they_are():
    parts = [part(0, 3), part(3, 2, attributes=16), part(5, 4)]
    headers, _ = batch_of(parts)
    found = split(parts, 5)
    assert [group for group, _ in found] == [headers[:2], headers[2:]]
    assert [group for group, _ in split(parts, 100)] == [headers]


def test_a_control_batch_stays_whole():
    parts = [part(0, 3, attributes=BatchHeader.CONTROL_BIT)]
    assert [group for group, _ in split(parts, 1)] == [batch_of(parts)[0]]


def test_a_delete_horizon_stays():
    attributes = BatchHeader.DELETE_HORIZON_BIT
    (header,), _ = batch_of([part(0, 4, attributes=attributes)])
    found = split([part(0, 4, attributes=attributes)], 2)
    assert [group[0].base_timestamp_us for group, _ in found] == [header.base_timestamp_us] * 2


@pytest.mark.parametrize("most_bytes", [1, 60, 10**6])
def test_groups_are_limited_by_bytes_too(most_bytes):
    found = split([part(0, 40)], 100, most_bytes)
    assert len(found) == {1: 40, 60: 40, 10**6: 1}[most_bytes] or len(found) > 1
    assert sum(len(records) for _, records in found) == 40


@given(st.data())
def test_rows_checksums_and_producers_are_the_same(data):
    parts, following = [], 0
    for _ in range(data.draw(st.integers(1, 4))):
        gap = data.draw(st.sampled_from([0, 0, 1]))
        each = part(
            following,
            data.draw(st.integers(1, 12)),
            gap=gap,
            producer_id=7,
            producer_epoch=0,
            base_sequence=following,
            attributes=data.draw(st.sampled_from([0, 16])),
        )
        parts.append(each)
        following = each.last_delta + 1
    headers, records = batch_of(parts)
    found = split(parts, data.draw(st.integers(1, 15)))
    assert (
        pa.Table.from_batches([rows for _, rows in found])
        .combine_chunks()
        .equals(pa.Table.from_batches([records]))
    )
    states = ProducerState(0), ProducerState(0)
    states[0].replay(0, headers, 0)
    following = 0
    for group, rows in found:
        states[1].replay(0, group, 0)
        first = 0
        for header in group:
            assert header.base_offset_delta >= following
            following = header.last_offset_delta + 1
            mine = rows.slice(first, header.record_count)
            assert header.crc32c == batch_crc32c(header, mine)
            first += header.record_count
        assert first == rows.num_rows
    assert list(states[0].entries()) == list(states[1].entries())
    assert following == headers[-1].last_offset_delta + 1
