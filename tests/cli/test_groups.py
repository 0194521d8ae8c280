"""``spark-log groups``: consumer groups as kafka-consumer-groups shows and changes them."""

import json
import socket
import time
from pathlib import Path

import pytest

from spark_log import Admin, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.util.clock import ManualClock, SystemClock
from tests.cli.support import append, partition_log
from tests.docs.blocks import block
from tests.record.samples import START_US
from tests.transactions import TransactionWriter

HOST = socket.gethostname()
F0, F1, W0 = (
    TopicPartition("flights", 0),
    TopicPartition("flights", 1),
    TopicPartition("weather", 0),
)


@pytest.fixture
def table(root):
    return OffsetsTable(Cluster(root, clock=SystemClock()))  # shares nothing with the commands


@pytest.fixture
def group(root, table):
    """Group ``g``: 2 of 6 records of flights-0 are read, and all 3 of weather-0."""
    append(root, "flights", b"0", b"1", b"2", timestamp=START_US)
    append(root, "flights", b"3", b"4", b"5", timestamp=START_US + 10_000_000)
    append(root, "weather", b"0", b"1", b"2", timestamp=START_US)
    table.commit("g", {F0: OffsetAndMetadata(2, "note"), W0: OffsetAndMetadata(3)})
    return "g"


def positions(root, group="g"):
    # As another process sees it.
    found = OffsetsTable(Cluster(root, clock=ManualClock())).fetch(group)
    return {named: committed.offset for named, committed in found.items()}


def joined(root, group="g", topics=("flights",), **options):
    member = GroupCoordinator(Cluster(root), group)
    member.join(topics, **options)
    return member


def test_groups_are_listed(shell, root, group):
    joined(root, "h")
    assert shell("groups", "list").out == "g\nh\n"
    assert shell("groups", "list", "--state", "Stable", "--json").document == {
        "groups": [{"group_id": "h", "protocol_type": "consumer", "group_state": "Stable"}]
    }
    outcome = shell("groups", "list", "--state", "Asleep")
    assert (outcome.status, outcome.out) == (2, "")
    assert "there is no group state 'Asleep'; expected Empty, Stable, Reconciling" in outcome.error


def test_describe_shows_lag_in_records_and_seconds(shell, root, group):
    outcome = shell("groups", "describe", "g", "--json")
    assert outcome.status == 0, outcome.err
    (described,) = outcome.document["groups"]
    assert (described["group_id"], described["state"], described["generation"]) == ("g", "Empty", 0)
    behind, done = described["partitions"]
    age_s = time.time() - START_US / 1e6
    assert age_s - 60 < behind.pop("lag_seconds") < age_s + 60
    assert behind.pop("commit_timestamp_ms") <= time.time() * 1000
    assert behind == {
        "topic": "flights",
        "partition": 0,
        "current_offset": 2,
        "log_end_offset": 6,
        "lag": 4,
        "deleted": 0,
        "metadata": "note",
        "member_id": None,
        "client_id": None,
        "host": None,
    }
    assert (done["lag"], done["lag_seconds"]) == (0, 0)


def test_describe_shows_what_was_deleted_unread(shell, root, group):
    Admin(root).delete_records({F0: 6})
    outcome = shell("groups", "describe", "g")
    rows = {tuple(line.split()[1:3]): line.split() for line in outcome.lines[1:]}
    assert rows["flights", "0"][3:8] == ["2", "6", "0", "4", "0.0"]
    assert "skipped" not in outcome.err
    (described,) = shell("groups", "describe", "g", "--json").document["groups"]
    told = described["partitions"][0]
    assert (told["lag"], told["deleted"], told["lag_seconds"]) == (0, 4, 0)


def test_describe_shows_lag_by_isolation_level(shell, root, group):
    TransactionWriter(partition_log(root, "weather")).send(b"open", b"too")

    def lag(*isolation):
        (described,) = shell("groups", "describe", "g", "--json", *isolation).document["groups"]
        return [each["lag"] for each in described["partitions"]]

    assert lag() == [4, 2]
    assert lag("--isolation-level", "read_committed") == [4, 0]
    assert shell("groups", "describe", "g", "--isolation-level", "none").status == 2


