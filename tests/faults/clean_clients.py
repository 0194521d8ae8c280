"""Client processes on a root that is cleaned: producers, a consumer, and one that deletes topics.

Every record has a name, ``<slot>.<life>.<number>``: the replacement of a killed producer has the
same slot and keys, and the next life. The name is the value, or a header if the value is null. A
client notes its operations in one file per topic; `text_of` makes the text of a record.
"""

import random
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.errors import StorageTimeoutError
from spark_log.testing.history import Polled
from tests.faults.notes import Notes
from tests.faults.operation_notes import OperationNotes

KEPT, EXPIRING, TABLE, BRIEF = "kept", "expiring", "table", "brief"
COMPACTED = (TABLE, BRIEF)

_SMALL = {
    "file.delete.delay.ms": "600",
    "flush.on.append": "false",
    "merge.tail.segments": "20",
    "snapshot.interval.segments": "10",
}
_COMPACT = {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {
    KEPT: _SMALL,
    EXPIRING: {**_SMALL, "retention.bytes": "20000"},
    TABLE: _COMPACT,
    BRIEF: {**_COMPACT, "delete.retention.ms": "0"},
}
"""Topics: one is kept, one has retention by size, and two are compacted."""

KEYS = 12
"""Number of keys of each producer in each compacted topic."""

ENDED = ".ended"
"""Suffix of a file that a consumer makes when it has read all topics to their ends."""

_SEND_PAUSE_S = 0.01
_MAX_RECORDS = 4
_POLL_MS = 100


@dataclass(frozen=True)
class Role:
    """The role of one process.

    Attributes:
        root, storage_options: the root.
        notes: path of its notes, without a suffix.
        slot: its place among the processes of its kind.
        life: number of killed processes that had this place before.
    """

    root: str
    storage_options: dict[str, str] | None
    notes: str
    slot: int = 0
    life: int = 0


def text_of(name, key, is_tombstone):
    """Return the text of a record, which is its value in a history."""
    return f"{name} {key} {'null' if is_tombstone else 'value'}"


def notes_by_topic(role: Role, stack: ExitStack):
    """Return the operation notes of one client for each topic."""
    return {topic: stack.enter_context(OperationNotes(f"{role.notes}.{topic}")) for topic in TOPICS}


def produce_until_stopped(role: Role, orders: Connection):
    """Repeatedly send a few records to each topic, and wait for their acknowledgements."""
    chance = random.Random(f"{role.slot}.{role.life}")
    number = 0
    with ExitStack() as stack:
        notes = notes_by_topic(role, stack)
        producer = stack.enter_context(Producer(role.root, storage_options=role.storage_options))
        while not orders.poll(_SEND_PAUSE_S):
            sent = []
            for topic in TOPICS:
                for _ in range(chance.randint(1, _MAX_RECORDS)):
                    name = f"{role.slot}.{role.life}.{number}"
                    number += 1
                    key = f"{role.slot}-{chance.randrange(KEYS)}"
                    is_tombstone = topic in COMPACTED and chance.random() < 0.3
                    text = text_of(name, key, is_tombstone)
                    operation = notes[topic].begin(TopicPartition(topic, 0), text)
                    future = producer.send(
                        topic,
                        None if is_tombstone else name.encode(),
                        key=key.encode(),
                        headers=[("name", name.encode())],
                    )
                    sent.append((topic, operation, future))
            for topic, operation, future in sent:
                notes[topic].acknowledge(operation, [future.result().offset])


def consume_until_stopped(role: Role, orders: Connection):
    """Read all topics from their start; when the pipe is closed, read up to their ends, and end."""
    partitions = [TopicPartition(topic, 0) for topic in TOPICS]
    with (
        ExitStack() as stack,
        Consumer(
            root=role.root, storage_options=role.storage_options, auto_offset_reset="earliest"
        ) as consumer,
    ):
        notes = notes_by_topic(role, stack)
        consumer.assign(partitions)
        for each in partitions:
            notes[each.topic].assign([each], 0)
        ends = None
        while True:
            if ends is None and orders.poll():
                ends = consumer.end_offsets(partitions)
            try:
                found = consumer.poll(_POLL_MS)
            except StorageTimeoutError:
                continue  # the machine is so busy that no listing was fast enough
            for partition, records in found.items():
                notes[partition.topic].poll(
                    *(Polled(partition, each.offset, _text_of(each)) for each in records)
                )
            if ends and all(consumer.position(each) >= ends[each] for each in partitions):
                with Notes(f"{role.notes}{ENDED}"):
                    return


def _text_of(record):
    return text_of(record.headers[0][1].decode(), record.key.decode(), record.value is None)


def create_and_delete_until_stopped(role: Role, orders: Connection):
    """Delete topics that a killed process left; then repeatedly create, fill and delete a topic."""
    admin = Admin(role.root, storage_options=role.storage_options)
    left = [topic for topic in admin.list_topics() if topic not in TOPICS]
    if left:
        admin.delete_topics(left)
    number = 0
    with Notes(role.notes) as notes:
        while not orders.poll(_SEND_PAUSE_S):
            topic = f"passing-{role.life}-{number}"
            number += 1
            admin.create_topics([NewTopic(topic, 2, topic_configs=_SMALL)])
            with Producer(role.root, storage_options=role.storage_options) as producer:
                for partition in (0, 1):
                    producer.send(topic, b"", partition=partition)
            admin.delete_topics([topic])
            notes.write("deleted", topic)
