"""Topics with stripes, as the commands show them."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, change_stripes
from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry
from spark_log.record import ProducerAppend
from tests.record.samples import numbered


@pytest.fixture
def orders(root):
    """A topic of four partitions in two stripes; one record in each of the first three."""
    Admin(root).create_topics([NewTopic("orders", 4, topic_configs={"stripes": 2})])
    cluster = Cluster(root)
    for number, partitions in ((0, (0, 2)), (1, (1,))):
        entries = [StripeEntry(each, BatchAppend(numbered(0, 1))) for each in partitions]
        cluster.stripe(cluster.topic("orders"), number).appends.append(entries)
    return "orders"


def directory_of(root, topic):
    return Cluster(root).topic(topic).directory


class TestTopics:
    def test_describe_shows_each_stripe(self, shell, root, orders):
        lines = shell("topics", "describe", orders).lines
        at = lines.index("")
        # Start, end, segments of the partitions.
        assert [line.split()[4:7] for line in lines[2:at]] == [
            *(["0", "1", "1"],) * 3,
            ["0", "0", "0"],
        ]
        assert lines[at + 1].split() == [
            *("STRIPE", "NEWEST", "OBJECT", "HOME", "OBJECTS", "BYTES", "BEHIND")
        ]
        assert [line.split()[:4] for line in lines[at + 2 :]] == [
            ["0", "0", "0", "1"],
            ["1", "0", "0", "1"],
        ]

    def test_describe_in_json_has_the_stripes(self, shell, root, orders):
        Cluster(root).stripe(Cluster(root).topic(orders), 0).take_home()
        (topic,) = shell("topics", "describe", orders, "--json").document["topics"]
        first, second = topic["stripes"]
        assert (first["newest_object"], first["home_number"], first["objects"]) == (0, 1, 0)
        assert first["behind_bytes"] == 0 < first["size_bytes"]
        assert first["files"] == 2
        assert (second["newest_object"], second["home_number"], second["objects"]) == (0, 0, 1)
        assert second["behind_bytes"] == second["size_bytes"] > 0
        assert second["path"] == f"{directory_of(root, orders)}/__stripes/1"

    def test_a_topic_without_stripes_has_none(self, shell, root):
        (topic,) = shell("topics", "describe", "flights", "--json").document["topics"]
        assert topic["stripes"] == []
        assert "STRIPE" not in shell("topics", "describe", "flights").out

    def test_a_stripe_without_partitions_is_not_shown(self, shell, root):
        shell("topics", "create", "few", "--partitions", "2", "--config", "stripes=4")
        (topic,) = shell("topics", "describe", "few", "--json").document["topics"]
        assert [each["stripe"] for each in topic["stripes"]] == [0, 1]
        assert topic["stripes"][0]["newest_object"] is None

    def test_partitions_are_in_the_root_whatever_brokers_are_registered(
        self, shell, root, tmp_path
    ):
        shell("brokers", "register", "1", tmp_path / "broker")
        created = shell("topics", "create", "many", "--partitions", "8", "--config", "stripes=2")
        assert created.status == 0
        assert shell("topics", "alter", "many", "--partitions", "16").status == 0
        (topic,) = Admin(root).describe_topics(["many"])
        assert {each.replicas for each in topic.partitions} == {(0,)}

    def test_several_replicas_are_refused(self, shell, root, tmp_path):
        shell("brokers", "register", "1", tmp_path / "broker")
        replicated = ("topics", "create", "many", "--replication-factor", "2")
        error = shell(*replicated, "--config", "stripes=2").error
        assert (
            "create the topic with one replica, on broker 0 (for copies, keep the root on a"
            in error
        )

    def test_delete_removes_the_stripes(self, shell, root, orders):
        directory = root / directory_of(root, orders)
        assert shell("topics", "delete", orders, "--yes").status == 0
        assert not list(directory.rglob("*.stripe"))


class TestMoves:
    def test_a_partition_of_a_stripe_is_not_reassigned(self, shell, root, orders, tmp_path):
        shell("brokers", "register", "1", tmp_path / "broker")
        plan = tmp_path / "plan.json"
        plan.write_text(
            '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}'
        )
        execute = ("reassign-partitions", "--execute", "--reassignment-json-file", plan)
        assert shell(*execute).error == (
            "topic 'orders' has stripes, which are in the cluster's root: partition 0 stays there, "
            "on broker 0, and has the replicas of the root: spark-log quorum add gives the root a "
            "copy"
        )

    def test_no_plan_moves_a_topic_with_stripes(self, shell, root, orders, tmp_path):
        shell("brokers", "register", "1", tmp_path / "broker")
        topics = tmp_path / "topics.json"
        topics.write_text('{"version": 1, "topics": [{"topic": "orders"}]}')
        generate = ("reassign-partitions", "--generate", "--topics-to-move-json-file", topics)
        error = shell(*generate, "--broker-list", "0,1").error
        assert error.endswith("its partitions stay there; leave it out")


class TestLogDirs:
    def test_partitions_have_their_part_of_the_stripe(self, shell, root, orders):
        (log_dir,) = shell("log-dirs", orders, "--json").document["log_dirs"]
        described = Admin(root).describe_topics([orders])[0].partitions
        assert [(each["log_end_offset"], each["size_bytes"]) for each in log_dir["partitions"]] == [
            (each.log_end_offset, each.size_bytes) for each in described
        ]
        assert described[0].size_bytes > 0

    def test_all_files_of_each_stripe_are_counted(self, shell, root, orders):
        Cluster(root).stripe(Cluster(root).topic(orders), 0).take_home()
        stripes = root / directory_of(root, orders) / "__stripes"
        sizes = [
            sum(file.stat().st_size for file in (stripes / number).iterdir())
            for number in ("0", "1")
        ]
        (log_dir,) = shell("log-dirs", orders, "--json").document["log_dirs"]
        assert [(each["files"], each["size_bytes"]) for each in log_dir["stripes"]] == [
            (2, sizes[0]),
            (1, sizes[1]),
        ]
        last = shell("log-dirs", orders).lines[-2:]
        assert [line.split()[1:] for line in last] == [["2", str(sizes[0])], ["1", str(sizes[1])]]


class TestDeleteRecords:
    def test_the_start_is_moved_in_the_stripe(self, shell, root, orders):
        moved = shell("delete-records", orders, "--partition", "2", "--before-offset", "1", "--yes")
        assert moved.status == 0
        (topic,) = Admin(root).describe_topics([orders])
        assert topic.partitions[2].log_start_offset == 1


class TestDumpLog:
    @pytest.fixture
    def files(self, root, orders):
        """The directory of stripe 0: an object at home, its home marker and another object."""
        cluster = Cluster(root)
        topic = cluster.topic(orders)
        cluster.stripe(topic, 0).take_home()
        cluster.partition_log(topic, 2).append(numbered(1, 2), producer=ProducerAppend(7, 0, 0))
        return root / topic.directory / "__stripes" / "0"

    def test_an_object_shows_its_entries_with_their_offsets(self, shell, files):
        outcome = shell("dump-log", files / f"{1:020d}.stripe", "--print-data-log")
        assert (outcome.status, outcome.err) == (0, "")
        _, owner, entry, first, second = outcome.lines
        assert owner.endswith("stripe: 0 object: 1")
        assert entry.startswith("partition: 2 baseOffset: 1 lastOffset: 2 count: 2 ")
        assert " producerId: 7 " in entry
        assert entry.endswith(" isvalid: true")
        assert [line.split()[2] for line in (first, second)] == ["1", "2"]

    def test_in_json(self, shell, files):
        document = shell("dump-log", files / f"{0:020d}.stripe", "--json").document
        assert (document["stripe"], document["number"], document["has_offsets"]) == (0, 0, True)
        assert [(each["partition"], each["base_offset"]) for each in document["batches"]] == [
            (0, 0),
            (2, 0),
        ]
        assert document["is_valid"]

    def test_without_the_objects_before_it_offsets_count_from_zero(self, shell, files, tmp_path):
        copy = tmp_path / f"{1:020d}.stripe"
        copy.write_bytes((files / copy.name).read_bytes())
        outcome = shell("dump-log", copy)
        assert outcome.lines[2].startswith("partition: 2 baseOffset: 0 lastOffset: 1 ")
        assert "the offsets of each partition are counted from 0" in outcome.err
        assert outcome.status == 0

    def test_a_home_marker_shows_that_its_stripe_has_ended(self, shell, root, orders):
        change_stripes(Cluster(root), orders, 0)
        files = root / directory_of(root, orders) / "__stripes" / "0"
        lines = shell("dump-log", files / f"{2:020d}.home").lines
        assert lines[1].endswith("stripe: 0 home marker: 2 (the stripe has ended)")
        assert lines[2:] == [
            "partition: 0 endOffset: 2 leaderEpoch: 1",
            "partition: 2 endOffset: 2 leaderEpoch: 1",
        ]
        dumped = shell("dump-log", files / f"{2:020d}.home", "--json").document
        assert dumped["has_ended"]
        assert [each["leader_epoch"] for each in dumped["partitions"]] == [1, 1]

    def test_a_home_marker_shows_ends_and_producers(self, shell, root, files):
        shell("clean", "orders")
        path = files / f"{2:020d}.home"
        lines = shell("dump-log", path).lines
        assert lines[1].endswith("stripe: 0 home marker: 2")
        assert lines[2:] == [
            "partition: 0 endOffset: 1 leaderEpoch: 0",
            "partition: 2 endOffset: 3 leaderEpoch: 0",
            "| producerId: 7 producerEpoch: 0 currentTxnFirstOffset: None lastSequence: 1 "
            "lastOffset: 2",
        ]
        partitions = shell("dump-log", path, "--json").document["partitions"]
        assert [each["end_offset"] for each in partitions] == [1, 3]
        (producer,) = partitions[1]["producers"]
        assert (producer["producer_id"], producer["last_offset"]) == (7, 2)

    def test_a_damaged_entry_is_shown_and_reported(self, shell, files):
        path = files / f"{1:020d}.stripe"
        content = path.read_bytes()
        path.write_bytes(content.replace(b":1", b":9", 1))
        outcome = shell("dump-log", path)
        assert outcome.status == 1
        assert "isvalid: false (checksum is " in outcome.lines[2]
        assert "the record batch checksum is " in outcome.error

    @pytest.mark.parametrize("name", [f"{1:020d}.stripe", f"{1:020d}.home"])
    def test_a_file_that_cannot_be_opened_is_one_line(self, shell, files, name):
        path = files / name
        path.write_bytes(path.read_bytes()[:-10])
        outcome = shell("dump-log", path)
        assert outcome.status == 1
        assert name in outcome.error
