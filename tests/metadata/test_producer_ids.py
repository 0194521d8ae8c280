"""Producer ids are unique, also for concurrent requests."""

from concurrent.futures import ThreadPoolExecutor

from spark_log.cluster import Cluster
from spark_log.metadata.producer_ids import BLOCK_SIZE


def test_a_process_takes_a_block_and_then_counts(tmp_path):
    cluster = Cluster(tmp_path / "root", create=True)
    ids = [cluster.producer_ids.next_id() for _ in range(3)]
    assert ids == [0, 1, 2]
    assert cluster.image().next_producer_id == BLOCK_SIZE


def test_another_process_gets_others_also_after_a_restart(tmp_path):
    first = Cluster(tmp_path / "root", create=True)
    assert first.producer_ids.next_id() == 0
    assert Cluster(tmp_path / "root").producer_ids.next_id() == BLOCK_SIZE
    assert Cluster(tmp_path / "root").producer_ids.next_id() == 2 * BLOCK_SIZE
    assert first.producer_ids.next_id() == 1


def test_the_next_block_comes_when_one_is_used_up(tmp_path):
    one, other = (Cluster(tmp_path / "root", create=True) for _ in range(2))
    other.producer_ids.next_id()
    ids = [one.producer_ids.next_id() for _ in range(BLOCK_SIZE + 2)]
    assert ids[0] == BLOCK_SIZE
    assert ids[-2:] == [2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 1]


def test_threads_and_handles_never_get_the_same(tmp_path):
    clusters = [Cluster(tmp_path / "root", create=True) for _ in range(4)]

    def draw(number):
        return [clusters[number % 4].producer_ids.next_id() for _ in range(700)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [producer_id for ids in pool.map(draw, range(8)) for producer_id in ids]
    assert len(set(drawn)) == len(drawn) == 5_600
