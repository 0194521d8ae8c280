"""`Admin` on log directories."""

import pytest

from spark_log import (
    Admin,
    NewTopic,
    ReplicaInfo,
)
from spark_log.cluster import Cluster
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.metadata import shrink_isr
from tests.metadata.support import append
from tests.record.samples import numbered


class TestLogDirs:
    @pytest.mark.partition_logs_only("measures files of a partition")
    def test_a_root_holds_every_replica(self, admin, root):
        admin.create_topics([NewTopic("b"), NewTopic("a", 2)])
        log = append(root, "a", 4, partition=1)
        append(root, "a", 1, partition=1)
        (log_dir,) = admin.describe_log_dirs()
        assert (log_dir.broker, log_dir.log_dir) == (0, str(root))
        partitions = [(replica.topic, replica.partition) for replica in log_dir.replicas]
        assert partitions == [("a", 0), ("a", 1), ("b", 0)]
        files = Cluster(root).store.list(log.directory)
        assert log_dir.replicas[1] == ReplicaInfo(
            topic="a",
            partition=1,
            size_bytes=sum(file.size_bytes for file in files),
            offset_lag=0,
            is_future=False,
            segments=2,
            log_start_offset=0,
            log_end_offset=5,
            path=str(root / log.directory),
        )

    def test_can_be_asked_for_some(self, admin):
        admin.create_topics([NewTopic("b"), NewTopic("a", 2)])

        def asked(which):
            (log_dir,) = admin.describe_log_dirs(which)
            return [(replica.topic, replica.partition) for replica in log_dir.replicas]

        assert asked(["b"]) == [("b", 0)]
        assert asked({"a": [1], "b": [0]}) == [("a", 1), ("b", 0)]
        with pytest.raises(UnknownTopicOrPartitionError):
            asked({"a": [2]})


class TestReplicas:
    @pytest.fixture
    def cluster(self, admin, root, tmp_path):
        """Return a cluster with a topic on the brokers 1 and 0, of which 0 lags behind."""
        for broker_id in (1, 2):
            admin.register_broker(broker_id, tmp_path / f"broker-{broker_id}")
        topic = NewTopic("a", replica_assignment={0: [1, 0]})
        topic_id = admin.create_topics([topic])["a"]
        cluster = Cluster(root)
        cluster.metadata.commit(lambda image: shrink_isr(image, topic_id, 0, [0], leader_epoch=0))
        for broker_id, count in ((1, 5), (0, 3)):
            cluster.replica_log(cluster.topic("a"), 0, broker_id).append(numbered(0, count))
        return cluster

    def test_are_described_on_each_broker_with_their_lag(self, admin, cluster, tmp_path):
        zero, one, two = admin.describe_log_dirs()
        assert [(each.broker, each.error) for each in (zero, one, two)] == [
            (0, None),
            (1, None),
            (2, None),
        ]
        (lagging,), (leading,) = zero.replicas, one.replicas
        assert (lagging.log_end_offset, lagging.offset_lag) == (3, 2)
        assert (leading.log_end_offset, leading.offset_lag) == (5, 0)
        directory = cluster.topic("a").partition_directory(0)
        assert leading.path == str(tmp_path / "broker-1" / directory)
        assert two.replicas == ()

    def test_of_a_broker_that_is_unreachable_there_is_its_error(self, admin, cluster, tmp_path):
        (tmp_path / "broker-1").rename(tmp_path / "elsewhere")
        zero, one, two = Admin(cluster.root).describe_log_dirs()
        assert len(zero.replicas) == 1
        assert one.replicas == ()
        assert "broker 1 cannot be found" in str(one.error)
        assert two.error is None
