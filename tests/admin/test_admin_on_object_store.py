"""`Admin` on a real S3 server: configs, offsets and records as on a local disk."""

import pytest

from spark_log import Admin, ConfigResource, NewTopic, OffsetSpec, TopicPartition
from spark_log.cluster import Cluster
from tests.record.samples import START_US, numbered


@pytest.fixture
def root(s3_server):
    return f"{s3_server.new_bucket()}/some/root"


@pytest.mark.partition_logs_only("deletions take records home in one batch")
def test_everything_is_done_as_on_a_disk(s3_server, root):
    options = s3_server.storage_options
    admin = Admin(root, storage_options=options)
    admin.create_topics([NewTopic("a", 2)])
    cluster = Cluster(root, options)
    log = cluster.partition_log(cluster.topic("a"), 1)
    log.append(numbered(0, 3))
    log.append(numbered(3, 2))
    both = [TopicPartition("a", 0), TopicPartition("a", 1)]

    def offsets(spec):
        return [found.offset for found in admin.list_offsets(dict.fromkeys(both, spec)).values()]

    assert offsets(OffsetSpec.LATEST) == [0, 5]
    assert offsets(OffsetSpec.MAX_TIMESTAMP) == [-1, 4]
    assert offsets(START_US // 1000 + 1) == [-1, 1]
    assert admin.delete_records({both[1]: 2})[both[1]].low_watermark == 2
    assert offsets(OffsetSpec.EARLIEST) == [0, 2]
    assert [batch.base_offset for batch in log.scan(2)] == [2, 3]

    admin.create_partitions({"a": 3})
    admin.alter_configs([ConfigResource("topic", "a", {"segment.bytes": 2**21})])
    entry = admin.describe_configs([ConfigResource("topic", "a")])["topic"]["a"]["segment.bytes"]
    assert (entry.value, entry.source) == (str(2**21), "DYNAMIC_TOPIC_CONFIG")
    (log_dir,) = admin.describe_log_dirs(["a"])
    assert (log_dir.log_dir, len(log_dir.replicas)) == (root, 3)
    assert log_dir.replicas[1].log_start_offset == 2
