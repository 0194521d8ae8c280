"""Merging: the merged segment has the same records, with the same headers."""

from dataclasses import replace

import pytest

from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite import merger
from spark_log.log.rewrite.merger import merge
from spark_log.log.segment.writer import SegmentWriter
from spark_log.record.producer_append import ProducerAppend
from spark_log.util.clock import ManualClock
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    Part,
    failing,
    file_names,
    free,
    move_start,
    open_log,
    put_bytes,
    segment_bytes,
    segment_reader,
    values,
)
from tests.record.samples import numbered, row


@pytest.fixture
def store(memory_store):
    return memory_store


@pytest.fixture
def log(store):
    """A log of five segments: 0 to 1, 2 to 4, 5, 6 to 9, 10 to 11."""
    log = open_log(store)
    for number, count in enumerate((2, 3, 1, 4, 2)):
        log.append(numbered(10 * number, count))
    return log


@pytest.fixture
def directory(store):
    return PartitionDirectory(store, DIRECTORY, topic_id=TOPIC_ID, partition=0, clock=ManualClock())


def headers_of(store, *names):
    """Return the first and last offset of each batch, and the other fields of its header."""
    return [
        (
            name.base_offset + header.base_offset_delta,
            name.base_offset + header.last_offset_delta,
            replace(header, base_offset_delta=0, last_offset_delta=0),
        )
        for name in names
        for _, headers in segment_reader(store, name).all_headers()
        for header in headers
    ]


