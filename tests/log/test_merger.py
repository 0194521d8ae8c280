"""Merging: the rewritten segment is what a reader would have read, under the same headers."""

import pytest

from spark_log.clock import ManualClock
from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.file_names import SegmentName
from spark_log.log.merger import merge
from spark_log.log.partition_directory import PartitionDirectory
from spark_log.log.producer_state import ProducerAppend
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    file_names,
    free,
    move_start,
    open_log,
    segment_reader,
    values,
)
from tests.record.samples import numbered


@pytest.fixture
def store(memory_store):
    return memory_store


@pytest.fixture
def log(store):
    """Five segments: 0 to 1, 2 to 4, 5, 6 to 9, 10 to 11."""
    log = open_log(store)
    for number, count in enumerate((2, 3, 1, 4, 2)):
        log.append(numbered(10 * number, count))
    return log


@pytest.fixture
def directory(store):
    return PartitionDirectory(store, DIRECTORY, topic_id=TOPIC_ID, partition=0, clock=ManualClock())


def headers_of(store, *names):
    """What headers say but for where their segment begins, with absolute offsets."""
    return [
        (
            name.base_offset + header.base_offset_delta,
            name.base_offset + header.last_offset_delta,
            header.crc32c,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.max_timestamp_us,
        )
        for name in names
        for _, headers in segment_reader(store, name).all_headers()
        for header in headers
    ]


class TestMerge:
    @pytest.mark.parametrize(
        ("first", "last", "name"),
        [(0, 4, (0, 11)), (1, 3, (2, 9)), (3, 4, (6, 11)), (2, 2, (5, 5))],
    )
    def test_covers_what_it_was_made_of_and_changes_nothing(
        self, store, log, directory, first, last, name
    ):
        before = values(log)
        view = log.observe()
        merged = merge(directory, view, first, last)
        assert merged == SegmentName(*name, generation=1)
        free(store, *(segment.name for segment in view.live.segments[first : last + 1]))
        assert merged.log in file_names(store)
        assert values(open_log(store)) == before

    def test_keeps_every_batch_header_in_one_arrow_batch(self, store, log, directory):
        log.append(numbered(60, 2), producer=ProducerAppend(7, 3, 0))
        log.append([numbered(70, 2), numbered(80, 1)], producer=ProducerAppend(7, 3, 2))
        view = log.observe()
        names = [segment.name for segment in view.live.segments]
        before = headers_of(store, *names)
        merged = merge(directory, view, 2, len(names) - 1)
        assert headers_of(store, merged) == [header for header in before if header[0] >= 5]
        assert segment_reader(store, merged).batch_count == 1

    def test_leaves_producers_as_they_were(self, store, log, directory):
        append = ProducerAppend(7, 0, 0)
        info = log.append(numbered(60, 2), producer=append)
        view = log.observe()
        merge(directory, view, 0, len(view.live.segments) - 1)
        free(store, *(segment.name for segment in view.live.segments))
        assert open_log(store).append(numbered(60, 2), producer=append) == info

    def test_of_what_was_merged_counts_the_generations(self, store, log, directory):
        before = values(log)
        merge(directory, log.observe(), 0, 1)
        assert merge(directory, log.observe(), 0, 2) == SegmentName(0, 9, 2)
        assert merge(directory, log.observe(), 0, 0) == SegmentName(0, 9, 3)
        assert values(open_log(store)) == before

    def test_beside_another_merge_overlaps_without_harm(self, store, log, directory):
        before, view = values(log), log.observe()
        merge(directory, view, 0, 2)
        merge(directory, view, 1, 3)
        free(store, *(SegmentName(base) for base in (0, 2, 5, 6)))
        assert values(open_log(store)) == before
        overlapping = log.observe()
        assert [segment.start_offset for segment in overlapping.live.segments] == [0, 2, 10] or [
            segment.start_offset for segment in overlapping.live.segments
        ] == [0, 6, 10]
        last = len(overlapping.live.segments) - 1
        merged = merge(directory, overlapping, 1, last)
        assert merged.last_offset == 11
        assert values(open_log(store)) == before

    def test_twice_at_once_is_the_same_segment(self, store, log, directory):
        view = log.observe()
        assert merge(directory, view, 0, 3) == merge(directory, view, 0, 3)
        assert sum("-" in name for name in file_names(store)) == 1

    def test_where_the_log_starts_inside_of_a_batch_takes_the_whole_batch(
        self, store, log, directory
    ):
        before = values(log)
        move_start(store, 7, 6)
        merged = merge(directory, log.observe(), 0, 1)
        assert merged == SegmentName(6, 11, 1)
        free(store, SegmentName(6), SegmentName(10))
        assert values(open_log(store)) == before[7:]

    def test_of_what_the_start_has_passed_is_refused(self, store, log, directory):
        view = log.observe()
        move_start(store, 10, 10)
        free(store, *(SegmentName(base) for base in (0, 2, 5, 6)))
        with pytest.raises(OffsetOutOfRangeError):
            merge(directory, view, 0, 2)
        assert not any("-" in name and name.endswith(".log") for name in file_names(store))

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_may_compress(self, store, log, directory, compression):
        before = values(log)
        merged = merge(directory, log.observe(), 0, 4, compression=compression)
        assert segment_reader(store, merged).compression(0) == compression
        assert values(open_log(store)) == before
