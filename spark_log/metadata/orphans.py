"""Directories of a broker that are no replica's: of deleted topics, former replicas, others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from spark_log.metadata.cluster import Cluster
from spark_log.metadata.topic_image import TopicImage
from spark_log.metadata.topics import parse_replica_directory
from spark_log.storage import (
    ROOT_DIRECTORIES,
    SCRATCH_PREFIX,
    Store,
    is_of_file_system,
    is_topic_directory,
)


class OrphanKind(StrEnum):
    """Whose a directory was."""

    TOPIC = "topic"
    """It is named like a topic's, and the metadata have no such topic."""

    PARTITION = "partition"
    """It is in a topic's directory, and the topic has no such partition."""

    REPLICA = "replica"
    """It was that of a replica that was moved, or came back in another directory. Or it is that of
    a replica that is about to come back."""

    SCRATCH = "scratch"
    """A doctor writes in it while it runs; one that was killed has left it."""

    FOREIGN = "foreign"
    """It does not belong to spark-log."""


@dataclass(frozen=True, slots=True)
class OrphanedDirectory:
    """A directory that is no replica's.

    Attributes:
        path: relative to the broker's root.
        kind: whose it was.
        topic: name of the topic that it lies in; None if it lies in none.
    """

    path: str
    kind: OrphanKind
    topic: str | None = None


def _list_all(
    call: Callable[[str], set[str]], names: Iterable[str]
) -> Iterator[tuple[str, set[str]]]:
    return ((name, call(name)) for name in names)


def orphaned_directories(
    cluster: Cluster,
    broker_id: int,
    list_all: Callable[
        [Callable[[str], set[str]], Iterable[str]], Iterable[tuple[str, set[str]]]
    ] = _list_all,
) -> Iterator[OrphanedDirectory]:
    """Yield the directories of a broker that are no replica's, sorted.

    Args:
        cluster: the opened root.
        broker_id: of the broker.
        list_all: calls a function for each name, and returns names and results in any order: to
            list several directories at once.

    Raises:
        BrokerIdNotRegisteredError: the broker is not registered.
        StorageError: its root cannot be reached.
    """
    store = cluster.broker_store(broker_id)
    names = _directories(store)
    # Only of topics: nobody may list ``lost+found``.
    replicas = dict(
        list_all(lambda name: set(store.list_directories(name)), filter(is_topic_directory, names))
    )
    # Read the metadata after the listing, so that a topic created meanwhile is known.
    topics = {topic.directory: topic for topic in cluster.image().topics()}
    if not topics.keys() >= names:
        # List again: a directory that is just being deleted is not orphaned.
        names &= _directories(store)
    for name in sorted(names):
        if name in topics:
            for directory in sorted(replicas[name]):
                yield from _orphaned_replica(topics[name], directory, broker_id)
        elif is_topic_directory(name):
            yield OrphanedDirectory(name, OrphanKind.TOPIC)
        elif name.startswith(SCRATCH_PREFIX):
            yield OrphanedDirectory(name, OrphanKind.SCRATCH)
        else:
            yield OrphanedDirectory(name, OrphanKind.FOREIGN)


def _directories(store: Store) -> set[str]:
    """Return the directories in a root but those that spark-log or the file system keeps."""
    return {
        name
        for name in store.list_directories("")
        if name not in ROOT_DIRECTORIES and not is_of_file_system(name)
    }


def _orphaned_replica(topic: TopicImage, name: str, broker_id: int) -> Iterator[OrphanedDirectory]:
    """Yield a directory in that of a topic if it is not that of a replica."""
    path = f"{topic.directory}/{name}"
    found = parse_replica_directory(name)
    state = None if found is None else topic.partitions.get(found[0])
    if found is None or state is None:
        yield OrphanedDirectory(path, OrphanKind.PARTITION, topic.name)
    elif broker_id not in state.replicas or found[1] != state.directory_of(broker_id):
        yield OrphanedDirectory(path, OrphanKind.REPLICA, topic.name)