class TestMerge:
    @pytest.mark.parametrize(
        ("first", "last", "name"),
        [
            (0, 4, SegmentName(0, 11, 1)),
            (1, 3, SegmentName(2, 9, 1)),
            (3, 4, SegmentName(6, 11, 1)),
            (2, 2, SegmentName(5, 5, 1)),
        ],
    )
    def test_a_merge_covers_its_sources_and_changes_no_record(
        self, store, log, directory, first, last, name
    ):
        before = values(log)
        view = log.observe()
        merged = merge(directory, view, first, last).name
        assert merged == name
        free(store, *(segment.name for segment in view.live.segments[first : last + 1]))
        assert merged.file_name in file_names(store)
        assert values(open_log(store)) == before

    def test_headers_that_cannot_be_joined_are_kept_in_one_arrow_batch(self, store, log, directory):
        for producer_id in (7, 8, 10):
            log.append(numbered(60, 2), producer=ProducerAppend(producer_id, 3, 0))
            log.append(numbered(62, 1), producer=ProducerAppend(9, producer_id, 0))
        view = log.observe()
        names = [segment.name for segment in view.live.segments]
        before = headers_of(store, *names)
        merged = merge(directory, view, 5, len(names) - 1).name
        assert headers_of(store, merged) == [header for header in before if header[0] >= 12]
        assert segment_reader(store, merged).batch_count == 1

    def test_a_merge_joins_the_headers_of_one_producer(self, store, log, directory):
        log.append(numbered(60, 2), producer=ProducerAppend(7, 3, 0))
        log.append([numbered(70, 2), numbered(80, 1)], producer=ProducerAppend(7, 3, 2))
        log.append(numbered(90, 1), producer=ProducerAppend(7, 3, 5))
        before = values(log)
        merged = merge(directory, log.observe(), 0, 7)
        found = [
            (first, last, header.producer_id, header.base_sequence, header.record_count)
            for first, last, header in headers_of(store, merged.name)
        ]
        assert found == [(0, 11, -1, -1, 12), (12, 17, 7, 0, 6)]
        assert values(open_log(store)) == before, "and the checksums are right"
        assert merged.record_count == 18

    def test_a_merge_does_not_change_producer_state(self, store, log, directory):
        append = ProducerAppend(7, 0, 0)
        info = log.append(numbered(60, 2), producer=append)
        view = log.observe()
        merge(directory, view, 0, len(view.live.segments) - 1)
        free(store, *(segment.name for segment in view.live.segments))
        assert open_log(store).append(numbered(60, 2), producer=append) == info

    def test_a_merge_of_merged_segments_has_the_next_generation(self, store, log, directory):
        before = values(log)
        merge(directory, log.observe(), 0, 1)
        assert merge(directory, log.observe(), 0, 2).name == SegmentName(0, 9, 2)
        assert merge(directory, log.observe(), 0, 0).name == SegmentName(0, 9, 3)
        assert values(open_log(store)) == before

    def test_overlapping_merges_do_no_harm(self, store, log, directory):
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
        merged = merge(directory, overlapping, 1, last).name
        assert merged.last_offset == 11
        assert values(open_log(store)) == before

    def test_a_merge_after_an_overlapping_one_cuts_the_common_batch(self, store, log, directory):
        """The cut batch has the sequence numbers with which its records were appended."""
        for sequence in range(4):
            log.append(numbered(sequence, 1), producer=ProducerAppend(7, 0, sequence))
        before, producers, view = values(log), list(log.producers().entries()), log.observe()
        merge(directory, view, 0, 6)
        merge(directory, view, 5, 8)
        free(store, *(segment.name for segment in view.live.segments))
        overlapping = log.observe()
        starts = [(each.name.base_offset, each.start_offset) for each in overlapping.live.segments]
        assert starts == [(0, 0), (12, 14)]
        assert values(open_log(store)) == before
        merged = merge(directory, overlapping, 0, 1)
        assert merged.record_count == 16
        assert [header[:2] for header in headers_of(store, merged.name)] == [(0, 11), (12, 15)]
        free(store, *(segment.name for segment in overlapping.live.segments))
        fresh = open_log(store)
        assert values(fresh) == before
        assert [(key, entry.runs) for key, entry in fresh.producers().entries()] == [
            (key, entry.runs) for key, entry in producers
        ]

    def test_two_merges_of_the_same_range_give_the_same_segment(self, store, log, directory):
        view = log.observe()
        first = merge(directory, view, 0, 3)
        assert merge(directory, view, 0, 3).name == first.name
        assert sum("-" in name for name in file_names(store)) == 1

    def test_a_merge_takes_the_whole_batch_in_which_the_log_starts(self, store, log, directory):
        before = values(log)
        move_start(store, 7, 6)
        merged = merge(directory, log.observe(), 0, 1).name
        assert merged == SegmentName(6, 11, 1)
        free(store, SegmentName(6), SegmentName(10))
        assert values(open_log(store)) == before[7:]

    def test_a_merge_of_segments_before_the_log_start_is_refused(self, store, log, directory):
        view = log.observe()
        move_start(store, 10, 10)
        free(store, *(SegmentName(base) for base in (0, 2, 5, 6)))
        with pytest.raises(OffsetOutOfRangeError):
            merge(directory, view, 0, 2)
        assert not any("-" in name and name.endswith(".log") for name in file_names(store))

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_a_merge_may_compress(self, store, log, directory, compression):
        before = values(log)
        merged = merge(directory, log.observe(), 0, 4, compression=compression).name
        assert segment_reader(store, merged).compression(0) == compression
        assert values(open_log(store)) == before

    def test_a_merge_keeps_epochs_attributes_timestamps_and_gaps(self, store, directory):
        parts = [
            Part([row("a", timestamp=5), row("b", timestamp=3)], [0, 3], leader_epoch=2),
            Part([row("c", timestamp=9)], [4], attributes=0b101000, producer_id=8),
        ]
        put_bytes(store, segment_bytes([parts]), SegmentName(0, 4, 1))
        put_bytes(store, segment_bytes([[Part([row("d")], attributes=0b1000)]]), SegmentName(5))
        names = [SegmentName(0, 4, 1), SegmentName(5)]
        before, headers = values(open_log(store)), headers_of(store, *names)
        merged = merge(directory, directory.observe(), 0, 1).name
        assert merged == SegmentName(0, 5, 2)
        assert headers_of(store, merged) == headers
        assert values(open_log(store)) == before == [(0, b"a"), (3, b"b"), (5, b"d")]


class TestArrowBatches:
    @pytest.mark.parametrize(
        ("limit", "rows"),
        [("_JOINED_RECORDS", [2, 4, 4, 2]), ("_JOINED_BYTES", [2, 3, 1, 4, 2])],
    )
    def test_arrow_batches_are_joined_up_to_a_limit(
        self, store, log, directory, monkeypatch, limit, rows
    ):
        monkeypatch.setattr(merger, limit, 4)
        reader = segment_reader(store, merge(directory, log.observe(), 0, 4).name)
        found = [reader.read_batch(ordinal)[1].num_rows for ordinal in range(reader.batch_count)]
        assert found == rows

    def test_arrow_batches_are_found_by_the_indexes_of_the_segment(
        self, store, log, directory, monkeypatch
    ):
        monkeypatch.setattr(merger, "_JOINED_RECORDS", 1)
        for number in range(4):
            log.append(numbered(number, 1, value_bytes=5000))
        merged = merge(directory, log.observe(), 0, 8).name
        assert {merged.index, merged.time_index} <= set(file_names(store))

    def test_a_merge_succeeds_without_its_indexes(self, store, log, directory, monkeypatch):
        monkeypatch.setattr(merger, "_JOINED_RECORDS", 1)
        log.append(numbered(60, 2, value_bytes=5000))
        log.append(numbered(60, 2, value_bytes=5000))
        before = values(log)
        hooked = directory.store = HookedStore(store)
        hooked.on("put", failing(StorageError("no")))
        merged = merge(directory, log.observe(), 0, 6).name
        assert hooked.called("put")
        assert merged.file_name in file_names(store)
        assert merged.index not in file_names(store)
        assert values(open_log(store)) == before


