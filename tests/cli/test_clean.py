"""``spark-log clean``: what retention, merging and deleting do to topics of a root on disk."""

import time

import pytest

from spark_log import Admin, NewTopic
from spark_log.errors import NotFoundError, StorageError
from spark_log.log import PartitionLog
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import SegmentName
from spark_log.storage import DELETION_MARKERS
from spark_log.types import ConfigResource, TopicPartition
from spark_log.util.clock import SYSTEM_CLOCK, SystemClock
from tests.cli.support import (
    append,
    begin_dead_transaction,
    begin_transaction,
    flip,
    partition_log,
    segment_files,
)

TOPICS = ("flights", "weather")


@pytest.fixture(autouse=True)
def records(root):
    """``weather``: ten segments of one record each; ``flights``: one in each partition.

    Kept for ever: they are of long ago.
    """
    topics = [ConfigResource("topic", name, {"retention.ms": "-1"}) for name in TOPICS]
    Admin(root).alter_configs(topics)
    for number in range(10):
        append(root, "weather", b"record:%d" % number)
    for partition in (0, 1):
        append(root, "flights", b"one", partition=partition)


def values(root):
    return [
        value.as_py()
        for batch in partition_log(root, "weather").scan(0)
        for value in batch.records.column("value")
    ]


class TestClean:
    def test_merges_a_topic_and_says_so(self, shell, root):
        before = values(root)
        outcome = shell("clean", "weather")
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.lines[0].split()[:2] == ["TOPIC", "PARTITION"]
        assert outcome.lines[1].split()[:7] == ["weather", "0", "0", "10", "1", "0", "0"]
        assert values(root) == before
        assert SegmentName(0, 9, 1).file_name in [
            path.name for path in segment_files(root, "weather")
        ]

    def test_in_json_is_one_document(self, shell, root):
        document = shell("clean", "weather", "--json").document
        (partition,) = document["partitions"]
        assert (partition["topic"], partition["partition"]) == ("weather", 0)
        assert (partition["merged_segments"], partition["merged_into"]) == (10, 1)
        assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, 10)
        assert (document["dry_run"], document["deleted_topics"]) == (False, [])

    def test_a_dry_run_does_nothing(self, shell, root):
        before = segment_files(root, "weather")
        document = shell("clean", "--all-topics", "--dry-run", "--json").document
        assert [each["merged_segments"] for each in document["partitions"]] == [0, 0, 10]
        assert document["dry_run"]
        assert segment_files(root, "weather") == before

    def test_one_partition_is_enough(self, shell):
        document = shell("clean", "flights", "--partition", "1", "--json").document
        assert [each["partition"] for each in document["partitions"]] == [1]

    def test_applies_retention(self, shell, root):
        nothing = ConfigResource("topic", "weather", {"retention.bytes": "0"})
        Admin(root).alter_configs([nothing])
        document = shell("clean", "weather", "--json").document
        (partition,) = document["partitions"]
        assert (partition["expired_segments"], partition["log_start_offset"]) == (10, 10)

    def test_compacts(self, shell, root):
        compacted = ConfigResource("topic", "weather", {"cleanup.policy": "compact"})
        Admin(root).alter_configs([compacted])
        for number in range(3):
            append(root, "weather", b"new:%d" % number, key=b"k")
        document = shell("clean", "weather", "--json").document
        (partition,) = document["partitions"]
        assert (partition["compacted_records"], partition["kept_records"]) == (12, 1)
        assert values(root) == [b"new:1", b"new:2"]

    def test_goes_on_where_a_partition_is_damaged(self, shell, root):
        path = segment_files(root, "weather")[3]
        flip(path, path.read_bytes().index(b"record:3"))
        outcome = shell("clean", "weather", "flights")
        assert outcome.status == 1
        assert "error: weather-0: " in outcome.err
        assert [line.split()[0] for line in outcome.lines[1:]] == ["flights", "flights"]

    def test_may_be_throttled(self, shell):
        outcome = shell("clean", "weather", "--max-bytes-per-second", "100000000")
        assert outcome.status == 0


