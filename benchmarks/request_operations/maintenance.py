"""Operations of the processes besides clients: the cleaner, the controller, a mirror."""

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.request_operations.operation import Call, Operation, Root
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.mirror.replication_policy import TopicFilter
from spark_log.mirror.root.root_mirror import RootMirror
from spark_log.replication import Controller

PARTITIONS = 10
"""Number of partitions that an idle cleaner and an idle controller check."""

COMPACTED = 20
"""Number of segments of the log that is compacted."""

MIRRORED = 4
"""Number of partitions that are mirrored."""


@contextmanager
def idle_cleaning(root: Root) -> Iterator[Call]:
    """A cleaner finds nothing to do in ten partitions with one segment each."""
    root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    list(ClusterCleaner(Cluster(root.url, root.direct), ["t"]).clean())
    cluster = root.cluster()
    yield lambda: _clean(cluster)


@contextmanager
def compaction(root: Root) -> Iterator[Call]:
    """A partition of small segments with one key is compacted."""
    root.create_topic(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    root.send(COMPACTED, key=b"key")
    cluster = root.cluster()
    yield lambda: _clean(cluster)


def _clean(cluster: Cluster) -> None:
    for each in ClusterCleaner(cluster, ["t"]).clean():
        assert each.error is None, each.error


@contextmanager
def control(root: Root) -> Iterator[Call]:
    """A controller finds all replicas of ten partitions on three brokers in sync."""
    root.create_topic(PARTITIONS, replicas=3)
    root.send(PARTITIONS, partitions=PARTITIONS)
    controller = Controller(root.cluster())
    controller.register()
    while controller.do_round():
        pass
    yield controller.do_round


@contextmanager
def idle_mirror(root: Root) -> Iterator[Call]:
    """A mirror of four partitions of another root finds nothing new."""
    mirror = _mirror(root)
    mirror.copy()
    yield mirror.copy


@contextmanager
def mirrored_segments(root: Root) -> Iterator[Call]:
    """A mirror copies one segment of each of four partitions of another root."""
    mirror = _mirror(root)
    mirror.copy()
    root.send(MIRRORED, partitions=MIRRORED)
    yield mirror.copy


def _mirror(root: Root) -> RootMirror:
    root.create_topic(MIRRORED)
    root.send(MIRRORED, partitions=MIRRORED)
    target = root.beside("target")
    target.create_topic(name="other")
    return RootMirror(root.cluster(), target.cluster(), TopicFilter.parse(["t"]))


OPERATIONS = (
    Operation(
        f"cleaning {PARTITIONS} idle partitions",
        idle_cleaning,
        3 * PARTITIONS + 4,
        9,
        "for each partition a listing, its last segment, and a check of the metadata after it; a "
        "put, a HEAD and a deletion that ask for the storage's clock",
    ),
    Operation(
        f"compacting {COMPACTED} small segments",
        compaction,
        39,
        22,
        "each segment once, up to 16 at the same time; the generation, the rewritten segment, a "
        "snapshot, the listings before and after; twice the storage's clock",
    ),
    Operation(
        f"a controller's round, {PARTITIONS} partitions",
        control,
        3,
        2,
        "a check of the metadata, a probe of each other broker",
    ),
    Operation(
        f"a mirror's step without records, {MIRRORED} partitions",
        idle_mirror,
        12,
        6,
        "a check of both roots' metadata, and for the next segment of each partition in both roots",
    ),
    Operation(
        f"a mirror's step, a segment of {MIRRORED} partitions",
        mirrored_segments,
        40,
        14,
        "as without records; for each partition two listings of the source, the segment for the "
        "transactions in it and to copy it, the put",
    ),
)