class TestFile:
    @pytest.mark.parametrize("sync", [True, False])
    def test_a_merged_file_is_durable_with_sync(self, store, log, directory, monkeypatch, sync):
        view, asked = log.observe(), []
        put = store.put_if_absent

        def spy(path, source, *, sync):
            asked.append(sync)
            put(path, source, sync=sync)

        monkeypatch.setattr(store, "put_if_absent", spy)
        merge(directory, view, 0, 4, sync=sync)
        assert asked == [sync]

    def test_a_merge_is_discarded_if_a_source_is_damaged(self, store, log, directory, monkeypatch):
        discarded = []

        def discard(writer):
            discarded.append(writer)

        monkeypatch.setattr(SegmentWriter, "discard", discard)
        path = f"{DIRECTORY}/{SegmentName(5).file_name}"
        data = bytearray(store.read_tail(path, 100_000))
        data[data.index(b"record:20")] ^= 1
        store.put(path, bytes(data))
        with pytest.raises(CorruptRecordError):
            merge(directory, log.observe(), 0, 4)
        assert len(discarded) == 1
        assert not any("-" in name for name in file_names(store))


class TestMeanwhile:
    """Changes of the segments between the listing and the end of a merge."""

    @pytest.fixture
    def remote(self, store):
        """A store that is read by ranges, so that an open file may vanish."""
        return HookedStore(store, is_mapped=False)

    @pytest.fixture
    def clock(self):
        return ManualClock()

    @pytest.fixture
    def directory(self, remote, clock):
        return PartitionDirectory(
            remote, DIRECTORY, topic_id=TOPIC_ID, partition=0, clock=clock, valid_ms=1000
        )

    def test_a_merge_of_a_part_of_a_wider_merge_gives_up(self, store, log, directory):
        """The wider merge may have joined batches across the end of the part."""
        before, view = values(log), directory.observe()
        merge(directory, view, 0, 4)
        free(store, *(segment.name for segment in view.live.segments))
        with pytest.raises(NotFoundError, match="after the log was listed"):
            merge(directory, view, 1, 2)
        assert SegmentName(2, 5, 1).file_name not in file_names(store)
        assert values(open_log(store)) == before

    def test_a_slow_merge_of_live_segments_continues(self, store, log, directory, clock):
        before, view = values(log), directory.observe()
        stage_slowly(directory, clock)
        merged = merge(directory, view, 0, 4).name
        assert merged.file_name in file_names(store)
        assert values(open_log(store)) == before

    def test_a_slow_merge_of_rewritten_segments_gives_up(
        self, store, log, directory, clock, remote
    ):
        view = directory.observe()
        stage_slowly(directory, clock, lambda: merge(open_log(store).files, view, 0, 4))
        with pytest.raises(NotFoundError, match="after the log was listed"):
            merge(directory, view, 1, 3)
        assert SegmentName(2, 9, 1).file_name not in file_names(store)

    def test_damage_in_a_file_with_a_freed_name_is_not_reported(
        self, store, log, directory, clock, remote
    ):
        large = log.append(numbered(0, 2, value_bytes=100_000)).base_offset
        view = directory.observe()

        def rewrite():
            merge(open_log(store).files, view, 0, 5)
            path = f"{DIRECTORY}/{SegmentName(large).file_name}"
            store.put(path, bytes(store.head(path).size_bytes))

        stage_slowly(directory, clock, rewrite)
        with pytest.raises(NotFoundError, match="after the log was listed"):
            merge(directory, view, 5, 5)


@pytest.mark.parametrize("left", [0, 1])
def test_a_merge_in_a_topic_deleted_meanwhile_gives_up(store, log, directory, left):
    """Its files vanish one by one; a process that does not know may still append and merge."""
    view = directory.observe()
    free(store, *(segment.name for segment in view.live.segments[left:]))
    before = file_names(store)
    with pytest.raises((NotFoundError, LogTruncatedError)):
        merge(directory, view, 0, 4)
    assert file_names(store) == before


def stage_slowly(directory, clock, step=lambda: None):
    """Make the view of a merge too old after it has opened the segments."""

    def stage(path, call):
        step()
        clock.advance_ms(1500)
        return call()

    directory.store.once("stage", stage)
