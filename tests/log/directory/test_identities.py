"""A segment under the name of another: detected by its append id, or by the name in it."""

import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.compactor import compact
from spark_log.log.directory.identities import SegmentIdentities
from spark_log.log.files.file_names import SegmentName, snapshot_name
from spark_log.log.rewrite.merger import merge
from spark_log.log.segment.summary import SegmentSummary
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.log.snapshot.snapshots import Snapshots
from spark_log.log.verify.finding import LogFindingKind, LogSeverity
from spark_log.log.verify.verifier import Verifier
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    file_names,
    open_log,
    put_segment,
    values,
    values_of,
)
from tests.record.samples import numbered, record_batch, row


@pytest.fixture
def store(memory_store):
    return memory_store


@pytest.fixture
def log(store, clock):
    return open_log(store, clock=clock, merge_tail_segments=0)


def path_of(name):
    return f"{DIRECTORY}/{name.file_name}"


def copy(store, source, target):
    """Put the bytes of one segment under the name of another."""
    store.put(path_of(target), store.open_buffer(path_of(source)))


def errors(log):
    return [
        (found.path, found.message)
        for found in Verifier(log).findings()
        if found.severity is LogSeverity.ERROR and found.kind is LogFindingKind.DAMAGED_SEGMENT
    ]


class TestPlain:
    @pytest.fixture(autouse=True)
    def records(self, log):
        for first in range(0, 40, 10):
            log.append(numbered(first, 10))

    @pytest.mark.parametrize(("source", "target"), [(0, 20), (20, 10), (10, 30)])
    def test_who_reads_both_is_told(self, store, source, target):
        copy(store, SegmentName(source), SegmentName(target))
        with pytest.raises(CorruptRecordError, match="the same append as") as caught:
            values(open_log(store))
        assert caught.value.path in (path_of(SegmentName(source)), path_of(SegmentName(target)))

    @pytest.mark.parametrize("offset", [10, 15, 19])
    def test_who_reads_the_copy_alone_is_told_by_the_snapshot(self, store, log, offset):
        log.snapshots.write()
        put_segment(store, [numbered(0, 10)], SegmentName(900))
        copy(store, SegmentName(900), SegmentName(10))
        store.delete(path_of(SegmentName(900)))
        with pytest.raises(CorruptRecordError, match="by a snapshot this name has") as caught:
            values(open_log(store), offset, offset + 1)
        assert caught.value.path == path_of(SegmentName(10))
        copy(store, SegmentName(30), SegmentName(10))
        with pytest.raises(CorruptRecordError, match="the same append as"):
            values(open_log(store), offset, offset + 1)

    def test_a_consumer_at_the_tail_is_told(self, store):
        reader = open_log(store)
        assert values_of(reader.read(30)[0])[-1] == (39, b"record:39")
        copy(store, SegmentName(30), SegmentName(40))
        with pytest.raises(CorruptRecordError, match="the same append as"):
            reader.read(40)

    def test_a_merge_replaces_nothing(self, store, log):
        copy(store, SegmentName(0), SegmentName(20))
        before = file_names(store)
        with pytest.raises(CorruptRecordError):
            merge(log.files, open_log(store).observe(), 0, 3)
        assert file_names(store) == before

    def test_verify_tells(self, store, log):
        assert errors(log) == []
        copy(store, SegmentName(0), SegmentName(20))
        ((path, message),) = errors(open_log(store))
        assert (path, "same append as" in message) == (path_of(SegmentName(20)), True)

    def test_verify_tells_by_the_snapshot_too(self, store, log):
        log.snapshots.write()
        put_segment(store, [numbered(0, 10)], SegmentName(900))
        copy(store, SegmentName(900), SegmentName(20))
        store.delete(path_of(SegmentName(900)))
        ((path, message),) = errors(open_log(store))
        assert (path, "a snapshot has" in message) == (path_of(SegmentName(20)), True)

    def test_a_snapshot_that_was_made_of_the_copy_tells_that_there_are_two(self, store, log):
        copy(store, SegmentName(0), SegmentName(20))
        identities = SegmentIdentities()
        segments = (log.files.open(SegmentName(at)) for at in (0, 10, 20))
        summaries = (
            SegmentSummary(SegmentName(at), at + 10, 10, 1, None, 0, segment.append_id)
            for at, segment in zip((0, 10, 20), segments, strict=True)
        )
        identities.load(30, summaries)
        append_id = log.files.open(SegmentName(20)).append_id
        with pytest.raises(CorruptRecordError, match="the same append as"):
            identities.check("the copy", SegmentName(20), append_id)

    def test_on_an_object_store_no_request_is_made_for_it(self, store, log):
        log.snapshots.write()
        hooked = HookedStore(store, is_mapped=False)
        assert len(values(open_log(hooked))) == 40
        assert not [path for path in hooked.called("open_buffer") if path.endswith(".snapshot")]

    def test_what_a_merge_wrote_is_no_copy(self, store, log):
        log.snapshots.write()
        reader = open_log(store)
        assert len(values(reader)) == 40
        merge(log.files, log.observe(), 0, 2)
        assert len(values(reader)) == len(values(open_log(store))) == 40
        assert errors(open_log(store)) == []


