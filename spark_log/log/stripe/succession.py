"""The end of a stripe, and the beginning of another one: partitions move between them, or logs.

A topic that gets another number of stripes has the same records at the same offsets, with the same
producers. Each partition gets the barrier of a new leader epoch, which is the last record in its
old place: in its log, or in the last object of its stripe. Writers that do not know of the change
are fenced by it. A new stripe begins with a home marker, which has the ends and the producers of
its partitions (protocol P9).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from spark_log.errors import AlreadyExistsError, SparkLogError
from spark_log.log.producers import ProducerState
from spark_log.log.stripe.appender import StripeAppender
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entry import StripeEntry
from spark_log.log.stripe.home import OpenPartition, take_home
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.stripe.state import StripeState
from spark_log.record import LeaderChange
from spark_log.storage import storage_time_us

FIRST_NUMBER: Final = 1
"""Number of the first object of a stripe that another place comes before. It has no object 0."""


def end_stripe(
    directory: StripeDirectory, open_partition: OpenPartition, barriers: Mapping[int, LeaderChange]
) -> StripeState:
    """End a stripe, and take it home; return the state at its end.

    Any number of processes may do so at once, and each may stop at any point.

    Args:
        directory: the stripe's directory.
        open_partition: returns the directory of a partition's records at home.
        barriers: the barrier of each of the stripe's partitions.

    Raises:
        UnknownOutcomeError: it is not known whether the stripe has ended; call this again.
        CorruptRecordError: an object or a home marker is damaged or missing.
        StorageError: the storage does not answer.
    """
    entries = [StripeEntry(partition, each) for partition, each in sorted(barriers.items())]
    for result in StripeAppender(directory).append(entries):
        if isinstance(result, SparkLogError):
            raise result
    while take_home(directory, open_partition) is not None:
        pass
    return directory.read_home(directory.list().home_number)


def begin_stripe(
    directory: StripeDirectory,
    partitions: Mapping[int, ProducerState],
    leader_epochs: Mapping[int, int],
) -> None:
    """Begin a stripe where the logs of its partitions end, unless another process has.

    Args:
        directory: the stripe's directory.
        partitions: the state of each partition at its barrier.
        leader_epochs: the leader epoch of each partition.

    Raises:
        StorageError: the storage does not answer.
    """
    now_us = storage_time_us(directory.store, directory.path)
    for producers in partitions.values():
        producers.set_append_times(lambda offset: now_us, now_us)
    state = StripeState(FIRST_NUMBER, partitions, leader_epochs=leader_epochs)
    content = encode_home(
        state,
        topic_id=directory.topic_id,
        stripe=directory.stripe,
        now_us=now_us,
        expiration_ms=directory.config.producer_id_expiration_ms,
    )
    with suppress(AlreadyExistsError):
        directory.store.put_if_absent(directory.file_path(FIRST_NUMBER, is_home=True), content)
    directory.create_existence_marker()
