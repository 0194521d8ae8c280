"""File names, which are part of the format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.files.file_names import (
    SegmentName,
    StartMarker,
    decode_leader_epoch,
    encode_leader_epoch,
)

offsets = st.integers(0, 2**63 - 1)


class TestSegmentName:
    def test_a_plain_segment_is_named_by_its_base_offset(self):
        name = SegmentName(262_144)
        assert name.file_name == "00000000000000262144.log"
        assert name.index == "00000000000000262144.index"
        assert name.time_index == "00000000000000262144.timeindex"

    def test_a_rewritten_segment_is_named_by_what_it_covers_and_its_generation(self):
        name = SegmentName(0, 524_287, 3)
        assert name.file_name == "00000000000000000000-00000000000000524287.3.log"
        assert name.index == "00000000000000000000-00000000000000524287.3.index"
        assert name.time_index == "00000000000000000000-00000000000000524287.3.timeindex"

    def test_a_parquet_segment_is_named_like_an_arrow_file_and_has_only_an_index_of_keys(self):
        name = SegmentName(0, 524_287, 3, is_parquet=True)
        assert name.file_name == "00000000000000000000-00000000000000524287.3.parquet"
        assert name.index_names == ("00000000000000000000-00000000000000524287.3.keyindex",)
        assert SegmentName.parse_index(name.key_index) == name
        assert name != SegmentName(0, 524_287, 3)

    @given(
        st.builds(SegmentName, offsets)
        | st.builds(SegmentName, *[offsets] * 2, st.integers(1), st.booleans())
    )
    def test_a_name_is_parsed_into_what_it_was_made_of(self, name):
        assert SegmentName.parse(name.file_name) == name

    @given(st.lists(offsets, min_size=2, max_size=9))
    def test_names_sort_as_their_base_offsets_do(self, bases):
        names = [SegmentName(base).file_name for base in sorted(bases)]
        assert names == sorted(names)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".log",
            "0.log",
            "0000000000000000000.log",
            "000000000000000000000.log",
            "0000000000000000000a.log",
            "-0000000000000000001.log",
            "00000000000000000000.index",
            "00000000000000000000.timeindex",
            "00000000000000000000.snapshot",
            "00000000000000000000.log.tmp",
            "00000000000000000000.log\n",
            ".00000000000000000000.log",
            "x00000000000000000000.log",
            "00000000000000000000-00000000000000000009.log",
            "00000000000000000000.parquet",
            "00000000000000000000-00000000000000000009.parquet",
            "00000000000000000000-00000000000000000009.1.parquet2",
            "00000000000000000000.1.log",
            "00000000000000000000-9.1.log",
            "00000000000000000000-00000000000000000009.x.log",
            "00000000000000000000-00000000000000000009.1.index",
            "00000000000000000000-00000000000000000000.start",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ],
    )
    def test_any_other_name_is_no_segments(self, name):
        assert SegmentName.parse(name) is None


class TestStartMarker:
    def test_it_is_named_by_the_start_and_the_segment_it_lies_in(self):
        marker = StartMarker(131_072, 100_000)
        assert marker.name == "00000000000000131072-00000000000000100000.start"

    @given(st.builds(StartMarker, offsets, offsets))
    def test_a_name_is_parsed_into_what_it_was_made_of(self, marker):
        assert StartMarker.parse(marker.name) == marker

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "00000000000000000000.start",
            "0-0.start",
            "00000000000000000000-00000000000000000000.log",
            "00000000000000000000-00000000000000000000.start2",
            "00000000000000000000-00000000000000000009.1.log",
            " 00000000000000000000-00000000000000000000.start",
        ],
    )
    def test_any_other_name_is_no_markers(self, name):
        assert StartMarker.parse(name) is None


@pytest.mark.parametrize("leader_epoch", [-1, 0, 7, 2**31 - 1])
def test_a_start_marker_tells_a_leader_epoch_and_notices_each_flipped_bit(leader_epoch):
    content = encode_leader_epoch(leader_epoch)
    assert decode_leader_epoch(content) == leader_epoch
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_leader_epoch(bytes(flipped)) is None
    assert decode_leader_epoch(b"") is None
