"""Ends of striped partitions: one request for each stripe, and no listing."""

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.consumer.position.offset_fetcher import OffsetFetcher
from tests.log.support import HookedStore
from tests.record.samples import numbered

PARTITIONS = [TopicPartition("t", number) for number in range(20)]


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_ends_of_all_partitions_cost_one_request_for_each_stripe(tmp_path, monkeypatch, level):
    root = tmp_path / "root"
    settings = {"stripes": 2, "flush.on.append": False}
    Admin(root).create_topics([NewTopic("t", 20, topic_configs=settings)])
    cluster, writer = Cluster(root), Cluster(root)
    writer.partition_log(writer.topic("t"), 7).append(numbered(0, 3))
    store = HookedStore(cluster.store, is_mapped=False)
    monkeypatch.setattr(cluster, "store", store)
    fetcher = OffsetFetcher(cluster, level)
    expected = {tp: 3 if tp.partition == 7 else 0 for tp in PARTITIONS}
    assert fetcher.end_offsets(PARTITIONS) == expected
    requests, topic = [], cluster.topic("t")

    def count(path, call):
        if path.startswith(topic.directory):
            requests.append(path)
        return call()

    for operation in ("read", "read_tail", "open_buffer", "list", "head"):
        store.on(operation, count)
    writer.partition_log(writer.topic("t"), 8).append(numbered(0, 2))
    expected[TopicPartition("t", 8)] = 2
    assert fetcher.end_offsets(PARTITIONS) == expected
    assert 2 <= len(requests) <= 3  # the new object is found at one of the ends
    bounds = fetcher.bounds(PARTITIONS)
    assert bounds == {tp: (0, end) for tp, end in expected.items()}
    assert fetcher.views(PARTITIONS)[TopicPartition("t", 8)].log_end_offset == 2


def test_the_starts_of_partitions_with_nothing_at_home_cost_one_listing(tmp_path, monkeypatch):
    """A start that another process has moved is seen at once all the same."""
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic("t", 20, topic_configs={"stripes": 1})])
    cluster, writer = Cluster(root), Cluster(root)
    log = writer.partition_log(writer.topic("t"), 7)
    log.append(numbered(0, 3))
    store = HookedStore(cluster.store, is_mapped=False)
    monkeypatch.setattr(cluster, "store", store)
    fetcher = OffsetFetcher(cluster, "read_uncommitted")

    def listed():
        """Look at all starts, and return those of partition 7, and the partitions listed."""
        store.calls.clear()
        begin, end = fetcher.bounds(PARTITIONS)[TopicPartition("t", 7)]
        paths = store.called("list")
        assert sum("__stripes" in path for path in paths) <= 2
        return begin, end, sorted(path.split("/")[-1] for path in paths if "/t-" in path)

    assert listed() == (0, 3, [])
    assert listed() == (0, 3, [])
    log.move_start(2)
    log.append(numbered(3, 1))
    assert listed() == (2, 4, ["t-7"])
