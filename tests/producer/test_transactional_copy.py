"""Copies from topic to topic, of which some are aborted: each record is copied once."""

import itertools
import threading
from typing import Any

import pytest

from spark_log import Consumer, OffsetAndMetadata, Producer, TopicPartition
from tests.producer.support import committed, new_root, values

SOURCE, TARGET, COUNT = "source", "target", 300
READER: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}


@pytest.fixture
def root(tmp_path):
    root = new_root(tmp_path, (SOURCE, 1), (TARGET, 1))
    with Producer(root) as producer:
        for number in range(COUNT):
            producer.send(SOURCE, b"%d" % number)
    return root


class Reader(threading.Thread):
    """Reads the committed records of the target until it has all of them, or is told to end."""

    def __init__(self, root):
        super().__init__()
        self.found: list[object] = []
        self.is_told = threading.Event()
        self._root = root

    def run(self):
        with Consumer(TARGET, root=self._root, **READER) as consumer:
            while len(self.found) < COUNT and not self.is_told.is_set():
                for records in consumer.poll(100).values():
                    self.found += [record.value for record in records]


def resume(consumer):
    """Let a consumer read again from what its group has committed."""
    for partition in consumer.assignment():
        consumer.seek(partition, consumer.committed(partition) or 0)


@pytest.mark.parametrize("aborted", ["every second", "all but every third"])
def test_each_record_is_copied_once_and_in_order(root, aborted):
    """Kafka: sendOffsetsToTransaction with aborts; ducktape: the order, with a reader meanwhile."""
    reader = Reader(root)
    reader.start()
    outcomes = itertools.cycle([False, True] if aborted == "every second" else [False, False, True])
    done = 0
    with (
        Consumer(
            SOURCE, root=root, group_id="g", enable_auto_commit=False, max_poll_records=40, **READER
        ) as consumer,
        Producer(root, transactional_id="copier") as producer,
    ):
        producer.init_transactions()
        while done < COUNT:
            batch = [each for found in consumer.poll(1_000).values() for each in found]
            if not batch:
                continue
            producer.begin_transaction()
            for record in batch:
                producer.send(TARGET, record.value)
            producer.send_offsets_to_transaction(
                {TopicPartition(SOURCE, 0): OffsetAndMetadata(batch[-1].offset + 1)},
                consumer.group_metadata(),
            )
            if next(outcomes):
                producer.commit_transaction()
                done += len(batch)
            else:
                producer.flush()
                producer.abort_transaction()
                resume(consumer)
    reader.join(30)
    reader.is_told.set()
    expected = [b"%d" % number for number in range(COUNT)]
    assert committed(root, TARGET)[0] == expected
    assert reader.found == expected
    assert len(values(root, TARGET)[0]) > COUNT, "aborted copies are in the log"
