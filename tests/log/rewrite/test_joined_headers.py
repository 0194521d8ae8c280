"""Joined headers give the same producer state, and have the right checksums."""

from dataclasses import replace
from typing import Any

import pytest

from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite import joined_headers as module
from spark_log.log.rewrite.joined_headers import cut_header, joined_headers
from spark_log.record.batch_header import BatchHeader
from spark_log.record.checksum import batch_crc32c
from tests.record.samples import header_of, record_batch, row


def batch(*specs):
    """Return headers and rows of batches, each given by ``(records, header fields)``."""
    rows: list[dict[str, Any]] = []
    headers = []
    for count, fields in specs:
        own = [row(b"%d" % (len(rows) + at), timestamp=100 - len(rows)) for at in range(count)]
        base = len(rows)
        header = header_of(own, base_offset_delta=base, last_offset_delta=base + count - 1)
        header = replace(header, **fields)
        headers.append(replace(header, crc32c=batch_crc32c(header, record_batch(own))))
        rows += own
    return headers, record_batch(rows)


def of_producer(producer_id, sequence, epoch=0):
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}


def extents(headers):
    return [(header.base_offset_delta, header.last_offset_delta) for header in headers]


def runs(headers):
    state = ProducerState()
    state.replay(0, headers, 1)
    return [(key, entry.epoch, entry.runs) for key, entry in state.entries()]


class TestJoining:
    def test_batches_without_a_producer_are_joined(self):
        headers, records = batch((1, {}), (2, {}), (1, {}))
        (joined,) = joined_headers(headers, records)
        assert (joined.base_offset_delta, joined.last_offset_delta) == (0, 3)
        assert (joined.base_timestamp_us, joined.max_timestamp_us) == (100, 100)
        assert joined.crc32c == batch_crc32c(joined, records)

    def test_a_single_header_is_unchanged(self):
        headers, records = batch((3, of_producer(7, 0)))
        assert joined_headers(headers, records) == tuple(headers)

    @pytest.mark.parametrize(
        ("second", "count"),
        [
            (of_producer(7, 2), 1),
            (of_producer(7, 3), 2),
            (of_producer(7, 2, epoch=1), 2),
            (of_producer(8, 2), 2),
            ({}, 2),
            ({**of_producer(7, 2), "leader_epoch": 5}, 2),
            ({**of_producer(7, 2), "attributes": BatchHeader.TIMESTAMP_TYPE_BIT}, 2),
        ],
    )
    def test_only_consecutive_batches_of_one_producer_are_joined(self, second, count):
        headers, records = batch((2, of_producer(7, 0)), (2, second))
        joined = joined_headers(headers, records)
        assert len(joined) == count
        assert runs(joined) == runs(headers)

    @pytest.mark.parametrize(
        "bit",
        [
            BatchHeader.CONTROL_BIT,
            BatchHeader.TRANSACTIONAL_BIT,
            BatchHeader.DELETE_HORIZON_BIT,
        ],
    )
    def test_batches_whose_borders_have_a_meaning_are_not_joined(self, bit):
        headers, records = batch((1, {"attributes": bit}), (1, {"attributes": bit}))
        assert joined_headers(headers, records) == tuple(headers)

    def test_batches_are_joined_over_a_wrapped_sequence_number(self):
        headers, records = batch((2, of_producer(7, 2**31 - 2)), (2, of_producer(7, 0)))
        assert len(joined_headers(headers, records)) == 1

    def test_a_joined_batch_is_not_larger_than_the_limit(self, monkeypatch):
        headers, records = batch(*[(1, {})] * 10)
        monkeypatch.setattr(module, "_JOINED_BYTES", 4 * (records.nbytes // 10))
        assert extents(joined_headers(headers, records)) == [(0, 3), (4, 7), (8, 9)]

    def test_each_header_gets_the_checksum_of_its_own_rows(self):
        headers, records = batch((1, {}), (1, {}), (1, of_producer(7, 0)), (1, {}), (1, {}))
        first, second, third = joined_headers(headers, records)
        assert extents([first, second, third]) == [(0, 1), (2, 2), (3, 4)]
        assert third.crc32c == batch_crc32c(third, records.slice(3, 2))
        assert second == headers[2]


class TestCutting:
    def test_a_cut_header_leaves_out_the_first_records(self):
        (header,), records = batch((5, of_producer(7, 10)))
        cut = cut_header(header, 2, records.slice(2))
        assert (cut.base_offset_delta, cut.last_offset_delta, cut.record_count) == (2, 4, 3)
        assert (cut.base_sequence, cut.base_timestamp_us) == (12, 100)
        assert cut.crc32c == batch_crc32c(cut, records.slice(2))

    def test_a_cut_header_without_a_producer_has_no_sequence_number(self):
        (header,), records = batch((2, {}))
        assert cut_header(header, 1, records.slice(1)).base_sequence == -1


class TestProducerState:
    def test_a_joined_header_that_begins_before_a_snapshot_gives_the_same_state(self):
        single, records = batch((2, of_producer(7, 0)), (2, of_producer(7, 2)))
        state = ProducerState()
        state.replay(0, single[:1], 1)
        joined = joined_headers(single, records)
        state.replay(0, joined, 1)
        ((_, entry),) = state.entries()
        assert [(run.base_sequence, run.base_offset, run.record_count) for run in entry.runs] == [
            (0, 0, 4)
        ]
