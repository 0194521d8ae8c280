"""How many requests a commit takes on storage that takes its time, and how many of them wait."""

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster, cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets import store as offsets_store
from spark_log.coordinator.offsets.creation import MARKER
from spark_log.errors import StorageError
from spark_log.storage import open_store
from spark_log.util.clock import SYSTEM_CLOCK, ManualClock
from spark_log.util.suppressed import IN_PROCESS
from tests.log.support import HookedStore
from tests.simulation.same_thread import call_at_once
from tests.slow_store import SlowStore, rounds

P0 = TopicPartition("t", 0)
TRIES = 3


class Process:
    """A process that commits on slow storage."""

    def __init__(self, root, monkeypatch, clock=SYSTEM_CLOCK):
        self.stores: list[SlowStore] = []

        def open_slow(*args, **kwargs):
            self.stores.append(SlowStore(open_store(*args, **kwargs)))
            return self.stores[-1]

        with monkeypatch.context() as patch:
            patch.setattr(cluster, "open_store", open_slow)
            self.table = OffsetsTable(Cluster(root, clock=clock))

    def commit(self, group, offset):
        """Return the number of requests, and that of those which waited for others."""
        for store in self.stores:
            store.requests.clear()
        self.table.commit(group, {P0: OffsetAndMetadata(offset)}, generation=1)
        requests = [each for store in self.stores for each in store.requests]
        return len(requests), rounds(requests)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", 1)])
    return url


@pytest.mark.parametrize(("pause_ms", "requests"), [(0, 3), (5_000, 4)])
def test_a_commit_is_four_requests_at_most_in_two_rounds(root, monkeypatch, pause_ms, requests):
    """The rows, a look at the metadata and, after a pause, a listing of the log; then the version.

    The put of the version shows whether the state of the commit before is the newest.
    """
    clock = ManualClock()
    process = Process(root, monkeypatch, clock)
    process.commit("g", 0)
    found: list[tuple[int, int]] = []
    # A busy machine makes a request late, which may cost a round. It never saves one.
    while len(found) < TRIES and (requests, 2) not in found:
        clock.advance_ms(pause_ms)
        found.append(process.commit("g", len(found)))
    assert min(found) == (requests, 2), found


def test_versions_of_others_are_read_at_the_same_time(root, monkeypatch):
    clock = ManualClock()
    process, other = Process(root, monkeypatch, clock), OffsetsTable(Cluster(root))
    process.commit("g", 0)
    found: list[tuple[int, int]] = []
    while len(found) < TRIES and (12, 3) not in found:
        clock.advance_ms(5_000)
        for offset in range(8):
            other.commit("h", {P0: OffsetAndMetadata(offset)})
        found.append(process.commit("g", len(found)))
    assert min(found) == (12, 3), found


def test_a_marker_that_cannot_be_put_is_counted_and_put_later(tmp_path, monkeypatch):
    """Nobody waits for it on an object store."""
    monkeypatch.setattr(offsets_store, "call_beside", call_at_once)
    before = IN_PROCESS.counts().get("marker of the offsets table", 0)
    store = HookedStore(open_store(tmp_path), is_mapped=False)
    table = offsets_store.OffsetsStore(store, SYSTEM_CLOCK)

    def fail_marker(path, call):
        if path == MARKER:
            raise StorageError("down")
        call()

    store.on("put_if_absent", fail_marker)
    table.refresh(create=True)
    assert IN_PROCESS.counts()["marker of the offsets table"] == before + 1
    assert not table.is_fresh()
    store.on("put_if_absent", lambda path, call: call())
    table.refresh(create=True)
    assert store.head(MARKER)
