"""``spark-log topics``: create, list, describe, alter, delete."""

import os
import pty

import pytest

from spark_log import Admin, NewTopic, metadata
from spark_log.cluster import Cluster
from tests.cli.support import append, spark_log_process

COLUMNS = [
    *("PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "OFFLINE"),
    *("START", "END", "SEGMENTS", "BYTES"),
]


@pytest.fixture
def admin(root):
    return Admin(root)


class TestCreate:
    def test_makes_the_root_and_the_topic(self, shell, tmp_path):
        new = tmp_path / "new"
        outcome = shell("topics", "create", "planes", "--partitions", "3", "--root", new)
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.out == f"Created topic planes with 3 partitions in {new}.\n"
        (topic,) = Admin(new).describe_topics()
        assert (topic.name, len(topic.partitions), topic.configs) == ("planes", 3, {})

    def test_in_json_says_what_was_made(self, shell, root, admin):
        document = shell("topics", "create", "planes", "--json").document
        (topic,) = admin.describe_topics(["planes"])
        assert document == {
            "topic": "planes",
            "root": str(root),
            "created": True,
            "topic_id": topic.topic_id,
            "partition_count": 1,
        }

    def test_takes_the_number_of_partitions_from_the_file_when_none_is_given(
        self, shell, folder, admin
    ):
        (folder / "spark-log.properties").write_text("num.partitions=5\n")
        assert shell("topics", "create", "planes").status == 0
        assert shell("topics", "create", "trains", "--partitions", "2").status == 0
        counts = {topic.name: len(topic.partitions) for topic in admin.describe_topics()}
        assert (counts["planes"], counts["trains"]) == (5, 2)

    def test_keeps_settings(self, shell, admin):
        settings = ["--config", "compression.type=zstd", "--config", "flush.on.append=FALSE"]
        assert shell("topics", "create", "planes", *settings).status == 0
        (topic,) = admin.describe_topics(["planes"])
        assert topic.configs == {"compression.type": "zstd", "flush.on.append": "false"}

    def test_a_codec_that_arrow_lacks_is_one_line_of_warning(self, shell, admin):
        outcome = shell("topics", "create", "planes", "--config", "compression.type=gzip")
        assert outcome.status == 0
        assert outcome.err == (
            "spark-log: warning: compression.type is gzip, which Arrow files do not support (they "
            "support none, lz4 and zstd); zstd is used instead\n"
        )
        (topic,) = admin.describe_topics(["planes"])
        assert topic.configs == {"compression.type": "zstd"}

    def test_takes_the_properties_file_by_kafkas_name(self, shell, folder, admin):
        (folder / "mine.properties").write_text("num.partitions=5\n")
        outcome = shell("topics", "create", "planes", "--command-config", "mine.properties")
        assert outcome.status == 0
        (topic,) = admin.describe_topics(["planes"])
        assert len(topic.partitions) == 5

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["flights"], "topic 'flights' exists"),
            (["fl ights"], "illegal topic name 'fl ights': it contains ' '"),
            (["a" * 250], "it has 250 characters"),
            (["planes", "--partitions", "0"], "topic 'planes': 0 partitions"),
            (["planes", "--partitions", "-1"], "topic 'planes': -1 partitions"),
            (
                ["planes", "--partitions", "many"],
                "Invalid value for '--partitions': 'many' should be a valid integer",
            ),
            (["planes", "--replication-factor", "2"], "replication factor 2"),
            (["planes", "--replica-assignment", "0:7"], "broker 7 is not registered"),
            (["planes", "--replica-assignment", "0:x"], "--replica-assignment is '0:x'; expected"),
            (["planes", "--replica-assignment", "0", "--partitions", "1"], "leave out"),
            (["planes", "--config", "segment.byte=1"], "did you mean 'segment.bytes'?"),
            (["planes", "--config", "segment.bytes=1"], "config 'segment.bytes' is '1'"),
            (["planes", "--config", "segment.bytes"], "--config takes KEY=VALUE"),
        ],
        ids=lambda value: "-".join(value)[:40] if isinstance(value, list) else "",
    )
    def test_refuses_mistakes_and_creates_nothing(self, shell, admin, argv, message):
        outcome = shell("topics", "create", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error
        assert admin.list_topics() == ["flights", "weather"]

    def test_places_its_replicas_on_brokers(self, shell, root, admin, tmp_path):
        for broker_id in (1, 2):
            admin.register_broker(broker_id, tmp_path / f"broker-{broker_id}")
        shell("topics", "create", "chosen", "--partitions", 3, "--replication-factor", 2)
        shell("topics", "create", "given", "--replica-assignment", "2:0,0:1")
        shell("topics", "alter", "given", "--partitions", 3, "--replica-assignment", "9,9,1:2")
        image = Cluster(root).image()
        chosen, given = (image.topic(name).partitions for name in ("chosen", "given"))
        assert [len(each.replicas) for each in chosen.values()] == [2, 2, 2]
        assert [each.replicas for each in given.values()] == [(2, 0), (0, 1), (1, 2)]

    def test_of_one_that_exists_can_be_no_mistake(self, shell, admin):
        (before,) = admin.describe_topics(["flights"])
        argv = ["topics", "create", "flights", "--partitions", "9", "--if-not-exists"]
        outcome = shell(*argv)
        assert (outcome.status, outcome.out) == (0, "Topic flights exists: left unchanged.\n")
        document = shell(*argv, "--json").document
        assert document["created"] is False
        assert (document["topic_id"], document["partition_count"]) == (before.topic_id, 2)
        assert admin.describe_topics(["flights"]) == [before]


class TestList:
    def test_shows_names_one_a_line(self, shell, root):
        outcome = shell("topics", "list")
        assert (outcome.status, outcome.out, outcome.err) == (0, "flights\nweather\n", "")

    def test_in_json_is_one_document(self, shell, root):
        assert shell("topics", "list", "--json").document == {"topics": ["flights", "weather"]}

    def test_of_none_says_so_on_stderr(self, shell, root, admin):
        admin.delete_topics(["flights", "weather"])
        outcome = shell("topics", "list")
        assert (outcome.status, outcome.out) == (0, "")
        assert outcome.err == f"There are no topics in {root}.\n"
        assert shell("topics", "list", "--json").document == {"topics": []}


class TestDescribe:
    def test_shows_each_partition_under_its_topic(self, shell, root, admin):
        append(root, "flights", b"one", b"two", partition=1)
        append(root, "flights", b"three", partition=1)
        (topic,) = admin.describe_topics(["flights"])
        outcome = shell("topics", "describe", "flights")
        assert (outcome.status, outcome.err) == (0, "")
        heading, *table = outcome.lines
        assert heading == (
            f"Topic: flights  TopicId: {topic.topic_id}  PartitionCount: 2  ReplicationFactor: 1  "
            f"Configs: flush.on.append=false,index.interval.bytes=1"
        )
        size_bytes = str(topic.partitions[1].size_bytes)
        assert [line.split() for line in table] == [
            COLUMNS,
            ["0", "0", "0", "0", "0", "0", "0", "0"],
            ["1", "0", "0", "0", "0", "3", "2", size_bytes],
        ]

    def test_in_json_says_the_same(self, shell, root, admin):
        append(root, "flights", b"one", b"two", partition=1)
        (topic,) = admin.describe_topics(["flights"])
        (document,) = shell("topics", "describe", "flights", "--json").document["topics"]
        partitions = document.pop("partitions")
        assert document == {
            "topic": "flights",
            "topic_id": topic.topic_id,
            "partition_count": 2,
            "replication_factor": 1,
            "configs": {"flush.on.append": "false", "index.interval.bytes": "1"},
            "stripes": [],
        }
        assert [partition["partition"] for partition in partitions] == [0, 1]
        assert partitions[1] == {
            "partition": 1,
            "leader": 0,
            "leader_epoch": 0,
            "replicas": [0],
            "isr": [0],
            "elr": [],
            "last_known_elr": [],
            "offline_replicas": [],
            "adding_replicas": [],
            "removing_replicas": [],
            "min_insync_replicas": 1,
            "log_start_offset": 0,
            "log_end_offset": 2,
            "segments": 1,
            "size_bytes": topic.partitions[1].size_bytes,
        }

    def test_without_names_shows_all_of_them(self, shell, root):
        document = shell("topics", "describe", "--json").document
        assert [topic["topic"] for topic in document["topics"]] == ["flights", "weather"]

    def test_shows_a_topic_once_however_often_it_is_named(self, shell, root):
        document = shell("topics", "describe", "weather", "weather", "--json").document
        assert [topic["topic"] for topic in document["topics"]] == ["weather"]

    def test_of_an_unknown_topic_names_those_that_look_like_it(self, shell, root):
        outcome = shell("topics", "describe", "flight")
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.error == "there is no topic 'flight'; did you mean flights?"


class TestDescribeReplicas:
    @pytest.fixture(autouse=True)
    def replicated(self, root, admin, tmp_path):
        """A topic on the brokers 0 to 2, which are in sync, out of sync, eligible and fenced."""
        for broker_id in (1, 2):
            admin.register_broker(broker_id, tmp_path / f"broker-{broker_id}")
        assignment = {0: [0, 1, 2], 1: [0, 1, 2], 2: [2, 1, 0]}
        configs = {"min.insync.replicas": 2}
        topics = [
            NewTopic("r", topic_configs=configs, replica_assignment=assignment),
            NewTopic("s", replica_assignment={0: [1]}),
        ]
        topic_id = admin.create_topics(topics)["r"]
        shrink_isr(root, topic_id, 1, 2)
        shrink_isr(root, topic_id, 2, 1)
        admin.fence_broker(1)
        shrink_isr(root, topic_id, 2, 0)

    def shown(self, shell, *argv):
        lines = shell("topics", "describe", *argv).lines
        return [line.split() for line in lines]

    def test_shows_the_state_of_each_partition(self, shell):
        heading, _, *rows = self.shown(shell, "r")
        assert heading[heading.index("ReplicationFactor:") + 1] == "3"
        assert [row[:4] for row in rows] == [
            ["0", "0", "0,1,2", "0,2"],
            ["1", "0", "0,1,2", "0"],
            ["2", "2", "2,1,0", "2"],
        ]
        assert [row[4:6] for row in rows[1:]] == [["1", "1"], ["0", "1"]], "ELR and OFFLINE"

    @pytest.mark.parametrize(
        ("option", "partitions"),
        [
            ("--under-replicated-partitions", ["r-0", "r-1", "r-2"]),
            ("--under-min-isr-partitions", ["r-1", "r-2", "s-0"]),
            ("--at-min-isr-partitions", ["r-0", "s-0"]),
            ("--unavailable-partitions", ["s-0"]),
        ],
    )
    def test_can_choose_partitions(self, shell, option, partitions):
        heading, *rows = self.shown(shell, "r", "s", option)
        assert heading == ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "OFFLINE"]
        assert ["-".join(row[:2]) for row in rows] == partitions
        documents = shell("topics", "describe", "r", "s", option, "--json").document["partitions"]
        assert [f"{each['topic']}-{each['partition']}" for each in documents] == partitions

    def test_of_no_such_partition_is_empty(self, shell):
        outcome = shell("topics", "describe", "flights", "--unavailable-partitions")
        assert (outcome.status, outcome.out, outcome.err) == (0, "", "")

    def test_takes_one_choice(self, shell):
        outcome = shell("topics", "describe", "--unavailable-partitions", "--at-min-isr-partitions")
        assert outcome.status == 2
        assert outcome.error.startswith("give one of --under-replicated-partitions")

    def test_of_a_partition_that_cannot_be_read_shows_no_offsets(self, shell, tmp_path):
        (tmp_path / "broker-1").rename(tmp_path / "elsewhere")
        assert self.shown(shell, "s")[2] == ["0", "none", "1", "1", "1", "-", "-", "-", "-"]
        assert self.shown(shell, "r")[2][-4] == "0"
        (topic,) = shell("topics", "describe", "s", "--json").document["topics"]
        assert topic["partitions"][0]["log_end_offset"] is None


