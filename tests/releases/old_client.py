"""A client's work, run by a separate process with the code of any release since 0.1.

It imports only what release 0.1 has. Usage: ``old_client.py WORK ROOT JSON``; the answer is JSON
lines on stdout, so that a test sees what was acknowledged before the process is killed.
"""

import json
import sys
from typing import Any

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.errors import SparkLogError

TOPIC = "flights"
COMPACTED = "airports"


def main(work, root, arguments):
    WORK[work](root, **json.loads(arguments))


def create(root):
    """Create a topic with two partitions and a compacted one; fill them and commit in a group."""
    admin = Admin(root=root)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(TOPIC, 2), NewTopic(COMPACTED, 1, topic_configs=compacted)])
    with Producer(root=root, linger_ms=0) as producer:
        for n in range(200):
            producer.send(TOPIC, key=b"%d" % n, value=b"%d" % n, partition=n % 2)
            producer.send(COMPACTED, key=b"%d" % (n % 7), value=b"%d" % n)
            if n % 10 == 0:
                producer.flush()
    consume(root, group="copy", stop_after=120)


def produce(root, name, count=None):
    """Send records one by one until an error or the end; tell of each acknowledged one."""
    n = 0
    try:
        with Producer(root=root, linger_ms=0, client_id=name) as producer:
            while count is None or n < count:
                value = f"{name}-{n}"
                partition = n % 2
                sent = producer.send(TOPIC, value=value.encode(), partition=partition).get(60)
                tell(value=value, partition=partition, offset=sent.offset)
                n += 1
    except SparkLogError as error:
        tell(error=type(error).__name__, message=str(error))


def consume(root, group, stop_after=None):
    """Read in a group, tell of each record, and commit, until an error."""
    consumer = Consumer(
        root=root,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([TOPIC])
    read = 0
    try:
        while stop_after is None or read < stop_after:
            left = None if stop_after is None else stop_after - read
            records = consumer.poll(timeout_ms=200, max_records=left)
            found = [
                (tp.partition, record.offset, text(record))
                for tp, batch in records.items()
                for record in batch
            ]
            if found:
                tell(read=found)  # before the commit: after it the process may be killed
                consumer.commit()
            read += len(found)
        consumer.close()
    except SparkLogError as error:
        tell(error=type(error).__name__, message=str(error))


def read(root, topic):
    """Tell all records of a topic's partitions."""
    consumer = Consumer(root=root, auto_offset_reset="earliest")
    partitions = sorted(consumer.partitions_for_topic(topic))
    from spark_log import TopicPartition

    for number in partitions:
        tp = TopicPartition(topic, number)
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        (end,) = consumer.end_offsets([tp]).values()
        while consumer.position(tp) < end:
            for record in consumer.poll(timeout_ms=1_000).get(tp, []):
                tell(partition=number, offset=record.offset, value=text(record))
    consumer.close()


def text(record: Any) -> str:
    return str(record.value, "utf-8")


def tell(**fact):
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


WORK: dict[str, Any] = {"create": create, "produce": produce, "consume": consume, "read": read}

if __name__ == "__main__":
    main(*sys.argv[1:])
