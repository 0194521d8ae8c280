"""Lists partitions for the overview: a bounded number of listings for each view."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import numpy as np

from spark_log.admin import partition_keys
from spark_log.console.activity import Activity, activity
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.observations import Observation
from spark_log.coordinator import PartitionKey
from spark_log.errors import SparkLogError, UnknownTopicOrPartitionError
from spark_log.log import LogView
from spark_log.log.files import LiveSegment
from spark_log.metadata import MetadataImage, TopicImage

MAX_LISTED: Final = 200
"""Maximum number of partitions that one view lists, and of merged segments whose headers it reads.

On an object store, where requests cost money, the limit is a fifth of it."""

PartitionObservations = Mapping[PartitionKey, Observation[Activity | None]]
Committed = Mapping[str, Mapping[PartitionKey, int]]


def observe_partitions(
    console: Console,
    image: MetadataImage,
    committed: Committed,
    since_step: int,
    budget: Budget,
) -> PartitionObservations:
    """List some partitions, and return the last observation of every partition listed so far.

    Partitions with committed offsets come first, then the first partitions of each topic.

    Args:
        console: the console of the root.
        image: the metadata.
        committed: group id → partition → committed offset.
        since_step: the first quarter minute whose appends are counted (`activity.step_of`).
        budget: the budget of the request.
    """
    by_topic = [partition_keys(topic) for topic in image.topics()]
    every = [key for keys in itertools.zip_longest(*by_topic) for key in keys if key is not None]
    of_groups = {key for offsets in committed.values() for key in offsets}
    every.sort(key=lambda key: key not in of_groups)

    is_local = console.cluster.store.is_local
    limit = MAX_LISTED if is_local else MAX_LISTED // 5
    opened = itertools.count()

    def see(key: PartitionKey) -> Activity | None:
        topic = image.topic(key.topic)
        with suppress(UnknownTopicOrPartitionError):  # deleted since the metadata were read
            view = console.observe(topic, key.partition)
            if view is None:
                return None

            def merged(segment: LiveSegment) -> Mapping[int, float]:
                return console.merged.steps(
                    f"{view.origin}/{segment.name.file_name}",
                    since_step,
                    lambda: (
                        _headers(console, topic, key.partition, view, segment)
                        if next(opened) < limit
                        else None
                    ),
                )

            return activity(view, since_step, merged)
        return Activity(0, 0)

    return console.activities.refresh(every, lambda keys: console.map(see, keys, budget), limit)


def _headers(
    console: Console, topic: TopicImage, partition: int, view: LogView, segment: LiveSegment
) -> np.ndarray | None:
    """Return the batch headers of a segment on the listed replica; None if it cannot be read."""
    cluster = console.cluster
    with cluster.suppressed.suppress("console segment", view.origin, SparkLogError):
        for broker_id in topic.partitions[partition].replicas:
            log = cluster.replica_log(topic, partition, broker_id)
            if log.files.url == view.origin:
                return log.files.open_listed(segment, view.observed_ms).header_array()
    return None
