"""A reader of one partition reads too much: the objects of its stripe have all partitions."""

import pytest

from spark_log.log import BatchAppend
from spark_log.log.stripe import StripeEntry
from tests.log.stripe.support import Process
from tests.log.support import HookedStore
from tests.record.samples import numbered

PARTITIONS, OBJECTS = 1_000, 4
MIB = 1_048_576


class MeteredStore(HookedStore):
    """A store that is read in ranges, and counts the requests and the bytes of the answers."""

    def __init__(self, inner):
        super().__init__(inner, is_mapped=False)
        self.requests, self.read_bytes = 0, 0

    def _do(self, operation, path, call):
        answer = call()
        if operation in ("read", "read_tail", "open_buffer"):
            self.requests += 1
            self.read_bytes += len(answer[0] if isinstance(answer, tuple) else answer)
        return answer


@pytest.mark.parametrize(
    ("records", "value_bytes", "requests", "most_bytes"),
    [
        (1, 100, 1, 300 * PARTITIONS),  # an object of 0.3 MB is read whole, by one request
        (10, 1_000, 2, 2.2 * MIB),  # of one of 10 MB the end, and the block with its records
        (50, 1_000, 2, 2.2 * MIB),  # of one of 50 MB as much
    ],
)
def test_a_reader_of_one_partition_reads_small_objects_whole(
    memory_store, clock, records, value_bytes, requests, most_bytes
):
    writer = Process(memory_store, clock)
    batch = BatchAppend(numbered(0, records, value_bytes=value_bytes))
    for _ in range(OBJECTS):
        writer.group.append([StripeEntry(number, batch) for number in range(PARTITIONS)])
    objects = [file.size_bytes for file in memory_store.list(writer.directory.path)]
    assert len(objects) == OBJECTS
    store = MeteredStore(memory_store)
    reader = Process(store, clock)
    assert len(reader.values(7)) == records * OBJECTS
    assert store.requests == requests * OBJECTS
    assert store.read_bytes <= min(sum(objects), OBJECTS * most_bytes)
    # The objects stay open, and the block of the next partition is the same.
    store.requests = 0
    assert len(reader.values(8)) == records * OBJECTS
    assert store.requests == 0
