"""The header check of an Arrow batch: its bytes never change, and damage is found."""

import base64
import struct

import google_crc32c
import pyarrow as pa
import pytest

from spark_log.record.batch_check import COLUMN_SUMS_BYTES, decode_check, encode_check
from spark_log.record.checksum import array_crc32c
from spark_log.record.schema import OFFSET_DELTA_FIELD
from tests.record.samples import numbered

ID, HEADERS = b"AAECAwQFBgcICQoLDA0ODw", b"the headers, in base64"
SMALL, LARGE = numbered(0, 3), numbered(0, 2_000)
WITH_OFFSETS = SMALL.append_column(OFFSET_DELTA_FIELD, pa.array([1, 4, 9], pa.int32()))


def test_the_bytes_are_those_that_the_document_describes():
    assert encode_check(ID, HEADERS, SMALL) == base64.b64encode(
        struct.pack("<I", google_crc32c.value(ID + HEADERS))
    )
    sums = struct.pack("<5I", *(array_crc32c(column) for column in WITH_OFFSETS.columns))
    whole = struct.pack("<I", google_crc32c.value(ID + HEADERS + sums)) + sums
    assert encode_check(ID, HEADERS, WITH_OFFSETS) == base64.b64encode(whole)


def test_columns_have_sums_in_large_batches_and_in_batches_with_offsets():
    assert decode_check(encode_check(ID, HEADERS, SMALL), ID, HEADERS, 4) == ()
    assert LARGE.nbytes > COLUMN_SUMS_BYTES
    sums = decode_check(encode_check(ID, HEADERS, LARGE), ID, HEADERS, 4)
    assert sums == tuple(array_crc32c(column) for column in LARGE.columns)
    assert len(decode_check(encode_check(ID, HEADERS, WITH_OFFSETS), ID, HEADERS, 5)) == 5


@pytest.mark.parametrize(
    ("append_id", "headers", "columns"),
    [(b"another file's", HEADERS, 5), (ID, HEADERS + b"x", 5), (ID, HEADERS, 4)],
)
def test_the_check_of_another_file_or_batch_is_refused(append_id, headers, columns):
    check = encode_check(ID, HEADERS, WITH_OFFSETS)
    with pytest.raises(ValueError, match=r"checksum of the batch headers|not a header check"):
        decode_check(check, append_id, headers, columns)


def test_a_check_with_a_flipped_bit_is_refused_or_gives_the_same_sums():
    for records, columns in ((SMALL, 4), (WITH_OFFSETS, 5)):
        check = encode_check(ID, HEADERS, records)
        told = decode_check(check, ID, HEADERS, columns)
        refused = 0
        for bit in range(8 * len(check)):
            damaged = bytearray(check)
            damaged[bit // 8] ^= 1 << bit % 8
            try:
                assert decode_check(bytes(damaged), ID, HEADERS, columns) == told
            except ValueError:
                refused += 1
        assert refused >= 8 * len(check) - 4, "but for base64's spare bits"


@pytest.mark.parametrize("value", [b"", b"AA==", b"AAAA", b"no base64!", b"AAAAAAAA"])
def test_bytes_that_are_not_a_check_are_refused(value):
    with pytest.raises(ValueError, match=r"check|whole|padding|base64"):
        decode_check(value, ID, HEADERS, 4)
