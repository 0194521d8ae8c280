"""Checks of the notes and of all replicas after roots of a replicated topic have failed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from spark_log import TopicPartition
from spark_log.testing.history import ALLOWED, Anomaly, Operation, Outcome, Send
from tests.faults.broker_roots import BROKERS
from tests.faults.operation_notes import (
    check_operations,
    polled,
    read_of_log,
    read_operations,
    sends,
)
from tests.faults.replica_process import PARTITIONS, TOPIC


class LoggedRecord(NamedTuple):
    """A record of a log.

    Attributes:
        offset: its offset.
        value: its value.
        leader_epoch: the leader epoch in which it was appended.
    """

    offset: int
    value: str
    leader_epoch: int


Logs = Mapping[TopicPartition, list[LoggedRecord]]


def check(campaign) -> Counter[str]:
    """Check the replicas and what readers saw against the writers' notes; return counts.

    All replicas have the same records. Each record that was acknowledged with ``acks=all`` is there
    once, and no record whose append failed is there. Other acknowledged records may be lost as
    `check_lost` allows, or be there twice, since a retry without idempotence may repeat a record.
    """
    logs = read_logs(campaign)
    operations = read_operations(campaign.notes)
    lost = lost_values(operations, logs, campaign.writers("1"))
    check_lost(operations, lost, logs)
    kept = [_without_offset(each) if _values(each) & lost else each for each in operations]
    for partition, records in logs.items():
        kept.append(read_of_log(partition, [each[:2] for each in records]))
    is_repeated = check_repeated(logs, campaign.writers("1"))
    allowed = ALLOWED | {Anomaly.DUPLICATE} if is_repeated else ALLOWED
    check_operations(kept, allowed=allowed)
    acknowledged = [each for each in sends(operations) if each.offset is not None]
    failed = sends(each for each in operations if each.outcome is Outcome.ABORTED)
    read = polled(each for each in operations if each.process.startswith("read"))
    return Counter(
        acknowledged=len(acknowledged), failed=len(failed), read=len(read), lost=len(lost)
    )


def read_logs(campaign) -> Logs:
    """Return the records of each partition; assert that all replicas have the same."""
    cluster = campaign.cluster()
    topic = cluster.topic(TOPIC)
    logs = {}
    for number in range(PARTITIONS):
        assert {*topic.partitions[number].isr} == {*BROKERS}
        contents = [
            _records(cluster.replica_log(topic, number, broker_id)) for broker_id in BROKERS
        ]
        assert contents[0] == contents[1] == contents[2], f"replicas of {TOPIC}-{number} differ"
        logs[TopicPartition(TOPIC, number)] = contents[0]
    return logs


def lost_values(operations: Iterable[Operation], logs: Logs, writers: Set[str]) -> set[str]:
    """Return the values that these writers know to be acknowledged, and that are in no log."""
    sent = sends(each for each in operations if each.process in writers)
    acknowledged = {each.value for each in sent if each.offset is not None}
    return acknowledged - {each.value for records in logs.values() for each in records}


def check_repeated(logs: Logs, writers: Set[str]) -> bool:
    """Check that no other writers' values are in the logs twice; return whether theirs are."""
    counts = Counter(each.value for records in logs.values() for each in records)
    repeated = {value for value, count in counts.items() if count > 1}
    others = {value for value in repeated if value.rpartition(".")[0] not in writers}
    assert not others, f"values that are in the log twice: {sorted(others)}"
    return bool(repeated)


def check_lost(operations: Iterable[Operation], lost: Set[str], logs: Logs) -> None:
    """Check that records are lost only where ``acks=1`` allows it.

    Only the leader had them when it failed. Nobody has read them, and the writer's next record has
    a later leader epoch than its last record before them. Their number has no limit, since it may
    take a while until someone notices that a leader has lost its files.

    Args:
        operations: the operations of all clients.
        lost: values that were acknowledged and are in no log. Each value was sent once.
        logs: the records of each partition.
    """
    operations = list(operations)
    read = {each.value for each in polled(operations)} & lost
    assert not read, f"values that were read and are lost: {sorted(read)}"
    epochs = {each.value: each.leader_epoch for records in logs.values() for each in records}
    of_writer: dict[tuple[str, TopicPartition], list[Send]] = defaultdict(list)
    for operation in operations:
        for send in sends([operation]):
            if send.offset is not None:
                of_writer[operation.process, send.topic_partition].append(send)
    for sent in of_writer.values():
        run: list[str] = []
        before = -1
        for send in sent:
            if send.value in lost:
                run.append(send.value)
                continue
            epoch = epochs[send.value]
            assert not run or epoch > before, f"{run} are lost within leader epoch {epoch}"
            run, before = [], epoch


def _values(operation: Operation) -> set[str]:
    return {each.value for each in sends([operation])}


def _without_offset(operation: Operation) -> Operation:
    """Return an operation as if nothing was known of its outcome."""
    actions = tuple(
        replace(each, offset=None) if isinstance(each, Send) else each for each in operation.actions
    )
    return replace(operation, actions=actions, outcome=Outcome.UNKNOWN, completed=None)


def _records(log) -> list[LoggedRecord]:
    return [
        LoggedRecord(offset, value.decode(), batch.leader_epoch)
        for batch in log.scan(0)
        for offset, value in zip(
            batch.offsets().tolist(), batch.records.column("value").to_pylist(), strict=True
        )
    ]
