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
        "For each partition the cleaner reads a listing and the last segment, and then checks "
        "the metadata. Once, it learns the storage's time by a PUT, a HEAD and a DELETE.",
    ),
    Operation(
        f"compacting {COMPACTED} small segments",
        compaction,
        39,
        22,
        "The cleaner reads each segment once, up to 16 at the same time. It writes the "
        "generation, the rewritten segment and a snapshot, lists the partition before and after,"
        " and learns the storage's time twice.",
    ),
    Operation(
        f"a controller's round, {PARTITIONS} partitions",
        control,
        3,
        2,
        "The controller checks the metadata, and sends a probe to each other broker.",
    ),
    Operation(
        f"a mirror's step without records, {MIRRORED} partitions",
        idle_mirror,
        12,
        6,
        "The mirror checks the metadata of both roots, and asks both roots for the next segment "
        "of each partition.",
    ),
    Operation(
        f"a mirror's step, a segment of {MIRRORED} partitions",
        mirrored_segments,
        40,
        14,
        "To the requests of a step without records, the mirror adds for each partition two "
        "listings of the source, two reads of the segment (for the transactions in it, and to "
        "copy it) and the put.",
    ),
)
