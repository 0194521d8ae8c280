"""Scenarios of kafka-transactions."""

from __future__ import annotations

from tests.gateway.suites.kafka_tools.tools import Tools

_TOOL = "kafka-transactions"

_NUMBERS = ((r"-?\b\d+\b", "0"),)
"""Producer ids and epochs, coordinators and times."""


def list_transactions(tools: Tools) -> None:
    topic, transactional_id = tools.topic(), f"{tools.prefix}-id"
    ours, listing = f"^{tools.prefix}-", (_TOOL, "list")

    def is_open(shown: str) -> bool:
        lines = (line for line in shown.splitlines() if transactional_id in line)
        return any("Ongoing" in line for line in lines)

    with tools.transaction(topic, transactional_id):
        tools.until(is_open, *listing, only=ours, hidden=_NUMBERS)
        for duration in (0, 3_600_000):
            longer = ("--duration-filter", duration)
            tools.run(_TOOL, "list", *longer, only=ours, hidden=_NUMBERS)
        matching = ("--transactional-id-pattern", f"{tools.prefix}.*")
        tools.run(_TOOL, "list", *matching, hidden=_NUMBERS)
        tools.run(_TOOL, "list", "--transactional-id-pattern", "nothing.*")


def list_ended_transactions(tools: Tools) -> None:
    topic, transactional_id = tools.topic(), f"{tools.prefix}-id"
    size = ("--num-records", 5, "--record-size", 10, "--throughput", -1)
    options = ("--transactional-id", transactional_id, "--transaction-duration-ms", 1)
    tools.run("kafka-producer-perf-test", "--topic", topic, *size, *options, only="nothing")
    tools.until(
        lambda shown: "CompleteCommit" in shown,
        *(_TOOL, "list"),
        only=f"^{tools.prefix}-",
        hidden=_NUMBERS,
    )
    described = ("--transactional-id", transactional_id)
    tools.run(_TOOL, "describe", *described, hidden=_NUMBERS)


def describe(tools: Tools) -> None:
    topic, transactional_id = tools.topic(), f"{tools.prefix}-id"
    described = ("describe", "--transactional-id", transactional_id)
    with tools.transaction(topic, transactional_id):
        tools.until(lambda shown: f"{topic}-0" in shown, _TOOL, *described, hidden=_NUMBERS)
    tools.run(_TOOL, "describe", "--transactional-id", f"{tools.prefix}-none", status=1)


def describe_producers(tools: Tools) -> None:
    topic = tools.topic()
    partition = ("describe-producers", "--topic", topic, "--partition", 0)
    tools.run(_TOOL, *partition)
    tools.produce(topic, "a")
    tools.run(_TOOL, *partition, hidden=_NUMBERS)
    with tools.transaction(topic, f"{tools.prefix}-id"):
        tools.until(_has_transaction, _TOOL, *partition, hidden=_NUMBERS, is_sorted=True)
        tools.run(_TOOL, *partition, "--broker-id", 1, hidden=_NUMBERS, is_sorted=True)
    unknown = ("describe-producers", "--topic", f"{tools.prefix}-nothing", "--partition", 0)
    patience = ("--command-config", tools.file("patience", "default.api.timeout.ms=3000\n"))
    tools.run(_TOOL, *patience, *unknown, status=1)


def _has_transaction(shown: str) -> bool:
    """Whether a producer has a transaction open: the last column is its first offset."""
    return any(line.split()[-1].isdigit() for line in shown.splitlines() if line)


def abort(tools: Tools) -> None:
    topic = tools.topic()
    partition = ("--topic", topic, "--partition", 0)
    committed = ("--isolation-level", "read_committed", "--timeout-ms", 3000)
    with tools.transaction(topic, f"{tools.prefix}-id"):
        tools.until(_has_transaction, _TOOL, "describe-producers", *partition, hidden=_NUMBERS)
    tools.run(_TOOL, "abort", *partition, "--start-offset", 77, status=1)
    tools.run(_TOOL, "abort", *partition, "--start-offset", 0)
    tools.until(
        lambda shown: not _has_transaction(shown),
        *(_TOOL, "describe-producers", *partition),
        hidden=_NUMBERS,
    )
    tools.run("kafka-console-consumer", "--topic", topic, "--from-beginning", *committed)
    tools.run(_TOOL, "abort", *partition, "--start-offset", 0, status=1)


def force_terminate(tools: Tools) -> None:
    topic, transactional_id = tools.topic(), f"{tools.prefix}-id"
    described = ("describe", "--transactional-id", transactional_id)
    with tools.transaction(topic, transactional_id):
        tools.until(lambda shown: f"{topic}-0" in shown, _TOOL, *described, hidden=_NUMBERS)
    tools.run(_TOOL, "forceTerminateTransaction", "--transactionalId", transactional_id)
    tools.until(lambda shown: "Ongoing" not in shown, _TOOL, *described, hidden=_NUMBERS)


def find_hanging(tools: Tools) -> None:
    topic = tools.topic()
    with tools.transaction(topic, f"{tools.prefix}-id"):
        described = ("describe-producers", "--topic", topic, "--partition", 0)
        tools.until(_has_transaction, _TOOL, *described, hidden=_NUMBERS)
        tools.run(_TOOL, "find-hanging", "--topic", topic)
        tools.run(_TOOL, "find-hanging", "--topic", topic, "--partition", 0)
        tools.run(_TOOL, "find-hanging", "--broker-id", 1)
        tools.run(_TOOL, "find-hanging", "--topic", f"{tools.prefix}-nothing", status=1)
        tools.run(_TOOL, "find-hanging", status=1)


def wrong_usage(tools: Tools) -> None:
    tools.run(_TOOL, status=1)
    tools.run(_TOOL, "describe", status=1)
    tools.run(_TOOL, "abort", "--topic", "a", "--partition", 0, status=1)
    tools.run(_TOOL, "list", "--transactional-id-pattern", "(", status=1)


SCENARIOS = {
    _TOOL: (
        list_transactions,
        list_ended_transactions,
        describe,
        describe_producers,
        abort,
        force_terminate,
        find_hanging,
        wrong_usage,
    )
}
"""Scenarios by their tool."""