class TestRewritten:
    def test_a_merged_segment_under_another_name_is_refused(self, store, log):
        for first in range(0, 40, 10):
            log.append(numbered(first, 10))
        merge(log.files, log.observe(), 0, 1)
        for name in (SegmentName(20, 39, 1), SegmentName(0, 19, 2), SegmentName(0, 29, 1)):
            copy(store, SegmentName(0, 19, 1), name)
            with pytest.raises(CorruptRecordError, match="was written as") as caught:
                values(open_log(store))
            assert caught.value.path == path_of(name)
            assert path_of(name) in dict(errors(open_log(store)))
            store.delete(path_of(name))
        assert len(values(log)) == 40

    def test_a_compacted_segment_whose_name_says_more_is_refused(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact")
        for number in range(6):
            log.append(record_batch([row(b"%d" % number, b"key")]))
        clock.advance_ms(61_000)
        compact(log, now_us=clock.time_us())
        name = log.observe().live.segments[0].name
        assert name.is_compacted
        longer = SegmentName(0, 9, name.generation)
        copy(store, name, longer)
        with pytest.raises(CorruptRecordError, match="was written as"):
            values(log)

    def test_an_older_one_that_ends_before_its_name_says_is_refused(self, store):
        """A merge of an earlier version, which has no name in it; without gaps its end shows it."""
        put_segment(store, [numbered(0, 5), numbered(5, 5)], SegmentName(0, 11, 1))
        with pytest.raises(CorruptRecordError, match="ends before the last offset"):
            values(open_log(store))

    def test_it_does_not_begin_behind_what_its_name_says_either(self, store):
        put_segment(store, [numbered(0, 5)], SegmentName(0, 4, 1))
        assert len(values(open_log(store))) == 5


class TestSnapshotFile:
    def read(self, store, offset):
        data = store.open_buffer(f"{DIRECTORY}/{snapshot_name(offset)}")
        return Snapshot.from_buffer(data, topic_id=TOPIC_ID, partition=0)

    def test_it_tells_every_append_id(self, store, log):
        for first in range(0, 30, 10):
            log.append(numbered(first, 10))
        log.snapshots.write()
        told = [each.append_id for each in self.read(store, 30).segments]
        assert told == [log.files.open(SegmentName(at)).append_id for at in (0, 10, 20)]
        assert len(set(told)) == 3

    def test_under_another_offsets_name_it_is_not_believed(self, store, log):
        for first in range(0, 30, 10):
            log.append(numbered(first, 10))
        log.snapshots.write()
        data = store.open_buffer(f"{DIRECTORY}/{snapshot_name(30)}")
        store.put(f"{DIRECTORY}/{snapshot_name(20)}", data)
        store.delete(f"{DIRECTORY}/{snapshot_name(30)}")
        again = open_log(store)
        assert Snapshots(again.files, again.config).newest(again.observe()) is None
