"""A consumer's part in its group: the membership, the commits, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.group.auto_commit import AutoCommit
from spark_log.consumer.group.committer import (
    CommitCallback,
    Committer,
    Offsets,
    checked_offsets,
)
from spark_log.consumer.group.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.group.group_membership import GroupMembership
from spark_log.consumer.group.membership import ConsumerMembership
from spark_log.consumer.group.standalone_membership import StandaloneMembership
from spark_log.consumer.position import SubscriptionState
from spark_log.errors import InvalidGroupIdError, UnknownOutcomeError
from spark_log.metadata import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition


class ConsumerGroup:
    """The group of one consumer. Without a group id it commits nothing, and shares no partitions.

    Attributes:
        membership: the membership in the group, or its replacement without a group.
        committer: the committed offsets of the group; None without a group.
        auto_commit: the automatic commits.
        metrics: the metrics of joins, rebalances and commits.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        group_id: str | None,
        subscription: SubscriptionState,
        *,
        on_change: Callable[[], None],
        on_commit: Callable[[Offsets], object],
        on_auto_commit: CommitCallback | None,
    ) -> None:
        """Prepare; no thread is started, and nothing is read.

        Args:
            cluster: the opened root.
            config: the settings.
            group_id: the group's id; None without a group.
            subscription: the subscription state, which has the positions.
            on_change: the function that is called on another thread when the group has changed.
            on_commit: the function that is called with the offsets of each commit.
            on_auto_commit: the function that is called for each automatic commit.
        """
        self._cluster = cluster
        self._subscription = subscription
        self.metrics = CoordinatorMetrics(cluster.clock.monotonic_ms)
        self.membership: ConsumerMembership = StandaloneMembership()
        self.committer: Committer | None = None
        if group_id is not None:
            self.membership = GroupMembership(cluster, group_id, config, on_change, self.metrics)
            self.committer = Committer(
                cluster,
                group_id,
                membership=self.membership,
                subscription=subscription,
                latency=self.metrics.commits,
                on_commit=on_commit,
            )
        self.auto_commit = AutoCommit(
            subscription,
            self.committer if config.enable_auto_commit else None,
            interval_ms=config.auto_commit_interval_ms,
            clock=cluster.clock,
            callback=on_auto_commit,
        )

    def required_committer(self) -> Committer:
        """Return the committer.

        Raises:
            InvalidGroupIdError: the consumer has no group.
        """
        if self.committer is None:
            raise InvalidGroupIdError(
                "offsets are committed for a group: give the consumer a group_id"
            )
        return self.committer

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
        read_metadata: Callable[[], MetadataImage],
    ) -> Future[None]:
        """Begin a commit by the user, after all earlier commits.

        Args:
            offsets: partition → the offset of the next record to read; None for the positions of
                all assigned partitions.
            callback: the function that is called with the offsets, and with None or the error.
            read_metadata: the function that returns the metadata, by which partitions are checked
                that are not assigned.

        Returns:
            A future that is done when the offsets are durable.
        """
        committer, subscription = self.required_committer(), self._subscription
        if offsets is None:
            positions = subscription.positions()
            chosen = {tp: OffsetAndMetadata(position) for tp, position in positions.items()}
        else:
            chosen = checked_offsets(offsets)
            # Assigned partitions exist; the commit itself checks whether they still do.
            if others := chosen.keys() - subscription.partitions.keys():
                image = read_metadata()
                for tp in sorted(others):
                    self._cluster.partition_log(image.topic(tp.topic), tp.partition)
        commit = committer.commit(chosen, subscription.topic_ids(chosen))
        if callback is not None:

            def on_done(done: Future[None]) -> None:
                error = done.exception()
                callback(chosen, error if isinstance(error, Exception) else None)

            commit.add_done_callback(on_done)
        self.auto_commit.forget(chosen)
        return commit

    def wait_for(self, commit: Future[None], timeout_ms: float) -> None:
        """Wait until a commit is done, and raise its error.

        Raises:
            UnknownOutcomeError: the commit was not done in time, and continues.
        """
        try:
            commit.result(timeout_ms / 1000)
        except FutureTimeoutError:
            if commit.done():  # the commit itself failed with this error
                raise
            raise UnknownOutcomeError(
                f"the commit was not done within {timeout_ms} ms, and continues: the table of "
                f"offsets on {self._cluster.root} does not answer, or earlier commits take long; "
                f"it is safe to commit the same offsets again"
            ) from None
