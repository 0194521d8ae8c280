"""``spark-log reassign-partitions``: Kafka's files and words."""

import json

import pytest

from spark_log import Admin, ConfigResource
from tests.replication.support import Disks, values_of


@pytest.fixture
def disks(tmp_path, folder, monkeypatch):
    """Four roots; the topic ``t`` has two partitions on the first three."""
    disks = Disks(tmp_path)
    disks.admin.register_broker(3, disks.path(3))
    disks.create(partitions=2)
    disks.send(b"one", b"two")
    monkeypatch.setenv("SPARK_LOG_ROOT", disks.root)
    return disks


@pytest.fixture
def plan(folder):
    """Return a function that writes a plan, and returns the options with it."""

    def write(**replicas):
        partitions = [
            {"topic": "t", "partition": int(name.removeprefix("t")), "replicas": brokers}
            for name, brokers in replicas.items()
        ]
        (folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": partitions}))
        return "--reassignment-json-file", "plan.json"

    return write


def reassign(shell, *argv):
    return shell("reassign-partitions", *argv)


def throttle(disks):
    wanted = ConfigResource("broker", "", ["replication.throttled.rate"])
    found = Admin(disks.root).describe_configs([wanted], config_filter="modified")["broker"][""]
    return [entry.value for entry in found.values()]


class TestGenerate:
    @pytest.fixture
    def topics(self, folder):
        (folder / "topics.json").write_text('{"version": 1, "topics": [{"topic": "t"}]}')
        return "--topics-to-move-json-file", "topics.json"

    def test_proposes_a_plan_that_can_be_executed(self, shell, disks, topics, folder):
        outcome = reassign(shell, "--generate", *topics, "--broker-list", "0,3,2")
        title, current, _, proposing, proposed = outcome.lines
        assert title == "Current partition replica assignment"
        assert proposing == "Proposed partition reassignment configuration"
        assert json.loads(current)["partitions"][0] == {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2, 0],
            "log_dirs": ["any", "any", "any"],
        }
        (folder / "plan.json").write_text(proposed)
        executed = reassign(shell, "--execute", "--reassignment-json-file", "plan.json")
        assert executed.status == 0
        disks.replicate()
        verified = reassign(shell, "--verify", "--reassignment-json-file", "plan.json")
        assert verified.status == 0
        assert {*disks.partition().replicas} == {0, 2, 3}

    def test_is_a_document(self, shell, disks, topics):
        document = reassign(
            shell, "--generate", *topics, "--broker-list", "3", "--replication-factor", 1, "--json"
        ).document
        assert [each["replicas"] for each in document["proposed"]["partitions"]] == [[3], [3]]

    def test_needs_brokers_and_topics(self, shell, disks, topics):
        outcome = reassign(shell, "--generate", *topics)
        assert outcome.error == "which brokers? Give --broker-list, as in 0,1,2"
        outcome = reassign(shell, "--generate", "--broker-list", "0")
        assert outcome.error == "which file? Give --topics-to-move-json-file"


class TestExecute:
    def test_begins_and_tells_how_to_go_back(self, shell, disks, plan):
        outcome = reassign(shell, "--execute", *plan(t0=[3, 1]))
        assert outcome.lines == [
            "Current partition replica assignment",
            "",
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,0],'
            '"log_dirs":["any","any","any"]}]}',
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            "Successfully started partition reassignments for t-0",
        ]
        assert disks.partition().adding_replicas == (3,)

    def test_needs_to_be_told_that_others_are_in_progress(self, shell, disks, plan):
        reassign(shell, "--execute", *plan(t0=[3, 1]))
        outcome = reassign(shell, "--execute", *plan(t1=[3, 1]))
        assert (
            "1 partition are being reassigned" in outcome.error or "--additional" in outcome.error
        )
        assert reassign(shell, "--execute", "--additional", *plan(t1=[3, 1])).status == 0

    def test_keeps_the_number_of_replicas_if_told_so(self, shell, disks, plan):
        outcome = reassign(
            shell, "--execute", "--disallow-replication-factor-change", *plan(t0=[3, 1])
        )
        assert "t-0 has 3 replicas" in outcome.error

    def test_sets_a_throttle_that_verify_removes_at_the_end(self, shell, disks, plan):
        options = plan(t0=[3, 1, 0])
        reassign(shell, "--execute", "--throttle", 5_000_000, *options)
        assert throttle(disks) == ["5000000"]
        assert reassign(shell, "--verify", *options).status == 1
        assert throttle(disks) == ["5000000"]
        disks.replicate()
        reassign(shell, "--verify", "--preserve-throttles", *options)
        assert throttle(disks) == ["5000000"]
        assert "was removed" in reassign(shell, "--verify", *options).err
        assert throttle(disks) == []


