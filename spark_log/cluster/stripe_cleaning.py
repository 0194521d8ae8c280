"""Cleans the stripes of a topic: their records are taken home, and their old numbers are freed.

The logs of the partitions are cleaned afterwards, by what they have at home: retention, merges,
compaction and tables never see the entries of a stripe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spark_log.cluster.cluster import Cluster
from spark_log.errors import CorruptRecordError, SparkLogError, StorageError
from spark_log.log.clean import OnProgress
from spark_log.metadata import TopicImage
from spark_log.storage import STRIPES_DIRECTORY, StorageClock, check_clock_skew
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)


class CleanedStripe(NamedTuple):
    """The result of cleaning one stripe; in a dry run, the result that it would have.

    Attributes:
        topic: the topic.
        stripe: number of the stripe.
        rounds: number of rounds of taking home that read objects; 0 in a dry run.
        objects: number of objects whose records were taken home.
        freed_files: number of objects and home markers that were deleted.
        freed_bytes: the size of these files.
        error: the reason of a failure; None after a success. What was done before it counts.
    """

    topic: TopicImage
    stripe: int
    rounds: int = 0
    objects: int = 0
    freed_files: int = 0
    freed_bytes: int = 0
    error: SparkLogError | None = None


def stripes_of(topics: Mapping[TopicPartition, TopicImage]) -> list[tuple[TopicImage, int]]:
    """Return the stripes that partitions are in: topic and number of each.

    Args:
        topics: the topic of each partition.
    """
    found: dict[tuple[str, int], tuple[TopicImage, int]] = {}
    for tp, topic in topics.items():
        number = topic.stripe_of(tp.partition)
        if number is not None:
            found[topic.topic_id, number] = topic, number
    return list(found.values())


def ended_stripes(cluster: Cluster, topic: TopicImage) -> list[int]:
    """Return the numbers of stripes that a topic had before its number of stripes changed.

    Raises:
        StorageError: the storage does not answer.
    """
    if not topic.first_stripe:
        return []
    found = cluster.store.list_directories(f"{topic.directory}/{STRIPES_DIRECTORY}")
    numbers = (int(name) for name in found if name.isdecimal())
    return sorted(number for number in numbers if number < topic.first_stripe)


def clean_stripes(
    cluster: Cluster,
    topics: Mapping[TopicPartition, TopicImage],
    *,
    dry_run: bool,
    max_clock_skew_ms: int,
    storage_clock: StorageClock,
    on_progress: OnProgress = lambda done_bytes: None,
) -> Iterator[CleanedStripe]:
    """Clean the stripes that partitions are in, one after the other (`clean_stripe`).

    Of stripes that have ended the numbers are freed, but for the last home marker, which tells
    writers of that time that the stripe has ended.

    Args:
        cluster: the opened root.
        topics: the topic of each partition.
        dry_run: report what would be done, and do nothing.
        max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        storage_clock: the storage's clock, by which numbers are freed.
        on_progress: called with numbers of bytes, see `clean_stripe`.

    Raises:
        ClockSkewError: this process's clock is too far from the storage's.
    """
    stripes = stripes_of(topics)
    for topic in {each.topic_id: each for each in topics.values() if each.first_stripe}.values():
        try:
            stripes += [(topic, number) for number in ended_stripes(cluster, topic)]
        except StorageError as error:
            yield CleanedStripe(topic, topic.first_stripe - 1, error=error)
    for topic, number in stripes:
        yield clean_stripe(
            cluster,
            topic,
            number,
            dry_run=dry_run,
            max_clock_skew_ms=max_clock_skew_ms,
            storage_clock=storage_clock,
            on_progress=on_progress,
        )


def clean_stripe(
    cluster: Cluster,
    topic: TopicImage,
    number: int,
    *,
    dry_run: bool,
    max_clock_skew_ms: int,
    storage_clock: StorageClock,
    on_progress: OnProgress = lambda done_bytes: None,
) -> CleanedStripe:
    """Take a stripe home until nothing is left behind, and free its numbers (protocol P5, P6).

    Any number of processes may do so at once, and each may stop at any point.

    Args:
        cluster: the opened root.
        topic: the topic.
        number: number of the stripe.
        dry_run: report what would be done, and do nothing.
        max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        storage_clock: the storage's clock, by which numbers are freed.
        on_progress: called with the number of bytes that a round has read and written; it may sleep
            to throttle.

    Returns:
        The result, also if it failed.

    Raises:
        ClockSkewError: this process's clock is too far from the storage's.
    """
    from spark_log.log.stripe import find_freeable, free  # late: few topics have stripes

    stripe = cluster.stripe(topic, number)
    directory = stripe.directory
    done = CleanedStripe(topic, number)
    try:
        listing = directory.list()
        if not listing.files:
            return done
        found = storage_clock.read(directory.store, directory.path)
        check_clock_skew(cluster.clock, found.present_us(cluster.clock), max_clock_skew_ms)
        if dry_run:
            behind = max(0, listing.end_number - listing.home_number)
            done = done._replace(objects=behind)
        else:
            has_more = True
            while has_more and (taken := stripe.take_home()) is not None:
                on_progress(2 * taken.size_bytes)
                done = done._replace(rounds=done.rounds + 1, objects=done.objects + taken.objects)
                has_more = taken.has_more
        files = find_freeable(directory, now_us=found.shown_us)
        if not dry_run:
            free(directory, found=files)
        done = done._replace(
            freed_files=len(files), freed_bytes=sum(file.size_bytes for file in files)
        )
    except (StorageError, CorruptRecordError) as error:
        done = done._replace(error=error)
    _log.debug(
        "stripe %d of %s%s: took %d objects home in %d rounds; freed %d files (%d bytes)",
        number,
        topic.name,
        ", in a dry run" if dry_run else "",
        done.objects,
        done.rounds,
        done.freed_files,
        done.freed_bytes,
    )
    return done
