"""Message sets of v0 and v1, as Java wrote them, and damaged ones."""

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from spark_log.gateway.record_batches import BatchError, BatchErrorCode, message_set_to_arrow
from tests.gateway.record_batches.kafka_records import BYTES, MANY, TIME_MS
from tests.gateway.record_batches.rows import rows_of

LIMIT = 1 << 24


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_a_message_set_of_java_is_read(magic, compression):
    data = (BYTES / f"java-v{magic}-{compression}.bin").read_bytes()
    rows = rows_of(message_set_to_arrow(data, max_uncompressed_bytes=LIMIT))
    assert rows == [(key, value, None, time if magic else -1) for key, value, _, time in MANY]


def test_the_append_time_of_a_compressed_set_counts_for_its_messages():
    data = (BYTES / "java-v1-append-time.bin").read_bytes()
    rows = rows_of(message_set_to_arrow(data, max_uncompressed_bytes=LIMIT))
    assert {time for *_, time in rows} == {TIME_MS + 7}
    assert len(rows) == len(MANY)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_kafka_python_are_read(magic):
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, TIME_MS, b"key", None)
    builder.append(1, TIME_MS + 1, None, b"value")
    rows = rows_of(message_set_to_arrow(bytes(builder.build()), max_uncompressed_bytes=LIMIT))
    times = [TIME_MS, TIME_MS + 1] if magic else [-1, -1]
    assert rows == [(b"key", None, None, times[0]), (None, b"value", None, times[1])]


def test_every_changed_byte_but_the_offset_is_noticed():
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, TIME_MS, b"key", b"value")
    data = bytes(builder.build())
    for at in range(8, len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x55
        with pytest.raises(BatchError):
            message_set_to_arrow(changed, max_uncompressed_bytes=LIMIT)
    for size in range(1, len(data)):
        with pytest.raises(BatchError) as caught:
            message_set_to_arrow(data[:size], max_uncompressed_bytes=LIMIT)
        assert caught.value.code == BatchErrorCode.CORRUPT_MESSAGE


def test_a_compressed_set_within_its_limit():
    data = (BYTES / "java-v1-gzip.bin").read_bytes()
    with pytest.raises(BatchError) as caught:
        message_set_to_arrow(data, max_uncompressed_bytes=len(data) + 10)
    assert caught.value.code == BatchErrorCode.MESSAGE_TOO_LARGE


def test_a_timestamp_that_does_not_fit_is_refused():
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(0, 2**62, b"key", b"value")
    with pytest.raises(BatchError) as caught:
        message_set_to_arrow(bytes(builder.build()), max_uncompressed_bytes=LIMIT)
    assert caught.value.code == BatchErrorCode.INVALID_TIMESTAMP
