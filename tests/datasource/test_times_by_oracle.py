"""A time in an option, a consumer's and an admin's lookup mean one offset: the oracle's."""

import random

import pytest

from spark_log import Admin, Consumer, TopicPartition
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.log.log_start import move_log_start
from tests.datasource.reading import BASE_MS, create, log_of, options_of, records

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("seed", range(3))
def test_all_ways_find_the_first_record_that_is_not_earlier(tmp_path, seed):
    rng = random.Random(seed)
    root = str(tmp_path / "root")
    create(root, "t", **{"message.timestamp.after.max.ms": 2**62})
    log = log_of(root)
    times_us: list[int] = []
    for _ in range(12):
        some = [BASE_MS * 1000 + rng.randrange(-9_500, 9_500) for _ in range(rng.randrange(1, 9))]
        if rng.random() < 0.3:
            some[-1] += 3_600_000_000 * 24 * 365 * 20  # a clock of the future
        first = len(times_us)
        log.append(records(range(first, first + len(some)), some))
        times_us += some
    log.replica.snapshots.write()
    start = 7
    move_log_start(log.replica, start)
    with Consumer(root=root) as consumer, Admin(root) as admin:
        for asked_ms in [*range(BASE_MS - 11, BASE_MS + 11), BASE_MS + 10**9]:
            hits = [at for at in range(start, len(times_us)) if times_us[at] >= asked_ms * 1000]
            expected = hits[0] if hits else None
            looked_up = consumer.offsets_for_times({TP: asked_ms})[TP]
            assert (None if looked_up is None else looked_up.offset) == expected
            listed = admin.list_offsets({TP: asked_ms})[TP]
            assert (None if expected is None else listed.offset) == expected
            options = options_of(
                root,
                startingTimestamp=str(asked_ms),
                startingOffsetsByTimestampStrategy="latest",
            )
            (offset,) = OffsetReader(options).starting_offsets(is_batch=True).values()
            assert offset == (len(times_us) if expected is None else expected)
