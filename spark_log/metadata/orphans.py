"""Directories of a broker that are no replica's: of deleted topics, former replicas, others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_log.log import WITNESSES
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from spark_log.metadata.topic_image import TopicImage
from spark_log.metadata.topics import (
    DELETION_MARKERS,
    STRAY_REPLICAS,
    parse_replica_directory,
)

_TOPIC_DIRECTORY: Final = re.compile(r".+\.[\w-]{22}")
_INTERNAL: Final = (
    METADATA_DIRECTORY,
    "__consumer_offsets",
    "__consumer_groups",
    "__transaction_state",
    DELETION_MARKERS,
    STRAY_REPLICAS,
    WITNESSES,
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
    found = dict(
        list_all(lambda name: set(store.list_directories(name)), store.list_directories(""))
    )
    # Read the metadata after the listing, so that a topic created meanwhile is known.
    topics = {topic.directory: topic for topic in cluster.image().topics()}
    if not topics.keys() >= found.keys() - set(_INTERNAL):
        # List again: a directory that is just being deleted is not orphaned.
        found = {name: found[name] for name in store.list_directories("") if name in found}
    for name in sorted(found):
        if name in topics:
            for directory in sorted(found[name]):
                yield from _orphaned_replica(topics[name], directory, broker_id)
        elif _TOPIC_DIRECTORY.fullmatch(name):
            yield OrphanedDirectory(name, OrphanKind.TOPIC)
        elif name not in _INTERNAL:
            yield OrphanedDirectory(name, OrphanKind.FOREIGN)


def _orphaned_replica(topic: TopicImage, name: str, broker_id: int) -> Iterator[OrphanedDirectory]:
    """Yield a directory in that of a topic if it is not that of a replica."""
    path = f"{topic.directory}/{name}"
    found = parse_replica_directory(name)
    state = None if found is None else topic.partitions.get(found[0])
    if found is None or state is None:
        yield OrphanedDirectory(path, OrphanKind.PARTITION, topic.name)
    elif broker_id not in state.replicas or found[1] != state.directory_of(broker_id):
        yield OrphanedDirectory(path, OrphanKind.REPLICA, topic.name)
