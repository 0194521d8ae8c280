"""The batch header on storage: 53 bytes whose meaning must never change."""

import base64
import struct
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.record.batch_header import (
    HEADER_DTYPE,
    BatchHeader,
    decode_headers,
    encode_headers,
    header_array,
    packed_headers,
)
from spark_log.record.control_record import ControlRecordType


def integers(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


headers = st.builds(
    BatchHeader,
    base_offset_delta=integers(32),
    last_offset_delta=integers(32),
    leader_epoch=integers(32),
    attributes=integers(16),
    crc32c=st.integers(0, 2**32 - 1),
    base_timestamp_us=integers(64),
    max_timestamp_us=integers(64),
    producer_id=integers(64),
    producer_epoch=integers(16),
    base_sequence=integers(32),
    record_count=integers(32),
    magic=st.just(2),
)

# Every field has different bytes, so that two exchanged fields are noticed.
KNOWN = BatchHeader(
    base_offset_delta=0x01020304,
    last_offset_delta=0x05060708,
    leader_epoch=0x090A0B0C,
    attributes=0x0D0E,
    crc32c=0x8F101112,
    base_timestamp_us=0x131415161718191A,
    max_timestamp_us=0x1B1C1D1E1F202122,
    producer_id=0x232425262728292A,
    producer_epoch=0x2B2C,
    base_sequence=0x2D2E2F30,
    record_count=0x31323334,
)
KNOWN_BYTES = bytes.fromhex(
    "04030201 08070605 0c0b0a09 02 0e0d 1211108f 1a19181716151413 2221201f1e1d1c1b"
    "2a29282726252423 2c2b 302f2e2d 34333231"
)


def header(**changed):
    same = {field.name: getattr(KNOWN, field.name) for field in fields(BatchHeader)}
    return BatchHeader(**{**same, **changed})


class TestAtRest:
    def test_a_header_has_53_bytes_in_this_order(self):
        assert len(KNOWN_BYTES) == 53
        assert KNOWN.pack() == KNOWN_BYTES

    def test_the_metadata_value_is_base64_of_headers_one_after_the_other(self):
        value = encode_headers([KNOWN, header(record_count=7)])
        assert value == base64.b64encode(KNOWN_BYTES + KNOWN_BYTES[:-4] + b"\x07\0\0\0")
        assert b"\n" not in encode_headers([KNOWN] * 50)

    @given(st.lists(headers, min_size=1, max_size=5))
    def test_encoded_headers_are_decoded_unchanged(self, many):
        assert decode_headers(encode_headers(many)) == tuple(many)

    @given(st.lists(headers, min_size=1, max_size=5))
    def test_an_array_of_headers_has_the_fields_of_the_headers(self, many):
        array = decode_array(encode_headers(many))
        assert HEADER_DTYPE.itemsize == len(KNOWN_BYTES)
        for field in fields(BatchHeader):
            assert array[field.name].tolist() == [getattr(each, field.name) for each in many]

    @pytest.mark.parametrize(
        "field", [field.name for field in fields(BatchHeader) if field.name != "magic"]
    )
    def test_a_number_that_does_not_fit_is_refused_rather_than_cut(self, field):
        with pytest.raises(struct.error):
            header(**{field: 2**63}).pack()


def decode_array(value):
    return header_array(packed_headers(value))


@pytest.mark.parametrize("decode", [decode_headers, decode_array])
class TestDamageOfBothForms:
    @pytest.mark.parametrize("length", [0, 1, 52, 54, 105, 107])
    def test_a_part_of_a_header_is_refused(self, decode, length):
        value = base64.b64encode((KNOWN_BYTES * 3)[:length])
        with pytest.raises(ValueError, match="not a whole number of batch headers"):
            decode(value)

    @pytest.mark.parametrize(("count", "padding"), [(1, b"="), (2, b"==")])
    def test_bits_behind_the_last_byte_are_0(self, decode, count, padding):
        value = encode_headers([KNOWN] * count)
        assert value.endswith(padding)
        last = len(value) - len(padding) - 1
        damaged = value[:last] + bytes([value[last] + 1]) + padding
        assert base64.b64decode(damaged) == base64.b64decode(value)
        with pytest.raises(ValueError, match="the last character of the base64 text is damaged"):
            decode(damaged)

    @pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
    def test_an_unknown_magic_is_refused_by_its_number(self, decode, magic):
        value = encode_headers([KNOWN, header(magic=magic)])
        with pytest.raises(ValueError, match=f"unknown magic {magic}, expected 2"):
            decode(value)


class TestDamage:
    @given(st.binary(max_size=160))
    def test_bytes_that_are_not_headers_raise_a_value_error(self, value):
        try:
            decoded = decode_headers(value)
        except ValueError:
            return
        assert encode_headers(decoded) == value

    @given(st.lists(headers, min_size=1, max_size=2), st.data())
    def test_one_wrong_character_never_decodes_to_the_same_headers(self, many, data):
        value = bytearray(encode_headers(many))
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] ^= data.draw(st.integers(1, 255))
        try:
            decoded = decode_headers(bytes(value))
        except ValueError:
            return
        assert decoded != tuple(many)


