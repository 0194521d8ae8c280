"""The end that a compaction names in its generation's file."""

import os

import pytest

from spark_log.log.clean import decode_compaction_end, encode_compaction_end, end_to_name
from spark_log.log.files import GENERATION_BYTES

GENERATION = 1_000_007


@pytest.mark.parametrize("end", [0, 1, 524_288, 2**63 - 1])
@pytest.mark.parametrize("passes", [0, 3])
def test_what_is_named_is_read(end, passes):
    content = encode_compaction_end(end, GENERATION, passes)
    assert len(content) == GENERATION_BYTES + passes
    assert decode_compaction_end(content, GENERATION) == end


def test_each_file_is_its_own():
    """Whoever gets no answer compares the bytes to know whether the generation is its own."""
    assert encode_compaction_end(9, GENERATION) != encode_compaction_end(9, GENERATION)


def test_the_random_bytes_of_earlier_versions_name_no_end():
    assert decode_compaction_end(os.urandom(GENERATION_BYTES), GENERATION) is None


@pytest.mark.parametrize("length", [0, 8, 15])
def test_a_short_file_names_no_end(length):
    assert decode_compaction_end(encode_compaction_end(9, GENERATION)[:length], GENERATION) is None


def test_a_file_of_another_generation_names_no_end():
    assert decode_compaction_end(encode_compaction_end(9, GENERATION), GENERATION + 1) is None


@pytest.mark.parametrize("at", range(GENERATION_BYTES))
def test_a_damaged_file_names_no_end(at):
    content = bytearray(encode_compaction_end(9, GENERATION))
    content[at] ^= 4
    assert decode_compaction_end(bytes(content), GENERATION) is None


def test_the_first_names_its_own_end():
    assert end_to_name(50, None, 90, is_first=True) == 50


@pytest.mark.parametrize(("newest", "expected"), [(40, 50), (60, 60)])
def test_no_end_lies_below_an_earlier_one(newest, expected):
    assert end_to_name(50, newest, 90, is_first=False) == expected


def test_after_one_that_named_none_the_logs_end_is_named():
    assert end_to_name(50, None, 90, is_first=False) == 90
