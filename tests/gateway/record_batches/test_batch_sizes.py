"""Sizes of records in Kafka's batches, known before they are encoded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.gateway.record_batches import HEADER_BYTES, BatchTarget, encoded_sizes, from_arrow
from tests.record.samples import START_US, numbered, record_batch, row, row_lists


def sizes_of(records, offsets, timestamp_type):
    return encoded_sizes(records, offsets, splits_at_times=bool(timestamp_type))


def encoded(records, offsets, timestamp_type=0):
    return from_arrow(
        records,
        base_offset=int(offsets[0]),
        target=BatchTarget(timestamp_type=timestamp_type),
        offsets=offsets,
    )


@given(rows=row_lists, step=st.sampled_from([1, 100, 10_000_000]), kind=st.sampled_from([0, 1]))
def test_are_never_too_small(rows, step, kind):
    records = record_batch(rows)
    offsets = np.arange(len(rows)) * step
    sizes = sizes_of(records, offsets, kind)
    assert len(encoded(records, offsets, kind)) <= HEADER_BYTES + sizes.sum()
    for last in range(1, len(rows)):
        part = encoded(records.slice(0, last), offsets[:last], kind)
        assert len(part) <= HEADER_BYTES + sizes[:last].sum()


@pytest.mark.parametrize("value_bytes", [0, 40, 63, 64, 8_000, 100_000])
def test_are_exact_if_all_records_are_alike(value_bytes):
    records, offsets = record_batch([row(b"v" * value_bytes)] * 3), np.arange(3)
    size = HEADER_BYTES + sizes_of(records, offsets, 0).sum()
    key_length_bytes = 1  # it is counted as long as that of the value
    surplus = size - len(encoded(records, offsets))
    assert 0 <= surplus <= 3 * (len_of_varint(value_bytes) - key_length_bytes)


def len_of_varint(value):
    return (value.bit_length() + 7) // 7


def test_are_a_few_bytes_too_many_if_records_differ():
    records = record_batch(
        [row(b"v" * size, timestamp=START_US + size * 1000) for size in (1, 900)]
    )
    offsets = np.arange(2)
    size = HEADER_BYTES + sizes_of(records, offsets, 0).sum()
    assert 0 <= size - len(encoded(records, offsets)) <= 10


def test_count_a_header_for_each_batch_of_one_time():
    records, offsets = numbered(0, 20), np.arange(20)
    size = HEADER_BYTES + sizes_of(records, offsets, 1).sum()
    assert 20 * HEADER_BYTES < len(encoded(records, offsets, 1)) <= size
