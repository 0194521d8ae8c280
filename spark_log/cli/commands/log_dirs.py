"""``spark-log log-dirs``: directories and sizes of partitions."""

from __future__ import annotations

from spark_log.cli.format import Output, print_json, print_table, print_text
from spark_log.cli.options import Root, Topics, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.types import LogDirDescription, ReplicaInfo
from spark_log.util import printable


@with_examples("spark-log log-dirs flights")
@with_option_groups
def log_dirs(topics: Topics, root: Root, output: Output) -> None:
    """Show directories and sizes of replicas, by broker.

    Without names the partitions of all topics are shown. For a broker whose root cannot be read,
    the error is shown. A partition of a topic with stripes has its part of the objects that are not
    at home; a second table has all files of each stripe.
    """
    described = root.admin().describe_log_dirs(topics.names_or_none)
    if output.is_json:
        print_json({"log_dirs": [_document(log_dir) for log_dir in described]})
        return
    columns = ["Topic", "Partition", "Bytes", "Segments", "Start", "End", "Lag", "Path"]
    for log_dir in described:
        print_text(f"Broker {log_dir.broker}: {log_dir.log_dir}")
        if log_dir.error is not None:
            print_text(f"Error: {printable(log_dir.error)}")
            continue
        print_table(columns, [_row(replica) for replica in log_dir.replicas])
        partitions, segments, size_bytes = _totals(log_dir).values()
        print_text(f"Total: partitions {partitions}, segments {segments}, bytes {size_bytes}")
        if log_dir.stripes:
            rows = [[each.path, each.files, each.size_bytes] for each in log_dir.stripes]
            print_table(["Stripe", "Files", "Bytes"], rows)


def _document(log_dir: LogDirDescription) -> dict[str, object]:
    return {
        "broker": log_dir.broker,
        "log_dir": log_dir.log_dir,
        "error": log_dir.error,
        "partitions": [
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "size_bytes": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "is_future": replica.is_future,
                "segments": replica.segments,
                "log_start_offset": replica.log_start_offset,
                "log_end_offset": replica.log_end_offset,
                "path": replica.path,
            }
            for replica in log_dir.replicas
        ],
        "stripes": [
            {"path": each.path, "files": each.files, "size_bytes": each.size_bytes}
            for each in log_dir.stripes
        ],
        "totals": _totals(log_dir),
    }


def _row(replica: ReplicaInfo) -> list[object]:
    return [
        replica.topic,
        replica.partition,
        replica.size_bytes,
        replica.segments,
        replica.log_start_offset,
        replica.log_end_offset,
        replica.offset_lag,
        replica.path,
    ]


def _totals(log_dir: LogDirDescription) -> dict[str, int]:
    return {
        "partitions": len(log_dir.replicas),
        "segments": sum(replica.segments for replica in log_dir.replicas),
        "size_bytes": sum(replica.size_bytes for replica in log_dir.replicas),
    }
