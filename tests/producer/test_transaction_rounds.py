"""How many requests of a transaction wait for each other, on storage that takes its time."""

import threading
import time

from spark_log import Producer
from spark_log.metadata import cluster
from spark_log.storage import open_store
from tests.log.support import HookedStore
from tests.producer.support import new_root

PARTITIONS = 10
REQUEST_S = 0.03
TRIES = 8


class SlowStore(HookedStore):
    """A store that answers like an object store: each request takes a while."""

    def __init__(self, inner):
        super().__init__(inner, is_mapped=False)
        self.requests = []
        self._lock = threading.Lock()

    def _do(self, operation, path, call):
        if operation == "stage":
            return call()
        began_s = time.monotonic()
        try:
            return call()
        finally:
            # What a request takes, and no wait for something that is going to happen.
            threading.Event().wait(began_s + REQUEST_S - time.monotonic())
            with self._lock:
                self.requests.append((began_s, time.monotonic()))

    def is_gone(self, path):
        return False  # as an object store, which is not asked


def rounds(requests):
    """Return the most requests of which each began after the one before had ended."""
    count, ended_s = 0, 0.0
    for began_s, end_s in sorted(requests, key=lambda each: each[1]):
        if began_s >= ended_s:
            count, ended_s = count + 1, end_s
    return count


def test_a_transaction_over_ten_partitions_takes_five_round_trips(tmp_path, monkeypatch):
    """Register, data, a look at the metadata, decide, markers; the next one completes it."""
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
        while len(found) < TRIES and 5 not in found[1:]:
            for store in stores:
                store.requests.clear()
            with producer.transaction():
                for partition in range(PARTITIONS):
                    producer.send("ten", b"x", partition=partition)
            found.append(rounds([each for store in stores for each in store.requests]))
    assert min(found[1:]) == 5, found


def test_rounds_are_counted():
    assert rounds([]) == 0
    assert rounds([(0, 1), (0.5, 1.5), (1.5, 2.5), (1.6, 2.6)]) == 2
    assert rounds([(0, 1), (1, 2), (0.5, 2.5)]) == 2