class TestVerify:
    def test_tells_how_far_each_partition_is(self, shell, disks, plan):
        options = plan(t0=[3, 1, 0], t1=[1, 0, 2])
        reassign(shell, "--execute", *plan(t0=[3, 1, 0]))
        outcome = reassign(shell, "--verify", *plan(t0=[3, 1, 0], t1=[1, 0, 2]))
        assert outcome.status == 1
        assert outcome.lines == [
            "Status of partition reassignment:",
            "Reassignment of partition t-0 is still in progress.",
            "There is no active reassignment of partition t-1, but replica set is 1,2,0 rather "
            "than 1,0,2.",
        ]
        disks.replicate()
        outcome = reassign(shell, "--verify", *options)
        assert outcome.lines[1] == "Reassignment of partition t-0 is completed."
        assert values_of(disks.replica(3)) == [b"one", b"two"]

    def test_is_a_document(self, shell, disks, plan):
        outcome = reassign(shell, "--verify", "--json", *plan(t0=[1, 2, 0]))
        assert outcome.status == 0
        assert outcome.document == {
            "partitions": [
                {
                    "topic": "t",
                    "partition": 0,
                    "replicas": [1, 2, 0],
                    "target_replicas": [1, 2, 0],
                    "done": True,
                }
            ]
        }


class TestCancelAndList:
    def test_what_is_in_progress_is_listed_and_cancelled(self, shell, disks, plan):
        assert reassign(shell, "--list").out == "No partition reassignments found.\n"
        options = plan(t0=[3, 1])
        reassign(shell, "--execute", *options)
        assert reassign(shell, "--list").lines == [
            "Current partition reassignments:",
            "t-0: replicas: 3,1,2,0. adding: 3. removing: 2,0.",
        ]
        assert reassign(shell, "--list", "--json").document == {
            "reassignments": [
                {
                    "topic": "t",
                    "partition": 0,
                    "replicas": [3, 1, 2, 0],
                    "adding_replicas": [3],
                    "removing_replicas": [2, 0],
                }
            ]
        }
        outcome = reassign(shell, "--cancel", *options)
        assert outcome.out == "Successfully cancelled partition reassignments for: t-0\n"
        assert disks.partition().replicas == (1, 2, 0)
        outcome = reassign(shell, "--cancel", *options)
        assert outcome.out == "None of the specified partition reassignments are active.\n"


@pytest.mark.parametrize("argv", [[], ["--list", "--verify"]], ids=["none", "two"])
def test_one_action_is_given(shell, disks, argv):
    assert "what to do? Give one of --generate" in reassign(shell, *argv).error


def test_a_plan_that_is_none_is_refused(shell, disks, folder):
    (folder / "plan.json").write_text("{}")
    outcome = reassign(shell, "--execute", "--reassignment-json-file", "plan.json")
    assert outcome.error == "plan.json: the list of partitions to reassign is empty; name one"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{nope", 'plan.json: not of the form {"partitions": [{"topic": "foo", '),
        (b"\xff\xfe", "plan.json is not a text file in UTF-8"),
    ],
)
def test_a_file_of_another_form_is_told(shell, disks, folder, data, expected):
    (folder / "plan.json").write_bytes(data)
    outcome = reassign(shell, "--execute", "--reassignment-json-file", "plan.json")
    assert (outcome.status, outcome.error.startswith(expected)) == (2, True)


def test_a_plan_that_is_refused_sets_no_throttle(shell, disks, plan):
    outcome = reassign(shell, "--execute", "--throttle", 5_000_000, *plan(t0=[1, 9]))
    assert (outcome.status, throttle(disks)) == (2, [])
