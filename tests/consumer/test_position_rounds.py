"""Offsets of many partitions are looked up at the same time, on storage that takes its time."""

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import cluster as cluster_module
from spark_log.errors import CorruptRecordError
from spark_log.storage import open_store
from tests.slow_store import SlowStore, rounds

PARTITIONS = [TopicPartition("t", number) for number in range(12)]
TRIES = 8


@pytest.fixture(params=[0, 4], ids=["partition logs", "4 stripes"])
def root(request, tmp_path):
    url = str(tmp_path / "root")
    configs = {"stripes": request.param}
    Admin(url).create_topics([NewTopic("t", len(PARTITIONS), topic_configs=configs)])
    with Producer(url) as producer:
        for tp in PARTITIONS:
            producer.send("t", b"value", partition=tp.partition, timestamp_ms=1_000)
    return url


@pytest.fixture
def stores(monkeypatch):
    stores = []

    def open_slow(*args, **kwargs):
        stores.append(SlowStore(open_store(*args, **kwargs)))
        return stores[-1]

    monkeypatch.setattr(cluster_module, "open_store", open_slow)
    return stores


def positions(consumer):
    consumer.assign(PARTITIONS)
    consumer.pause(*PARTITIONS)
    consumer.seek_to_end()
    return {tp: consumer.position(tp) for tp in PARTITIONS}


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("look_up", "expected"),
    [
        (lambda consumer: consumer.beginning_offsets(PARTITIONS), 0),
        (lambda consumer: consumer.end_offsets(PARTITIONS), 1),
        (lambda consumer: consumer.offsets_for_times(dict.fromkeys(PARTITIONS, 1_000)), 0),
        (positions, 1),
    ],
    ids=["beginning_offsets", "end_offsets", "offsets_for_times", "position"],
)
def test_rounds_do_not_grow_with_the_partitions(root, stores, look_up, expected, isolation_level):
    taken: list[int] = []
    # A busy machine makes a request late, which may cost a round. It never saves one.
    while len(taken) < TRIES and min(taken, default=99) >= len(PARTITIONS):
        with Consumer(root=root, isolation_level=isolation_level) as consumer:
            consumer.topics()
            stores[-1].requests.clear()
            found = look_up(consumer)
            taken.append(rounds(stores[-1].requests))
    assert {tp: getattr(each, "offset", each) for tp, each in found.items()} == dict.fromkeys(
        PARTITIONS, expected
    )
    assert min(taken) < len(PARTITIONS)


@pytest.mark.parametrize("root", [0], indirect=True)
def test_damage_of_one_partition_is_told(root, stores, tmp_path):
    (damaged,) = tmp_path.glob("root/t.*/t-7/*.log")
    damaged.chmod(0o600)
    damaged.write_bytes(b"damaged")
    with Consumer(root=root) as consumer:
        with pytest.raises(CorruptRecordError, match="t-7"):
            consumer.end_offsets(PARTITIONS)
        others = [tp for tp in PARTITIONS if tp.partition != 7]
        assert consumer.end_offsets(others) == dict.fromkeys(others, 1)
