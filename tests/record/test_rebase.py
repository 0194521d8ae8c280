"""Batches in a segment with another base offset: offsets change, checksums do not."""

import pyarrow as pa
import pytest

from spark_log.record.checksum import batch_crc32c
from spark_log.record.rebase import rebase_batches
from spark_log.record.schema import OFFSET_DELTA_FIELD, RECORD_SCHEMA
from tests.record.samples import header_of, record_batch, row

ROWS = [row(b"a"), row(b"b"), row(b"c")]


def gapped(deltas):
    column = pa.array(deltas, OFFSET_DELTA_FIELD.type)
    return record_batch(ROWS).append_column(OFFSET_DELTA_FIELD, column)


@pytest.mark.parametrize("with_offsets", [True, False])
def test_offsets_count_from_the_new_base(with_offsets):
    headers = [header_of(ROWS[:1]), header_of(ROWS[1:], base_offset_delta=1, last_offset_delta=2)]
    moved, records = rebase_batches(headers, record_batch(ROWS), 40, with_offsets=with_offsets)
    assert [(h.base_offset_delta, h.last_offset_delta) for h in moved] == [(40, 40), (41, 42)]
    names = [*RECORD_SCHEMA.names, *(["offset_delta"] if with_offsets else [])]
    assert records.schema.names == names
    if with_offsets:
        assert records.column("offset_delta").to_pylist() == [40, 41, 42]
        assert records.schema.field("offset_delta").equals(OFFSET_DELTA_FIELD)


@pytest.mark.parametrize("shift", [-2, 0, 1_000_000])
def test_the_checksum_of_a_batch_with_gaps_does_not_depend_on_its_segment(shift):
    header = header_of(ROWS, base_offset_delta=2, last_offset_delta=9)
    (moved,), records = rebase_batches([header], gapped([2, 5, 9]), shift, with_offsets=True)
    assert records.column("offset_delta").to_pylist() == [2 + shift, 5 + shift, 9 + shift]
    assert batch_crc32c(moved, records) == batch_crc32c(header, gapped([2, 5, 9]))


def test_batches_with_gaps_need_the_offset_column():
    header = header_of(ROWS, last_offset_delta=9)
    with pytest.raises(ValueError, match="batches with gaps"):
        rebase_batches([header], record_batch(ROWS), 0, with_offsets=True)
    with pytest.raises(ValueError, match="batches with gaps"):
        rebase_batches([header], gapped([0, 4, 9]), 0, with_offsets=False)