def shrink_isr(root, topic_id, partition, broker):
    """Take a broker out of the in-sync replicas, as a writer does that cannot reach it."""

    def decide(image):
        epoch = image.find_by_id(topic_id).partitions[partition].leader_epoch
        return metadata.shrink_isr(image, topic_id, partition, [broker], leader_epoch=epoch)

    Cluster(root).metadata.commit(decide)


class TestAlter:
    def test_gives_topics_more_partitions(self, shell, admin):
        outcome = shell("topics", "alter", "flights", "weather", "--partitions", "3")
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.lines == [
            "Topic flights has 3 partitions.",
            "Topic weather has 3 partitions.",
        ]
        assert [len(topic.partitions) for topic in admin.describe_topics()] == [3, 3]

    def test_gives_topics_stripes_and_takes_them_away(self, shell, admin):
        outcome = shell("topics", "alter", "flights", "weather", "--stripes", "2")
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.lines == ["Topic flights has 2 stripes.", "Topic weather has 2 stripes."]
        assert [len(topic.stripes) for topic in admin.describe_topics()] == [2, 1]
        argv = ("topics", "alter", "flights", "--stripes", "0")
        assert shell(*argv, "--validate-only").out == "Topic flights would have no stripes.\n"
        assert shell(*argv, "--json").document == {
            "topics": [{"topic": "flights", "stripes": 0}],
            "validate_only": False,
        }
        assert not admin.describe_topics(["flights"])[0].stripes

    def test_can_only_check(self, shell, admin):
        argv = ["topics", "alter", "flights", "--partitions", "3", "--validate-only"]
        assert shell(*argv).out == "Topic flights would have 3 partitions.\n"
        assert shell(*argv, "--json").document == {
            "topics": [{"topic": "flights", "partition_count": 3}],
            "validate_only": True,
        }
        assert len(admin.describe_topics(["flights"])[0].partitions) == 2

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["flights", "--partitions", "2"], "already has 2 partitions"),
            (["weather", "flights", "--partitions", "2"], "already has 2 partitions"),
            (["flights", "--partitions", "1"], "1 would not be an increase"),
            (["flights", "--partitions", "200001"], "give 3 to 200000"),
            (["flihgts", "--partitions", "3"], "did you mean flights?"),
            (["flights"], "Give --partitions or --stripes"),
            (["flights", "--partitions", "3", "--stripes", "2"], "one of them"),
            (["flights", "--stripes", "-1"], "stripes"),
            (["flihgts", "--stripes", "2"], "did you mean flights?"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else "",
    )
    def test_refuses_mistakes_and_changes_nothing(self, shell, admin, argv, message):
        outcome = shell("topics", "alter", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error
        assert [len(topic.partitions) for topic in admin.describe_topics()] == [2, 1]


class TestDelete:
    def test_removes_topics_and_their_records(self, shell, root, admin):
        append(root, "flights", b"one")
        outcome = shell("topics", "delete", "flights", "weather", "--yes")
        assert (outcome.status, outcome.out) == (0, "Deleted flights, weather.\n")
        assert admin.list_topics() == []
        assert list(root.glob("flights.*")) == []

    def test_in_json_says_which(self, shell, admin):
        assert shell("topics", "delete", "weather", "-y", "--json").document == {
            "deleted": ["weather"]
        }
        assert admin.list_topics() == ["flights"]

    def test_without_a_terminal_takes_yes(self, shell, admin):
        outcome = shell("topics", "delete", "weather", "--if-exists", stdin=b"y\n")
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.error == (
            "Delete weather and all records in it? Nothing was deleted, because stdin is not a "
            "terminal and nobody can answer: give --yes"
        )
        assert admin.list_topics() == ["flights", "weather"]

    def test_of_an_unknown_topic_deletes_none(self, shell, admin):
        outcome = shell("topics", "delete", "flights", "wether")
        assert (outcome.status, outcome.out) == (2, "")
        assert "did you mean weather?" in outcome.error
        assert admin.list_topics() == ["flights", "weather"]

    def test_of_unknown_topics_can_be_no_mistake(self, shell, admin):
        outcome = shell("topics", "delete", "wether", "flights", "--if-exists", "--json", "--yes")
        assert (outcome.status, outcome.document) == (0, {"deleted": ["flights"]})
        outcome = shell("topics", "delete", "wether", "--if-exists")
        assert (outcome.status, outcome.out) == (0, "No topic to delete.\n")
        assert admin.list_topics() == ["weather"]


class TestConfirmation:
    """On a terminal, `delete` asks first: in a process, on a terminal of its own."""

    QUESTION = "Delete flights and all records in it?"

    @pytest.fixture
    def delete(self, root, folder):
        def run(*argv, typed):
            primary, secondary = pty.openpty()
            os.write(primary, typed)
            command = ("topics", "delete", "flights", "--root", root, *argv)
            process = spark_log_process(*command, cwd=folder, stdin=secondary)
            os.close(secondary)
            out, err = process.communicate(timeout=60)
            os.close(primary)
            return process.returncode, out, err

        return run

    @pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"], ids=["no", "default", "ctrl-d"])
    def test_anything_but_yes_deletes_nothing(self, delete, admin, typed):
        status, out, err = delete(typed=typed)
        assert (status, out) == (1, "")
        assert self.QUESTION in err
        assert err.endswith("Nothing was deleted.\n")
        assert admin.list_topics() == ["flights", "weather"]

    def test_yes_deletes(self, delete, admin):
        status, out, err = delete(typed=b"y\n")
        assert (status, out) == (0, "Deleted flights.\n")
        assert self.QUESTION in err
        assert admin.list_topics() == ["weather"]

    def test_is_not_asked_for_with_yes_on_the_line(self, delete, admin):
        assert delete("--yes", typed=b"") == (0, "Deleted flights.\n", "")
        assert admin.list_topics() == ["weather"]
