"""Versions of a table as a listing of the log shows them, and topics whose cold part is Parquet."""

import pyarrow as pa
import pyarrow.parquet as pq

from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.table import PartitionTable, PartitionVersion, TableFile, TopicVersion

TOPIC = "t"


def clean(root, storage_options=None):
    """Convert what is cold to Parquet, and apply retention and compaction."""
    for each in ClusterCleaner(Cluster(root, storage_options), table_at_once=True).clean():
        assert each.error is None, each


def version_of(cluster, number=0, *, topic=TOPIC):
    """Return a version with all Parquet segments from the log's start to the first other one."""
    image = cluster.topic(topic)
    partitions = {}
    for partition in image.partitions:
        log = cluster.partition_log(image, partition)
        view = log.observe()
        files, end = {}, view.log_start_offset
        for segment in view.live.segments:
            if not segment.name.is_parquet:
                break
            files[segment.name] = _facts(log, segment)
            end = segment.name.last_offset + 1
        table = PartitionTable(start=view.log_start_offset, end=end, files=tuple(files))
        partitions[partition] = PartitionVersion(table, files)
    return TopicVersion(number, partitions)


def _facts(log, segment):
    footer = pq.ParquetFile(
        pa.BufferReader(log.files.store.open_buffer(segment.file.path))
    ).metadata
    times = []
    for at in range(footer.num_row_groups):
        statistics = footer.row_group(at).column(1).statistics
        times += [statistics.min_raw, statistics.max_raw]
    return TableFile(segment.file.size_bytes, (min(times), max(times)) if times else None)
