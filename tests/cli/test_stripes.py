"""Topics with stripes, as the commands show them."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry
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
        assert "create the topic with one replica, on broker 0, or leave stripes at 0" in error

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
            "on broker 0, and gets no other replica"
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
