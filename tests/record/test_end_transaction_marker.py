"""Markers: the header of a marker's batch, and the file of a segment of markers."""

import pytest

from spark_log.log.segment import SegmentWriter
from spark_log.record import EndTransactionMarker, SmallBatch, batch_crc32c, marker_records
from tests.log.support import DIRECTORY

NOW_US = 1_764_000_000_123_456


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_header_has_the_checksum_of_the_record(is_committed):
    one = EndTransactionMarker(2**40, 3, is_committed)
    header = one.header(0, 5, NOW_US)
    assert header.crc32c == batch_crc32c(header, marker_records([one], NOW_US))


@pytest.mark.parametrize("count", [1, 3])
def test_a_segment_is_made_from_a_template_and_has_the_bytes_of_arrows_writer(
    memory_store, monkeypatch, count
):
    markers = [EndTransactionMarker(each, 32_767, bool(each % 2)) for each in range(count)]

    monkeypatch.setattr("spark_log.log.segment.writer.new_append_id", lambda: b"B" * 22)

    def written():
        writer = SegmentWriter(memory_store, DIRECTORY, topic_id="A" * 22, partition=2**31 - 1)
        writer.write_markers(markers, NOW_US)
        return writer.finish()

    filled = written()
    assert filled.content is not None
    monkeypatch.setattr(SmallBatch, "of_records", lambda *columns: None)
    by_arrow = written()
    assert by_arrow.content is None
    assert filled.load().to_pybytes() == by_arrow.load().to_pybytes()