class TestStripes:
    @pytest.fixture(autouse=True)
    def striped(self, root):
        """``rain``: two partitions in one stripe, with two records each."""
        configs = {"stripes": 1, "retention.ms": -1}
        Admin(root).create_topics([NewTopic("rain", 2, topic_configs=configs)])
        for partition in (0, 1):
            for value in (b"one", b"two"):
                append(root, "rain", value, partition=partition)

    def test_are_taken_home_and_shown_in_json(self, shell):
        planned = shell("clean", "rain", "--dry-run", "--json").document
        stripe = {"topic": "rain", "stripe": 0, "deleted_files": 0, "deleted_bytes": 0}
        assert planned["stripes"] == [stripe | {"objects": 4, "rounds": 0}]
        assert [each["log_end_offset"] for each in planned["partitions"]] == [0, 0]
        done = shell("clean", "rain", "--json").document
        assert done["stripes"] == [stripe | {"objects": 4, "rounds": 1}]
        assert [each["log_end_offset"] for each in done["partitions"]] == [2, 2]
        assert shell("clean", "weather", "--json").document["stripes"] == []

    def test_are_shown_as_text_if_something_was_done(self, shell):
        text = "Stripe 0 of rain: 4 objects taken home; 0 files deleted, 0 bytes"
        assert text in shell("clean", "rain").lines
        assert not [line for line in shell("clean", "rain").lines if line.startswith("Stripe")]


class TestWrongClock:
    """The clock of this machine is days from the storage's."""

    @pytest.fixture(params=[8, -2])
    def days(self, root, request, monkeypatch):
        append(root, "weather", b"new", timestamp=SYSTEM_CLOCK.time_us())
        shift_us = request.param * 86_400_000_000
        monkeypatch.setattr(SystemClock, "time_us", lambda self: time.time_ns() // 1000 + shift_us)
        return request.param

    @pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
    def test_is_told_in_one_line_and_nothing_is_done(self, shell, root, days, arguments):
        before = segment_files(root, "weather")
        outcome = shell("clean", "--all-topics", *arguments)
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.err.count("\n") == 1
        side = "ahead of" if days > 0 else "behind"
        assert "error: the clock of this process is " in outcome.err
        assert f"{side} the storage's, more than max.clock.skew.ms (600000 ms)" in outcome.err
        assert segment_files(root, "weather") == before

    @pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
    def test_is_told_in_json(self, shell, days, arguments):
        outcome = shell("clean", "--all-topics", "--output", "json", *arguments)
        assert outcome.status == 1
        assert "max.clock.skew.ms" in outcome.document["error"]
        assert (outcome.document["partitions"], outcome.document["deleted_topics"]) == ([], [])

    def test_verify_repairs_nothing(self, shell, root, days):
        outcome = shell("verify", "--repair")
        assert outcome.status == 1
        assert "max.clock.skew.ms" in outcome.err

    def test_is_no_hindrance_where_it_is_meant(self, shell, root, days):
        Admin(root).alter_configs(
            [ConfigResource("broker", "", {"max.clock.skew.ms": "10000000000"})]
        )
        week = ConfigResource("topic", "weather", {"retention.ms": "604800000"})
        Admin(root).alter_configs([week])
        (partition,) = shell("clean", "weather", "--json").document["partitions"]
        assert partition["expired_segments"] == 10, "all but the newest are of long ago"
        assert partition["log_start_offset"] == 10
        assert len(list(partition_log(root, "weather").scan(10))) == 1


class TestDeletedTopics:
    def test_what_a_late_writer_left_is_removed(self, shell, root):
        log = partition_log(root, "weather")
        directory = log.directory.partition("/")[0]
        Admin(root).delete_topics(["weather"])
        assert not (root / directory).exists()
        late = root / log.directory / "00000000000000000000.log"
        late.parent.mkdir(parents=True)
        late.write_bytes(b"late")
        document = shell("clean", "--all-topics", "--dry-run", "--json").document
        assert document["deleted_topics"] == [
            {"broker": 0, "path": directory, "files": 1, "size_bytes": 4}
        ]
        assert late.exists()
        outcome = shell("clean", "--all-topics")
        assert f"Deleted topic {directory}: 1 file, 4 bytes" in outcome.lines
        assert not (root / directory).exists()
        assert shell("verify", "--strict").status == 0

    def test_a_topic_that_is_deleted_meanwhile_is_no_failure(self, shell, root, monkeypatch):
        """Its files vanish while they are read; of one that was not deleted that is damage."""
        admin, clean = Admin(root), PartitionCleaner.clean

        def delete_and_clean(cleaner):
            if "weather" in cleaner.report.directory:
                admin.delete_topics(["weather"])
                raise NotFoundError("no such file")
            return clean(cleaner)

        monkeypatch.setattr(PartitionCleaner, "clean", delete_and_clean)
        outcome = shell("clean", "--all-topics", "--json")
        assert (outcome.status, outcome.err) == (0, "")
        assert {each["topic"] for each in outcome.document["partitions"]} == {"flights"}

    def test_a_topic_whose_deletion_was_not_made_stays(self, shell, root):
        directory = partition_log(root, "weather").directory.partition("/")[0]
        (root / DELETION_MARKERS).mkdir()
        (root / DELETION_MARKERS / directory).write_bytes(b"")
        shell("clean", "--all-topics")
        assert len(values(root)) == 10

    def test_a_directory_that_nobody_deleted_stays(self, shell, root):
        """Metadata that were restored from a copy may not know of it."""
        unknown = root / f"lost.{'x' * 22}" / "lost-0"
        unknown.mkdir(parents=True)
        shell("clean", "--all-topics")
        assert unknown.exists()


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "which topics"),
            (("weather", "--all-topics"), "which topics"),
            (("nothing",), "no topic 'nothing'"),
            (("weather", "--partition", "7"), "no partition 7"),
            (("weather", "--partition", "-1"), "numbered from 0"),
            (("weather", "--max-bytes-per-second", "0"), "expected more than 0"),
            (("weather", "--dedupe-buffer-size", "5000"), "expected at least 1048576"),
        ],
    )
    def test_are_told_in_one_line(self, shell, arguments, message):
        outcome = shell("clean", *arguments)
        assert outcome.status == 2
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


