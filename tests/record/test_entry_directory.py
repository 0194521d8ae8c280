"""The directory of a stripe's object: it is read as it was written, or refused."""

import binascii

import numpy as np
import pytest

from spark_log.record import EntryDirectory, decode_entries
from tests.record.samples import header_of, row


def headers(*counts):
    """Headers of batches that follow each other."""
    made, first = [], 0
    for count in counts:
        fields = {"base_offset_delta": first, "last_offset_delta": first + count - 1}
        made.append(header_of([row()] * count, producer_id=7, **fields))
        first += count
    return made


ENTRIES = ([0, 0, 4], [0, 1, 1], headers(2, 1, 3))


def test_a_directory_is_read_as_it_was_written():
    directory = decode_entries(EntryDirectory.of(*ENTRIES).encode(), 2)
    assert directory.partitions.tolist() == [0, 0, 4]
    assert directory.ordinals.tolist() == [0, 1, 1]
    assert list(directory.headers) == ENTRIES[2]
    assert [(each, len(of)) for each, of in directory.groups()] == [(0, 2), (4, 1)]


def test_each_flipped_bit_is_noticed():
    value = EntryDirectory.of(*ENTRIES).encode()
    raw = bytearray(binascii.a2b_base64(value))
    for at in range(len(raw)):
        raw[at] ^= 1 << at % 8
        with pytest.raises(ValueError, match=r"checksum|magic"):
            decode_entries(binascii.b2a_base64(bytes(raw), newline=False), 2)
        raw[at] ^= 1 << at % 8


@pytest.mark.parametrize(
    ("entries", "arrow_batches"),
    [
        (([0, 4, 0], [0, 1, 1], headers(2, 1, 3)), 2),
        (([-1, 0, 4], [0, 1, 1], headers(2, 1, 3)), 2),
        (([0, 0, 4], [0, 1, 0], headers(2, 1, 3)), 2),
        (([0, 0, 4], [1, 1, 1], headers(2, 1, 3)), 2),
        (([0, 0, 4], [0, 1, 1], headers(2, 1, 3)), 3),
        (([0, 0, 4], [0, 0, 2], headers(2, 1, 3)), 3),
        (([0, 0, 4], [0, 1, 1], [*headers(2, 1), headers(3)[0]]), 2),
    ],
    ids=[
        "partitions go back",
        "no partition",
        "Arrow batches go back",
        "the first Arrow batch has no entry",
        "the last Arrow batch has no entry",
        "an Arrow batch between has no entry",
        "rows that do not follow",
    ],
)
def test_entries_that_are_not_those_of_an_object_are_refused(entries, arrow_batches):
    with pytest.raises(ValueError, match="the entries"):
        decode_entries(EntryDirectory.of(*entries).encode(), arrow_batches)


@pytest.mark.parametrize("value", [b"", b"AAAA", b"not base64!"])
def test_what_is_no_directory_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011 - of base64, or ours
        decode_entries(value, 1)


def test_the_entries_of_a_partition_follow_each_other():
    directory = decode_entries(EntryDirectory.of(*ENTRIES).encode(), 2)
    assert directory.partitions.dtype == np.int32
