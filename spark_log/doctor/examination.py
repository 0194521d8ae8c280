"""`Examination`: the root that the doctor checks, and the time from which it computes ages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, TypeVar

from spark_log.cluster import Cluster
from spark_log.doctor.limits import Limits
from spark_log.errors import SparkLogError
from spark_log.metadata import ROOT_BROKER_ID, MetadataImage, TopicImage
from spark_log.storage import SCRATCH_PREFIX, Store
from spark_log.threads import DaemonPool, Outcome
from spark_log.util import SYSTEM_CLOCK

THREAD_NAME: Final = "spark-log-doctor"
"""Name of the threads that check several items at the same time."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Examination:
    """The state that the checks of one run share.

    Attributes:
        cluster: the opened root.
        image: the metadata when the run began.
        limits: the limits beyond which a value is a problem.
        topics: the topics to check, sorted by name.
        stripes: the stripes of these topics, each with its topic; their partitions share what is
            read of them.
        is_whole: whether these are all topics.
        groups: the ids of the groups to check; empty for all.
        probes_storage: whether checks may write, but only into `scratch`.
        scratch: the scratch folder, relative to a broker's root.
        offsets_error: the reason why the offsets table cannot be read, after a check has found it.
        failing_brokers: broker id → reason why its root cannot be used. Other checks skip it.
        now_us: the time from which ages are computed, microseconds since the epoch: the storage's
            time if it is probed, otherwise this machine's. Nothing is deleted or expired by it.
        now_is_of_storage: whether `now_us` is the storage's time.
    """

    def __init__(
        self,
        cluster: Cluster,
        limits: Limits,
        *,
        topics: Collection[str] | None,
        groups: Collection[str],
        probes_storage: bool,
    ) -> None:
        """Read the metadata.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            CorruptRecordError: the metadata log is damaged.
            StorageError: the storage does not answer.
        """
        self.cluster = cluster
        self.image: MetadataImage = cluster.image()
        self.limits = limits
        names = None if topics is None else sorted(set(topics))
        self.topics: list[TopicImage] = (
            list(self.image.topics()) if names is None else [self.image.topic(n) for n in names]
        )
        self.stripes = [
            (topic, stripe) for topic in self.topics for stripe in cluster.stripes(topic)
        ]
        self.is_whole = topics is None
        self.groups = frozenset(groups)
        self.probes_storage = probes_storage
        self.scratch = f"{SCRATCH_PREFIX}{uuid.uuid4().hex}"
        self.failing_brokers: dict[int, str] = {}
        self.offsets_error: str | None = None
        self.now_us = cluster.clock.time_us()  # wall clock: ages are only shown
        self.now_is_of_storage = False
        self.active_ms = SYSTEM_CLOCK.monotonic_ms()

    def set_storage_time(self, storage_us: int) -> None:
        """Compute ages from the storage's time from now on."""
        self.now_us, self.now_is_of_storage = storage_us, True

    def broker_stores(self) -> Iterator[tuple[int, Store]]:
        """Yield the brokers whose roots can be used, and their stores."""
        for broker in self.image.brokers():
            if broker.broker_id in self.failing_brokers:
                continue
            try:
                store = self.cluster.broker_store(broker.broker_id)
            except SparkLogError as error:
                self.failing_brokers[broker.broker_id] = str(error)
                continue
            yield broker.broker_id, store

    def store_url(self, broker_id: int) -> str:
        """Return the URL of a broker's root."""
        if broker_id == ROOT_BROKER_ID:
            return self.cluster.root
        return self.image.broker(broker_id).root

    def map(
        self, call: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[tuple[_Item, _Result]]:
        """Call a function for each item, several at the same time; yield items and results.

        The order is the order in which the calls end.

        Raises:
            StorageTimeoutError: a call has no answer for ``limits.patience_ms``.
            Exception: the error that a call raised.
        """
        for item, outcome in self.outcomes(call, items):
            yield item, outcome.result()

    def outcomes(
        self, call: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[tuple[_Item, Outcome[_Result]]]:
        """Call a function for each item, several at the same time; yield items and outcomes.

        A call without an answer for ``limits.patience_ms`` is abandoned; the others continue.
        """
        pool = DaemonPool(self.limits.threads, self.limits.patience_ms, name=THREAD_NAME)
        for item, outcome in pool.run(call, items):
            self.on_progress()
            yield item, outcome

    def on_progress(self) -> None:
        """Record that the running check makes progress."""
        self.active_ms = SYSTEM_CLOCK.monotonic_ms()