class TestTransactionalIds:
    ORDERS = TopicPartition("flights", 0)

    def test_dead_transactions_are_aborted_with_all_topics(self, shell, root):
        coordinator, _ = begin_dead_transaction(root, "orders", self.ORDERS)
        planned = shell("clean", "--all-topics", "--dry-run", "--json").document
        assert planned["transactional_ids"] == [{"transactional_id": "orders", "action": "abort"}]
        assert shell("clean", "flights", "--json").document["transactional_ids"] == []
        assert coordinator.refresh().state == "Ongoing", "not its subject"
        outcome = shell("clean", "--all-topics")
        assert (outcome.status, outcome.lines[-1]) == (0, "Aborted the transaction of orders")
        assert coordinator.refresh().state == "CompleteAbort"
        assert shell("clean", "--all-topics", "--json").document["transactional_ids"] == []

    def test_a_transaction_in_its_time_is_left_alone(self, shell, root):
        begin_transaction(root, "orders", self.ORDERS)
        assert shell("clean", "--all-topics", "--json").document["transactional_ids"] == []

    def test_a_marker_that_cannot_be_put_is_told(self, shell, root, monkeypatch):
        begin_dead_transaction(root, "orders", self.ORDERS)

        def fail(self, markers):
            raise StorageError("not there")

        monkeypatch.setattr(PartitionLog, "append_markers", fail)
        outcome = shell("clean", "--all-topics", "--json")
        assert outcome.document["transactional_ids"] == [
            {"transactional_id": "orders", "action": "abort", "error": "not there"}
        ]
        assert (outcome.status, outcome.err) == (
            1,
            "error: transactional id orders: not there\n",
        )
