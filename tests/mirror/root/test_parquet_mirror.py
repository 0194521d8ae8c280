"""A topic whose cold part is Parquet is copied from root to root, byte by byte."""

from pathlib import Path

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.mirror import RootMirror, TopicFilter
from tests.consumer.support import append, numbered
from tests.mirror.support import read_log

CONFIGS = {"table.format": "delta", "retention.ms": "-1", "flush.on.append": "false"}


def parquet_files(root):
    return {path.name: path.read_bytes() for path in Path(root).rglob("t-0/*.parquet")}


def test_the_copy_has_the_same_parquet_files_and_goes_on_behind_them(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    Admin(source).create_topics([NewTopic("t", topic_configs=CONFIGS)])
    Admin(target).create_topics([NewTopic("other")])
    for first in range(0, 40, 4):
        append(source, numbered(first, first + 4))
    list(ClusterCleaner(Cluster(source), table_at_once=True).clean())
    append(source, numbered(40, 43))
    copies = RootMirror(Cluster(source), Cluster(target), TopicFilter.parse(["t"]))
    assert [each.lag for each in copies.copy()] == [0]
    assert parquet_files(source)
    assert parquet_files(target) == parquet_files(source)
    append(source, numbered(43, 45))
    copies.copy()
    assert read_log(target, "t", 1) == read_log(source, "t", 1)
