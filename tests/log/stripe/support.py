"""Helpers for tests of stripes: entries, handles as processes have them, values that are read."""

from functools import partial

from spark_log.config import TopicConfig
from spark_log.log import BatchAppend, LocalLog
from spark_log.log.append import LogAppendInfo
from spark_log.log.read import IsolationLevel
from spark_log.log.stripe import (
    Stripe,
    StripeAppender,
    StripeDirectory,
    StripedLog,
    StripeEntry,
    stripe_path,
    take_home,
)
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.log.support import ANY_TIME, TOPIC_ID
from tests.record.samples import numbered

TOPIC = f"flights.{TOPIC_ID}"
STRIPE = stripe_path(TOPIC, 0)


def settings(**config):
    return TopicConfig.parse({"flush_on_append": False, **ANY_TIME, **config})


def open_stripe(store, clock, stripe=0, *, guards=None, **config):
    return StripeDirectory(
        store,
        stripe_path(TOPIC, stripe),
        topic_id=TOPIC_ID,
        stripe=stripe,
        config=settings(**config),
        clock=clock,
        **guards or {},
    )


class Process:
    """A process that appends to a stripe, reads it and takes it home."""

    def __init__(self, store, clock, *, guards=None, **config):
        self.store, self.clock, self.config = store, clock, settings(**config)
        self.directory = open_stripe(store, clock, guards=guards, **config)
        self.appender = StripeAppender(self.directory)
        self.stripe = Stripe(self.directory, lambda partition: self.home(partition).files)
        self.group, self.reader = self.stripe.appends, self.stripe.reader
        self.logs = {}

    def home(self, partition):
        """The log of a partition's records at home."""
        return self._open(LocalLog, partition)

    def log(self, partition):
        """The log of a partition, which stays open."""
        if partition not in self.logs:
            self.logs[partition] = self._open(partial(StripedLog, self.stripe), partition)
        return self.logs[partition]

    def _open(self, open_log, partition):
        return open_log(
            self.store,
            f"{TOPIC}/flights-{partition}",
            topic_id=TOPIC_ID,
            partition=partition,
            config=self.config,
            clock=self.clock,
        )

    def append(self, *entries):
        """Append, and return the results: of offsets as pairs, of errors as their class."""
        return [shown(result) for result in self.appender.append(entries)]

    def take_home(self, **how):
        return take_home(self.directory, lambda partition: self.home(partition).files, **how)

    def values(self, partition, offset=0, *, committed=False):
        """``[(offset, value), …]`` of a partition, from an offset to its end."""
        level: IsolationLevel = "read_committed" if committed else "read_uncommitted"
        return [
            pair
            for batch, _ in self.log(partition).stream(offset, isolation_level=level)
            if batch is not None and not batch.is_control
            for pair in zip(
                batch.offsets().tolist(),
                [each.decode() for each in batch.records.column("value").to_pylist()],
                strict=True,
            )
        ]


def shown(result):
    if isinstance(result, LogAppendInfo):
        return result.base_offset, result.last_offset
    return result and type(result)


def batch(
    partition,
    sequence=0,
    count=1,
    *,
    producer_id=None,
    epoch=0,
    transactional=False,
    expected_end_offset=None,
):
    """An entry; ``producer_id`` None is a batch without a producer."""
    producer = None
    if producer_id is not None:
        producer = ProducerAppend(producer_id, epoch, sequence, transactional)
    mark = f"{partition}.{producer_id}.{epoch}"
    append = BatchAppend(numbered(sequence, count, mark=mark), producer)
    return StripeEntry(partition, append, expected_end_offset)


def marker(partition, producer_id, epoch, *, committed=True):
    return StripeEntry(partition, EndTransactionMarker(producer_id, epoch, committed))


def expected(partition, first, count, *, producer_id=None, epoch=0, offset=None):
    """Return the offsets and values of a batch's records, as `Process.values` does."""
    offset = first if offset is None else offset
    return [(offset + at, f"{partition}.{producer_id}.{epoch}:{first + at}") for at in range(count)]
