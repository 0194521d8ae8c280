"""Cleaning a striped topic: stripes are taken home, and logs are cleaned by what is at home."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark_log import Admin, ConfigResource, NewTopic, TopicPartition
from spark_log.cluster import Cluster, change_stripes, orphaned_directories
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.cluster.conversion import TopicConversion
from spark_log.cluster.topic_deletion import finish_deletions, mark_deleted
from spark_log.errors import ClockSkewError, CorruptRecordError
from spark_log.jobs.task import CleaningTask
from spark_log.log.segment import BatchAppend
from spark_log.log.stripe import StripeEntry
from spark_log.metadata.records import RemoveTopicRecord
from spark_log.storage import StorageClock
from spark_log.table import TopicTable
from spark_log.topic_read import scan
from spark_log.util import SYSTEM_CLOCK
from tests.datasource.reading import records
from tests.log.support import ShiftedClock
from tests.transactions import TransactionWriter


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``: four partitions in two stripes, whose records never expire."""
    url = str(tmp_path / "root")
    create(url, "t")
    return url


def create(root, topic, **configs):
    configs = {"stripes": 2, "retention.ms": -1, "flush.on.append": "false", **configs}
    Admin(root).create_topics([NewTopic(topic, 4, topic_configs=configs)])


def change(root, **configs):
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    Admin(root).alter_configs([ConfigResource("topic", "t", dotted)])


def log_of(root, partition=0, topic="t"):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic(topic), partition)


def append(root, values, partitions=range(4), topic="t"):
    """Append numbers to partitions, each number by an object of each stripe."""
    cluster = Cluster(root)
    found = cluster.topic(topic)
    for value in values:
        for number in range(2):
            entries = [
                StripeEntry(partition, BatchAppend(records([value])))
                for partition in partitions
                if partition % 2 == number
            ]
            if entries:
                cluster.stripe(found, number).appends.append(entries)


def numbers(root, partition=0, isolation_level="read_uncommitted"):
    log = log_of(root, partition)
    start = log.observe().log_start_offset
    return [
        int(value)
        for batch in log.scan(start, isolation_level=isolation_level)
        for value in batch.records.column("value").to_pylist()
    ]


def clean(root, topics=("t",), partitions=None, *, clock=SYSTEM_CLOCK, **how):
    cleaner = ClusterCleaner(Cluster(root, clock=clock), topics, partitions, **how)
    return cleaner, list(cleaner.clean())


def stripe_files(root):
    return sorted(path for path in Path(root).glob("t.*/__stripes/*/*") if path.is_file())


def home_files(root, partition=0):
    return sorted(path.name for path in Path(root).glob(f"t.*/t-{partition}/*.log"))


@pytest.fixture
def next_day(monkeypatch):
    """Return a function after which storage and processes are a day later."""

    def advance():
        read = StorageClock.read
        day_us = 86_400_000_000

        def later(self, store, directory):
            found = read(self, store, directory)
            return replace(found, shown_us=found.shown_us + day_us)

        monkeypatch.setattr(StorageClock, "read", later)
        return ShiftedClock(SYSTEM_CLOCK, days=1)

    return advance


class WithoutStripes(ClusterCleaner):
    """A cleaner that takes nothing home, as if others had appended since it did."""

    def _clean_stripes(self):
        return iter(())


