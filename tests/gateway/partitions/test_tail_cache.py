"""The cache of the newest batches: what it finds, and what it drops."""

from spark_log.gateway.partitions.tail_cache import CacheBudget, CachedBatch, TailCache
from spark_log.record import ProducerIdAndEpoch


def cached(base, end, size=10, compression=0, transaction=None):
    return CachedBatch(base, end, b"x" * size, compression, transaction)


def filled(*batches, limit=1000):
    budget = CacheBudget(limit)
    cache = TailCache(budget)
    for batch in batches:
        cache.add(batch, 0)
    return cache, budget


def offsets(found):
    return [batch.base_offset for batch in found]


def test_consecutive_batches_are_found_from_the_one_with_the_offset():
    cache, _ = filled(cached(0, 2), cached(2, 5), cached(5, 6))
    assert offsets(cache.find(3, 6, 1000)) == [2, 5]


def test_batches_after_a_gap_are_not_found_with_those_before_it():
    cache, _ = filled(cached(0, 2), cached(4, 6))
    assert offsets(cache.find(0, 6, 1000)) == [0]
    assert offsets(cache.find(2, 6, 1000)) == []
    assert offsets(cache.find(4, 6, 1000)) == [4]


def test_no_batch_behind_the_end_is_found():
    cache, _ = filled(cached(0, 2), cached(2, 5))
    assert offsets(cache.find(0, 4, 1000)) == [0]


def test_the_first_batch_may_be_larger_than_the_limit():
    cache, _ = filled(cached(0, 2), cached(2, 5))
    assert offsets(cache.find(0, 5, 1)) == [0]
    assert offsets(cache.find(0, 5, 19)) == [0]
    assert offsets(cache.find(0, 5, 20)) == [0, 2]


def test_zstd_is_not_found_for_a_reader_that_cannot_decompress_it():
    cache, _ = filled(cached(0, 2), cached(2, 5, compression=4))
    assert offsets(cache.find(0, 5, 1000, takes_zstd=False)) == [0]
    assert offsets(cache.find(2, 5, 1000, takes_zstd=False)) == []


def test_a_batch_before_the_last_one_is_not_added():
    cache, budget = filled(cached(4, 6), cached(2, 4), cached(4, 6))
    assert budget.used_bytes == 10
    assert offsets(cache.find(2, 6, 1000)) == []


def test_the_oldest_batches_of_all_caches_are_dropped():
    first, budget = filled(cached(0, 2), limit=25)
    second = TailCache(budget)
    second.add(cached(0, 1), 0)
    first.add(cached(2, 3), 0)
    assert offsets(first.find(0, 3, 1000)) == []
    assert offsets(first.find(2, 3, 1000)) == [2]
    assert offsets(second.find(0, 1, 1000)) == [0]
    assert budget.used_bytes == 20


def test_dropped_batches_use_no_memory():
    cache, budget = filled(cached(0, 2), cached(2, 5))
    cache.drop_before(2)
    assert budget.used_bytes == 10
    cache.clear()
    assert budget.used_bytes == 0


def test_a_batch_larger_than_the_budget_is_not_kept():
    cache, budget = filled(cached(0, 2, size=100), limit=50)
    assert offsets(cache.find(0, 2, 1000)) == []
    assert budget.used_bytes == 0


def test_batches_that_were_added_before_a_time_are_dropped():
    budget = CacheBudget(1000)
    cache = TailCache(budget)
    for base, time_ms in ((0, 100), (1, 100), (2, 250), (3, 400)):
        cache.add(cached(base, base + 1), time_ms)
    cache.drop_added_before(100)
    assert offsets(cache.find(0, 4, 1000)) == [0, 1, 2, 3]
    cache.drop_added_before(300)
    assert offsets(cache.find(2, 4, 1000)) == []
    assert offsets(cache.find(3, 4, 1000)) == [3]
    assert budget.used_bytes == 10
    cache.drop_added_before(500)
    assert budget.used_bytes == 0


def test_committed_readers_find_a_transaction_when_it_is_known_to_be_committed():
    first, other, second = (
        ProducerIdAndEpoch(7, 0),
        ProducerIdAndEpoch(8, 0),
        ProducerIdAndEpoch(7, 1),
    )
    cache, _ = filled(
        cached(0, 1, transaction=first),
        cached(1, 2, transaction=other),
        cached(2, 3, transaction=first),
        cached(3, 4),  # the marker of the first one
        cached(4, 5, transaction=second),
    )

    def found(offset):
        return offsets(cache.find(offset, 5, 1000, is_committed=True))

    assert offsets(cache.find(0, 5, 1000)) == [0, 1, 2, 3, 4]
    assert found(0) == []
    cache.commit(second)
    assert [found(0), found(2), found(3)] == [[], [], [3, 4]]
    cache.commit(first)  # its producer has a later transaction: only that is searched for
    assert found(2) == []


def test_a_commit_concerns_only_its_own_transaction():
    first, other = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 3)
    cache, _ = filled(
        cached(0, 1, transaction=first),
        cached(1, 2, transaction=other),
        cached(2, 3, transaction=first),
    )
    cache.commit(ProducerIdAndEpoch(8, 2))
    cache.commit(first)
    assert offsets(cache.find(0, 3, 1000, is_committed=True)) == [0]
    assert offsets(cache.find(2, 3, 1000, is_committed=True)) == [2]
    cache.commit(other)
    assert offsets(cache.find(0, 3, 1000, is_committed=True)) == [0, 1, 2]
