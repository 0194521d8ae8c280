"""Scenarios of kafka-consumer-groups, kafka-groups and kafka-streams-application-reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.gateway.suites.kafka_tools.tools import RunningTool, Tools

_TOOL = "kafka-consumer-groups"
_START_MS = 1_700_000_000_000


def _group(tools: Tools, name: str = "g") -> str:
    return f"{tools.prefix}-{name}"


def _commit(tools: Tools, group: str, *scope: str, how: tuple[object, ...]) -> None:
    scopes = [argument for each in scope for argument in ("--topic", each)]
    tools.run(_TOOL, "--group", group, "--reset-offsets", *scopes, *how, "--execute")


@contextmanager
def _member(
    tools: Tools, group: str, topic: str, protocol: str, records: int, *options: str
) -> Iterator[RunningTool]:
    """Run a member of a group for the block; it has read so many records, and commits often."""
    properties = (
        f"group.protocol={protocol}",
        "auto.commit.interval.ms=100",
        f"client.id={group}-client",
        *options,
    )
    given = [argument for each in properties for argument in ("--consumer-property", each)]
    start = ("--topic", topic, "--group", group, "--from-beginning")
    with tools.running("kafka-console-consumer", *start, *given) as member:
        if records:
            member.wait_for(f"r{records}\n")
        yield member


def _records(count: int) -> list[str]:
    return [f"r{number + 1}" for number in range(count)]


def _members_and_offsets(tools: Tools, protocol: str) -> None:
    topic, group = tools.topic(partitions=2), _group(tools)
    tools.produce(topic, *_records(3))

    def is_committed(shown: str) -> bool:
        return any(line.split()[3:6] == ["3", "3", "0"] for line in shown.splitlines() if line)

    with _member(tools, group, topic, protocol, 0):
        of_group = ("--group", group, "--describe")
        tools.until(is_committed, _TOOL, *of_group, is_sorted=True)
        tools.run(_TOOL, *of_group, "--offsets", "--verbose", is_sorted=True)
        tools.run(_TOOL, *of_group, "--members")
        tools.run(_TOOL, *of_group, "--members", "--verbose")
        tools.run(_TOOL, *of_group, "--state")
        tools.run(_TOOL, *of_group, "--state", "--verbose")
        tools.run(_TOOL, "--list", "--state", only=f"{group} ")
        tools.run(_TOOL, "--list", "--type", only=f"{group} ")
        tools.run("kafka-groups", "--list", only=f"{group} ")
        tools.run(_TOOL, "--group", group, "--delete", says="Error: Deletion")
        reset = ("--reset-offsets", "--all-topics", "--to-earliest", "--execute")
        tools.run(_TOOL, "--group", group, *reset, says="Error: Assignments")
        delete = ("--delete-offsets", "--topic", topic)
        tools.run(_TOOL, "--group", group, *delete, says="GroupSubscribedToTopic")
    tools.until(lambda shown: "Empty" in shown, _TOOL, "--group", group, "--describe", "--state")
    tools.run(_TOOL, "--group", group, "--describe", is_sorted=True)
    tools.run(_TOOL, "--group", group, "--describe", "--members")
    tools.run(_TOOL, "--list", "--type", "--state", "Empty", only=f"{group} ")
    tools.run(_TOOL, "--group", group, "--delete")
    tools.run(_TOOL, "--group", group, "--describe", says="GroupIdNotFound")


def classic_group(tools: Tools) -> None:
    _members_and_offsets(tools, "classic")


def group_of_the_consumer_protocol(tools: Tools) -> None:
    _members_and_offsets(tools, "consumer")


def static_member(tools: Tools) -> None:
    topic, group = tools.topic(), _group(tools)
    tools.produce(topic, "r1")
    with _member(tools, group, topic, "classic", 1, "group.instance.id=one"):
        tools.until(
            lambda shown: "Stable" in shown, _TOOL, "--group", group, "--describe", "--state"
        )
        tools.run(_TOOL, "--group", group, "--describe", "--members", "--verbose")
    tools.run(_TOOL, "--group", group, "--describe", "--state")


def two_members(tools: Tools) -> None:
    topic, group = tools.topic(partitions=4), _group(tools)

    def are_two(shown: str) -> bool:
        rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
        return [row[-1] for row in rows] == ["2", "2"]

    with _member(tools, group, topic, "classic", 0), _member(tools, group, topic, "classic", 0):
        tools.until(are_two, _TOOL, "--group", group, "--describe", "--members")


def list_groups(tools: Tools) -> None:
    topic = tools.topic()
    for name in ("b", "a"):
        _commit(tools, _group(tools, name), topic, how=("--to-latest",))
    ours = f"^{tools.prefix}-"
    tools.run(_TOOL, "--list", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--state", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--state", "stable,empty", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--state", "Stable", only=ours)
    tools.run(_TOOL, "--list", "--type", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--type", "classic", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--type", "consumer", only=ours, is_sorted=True)
    tools.run(_TOOL, "--list", "--type", "--state", "Empty", only=ours, is_sorted=True)
    unordered = ((r"(Valid \w+ are): .*", r"\1"),)
    tools.run(_TOOL, "--list", "--state", "Sleepy", status=1, hidden=unordered)
    tools.run(_TOOL, "--list", "--type", "rare", status=1, hidden=unordered)


def kafka_groups(tools: Tools) -> None:
    _commit(tools, _group(tools), tools.topic(), how=("--to-latest",))
    ours = f"^{tools.prefix}-"
    tools.run("kafka-groups", "--list", only=ours)
    tools.run("kafka-groups", "--list", "--consumer", only=ours)
    tools.run("kafka-groups", "--list", "--group-type", "classic", only=ours)
    tools.run("kafka-groups", "--list", "--group-type", "consumer", only=ours)
    tools.run("kafka-groups", "--list", "--protocol", "consumer", only=ours)
    tools.run("kafka-groups", "--list", "--share", only=ours)
    tools.run("kafka-groups", "--list", "--group-type", "rare", status=1)
    tools.run("kafka-groups", status=1)


def describe_groups(tools: Tools) -> None:
    topic, other = tools.topic("a", 2), tools.topic("b")
    tools.produce(topic, "r1", "r2")
    _commit(tools, _group(tools), topic, other, how=("--to-earliest",))
    for view in ((), ("--offsets",), ("--members",), ("--state",), ("--verbose",)):
        tools.run(_TOOL, "--group", _group(tools), "--describe", *view, is_sorted=True)
    everything = ("--all-groups", "--describe")
    tools.run(_TOOL, *everything, only=f"^{tools.prefix}-", is_sorted=True)
    tools.run(_TOOL, *everything, "--state", only=f"^{tools.prefix}-", is_sorted=True)


def unknown_group(tools: Tools) -> None:
    group = ("--group", _group(tools, "nothing"))
    for view in ((), ("--members",), ("--state",)):
        tools.run(_TOOL, *group, "--describe", *view, says="GroupIdNotFound")
    tools.run(_TOOL, *group, "--delete", says="GroupIdNotFound")
    topic = tools.topic()
    tools.run(_TOOL, *group, "--delete-offsets", "--topic", topic, says="GroupIdNotFound")
    tools.run(_TOOL, *group, "--reset-offsets", "--all-topics", "--to-latest", "--dry-run")


def _reset(tools: Tools, *how: object, topic: str, status: int = 0, says: str = "") -> None:
    target = ("--group", _group(tools), "--topic", topic)
    reset = ("--reset-offsets", *how, "--execute")
    tools.run(_TOOL, *target, *reset, status=status, says=says, is_sorted=True)


def reset_to_the_ends(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, *_records(10))
    for how in (
        ("--to-latest",),
        ("--to-earliest",),
        ("--to-offset", 5),
        ("--shift-by", 2),
        ("--shift-by", -4),
        ("--to-current",),
        ("--shift-by", 100),
        ("--shift-by", -100),
        ("--to-offset", 500),
    ):
        _reset(tools, *how, topic=f"{topic}:0")
    tools.run(_TOOL, "--group", _group(tools), "--describe", is_sorted=True)


def reset_without_execute(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, *_records(3))
    target = ("--group", _group(tools), "--reset-offsets", "--topic", topic, "--to-latest")
    only = rf"^$|{tools.prefix}|GROUP"
    tools.run(_TOOL, *target, "--dry-run", is_sorted=True)
    tools.run(_TOOL, *target, only=only, is_sorted=True)
    tools.run(_TOOL, *target, "--export", is_sorted=True)
    tools.run(_TOOL, "--group", _group(tools), "--describe", says="GroupIdNotFound")


def reset_of_some_partitions(tools: Tools) -> None:
    topic, other = tools.topic("a", 3), tools.topic("b")
    tools.produce(topic, *_records(3))
    tools.produce(other, *_records(3))
    _commit(tools, _group(tools), topic, other, how=("--to-earliest",))
    _reset(tools, "--to-latest", topic=f"{topic}:0,2")
    tools.run(_TOOL, "--group", _group(tools), "--describe", is_sorted=True)
    everything = ("--reset-offsets", "--all-topics", "--to-latest", "--execute")
    tools.run(_TOOL, "--group", _group(tools), *everything, is_sorted=True)
    tools.run(_TOOL, "--group", _group(tools), "--describe", is_sorted=True)


def reset_of_all_groups(tools: Tools) -> None:
    topic = tools.topic()
    tools.produce(topic, *_records(3))
    for name in ("a", "b"):
        _commit(tools, _group(tools, name), topic, how=("--to-latest",))
    several = [argument for name in "ab" for argument in ("--group", _group(tools, name))]
    reset = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    tools.run(_TOOL, *several, *reset, is_sorted=True)
    tools.run(_TOOL, *several, "--describe", is_sorted=True)


def reset_by_time(tools: Tools) -> None:
    topic = tools.topic()
    for day in range(3):
        tools.produce(topic, "1", "2", timestamp_ms=_START_MS + day * 86_400_000)
    for moment in (
        "2023-11-14T00:00:00.000",
        "2023-11-15T22:13:20.000",
        "2023-11-15T22:13:20.001Z",
        "2023-11-16T00:00:00.000+01:00",
        "2099-01-01T00:00:00.000",
    ):
        _reset(tools, "--to-datetime", moment, topic=topic)
    _reset(tools, "--by-duration", "P3650D", topic=topic)
    _reset(tools, "--by-duration", "PT1S", topic=topic)
    _reset(tools, "--to-datetime", "yesterday", topic=topic, says="Error")
    _reset(tools, "--by-duration", "a while", topic=topic, says="Error")


def reset_from_a_file(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, *_records(5))
    group = ("--group", _group(tools))
    target = (*group, "--reset-offsets", "--topic", topic)
    exported = tools.run(_TOOL, *target, "--to-offset", 2, "--export", "--dry-run", is_sorted=True)
    file = tools.file("offsets.csv", exported)
    tools.run(_TOOL, *group, "--reset-offsets", "--from-file", file, "--execute", is_sorted=True)
    tools.run(_TOOL, *group, "--describe", is_sorted=True)
    bad = tools.file("bad.csv", "five\n")
    from_bad = ("--reset-offsets", "--from-file", bad, "--execute")
    tools.run(_TOOL, *group, *from_bad, says="Error", is_sorted=True)
    tools.run(_TOOL, *group, "--describe", is_sorted=True)


def reset_of_what_does_not_exist(tools: Tools) -> None:
    topic = tools.topic()
    _reset(tools, "--to-latest", topic=f"{tools.prefix}-nothing", says="UnknownTopic")
    _reset(tools, "--to-latest", "--timeout", 3000, topic=f"{topic}:7", says="Timeout")
    tools.run(_TOOL, "--reset-offsets", "--group", _group(tools), "--to-latest", status=1)
    tools.run(_TOOL, "--reset-offsets", "--all-topics", "--to-latest", status=1)
    _reset(tools, "--to-offset", "x", topic=topic, says="Error")
    _reset(tools, topic=topic, status=1)


def delete_groups(tools: Tools) -> None:
    topic = tools.topic()
    for name in ("a", "b"):
        _commit(tools, _group(tools, name), topic, how=("--to-latest",))
    one, other = ("--group", _group(tools, "a")), ("--group", _group(tools, "b"))
    tools.run(_TOOL, *one, "--delete")
    tools.run(_TOOL, *one, "--delete", says="GroupIdNotFound")
    tools.run(_TOOL, *one, *other, "--delete", says="GroupIdNotFound", is_sorted=True)
    tools.run(_TOOL, "--list", only=f"^{tools.prefix}-")


def delete_offsets(tools: Tools) -> None:
    topic, other = tools.topic("a", 2), tools.topic("b")
    _commit(tools, _group(tools), topic, other, how=("--to-latest",))
    group = ("--group", _group(tools))
    tools.run(_TOOL, *group, "--delete-offsets", "--topic", f"{topic}:0", is_sorted=True)
    tools.run(_TOOL, *group, "--describe", is_sorted=True)
    tools.run(_TOOL, *group, "--delete-offsets", "--topic", topic, is_sorted=True)
    tools.run(_TOOL, *group, "--describe", is_sorted=True)
    unknown = ("--delete-offsets", "--topic", f"{tools.prefix}-nothing")
    tools.run(_TOOL, *group, *unknown, says="UnknownTopic", is_sorted=True)
    unknown = ("--delete-offsets", "--topic", f"{other}:7")
    tools.run(_TOOL, *group, *unknown, says="UnknownTopic", is_sorted=True)


def group_of_a_deleted_topic(tools: Tools) -> None:
    topic, other = tools.topic("a"), tools.topic("b")
    _commit(tools, _group(tools), topic, other, how=("--to-latest",))
    tools.run("kafka-topics", "--delete", "--topic", topic)
    tools.until(
        lambda shown: f" {topic} " not in shown,
        _TOOL,
        *("--group", _group(tools), "--describe"),
    )


def validate_regex(tools: Tools) -> None:
    tools.run(_TOOL, "--validate-regex", "a.*b")
    tools.run(_TOOL, "--validate-regex", "a(", says="is invalid")


def wrong_usage(tools: Tools) -> None:
    tools.run(_TOOL, status=1)
    tools.run(_TOOL, "--describe", status=1)
    tools.run(_TOOL, "--delete", status=1)
    tools.run(_TOOL, "--list", "--describe", "--group", "g", status=1)
    tools.run(_TOOL, "--group", "g", "--delete-offsets", status=1)


def streams_application_reset(tools: Tools) -> None:
    topic, application = tools.topic("in"), _group(tools, "app")
    for name in ("store-changelog", "group-repartition"):
        tools.run("kafka-topics", "--create", "--topic", f"{application}-{name}")
    tools.produce(topic, *_records(3))
    _commit(tools, application, topic, how=("--to-latest",))
    tool = "kafka-streams-application-reset"
    given = ("--application-id", application, "--input-topics", topic)
    tools.run(tool, *given, "--dry-run")
    tools.run(tool, *given, "--to-offset", 1)
    tools.run(_TOOL, "--group", application, "--describe")
    tools.run("kafka-topics", "--list", "--topic", f"{tools.prefix}-.*")
    tools.run(tool, *given, "--shift-by", 1)
    tools.run(tool, *given, "--to-datetime", "2099-01-01T00:00:00.000")
    unknown = ("--application-id", application, "--input-topics", f"{tools.prefix}-nothing")
    tools.run(tool, *unknown, status=1)
    tools.run(tool, status=1)


def streams_application_that_runs(tools: Tools) -> None:
    topic, application = tools.topic("in"), _group(tools, "app")
    tools.produce(topic, "r1")
    tool = "kafka-streams-application-reset"
    with _member(tools, application, topic, "classic", 1):
        tools.run(tool, "--application-id", application, "--input-topics", topic, status=1)
    forced = ("--force", "--to-earliest")
    tools.run(tool, "--application-id", application, "--input-topics", topic, *forced)


SCENARIOS = {
    _TOOL: (
        classic_group,
        group_of_the_consumer_protocol,
        static_member,
        two_members,
        list_groups,
        describe_groups,
        unknown_group,
        reset_to_the_ends,
        reset_without_execute,
        reset_of_some_partitions,
        reset_of_all_groups,
        reset_by_time,
        reset_from_a_file,
        reset_of_what_does_not_exist,
        delete_groups,
        delete_offsets,
        group_of_a_deleted_topic,
        validate_regex,
        wrong_usage,
    ),
    "kafka-groups": (kafka_groups,),
    "kafka-streams-application-reset": (
        streams_application_reset,
        streams_application_that_runs,
    ),
}
"""Scenarios by their tool."""
