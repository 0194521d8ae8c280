"""Makes roots with the files of all features, under the umask of the process that runs it.

Its arguments are directories that exist: each becomes a cluster root with a broker and a quorum in
directories beside it, whose names end in ``-1`` and ``-a``, ``-b``, ``-c``.
"""

import sys

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cli.main import main
from spark_log.cluster.cluster import Cluster
from spark_log.coordinator.offsets.table import OffsetsTable


def run(line):
    try:
        main(line.split())
    except SystemExit as end:
        if end.code:
            raise


def make(root):
    topics = [
        NewTopic("t", topic_configs={"cleanup.policy": "compact"}),
        NewTopic("deleted"),
    ]
    Admin(root).create_topics(topics)
    with Producer(root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(5):
            producer.send("t", b"x", key=b"key")
            producer.flush()
        producer.commit_transaction()
    with Consumer("t", root=root, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout_ms=10_000)
        consumer.commit()
    admin = Admin(root)
    admin.delete_records({TopicPartition("t", 0): 1})
    admin.delete_topics(["deleted"])


def make_all(root):
    make(root)
    OffsetsTable(Cluster(root)).maintain()  # delta-rs writes a checkpoint
    run(f"brokers register 1 {root}-1 --root {root}")
    run(f"topics create replicated --replication-factor 2 --root {root}")
    with Producer(root) as producer:
        producer.send("replicated", b"x")
    run(f"clean --all-topics --root {root}")
    make(f"{root}-a,{root}-b,{root}-c")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        make_all(given)
