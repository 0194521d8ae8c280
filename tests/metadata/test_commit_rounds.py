"""How many requests of a change of the metadata wait for each other: on one root, and on three."""

import shutil

import pytest

from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.records import ProducerIdsRecord
from spark_log.storage import open_store
from spark_log.storage.quorum import QuorumStore
from spark_log.util.clock import SYSTEM_CLOCK
from tests.slow_store import SlowStore, rounds

TRIES = 6


def take_block(image):
    return [ProducerIdsRecord(next_producer_id=image.next_producer_id + 1)]


@pytest.fixture
def roots(tmp_path):
    return [str(tmp_path / name) for name in "abc"]


class Opened:
    """The metadata log of a process, on one root or on three."""

    def __init__(self, roots):
        self.stores = []
        store = QuorumStore(roots, None, self.open_slow) if roots[1:] else self.open_slow(roots[0])
        store.create_root()
        self.log = MetadataLog(store, SYSTEM_CLOCK)

    def open_slow(self, root, _=None):
        self.stores.append(SlowStore(open_store(root)))
        return self.stores[-1]

    def rounds_of(self, call):
        for store in self.stores:
            store.requests.clear()
        call()
        return rounds([each for store in self.stores for each in store.requests])

    def fewest_rounds(self, call, expected):
        """A busy machine makes a request late, which may cost a round. It never saves one."""
        found: list[int] = []
        while len(found) < TRIES and expected not in found:
            found.append(self.rounds_of(call))
        return min(found)


@pytest.mark.parametrize(("members", "lost", "expected"), [(1, 0, 2), (3, 0, 4), (3, 1, 5)])
def test_a_change_is_one_put_and_the_witness(roots, members, lost, expected):
    """On three roots the put is three requests that wait for each other, with one lost four."""
    opened = Opened(roots[:members])
    opened.log.commit(take_block)
    for root in roots[members - lost : members]:
        shutil.rmtree(root)
    assert opened.fewest_rounds(lambda: opened.log.commit(take_block), expected) == expected
    assert opened.fewest_rounds(opened.log.image, 1) == 1, "what it has put is not read again"


@pytest.mark.parametrize(("members", "expected"), [(1, 6), (3, 10)])
def test_a_change_after_that_of_another_process_tries_once_in_vain(roots, members, expected):
    """A put in vain, a look at the winner, its records, the log's end; then a change."""
    opened, other = Opened(roots[:members]), Opened(roots[:members])
    opened.log.commit(take_block)
    found: list[int] = []
    while len(found) < TRIES and expected not in found:
        other.log.commit(take_block)
        found.append(opened.rounds_of(lambda: opened.log.commit(take_block)))
    assert min(found) == expected
