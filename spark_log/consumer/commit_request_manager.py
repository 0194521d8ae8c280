"""Commits that the user asks for: checks, callbacks and interceptors around the `Committer`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from spark_log.consumer.group import AutoCommit, CommitCallback, Committer
from spark_log.consumer.interceptors import ConsumerInterceptors
from spark_log.consumer.storage_executor import StorageExecutor
from spark_log.consumer.subscription_state import SubscriptionState, checked_partitions
from spark_log.errors import InvalidGroupIdError, UnknownOutcomeError
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition


class CommitRequestManager:
    """Reads committed offsets and submits commits for `Consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        committer: Committer | None,
        auto_commit: AutoCommit,
        executor: StorageExecutor,
        interceptors: ConsumerInterceptors,
    ) -> None:
        """Prepare.

        Args:
            cluster: the opened root.
            subscription: has the positions.
            committer: of the group; None without a group: every method raises.
            auto_commit: told which partitions the user commits.
            executor: limits the time of reads.
            interceptors: see the committed offsets.
        """
        self._cluster = cluster
        self._subscription = subscription
        self._committer = committer
        self._auto_commit = auto_commit
        self._executor = executor
        self._interceptors = interceptors

    def committed(self, tp: TopicPartition, timeout_ms: float | None) -> OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, None if there is none."""
        committer = self._required_committer()
        return self._executor.run_stateless("committed", committer.committed, timeout_ms).get(tp)

    def submit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> Future[None]:
        """Commit offsets after all earlier commits, without waiting.

        Args:
            offsets: by partition; None: the positions of all assigned partitions.
            callback: called with the offsets, and with None or the error, on another thread.
        """
        committer = self._required_committer()
        if offsets is None:
            positions = self._subscription.positions()
            chosen = {tp: OffsetAndMetadata(position) for tp, position in positions.items()}
        else:
            chosen = dict(offsets)
            self._check(chosen)
        partitions = self._subscription.partitions
        topic_ids = {tp.topic: partitions[tp].topic.topic_id for tp in chosen if tp in partitions}
        future = committer.commit(chosen, topic_ids)

        def on_done(done: Future[None]) -> None:
            error = done.exception()
            if error is None:
                self._interceptors.on_commit(chosen)
            if callback is not None:
                callback(chosen, error if isinstance(error, Exception) else None)

        if callback is not None or self._interceptors:
            future.add_done_callback(on_done)
        self._auto_commit.forget(chosen)
        return future

    def wait(self, future: Future[None], timeout_ms: float) -> None:
        """Wait for a submitted commit.

        Raises:
            UnknownOutcomeError: the time is over.
            SparkLogError: the error of the commit.
        """
        try:
            future.result(timeout_ms / 1000)
        except FutureTimeoutError:
            if future.done():  # the commit itself failed with this error
                raise
            raise UnknownOutcomeError(
                f"the commit was not done within {timeout_ms} ms, and continues: the table of "
                f"offsets on {self._cluster.root} does not answer, or earlier commits take long; "
                f"it is safe to commit the same offsets again"
            ) from None

    def _check(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        from spark_log.coordinator.offsets.rows import check_metadata

        checked_partitions(offsets)
        image = self._executor.run_stateless("commit", self._cluster.image)
        for tp, position in offsets.items():
            if not isinstance(position, OffsetAndMetadata):
                raise TypeError(
                    f"{tp}: {position!r} is a {type(position).__name__}; give "
                    f"OffsetAndMetadata(offset)"
                )
            if position.offset < 0:
                raise ValueError(f"{tp}: offset {position.offset} is negative")
            check_metadata(tp, position)
            self._cluster.partition_log(image.topic(tp.topic), tp.partition)

    def _required_committer(self) -> Committer:
        if self._committer is None:
            raise InvalidGroupIdError(
                "offsets are committed for a group: give the consumer a group_id"
            )
        return self._committer
