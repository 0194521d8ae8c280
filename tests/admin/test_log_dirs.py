"""`Admin` on log directories."""

import pytest

from spark_log import (
    NewTopic,
    ReplicaInfo,
)
from spark_log.errors import (
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import Cluster
from tests.metadata.support import append


class TestLogDirs:
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