class TestTakingHome:
    def test_takes_all_records_home_before_it_cleans_the_partitions(self, root):
        append(root, range(5))
        cleaner, cleaned = clean(root)
        assert [each.report.log_end_offset for each in cleaned] == [5] * 4
        assert [(each.stripe, each.rounds, each.objects) for each in cleaner.stripes] == [
            (0, 1, 5),
            (1, 1, 5),
        ]
        assert [len(home_files(root, number)) for number in range(4)] == [1] * 4
        assert [numbers(root, number) for number in range(4)] == [list(range(5))] * 4

    def test_frees_numbers_when_the_marker_is_old(self, root, next_day):
        append(root, range(3))
        cleaner, _ = clean(root)
        assert [each.freed_files for each in cleaner.stripes] == [0, 0]
        append(root, [3])
        cleaner, _ = clean(root, clock=next_day())
        assert [(each.objects, each.freed_files) for each in cleaner.stripes] == [(1, 5)] * 2
        assert [path.name.lstrip("0") for path in stripe_files(root)] == ["4.home"] * 2
        assert [numbers(root, number) for number in range(4)] == [list(range(4))] * 4

    def test_frees_ended_stripes_but_for_the_marker_that_says_so(self, root, next_day):
        append(root, range(3))
        files = stripe_files(root)[0].parent.parent
        change_stripes(Cluster(root), "t", 0)
        cleaner, _ = clean(root, clock=next_day())
        assert [(each.stripe, each.freed_files) for each in cleaner.stripes] == [(0, 5), (1, 5)]
        assert [path.name.lstrip("0") for path in files.rglob("*.*")] == ["4.home"] * 2
        cluster = Cluster(root)
        assert cluster.stripe(cluster.topic("t"), 0).directory.read_home(4).is_ended
        assert [numbers(root, number) for number in range(4)] == [list(range(3))] * 4

    def test_only_the_stripes_of_the_chosen_partitions(self, root):
        append(root, range(2))
        cleaner, cleaned = clean(root, partitions=[3])
        assert [each.stripe for each in cleaner.stripes] == [1]
        assert [each.partition for each in cleaned] == [TopicPartition("t", 3)]
        assert home_files(root, 0) == []

    def test_a_dry_run_changes_nothing_and_counts_objects(self, root):
        append(root, range(2))
        before = stripe_files(root)
        cleaner, cleaned = clean(root, dry_run=True)
        assert [(each.objects, each.rounds) for each in cleaner.stripes] == [(2, 0)] * 2
        assert [each.report.log_end_offset for each in cleaned] == [0] * 4
        assert stripe_files(root) == before
        assert home_files(root) == []

    def test_a_process_with_a_wrong_clock_takes_nothing_home(self, root):
        append(root, range(2))
        cleaner = ClusterCleaner(Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=3)), ["t"])
        with pytest.raises(ClockSkewError):
            list(cleaner.clean())
        assert home_files(root) == []

    def test_a_damaged_object_stops_no_partition_and_loses_nothing_at_home(self, root):
        append(root, range(3))
        clean(root)
        append(root, [3])
        last = [path for path in stripe_files(root) if path.suffix == ".stripe"][3]
        assert last.parent.name == "0"
        whole = last.read_bytes()
        last.write_bytes(whole[: len(whole) // 2])
        cleaner, cleaned = clean(root)
        assert [type(each.error) for each in cleaner.stripes] == [CorruptRecordError, type(None)]
        failed = [each for each in cleaned if each.error is not None]
        assert [each.partition for each in failed] == [TopicPartition("t", 0)]
        ends = [each.report.log_end_offset for each in cleaned if each.error is None]
        assert ends == [3, 4, 3, 4]
        last.write_bytes(whole)
        assert numbers(root, 2) == list(range(4))


class TestOfWhatIsAtHome:
    def test_retention_leaves_what_is_not_at_home_yet(self, root):
        append(root, range(3))
        clean(root)
        append(root, [3, 4])
        change(root, retention_bytes=0)
        (cleaned,) = WithoutStripes(Cluster(root), ["t"], [0]).clean()
        report = cleaned.report
        assert report is not None
        assert (report.expired_segments, report.log_start_offset) == (1, 3)
        assert numbers(root) == [3, 4]
        clean(root)
        append(root, [5])
        assert numbers(root) == [5]
        log = log_of(root)
        assert (log.observe().log_start_offset, log.observe().log_end_offset) == (5, 6)

    def test_merges_join_what_each_round_has_brought(self, root):
        for value in range(8):
            append(root, [value])
            if value < 7:
                Cluster(root).stripe(Cluster(root).topic("t"), 0).take_home()
        append(root, [8], [1])
        _, cleaned = clean(root, partitions=[0])
        assert (cleaned[0].report.merged_segments, cleaned[0].report.merged_into) == (8, 1)
        append(root, [8])
        assert numbers(root) == list(range(9))

    def test_compaction_keeps_the_newest_record_of_a_key(self, root):
        change(root, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
        for first in (0, 5):
            append(root, range(first, first + 5))
            _, cleaned = clean(root)
        assert [each.report.kept_records for each in cleaned] == [1] * 4
        assert numbers(root) == list(range(4, 10)), "the newest round is the active segment"
        append(root, [10])
        assert numbers(root) == list(range(4, 11))
        assert log_of(root).find_key(b"k").records.column("value").to_pylist() == [b"10"]

    def test_an_open_transaction_stays_open_until_its_marker_is_at_home(self, root):
        log = log_of(root)
        writer = TransactionWriter(log)
        writer.send(b"7")
        append(root, [8], [0])
        clean(root)
        assert numbers(root, 0, "read_committed") == []
        writer.abort()
        assert numbers(root, 0, "read_committed") == [8]
        clean(root)
        clean(root)
        assert numbers(root, 0, "read_committed") == [8]
        assert numbers(root) == [7, 8]

    def test_deleted_records_are_taken_home_first(self, root):
        append(root, range(5))
        admin = Admin(root)
        admin.delete_records({TopicPartition("t", 2): 3})
        view = log_of(root, 2).observe()
        assert (view.log_start_offset, view.log_end_offset) == (3, 5)
        append(root, [5])
        assert numbers(root, 2) == [3, 4, 5]
        _, cleaned = clean(root)
        assert [each.report.log_start_offset for each in cleaned] == [0, 0, 3, 0]


class TestTable:
    @pytest.fixture
    def root(self, tmp_path):
        url = str(tmp_path / "root")
        create(url, "t", **{"table.format": "delta", "table.commit.interval.ms": 0})
        return url

    def read(self, root, **how):
        return sorted(
            (row["partition"], row["offset"], int(row["value"]))
            for row in scan(root, "t", **how).read_all().to_pylist()
        )

    def test_has_what_is_at_home_and_a_read_of_both_has_all(self, root):
        append(root, range(3))
        clean(root, table_at_once=True)
        append(root, [3, 4])
        assert self.read(root) == [(number, at, at) for number in range(4) for at in range(5)]
        cluster = Cluster(root)
        newest = TopicTable(cluster.store, cluster.topic("t"), cluster.clock).refresh().number
        at_home = [(number, at, at) for number in range(4) for at in range(3)]
        assert self.read(root, version=newest) == at_home

    def test_a_conversion_takes_stripes_home_first(self, root):
        append(root, range(3))
        cluster = Cluster(root)
        conversion = TopicConversion(cluster, cluster.topic("t"), threads=1)
        assert [each.error for each in conversion.convert()] == [None] * 4
        assert len(conversion.commit().data_files) == 4


class TestTask:
    """As in a Spark task of ``jobs/clean.py``."""

    def test_takes_a_stripe_home(self, root):
        append(root, range(3))
        task = CleaningTask(root, {}, {}, 1 << 20)
        stripe = TopicPartition("t", 1)
        freed = {"deleted_files": 0, "deleted_bytes": 0}
        assert task.plan_stripe(stripe) == {"rounds": 0, "objects": 3, **freed}
        assert home_files(root, 1) == []
        assert task.take_home(stripe) == {"rounds": 1, "objects": 3, **freed}
        assert len(home_files(root, 1)) == 1
        assert task.take_home(TopicPartition("deleted since", 0)) == {}

    def test_says_why_it_failed(self, root):
        append(root, range(2))
        stripe_files(root)[0].write_bytes(b"no Arrow file")
        done = CleaningTask(root, {}, {}, 1 << 20).take_home(TopicPartition("t", 0))
        assert "00000000000000000000.stripe" in done["error"]


class TestDirectories:
    def test_those_of_stripes_are_no_orphans(self, root):
        append(root, [0])
        assert list(orphaned_directories(Cluster(root), 0)) == []
        clean(root)
        assert list(ClusterCleaner(Cluster(root)).stray_replicas()) == []
        assert stripe_files(root)

    def test_those_of_other_topics_are(self, root):
        Admin(root).create_topics([NewTopic("u")])
        path = f"{Cluster(root).topic('u').directory}/__stripes"
        (Path(root) / path / "0").mkdir(parents=True)
        assert [each.path for each in orphaned_directories(Cluster(root), 0)] == [path]

    def test_of_a_deleted_topic_stripes_are_counted_and_removed(self, root):
        append(root, range(2))
        clean(root, partitions=[0])
        cluster = Cluster(root)
        files = [path for path in Path(root).glob("t.*/**/*") if path.is_file()]
        topic = cluster.topic("t")
        mark_deleted(cluster.store, [topic])
        cluster.metadata.commit(lambda image: [RemoveTopicRecord(topic_id=topic.topic_id)])
        (deleted,) = finish_deletions(Cluster(root))
        assert deleted.files == len(files)
        assert not list(Path(root).glob("t.*/**/*.stripe"))
