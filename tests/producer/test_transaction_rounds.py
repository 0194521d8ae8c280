"""How many requests of a transaction wait for each other, on storage that takes its time."""

from spark_log import Producer
from spark_log.cluster import cluster
from spark_log.storage import open_store
from tests.producer.support import new_root
from tests.slow_store import SlowStore, rounds

PARTITIONS = 10
TRIES = 8


def test_a_transaction_over_ten_partitions_takes_four_round_trips(tmp_path, monkeypatch):
    """Register, data, decide, markers; the next one completes it."""
    root = new_root(tmp_path, ("ten", PARTITIONS))
    stores = []

    def open_slow(*args, **kwargs):
        stores.append(SlowStore(open_store(*args, **kwargs)))
        return stores[-1]

    monkeypatch.setattr(cluster, "open_store", open_slow)
    found: list[int] = []
    with Producer(root, transactional_id="t") as producer:
        producer.init_transactions()
        # A busy machine makes a request late, which may cost a round. It never saves one.
        while len(found) < TRIES and 4 not in found[1:]:
            for store in stores:
                store.requests.clear()
            with producer.transaction():
                for partition in range(PARTITIONS):
                    producer.send("ten", b"x", partition=partition)
            found.append(rounds([each for store in stores for each in store.requests]))
    assert min(found[1:]) == 4, found


def test_rounds_are_counted():
    assert rounds([]) == 0
    assert rounds([(0, 1), (0.5, 1.5), (1.5, 2.5), (1.6, 2.6)]) == 2
    assert rounds([(0, 1), (1, 2), (0.5, 2.5)]) == 2
