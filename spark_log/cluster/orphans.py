"""Directories of a broker that no replica uses: of deleted topics, former replicas, others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from spark_log.cluster.cluster import Cluster
from spark_log.metadata import TopicImage, parse_replica_directory, stripes_after_change
from spark_log.storage import (
    DELTA_LOG,
    ROOT_DIRECTORIES,
    SCRATCH_PREFIX,
    STRIPES_DIRECTORY,
    Store,
    is_of_file_system,
    is_topic_directory,
)
from spark_log.table import PARTITION_FOLDER_PREFIX


class OrphanKind(StrEnum):
    """The former owner of an orphaned directory."""

    TOPIC = "topic"
    """It has the name of a topic's directory, and the metadata have no such topic."""

    PARTITION = "partition"
    """It is in a topic's directory, and the topic has no such partition."""

    STRIPE = "stripe"
    """It is in the directory of a topic's stripes, and the topic has no such stripe."""

    REPLICA = "replica"
    """It belonged to a replica that was moved, or that rejoined in another directory, or
    it belongs to a replica that is about to rejoin."""

    SCRATCH = "scratch"
    """A running doctor writes in it, or a killed doctor left it."""

    FOREIGN = "foreign"
    """It does not belong to spark-log."""


@dataclass(frozen=True, slots=True)
class OrphanedDirectory:
    """A directory that no replica uses.

    Attributes:
        path: the directory's path, relative to the broker's root.
        kind: the kind of the directory's former owner.
        topic: the name of the topic whose directory contains it; None outside of topics.
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
    """Yield the directories of a broker that no replica uses, sorted.

    Args:
        cluster: the opened root.
        broker_id: the id of the broker.
        list_all: calls a function for each name, and returns pairs of name and result in any
            order. It may list several directories at the same time.

    Raises:
        BrokerIdNotRegisteredError: the broker is not registered.
        StorageError: its root cannot be reached.
    """
    store = cluster.broker_store(broker_id)
    names = _directories(store)
    # List only topics' directories: listing ``lost+found`` is forbidden.
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
            known = {DELTA_LOG}
            if topics[name].stripes or topics[name].first_stripe or topics[name].moving_to:
                known.add(STRIPES_DIRECTORY)
                yield from _orphaned_stripes(store, topics[name])
            for directory in sorted(replicas[name] - known):
                if directory.startswith(PARTITION_FOLDER_PREFIX):
                    continue  # of a program that was refused: see `left_data_files`
                yield from _orphaned_replica(topics[name], directory, broker_id)
        elif is_topic_directory(name):
            yield OrphanedDirectory(name, OrphanKind.TOPIC)
        elif name.startswith(SCRATCH_PREFIX):
            yield OrphanedDirectory(name, OrphanKind.SCRATCH)
        else:
            yield OrphanedDirectory(name, OrphanKind.FOREIGN)


def _orphaned_stripes(store: Store, topic: TopicImage) -> Iterator[OrphanedDirectory]:
    """Yield the directories of stripes that a topic does not have."""
    parent = f"{topic.directory}/{STRIPES_DIRECTORY}"
    # Ended ones have a home marker, which fences the writers of that time.
    numbers = {str(number) for number in range(stripes_after_change(topic).stop)}
    for name in sorted(set(store.list_directories(parent)) - numbers):
        yield OrphanedDirectory(f"{parent}/{name}", OrphanKind.STRIPE, topic.name)


def _directories(store: Store) -> set[str]:
    """Return the directories in a root, except those of spark-log itself and of the file system."""
    return {
        name
        for name in store.list_directories("")
        if name not in ROOT_DIRECTORIES and not is_of_file_system(name)
    }


def _orphaned_replica(topic: TopicImage, name: str, broker_id: int) -> Iterator[OrphanedDirectory]:
    """Yield a directory inside a topic's directory, if no replica uses it."""
    path = f"{topic.directory}/{name}"
    found = parse_replica_directory(name)
    state = None if found is None else topic.partitions.get(found[0])
    if found is None or state is None:
        yield OrphanedDirectory(path, OrphanKind.PARTITION, topic.name)
    elif broker_id not in state.replicas or found[1] != state.directory_of(broker_id):
        yield OrphanedDirectory(path, OrphanKind.REPLICA, topic.name)
