"""Variants of the deletion of topics without one of its safety rules."""

from __future__ import annotations

from collections.abc import Iterator

from spark_log.admin import topics as admin_module
from spark_log.cluster import Cluster, topic_deletion
from spark_log.cluster import cleaner as cluster_cleaner
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.cluster.topic_deletion import DeletedTopic, finish_deletions
from spark_log.log.clean import cleaner
from spark_log.metadata import metadata_log
from spark_log.metadata.image import MetadataImage
from spark_log.storage import DELETION_MARKERS, Store
from tests.simulation.deletion import actors
from tests.simulation.deletion.world import RootStore
from tests.simulation.patches import PatchVariant


def _marks_nothing(*_: object) -> None:
    pass


class _RemembersTheMetadata(ClusterCleaner):
    """Takes topics for deleted that did not exist when it began."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._known = _KnownCluster(cluster)

    def deleted_topics(self) -> Iterator[DeletedTopic]:
        yield from finish_deletions(self._known, dry_run=False)


class _KnownCluster(Cluster):
    """A cluster whose metadata stay as they are now."""

    def __init__(self, cluster: Cluster) -> None:
        vars(self).update(vars(cluster))
        self._image = cluster.image()

    def image(self) -> MetadataImage:
        return self._image


def _own_time_us(store: Store, directory: str) -> int:
    """Return the process's own time in place of the storage's."""
    assert isinstance(store, RootStore)
    return store.clock.time_us()


def _removes_all_unknown(cluster: Cluster, *, dry_run: bool) -> list[DeletedTopic]:
    found = list(cluster.store.list_directories(""))
    known = {topic.directory for topic in cluster.image().topics()}
    for directory in found:
        if directory not in {
            *known,
            metadata_log.METADATA_DIRECTORY,
            DELETION_MARKERS,
        }:
            cluster.store.delete_directory(directory)
    return []


DELETION_RULES: dict[str, PatchVariant] = {
    "a deletion is marked before it is made": PatchVariant(
        ((admin_module, "mark_deleted", _marks_nothing),)
    ),
    "metadata are looked at after the markers": PatchVariant(
        ((actors, "ClusterCleaner", _RemembersTheMetadata),)
    ),
    "a marker goes by the storage's time": PatchVariant(
        ((topic_deletion, "storage_time_us", _own_time_us),)
    ),
    "a process with a wrong clock cleans nothing": PatchVariant(
        (
            (cleaner, "check_clock_skew", _marks_nothing),
            (topic_deletion, "check_clock_skew", _marks_nothing),
        )
    ),
    "only a marked topic is removed": PatchVariant(
        ((cluster_cleaner, "finish_deletions", _removes_all_unknown),)
    ),
}
"""The name of each safety rule, and the variant without it."""