def test_describe_as_text_names_the_members(shell, root, group):
    member = joined(root, topics=["flights", "weather"], client_id="c")
    lines = [line.split() for line in shell("groups", "describe", "--group", "g").lines]
    assert lines[0] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "DELETED",
        "LAG-SECONDS",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
        "GENERATION",
    ]
    assert [line[:7] for line in lines[1:]] == [
        ["g", "flights", "0", "2", "6", "4", "0"],
        ["g", "flights", "1", "-", "0", "-", "-"],
        ["g", "weather", "0", "3", "3", "0", "0"],
    ]
    assert [line[8:] for line in lines[1:]] == [[member.member_id, HOST, "c", "1"]] * 3


def test_names_that_are_not_unicode_are_shown_escaped(shell, root, group):
    """Clients of another version may have taken such names."""
    joined(root, client_id="a\ud800", instance_id="\udfff")
    for argv in (["describe", "g"], ["describe", "g", "--members"], ["members", "g", "--verbose"]):
        outcome = shell("groups", *argv)
        assert (outcome.status, outcome.err) == (0, "")
        assert shell("groups", *argv, "--json").status == 0
    assert "a\\ud800" in outcome.out


def test_members_and_state_are_shown(shell, root, group):
    member = joined(root, client_id="c")
    outcome = shell("groups", "members", "g", "--verbose")
    assert [line.split() for line in outcome.lines][1] == [
        "g",
        member.member_id,
        HOST,
        "c",
        "-",
        "2",
        "flights(0,1)",
    ]
    (shown,) = shell("groups", "describe", "g", "--members", "--json").document["groups"]
    assert shown["members"][0]["assignment"] == [["flights", 0], ["flights", 1]]
    outcome = shell("groups", "describe", "--all-groups", "--state")
    assert [line.split() for line in outcome.lines][1] == ["g", "range", "Stable", "1", "1"]


@pytest.mark.parametrize(
    ("argv", "expected", "notes"),
    [
        (["--to-earliest", "--topic", "flights"], {F0: 0, F1: 0}, ""),
        (["--to-latest", "--topic", "flights:0"], {F0: 6}, ""),
        (["--to-earliest", "--all-topics"], {F0: 0, W0: 0}, ""),
        (["--to-datetime", "2023-11-14T22:13:21", "--topic", "flights:0"], {F0: 3}, ""),
        (["--to-datetime", "2043-11-14T22:13:21", "--topic", "flights:0"], {F0: 6}, ""),
        (["--by-duration", "PT1S", "--topic", "flights:0"], {F0: 6}, ""),
        (["--by-duration", "P20000D", "--topic", "flights:0"], {F0: 0}, ""),
        (["--shift-by", "2", "--topic", "flights:0"], {F0: 4}, ""),
        (["--shift-by", "-9", "--topic", "flights:0"], {F0: 0}, "flights-0: -7 is before"),
        (["--to-offset", "5", "--topic", "flights:0,1"], {F0: 5, F1: 0}, "flights-1: 5 is after"),
        (["--to-current", "--topic", "flights"], {F0: 2, F1: 0}, ""),
    ],
)
def test_offsets_are_reset_when_executed_and_only_then(shell, root, group, argv, expected, notes):
    before = positions(root)
    planned = shell("groups", "reset-offsets", "g", *argv, "--json")
    assert planned.status == 0, planned.err
    assert notes in planned.err
    assert "Nothing was changed. Give --execute" in planned.err
    assert planned.document["executed"] is False
    assert positions(root) == before

    done = shell("groups", "reset-offsets", "g", *argv, "--execute", "--json")

    assert done.document["executed"] is True
    assert {
        TopicPartition(each["topic"], each["partition"]): each["new_offset"]
        for each in done.document["offsets"]
    } == expected
    assert positions(root) == before | expected


def test_a_plan_is_exported_and_taken_from_the_file(shell, root, group, folder):
    argv = ["--to-earliest", "--all-topics", "--export"]
    exported = shell("groups", "reset-offsets", "g", *argv)
    assert exported.out == "flights,0,0\nweather,0,0\n"
    Path("plan.csv").write_text(exported.out)

    outcome = shell("groups", "reset-offsets", "g", "--from-file", "plan.csv", "--execute")

    assert outcome.status == 0, outcome.err
    assert [line.split() for line in outcome.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["g", "flights", "0", "0"],
        ["g", "weather", "0", "0"],
    ]
    assert positions(root) == {F0: 0, W0: 0}


