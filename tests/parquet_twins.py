"""Two roots with the same topic: in one of them its cold part is Parquet.

The topic ``t`` has two partitions with transactions, 30 % of which were aborted, records without
transactions between them, and some segments at the end that are written after the cleaning.
"""

import random
import shutil
from pathlib import Path

from spark_log import Admin, ConfigResource, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from tests.record.samples import START_US

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(2)]


def make_twins(directory: Path) -> tuple[str, str]:
    """Return the root with Arrow files, and the one with Parquet files."""
    arrow, parquet = str(directory / "arrow"), str(directory / "parquet")
    settings = {"retention.ms": "-1", "flush.on.append": "false"}
    Admin(arrow).create_topics([NewTopic(TOPIC, 2, topic_configs=settings)])
    _write(arrow, 0, 40)
    shutil.copytree(arrow, parquet)
    Admin(parquet).alter_configs([ConfigResource("TOPIC", TOPIC, {"table.format": "delta"})])
    for root in (arrow, parquet):
        cleaned = list(ClusterCleaner(Cluster(root), table_at_once=True).clean())
        assert all(each.error is None for each in cleaned), cleaned
    # The same records behind: files of one root are copied, so that they are the same in both.
    before = {path.relative_to(arrow) for path in Path(arrow).rglob("*.log")}
    _write(arrow, 40, 4)
    for path in Path(arrow).rglob("*"):
        place = path.relative_to(arrow)
        if path.is_file() and place.suffix == ".log" and place not in before:
            shutil.copy2(path, Path(parquet) / place)
    assert len(list(Path(parquet).rglob("*.parquet"))) == 2
    return arrow, parquet


def segment_kinds(root: str, partition: int = 0) -> list[bool]:
    """Return of each live segment whether it is Parquet."""
    cluster = Cluster(root)
    view = cluster.partition_log(cluster.topic(TOPIC), partition).observe()
    return [segment.name.is_parquet for segment in view.live.segments]


def _write(root: str, first: int, transactions: int) -> None:
    rng = random.Random(first)
    number = 100 * first
    with (
        Producer(root, transactional_id="twins", linger_ms=0) as producer,
        Producer(root, linger_ms=0) as plain,
    ):
        producer.init_transactions()
        for _ in range(transactions):
            producer.begin_transaction()
            for _ in range(rng.randint(1, 6)):
                _send(producer, number, rng)
                number += 1
            if rng.random() < 0.3:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            if rng.random() < 0.5:
                _send(plain, number, rng)
                number += 1
                plain.flush()


def _send(producer: Producer, number: int, rng: random.Random) -> None:
    producer.send(
        TOPIC,
        None if number % 7 == 3 else b"value-%d" % number,
        key=None if number % 5 == 1 else b"key-%d" % (number % 3),
        headers=[("n", b"%d" % number), ("n", None)] if number % 2 else None,
        partition=rng.randrange(2),
        timestamp_ms=START_US // 1000 + number,
    )
