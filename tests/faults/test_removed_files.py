"""Files of a root are removed by hand: reads return right results or an error, no offset is reused.

Each kind of file is removed under running clients, and before new clients start.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_log import (
    Admin,
    Consumer,
    LogTruncatedError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.cluster.verifier import ClusterVerifier
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.offsets.table import OffsetsTable
from spark_log.errors import CorruptRecordError, InvalidRootError, SparkLogError, StorageError
from spark_log.log.files.file_names import SegmentName
from spark_log.types import ConsumerRecord
from spark_log.util.clock import ManualClock

T0 = TopicPartition("t", 0)
SEGMENTS = 12
CONFIGS = {
    "snapshot.interval.segments": 5,
    "index.interval.bytes": 0,
    "merge.tail.segments": 0,
}


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", 1, topic_configs=CONFIGS)])
    return root


def produce(root, first, count):
    """Produce one record per segment: record n has offset n."""
    with Producer(root, linger_ms=0) as producer:
        return [
            producer.send("t", b"%d" % number).result(60).offset
            for number in range(first, first + count)
        ]


def directory(root):
    topic = Cluster(root).topic("t")
    return Path(root) / topic.partition_directory(0)


def segment(root, offset):
    return directory(root) / SegmentName(offset).file_name


def errors_of_verify(root):
    found = ClusterVerifier(Cluster(root)).findings()
    return [finding for finding in found if finding.severity == "error"]


def read_all(root):
    with Consumer(root=root) as consumer:
        consumer.assign([T0])
        consumer.seek_to_beginning(T0)
        end = consumer.end_offsets([T0])[T0]
        read: dict[int, Any] = {}
        while max(read, default=-1) < end - 1:
            for record in consumer.poll(timeout_ms=20_000)[T0]:
                read[record.offset] = record.value
        return read


def expected(*offsets):
    return {offset: b"%d" % offset for offset in offsets}


def remove(root, base):
    """Remove a segment with its indexes, as ``rm <base>.*`` does."""
    name = SegmentName(base)
    for each in (name.file_name, name.index, name.time_index):
        (directory(root) / each).unlink(missing_ok=True)


def poll_for_ever(consumer):
    for _ in range(100):
        consumer.poll(timeout_ms=1000)


@pytest.mark.partition_logs_only("removes files of a partition")
class TestSegments:
    def test_the_last_ones_that_a_snapshot_tells_of(self, root):
        produce(root, 0, SEGMENTS)
        newest = max(int(path.stem) for path in directory(root).glob("*.snapshot"))
        for base in range(newest - 1, SEGMENTS):
            remove(root, base)
        with pytest.raises(LogTruncatedError) as caught:
            produce(root, SEGMENTS, 1)
        assert caught.value.log_end_offset == newest - 1
        assert caught.value.witnessed_offset == newest
        with pytest.raises(LogTruncatedError):
            read_all(root)
        assert [finding.kind for finding in errors_of_verify(root)] == ["missing-segment"]

    def test_the_last_one_whose_index_is_left(self, root):
        produce(root, 0, 2)
        segment(root, 1).unlink()
        (directory(root) / SegmentName(1).index).write_bytes(b"of a segment that was there")
        with pytest.raises(LogTruncatedError):
            produce(root, 1, 1)
        assert "missing-segment" in {finding.kind for finding in errors_of_verify(root)}

    def test_the_last_one_under_a_producer_and_a_consumer_that_live(self, root):
        with Producer(root, linger_ms=0) as producer, Consumer(root=root) as consumer:
            for number in range(3):
                producer.send("t", b"%d" % number).result(60)
            consumer.assign([T0])
            consumer.seek_to_beginning(T0)
            read = 0
            while read < 3:
                read += sum(map(len, consumer.poll(timeout_ms=20_000).values()))
            remove(root, 2)
            with pytest.raises(LogTruncatedError):
                producer.send("t", b"3").result(60)
            with pytest.raises(LogTruncatedError):
                producer.send("t", b"again").result(60)
            consumer.seek(T0, 0)
            consumer.seek(T0, 2)
        assert not segment(root, 2).exists(), "the offset was used again"

    def test_the_last_one_behind_a_committed_offset(self, root):
        produce(root, 0, 3)
        Admin(root).alter_group_offsets("g", {T0: OffsetAndMetadata(3)})
        remove(root, 2)
        with (
            Consumer("t", root=root, group_id="g", auto_offset_reset="earliest") as consumer,
            pytest.raises(LogTruncatedError, match="committed"),
        ):
            poll_for_ever(consumer)

    def test_a_position_that_the_user_chose_goes_by_the_policy(self, root):
        produce(root, 0, 3)
        with Consumer(root=root, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 1000)
            found: list[ConsumerRecord] = []
            while len(found) < 3:
                found += consumer.poll(timeout_ms=1000).get(T0, [])
            assert [record.offset for record in found] == [0, 1, 2]

    @pytest.mark.parametrize("base", [0, 5])
    def test_one_before_others(self, root, base):
        produce(root, 0, SEGMENTS)
        remove(root, base)
        with pytest.raises(CorruptRecordError):
            read_all(root)
        assert errors_of_verify(root)

    def test_the_one_that_the_log_starts_in(self, root):
        log = Cluster(root).partition_log(Cluster(root).topic("t"), 0)
        with Producer(root, linger_ms=10_000) as producer:
            for number in range(4):
                producer.send("t", b"%d" % number)
        assert log.observe().log_end_offset == 4
        Admin(root).delete_records({T0: 2})
        for path in directory(root).glob("*.snapshot"):
            path.unlink()
        remove(root, 0)
        with pytest.raises(LogTruncatedError):
            produce(root, 2, 1)
        assert errors_of_verify(root)

    def test_files_that_are_derived_change_nothing(self, root):
        produce(root, 0, SEGMENTS)
        for pattern in ("*.snapshot", "*.index", "*.timeindex"):
            for path in directory(root).glob(pattern):
                path.unlink()
        assert read_all(root) == expected(*range(SEGMENTS))
        assert produce(root, SEGMENTS, 2) == [SEGMENTS, SEGMENTS + 1]
        assert not errors_of_verify(root)

    def test_a_start_marker_whose_segments_are_freed(self, root):
        produce(root, 0, SEGMENTS)
        Admin(root).delete_records({T0: 6})
        for base in range(6):
            remove(root, base)
        for path in directory(root).glob("*.start"):
            path.unlink()
        with pytest.raises(CorruptRecordError):
            read_all(root)
        with pytest.raises(SparkLogError):
            produce(root, SEGMENTS, 1)
        assert errors_of_verify(root)


@pytest.mark.partition_logs_only("removes files of a partition")
class TestDirectories:
    def test_a_partitions_directory_under_a_producer_that_lives(self, root):
        with Producer(root, linger_ms=0) as producer:
            producer.send("t", b"0").result(60)
            shutil.rmtree(directory(root))
            for _ in range(3):
                with pytest.raises(LogTruncatedError):
                    producer.send("t", b"into nothing").result(60)
        assert not list(directory(root).glob("*.log"))

    @pytest.mark.parametrize("is_topic", [False, True])
    def test_a_partitions_directory_before_new_clients_begin(self, root, is_topic):
        produce(root, 0, 3)
        shutil.rmtree(directory(root).parent if is_topic else directory(root))
        with pytest.raises(LogTruncatedError):
            produce(root, 0, 1)
        with pytest.raises(LogTruncatedError):
            read_all(root)
        assert [finding.kind for finding in errors_of_verify(root)] == ["missing-segment"]

    def test_once_it_is_restored_the_same_clients_go_on(self, root, tmp_path):
        with Producer(root, linger_ms=0) as producer:
            producer.send("t", b"0").result(60)
            shutil.move(directory(root), tmp_path / "copy")
            with pytest.raises(LogTruncatedError):
                producer.send("t", b"refused").result(60)
            shutil.rmtree(directory(root), ignore_errors=True)
            shutil.move(tmp_path / "copy", directory(root))
            assert producer.send("t", b"1").result(60).offset == 1
        assert read_all(root) == expected(0, 1)

    def test_a_partition_that_was_never_written_is_empty(self, root):
        assert read_all(root) == {}
        assert not errors_of_verify(root)

    def test_a_topic_that_is_deleted_and_made_again_begins_anew(self, root):
        produce(root, 0, 3)
        Admin(root).delete_topics(["t"])
        Admin(root).create_topics([NewTopic("t", 1, topic_configs=CONFIGS)])
        assert produce(root, 0, 1) == [0]
        witnesses = {path.name for path in Path(root, "__witnesses").iterdir()}
        assert witnesses == {"__cluster_metadata-0", Cluster(root).topic("t").directory}


class TestMetadata:
    @pytest.mark.parametrize("count", [1, 2])
    def test_the_last_files(self, root, count):
        for name in ("a", "b"):
            Admin(root).create_topics([NewTopic(name)])
        files = sorted(Path(root, "__cluster_metadata-0").glob("*.log"))
        for path in files[-count:]:
            path.unlink()
        for refused in (
            lambda: Admin(root).create_topics([NewTopic("c")]),
            lambda: Admin(root).list_topics(),
            lambda: produce(root, 0, 1),
        ):
            with pytest.raises(LogTruncatedError):
                refused()
        assert not files[-1].exists()
        assert "unreadable" in {finding.kind for finding in errors_of_verify(root)}

    @pytest.mark.parametrize("has_existence_marker", [True, False])
    def test_the_whole_log(self, root, has_existence_marker):
        produce(root, 0, 1)
        shutil.rmtree(Path(root, "__cluster_metadata-0"))
        if not has_existence_marker:  # a root of an older version: the topics' directories show it
            shutil.rmtree(Path(root, "__witnesses"))
        for refused in (
            lambda: Admin(root).create_topics([NewTopic("t")]),
            lambda: Admin(root).list_topics(),
        ):
            with pytest.raises(LogTruncatedError):
                refused()
        assert not list(Path(root, "__cluster_metadata-0").glob("*.log"))

    def test_a_process_that_has_read_it_does_not_go_on_either(self, root):
        cluster = Cluster(root)
        cluster.image()
        files = sorted(Path(root, "__cluster_metadata-0").glob("*.log"))
        files[-1].unlink()
        with pytest.raises(SparkLogError):
            Admin(root).create_topics([NewTopic("c")])

    def test_meta_properties(self, root):
        Path(root, "meta.properties").unlink()
        with pytest.raises(InvalidRootError, match="was removed"):
            Admin(root).create_topics([NewTopic("c")])
        with pytest.raises(InvalidRootError, match="cluster"):
            Cluster(root)
        assert not Path(root, "meta.properties").exists()


class TestGroupsAndOffsets:
    def test_a_groups_whole_log(self, root):
        with Consumer("t", root=root, group_id="g") as consumer:
            consumer.poll(timeout_ms=100)
        shutil.rmtree(Path(root, GroupLog.directory_of("g")))
        with (
            pytest.raises(LogTruncatedError, match="removed"),
            Consumer("t", root=root, group_id="g") as consumer,
        ):
            consumer.poll(timeout_ms=1000)

    def test_the_last_version_of_the_offsets_table_under_a_process_that_read_it(self, root):
        clock = ManualClock()
        table = OffsetsTable(Cluster(root, clock=clock))
        for offset in (1, 2):
            Admin(root).alter_group_offsets("g", {T0: OffsetAndMetadata(offset)})
        assert table.all_committed_offsets().keys() == {"g"}
        log = Path(root, "__consumer_offsets/_delta_log")
        max(log.glob("*.json")).unlink()
        clock.advance_ms(10**9)
        with pytest.raises(StorageError, match="files were removed"):
            table.all_committed_offsets()