def test_plans_of_several_groups_have_the_group_in_front(shell, root, group, table):
    table.commit("h", {W0: OffsetAndMetadata(1)})
    argv = ["--all-topics", "--to-latest", "--export"]
    exported = shell("groups", "reset-offsets", "--all-groups", *argv)
    assert exported.out == "g,flights,0,6\ng,weather,0,3\nh,weather,0,3\n"
    Path("plan.csv").write_text(exported.out)
    shell("groups", "reset-offsets", "g", "h", "--from-file", "plan.csv", "--execute")
    assert (positions(root), positions(root, "h")) == ({F0: 6, W0: 3}, {W0: 3})


def test_a_group_goes_back_to_what_it_had_committed_at_a_time(shell, root, group, table):
    then = table.fetch("g")[F0].commit_timestamp_us
    table.commit("g", {F0: OffsetAndMetadata(6), F1: OffsetAndMetadata(0)})
    at = f"{-(-then // 1000)}"
    while table.fetch("g")[F0].commit_timestamp_us <= int(at) * 1000:  # not in that millisecond
        table.commit("g", {F0: OffsetAndMetadata(6), F1: OffsetAndMetadata(0)})

    argv = ["--to-committed-at", at]
    outcome = shell("groups", "reset-offsets", "g", *argv, "--topic", "flights", "--execute")

    assert outcome.status == 0, outcome.err
    assert "flights-1: no committed offset at that time; not changed" in outcome.err
    assert positions(root) == {F0: 2, F1: 0, W0: 3}
    outcome = shell(
        "groups", "reset-offsets", "g", "--to-committed-at", "2013-01-01", "--all-topics"
    )
    said = "2013-01-01T00:00:00Z is too long ago; the oldest time to go back to is "
    assert said in outcome.error
    oldest = outcome.error.rpartition(said)[2].strip()
    outcome = shell("groups", "reset-offsets", "g", "--to-committed-at", oldest, "--all-topics")
    assert "group 'g' had no committed offset at that time" in outcome.error
    early = str(then // 1000 - 60_000)
    outcome = shell("groups", "reset-offsets", "g", "--to-committed-at", early, "--all-topics")
    assert "group 'g' had no committed offset at that time" in outcome.error


def test_the_group_of_delete_offsets_is_given_once(shell, root, group):
    outcome = shell("groups", "delete-offsets", "g", "--group", "other", "--topic", "flights")
    assert outcome.status == 2
    assert "the group is given twice" in outcome.error
    assert positions(root) == {F0: 2, W0: 3}


def test_a_group_with_members_is_left_alone(shell, root, group):
    member = joined(root)
    for argv in (
        ("reset-offsets", "g", "--to-earliest", "--topic", "flights"),
        ("reset-offsets", "g", "--to-earliest", "--topic", "flights", "--execute"),
        ("delete", "g", "--yes"),
        ("delete-offsets", "g", "--topic", "flights"),
    ):
        outcome = shell("groups", *argv)
        assert outcome.status == 2
        assert member.member_id in outcome.error
    assert positions(root) == {F0: 2, W0: 3}


def test_a_member_whose_process_was_killed_is_removed_as_the_message_and_the_docs_say(
    shell, root, group
):
    reset = ["reset-offsets", "reports", "--to-earliest", "--topic", "flights", "--execute"]
    joined(root, "reports")
    assert "Admin.remove_group_members" in shell("groups", *reset).error
    exec(block("docs/consumer-groups.md", "remove_group_members"), {"root": root})
    assert shell("groups", *reset).status == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["g"], "which offsets? Give --topic"),
        (["--topic", "flights"], "which offsets? Give GROUP"),
        ([], "which offsets? Give GROUP and --topic"),
    ],
)
def test_offsets_to_delete_are_named_in_full(shell, root, argv, message):
    assert shell("groups", "delete-offsets", *argv).error == message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "to which offsets? Give one of --to-earliest"),
        (["--to-earliest", "--all-topics", "--all-groups"], "--all-groups or ids of groups"),
        (["--to-earliest", "--to-latest", "--all-topics"], "got --to-earliest and --to-latest"),
        (["--to-earliest"], "which topics? Give --topic or --all-topics"),
        (["--to-earliest", "--topic", "flights", "--all-topics"], "which topics? Give --topic"),
        (["--to-earliest", "--topic", "flights:7"], "topic 'flights' has no partition 7"),
        (["--to-earliest", "--topic", "flights:x"], "a topic with partitions such as flights:0,1"),
        (["--to-earliest", "--topic", "fligths"], "flights"),
        (["--to-earliest", "--all-topics", "--dry-run", "--execute"], "--dry-run or --execute"),
        (
            ["--by-duration", "1 day", "--all-topics"],
            "'1 day', expected a duration such as P1DT2H30M",
        ),
        (["--to-datetime", "yesterday", "--all-topics"], "'yesterday', expected ISO 8601"),
        (["--shift-by", "1", "--topic", "flights:1"], "no committed offset in flights-1 to shift"),
        (["--from-file", "bad.csv"], "bad.csv, line 1: expected topic,partition,offset"),
        (["--from-file", "twice.csv"], "twice.csv, line 2: flights-0 is given twice"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused_in_one_line(shell, root, group, argv, message):
    Path("bad.csv").write_text("flights,zero,1\n")
    Path("twice.csv").write_text("flights,0,1\nflights,0,2\n")
    outcome = shell(
        "groups", "reset-offsets", "g", *argv, "--execute" if "--dry-run" not in argv else "--json"
    )
    assert outcome.status == 2
    assert message in outcome.error
    assert positions(root) == {F0: 2, W0: 3}


def test_a_reset_of_a_group_that_is_not_there_is_refused_unless_it_says_where(shell, root, group):
    argv = ["groups", "reset-offsets", "go", "--to-earliest", "--execute"]
    outcome = shell(*argv, "--all-topics")
    assert (outcome.status, outcome.out) == (2, "")
    assert "there is no group 'go'" in outcome.error
    assert shell(*argv, "--topic", "weather").status == 0
    assert positions(root, "go") == {W0: 0}


def test_groups_and_positions_are_deleted(shell, root, group, table):
    table.commit("h", {W0: OffsetAndMetadata(1)})
    outcome = shell("groups", "delete-offsets", "g", "--topic", "flights", "--json")
    assert [each["status"] for each in outcome.document["partitions"]] == [
        "deleted",
        "had no offset",
    ]
    assert positions(root) == {W0: 3}
    refused = shell("groups", "delete", "g")
    assert (refused.status, "give --yes" in refused.error) == (2, True)
    assert positions(root) == {W0: 3}
    assert shell("groups", "delete", "g", "--yes").out == "Deleted g.\n"
    assert shell("groups", "list").out == "h\n"
    gone = shell("groups", "describe", "g")
    assert (gone.status, "there is no group 'g'" in gone.error) == (2, True)
    assert shell("groups", "delete", "--all-groups", "--yes", "--json").document == {
        "deleted": ["h"]
    }


def test_a_damaged_table_is_one_line_and_repaired_on_request(shell, root, group, table):
    table.commit("h", {W0: OffsetAndMetadata(1)})
    assert shell("groups", "repair").out == "Nothing to repair.\n"
    folder = Path(root, "__consumer_offsets", "_delta_log")
    (folder / f"{1:020}.json").write_text("?")

    broken = shell("groups", "describe", "h")
    assert broken.status == 1
    assert "version 1 cannot be parsed" in broken.error
    assert "spark-log groups repair" in broken.error

    outcome = shell("groups", "repair")
    assert outcome.status == 1
    assert "Lost: offsets committed in version 1" in outcome.out
    assert "Saved: 1 row of 1 group: h" in outcome.out
    outcome = shell("groups", "repair", "--execute", "--json")
    assert (outcome.status, outcome.document["is_repaired"]) == (0, True)
    assert json.loads(outcome.out)["lost_versions"] == [1]
    assert positions(root, "h") == {W0: 1}
    assert positions(root, "g") == {}