class TestChecksummedBytes:
    def test_checksummed_bytes_cover_all_fields_but_the_checksum_and_the_base_offset(self):
        same = {"crc32c": 1}
        moved = {"base_offset_delta": 0, "last_offset_delta": 0x05060708 - 0x01020304}
        assert header(**same).checksummed_bytes() == KNOWN.checksummed_bytes()
        assert header(**moved).checksummed_bytes() == KNOWN.checksummed_bytes()
        for field in fields(BatchHeader):
            if field.name != "crc32c":
                value = getattr(KNOWN, field.name) - 1
                changed = header(**{field.name: value}).checksummed_bytes()
                assert changed != KNOWN.checksummed_bytes(), field.name

    def test_checksummed_bytes_are_as_documented(self):
        assert KNOWN.checksummed_bytes() == bytes.fromhex(
            "04040404 0c0b0a09 02 0e0d 1a19181716151413 2221201f1e1d1c1b"
            "2a29282726252423 2c2b 302f2e2d 34333231"
        )


class TestMeaning:
    @pytest.mark.parametrize(
        ("attributes", "timestamp_type", "is_control"),
        [(0, 0, False), (1 << 3, 1, False), (1 << 5, 0, True), (0b1111000, 1, True), (7, 0, False)],
    )
    def test_attributes_are_kafkas_bits(self, attributes, timestamp_type, is_control):
        batch = header(attributes=attributes)
        assert (batch.timestamp_type, batch.is_control) == (timestamp_type, is_control)

    @pytest.mark.parametrize(
        ("base", "last", "count", "has_gaps"),
        [(0, 9, 10, False), (100, 109, 10, False), (0, 9, 9, True), (0, 0, 0, True)],
    )
    def test_a_batch_has_gaps_when_its_range_is_longer_than_its_records(
        self, base, last, count, has_gaps
    ):
        batch = header(base_offset_delta=base, last_offset_delta=last, record_count=count)
        assert batch.has_gaps is has_gaps


TRANSACTIONAL, CONTROL, ABORT = 1 << 4, 1 << 5, 1 << 7


@pytest.mark.parametrize(
    ("attributes", "producer_id", "marker"),
    [
        (0, 7, None),
        (TRANSACTIONAL, 7, None),
        (CONTROL, 7, None),
        (CONTROL | ABORT, 7, None),
        (TRANSACTIONAL | ABORT, 7, None),
        (TRANSACTIONAL | CONTROL, -1, None),
        (TRANSACTIONAL | CONTROL, 7, ControlRecordType.COMMIT),
        (TRANSACTIONAL | CONTROL | ABORT, 7, ControlRecordType.ABORT),
        (TRANSACTIONAL | CONTROL | ABORT | 1 << 6, 7, ControlRecordType.ABORT),
    ],
)
def test_a_transactional_control_batch_of_a_producer_is_a_marker(attributes, producer_id, marker):
    assert header(attributes=attributes, producer_id=producer_id).marker is marker
