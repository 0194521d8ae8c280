"""Headers of v2 batches: what is refused, and what may be changed in place."""

import struct
from dataclasses import replace

import google_crc32c
import pytest

from spark_log.gateway.record_batches import (
    BatchError,
    BatchErrorCode,
    check_produced,
    split,
    with_base_offset,
)
from tests.gateway.record_batches.kafka_records import BYTES

DATA = (BYTES / "java-transactional.bin").read_bytes()


def test_the_header_of_a_batch():
    (batch,) = split(DATA, max_batches=1)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 101, 2)
    assert (batch.leader_epoch, batch.compression_type, batch.timestamp_type) == (5, 0, 0)
    assert batch.is_transactional
    assert not batch.is_control
    assert bytes(batch.data) == DATA


def test_every_changed_byte_but_offset_and_epoch_is_noticed():
    for at in range(len(DATA)):
        changed = bytearray(DATA)
        changed[at] ^= 0x55
        if at in range(8) or at in range(12, 16):
            split(changed, max_batches=1)
            continue
        with pytest.raises(BatchError) as caught:
            split(changed, max_batches=1)
        assert caught.value.code in (BatchErrorCode.CORRUPT_MESSAGE, BatchErrorCode.INVALID_RECORD)


def test_a_batch_that_is_cut_off_is_refused():
    for size in range(1, len(DATA)):
        with pytest.raises(BatchError) as caught:
            split(DATA[:size], max_batches=1)
        assert caught.value.code == BatchErrorCode.CORRUPT_MESSAGE


def test_more_batches_than_allowed_are_refused():
    assert len(split(DATA * 3, max_batches=3)) == 3
    assert split(b"", max_batches=1) == []
    with pytest.raises(BatchError, match="more than 1 record batches") as caught:
        split(DATA * 2, max_batches=1)
    assert caught.value.code == BatchErrorCode.INVALID_RECORD


def test_an_older_magic_is_refused():
    data = (BYTES / "java-v1-none.bin").read_bytes()
    with pytest.raises(BatchError, match="a batch of magic 1; expected 2") as caught:
        split(data, max_batches=1)
    assert caught.value.code == BatchErrorCode.INVALID_RECORD


def test_more_records_than_bytes_are_refused():
    changed = bytearray(DATA)
    struct.pack_into(">i", changed, 57, 1000)
    changed[17:21] = google_crc32c.value(bytes(changed[21:])).to_bytes(4, "big")
    with pytest.raises(BatchError, match="claims 1000 records"):
        split(changed, max_batches=1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"record_count": 0}, BatchErrorCode.INVALID_RECORD),
        ({"record_count": 1}, BatchErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2}, BatchErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, BatchErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, BatchErrorCode.INVALID_TIMESTAMP),
        ({"base_sequence": -1}, BatchErrorCode.INVALID_RECORD),
        ({"producer_epoch": -1}, BatchErrorCode.INVALID_RECORD),
        ({"producer_id": -1}, BatchErrorCode.INVALID_RECORD),
    ],
)
def test_what_a_producer_may_not_send(change, code):
    (batch,) = split(DATA, max_batches=1)
    check_produced(batch)
    with pytest.raises(BatchError) as caught:
        check_produced(replace(batch, **change))
    assert caught.value.code == code


def test_base_offset_and_leader_epoch_are_changed_without_a_new_checksum():
    (batch,) = split(with_base_offset(DATA, 2**40, 9), max_batches=1)
    assert (batch.base_offset, batch.leader_epoch) == (2**40, 9)
    assert bytes(batch.records) == DATA[61:]
