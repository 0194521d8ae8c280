"""`Consumer` methods for the committed offsets of its group."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from spark_log.consumer.group import CommitCallback, Committer
from spark_log.consumer.operations.consumer_access import ConsumerAccess
from spark_log.consumer.position import checked_partitions
from spark_log.errors import InvalidGroupIdError, UnknownOutcomeError
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class CommitOperations(ConsumerAccess):
    """Commits offsets, and reads those that were committed."""

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, None if there is none.

        Args:
            partition: need not be assigned.
            metadata: whether to return an `OffsetAndMetadata` instead of the offset.
            timeout_ms: how long to wait for an object store, and for a transaction that commits an
                offset; None: ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            StorageError: the table of offsets cannot be read.
            KafkaTimeoutError: an object store did not answer, or the transaction was not decided,
                within the timeout.
            WakeupError: `wakeup` was called meanwhile.
        """
        checked_partitions([partition])
        with self._acquire():
            committer = self._required_committer()
            read = self._stable("committed", lambda: committer.committed([partition]), timeout_ms)
            found = self._executor.run_stateless("committed", read, timeout_ms).get(partition)
            return found if found is None or metadata else found.offset

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets, all or none. They are durable when the method returns.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            timeout_ms: how long to wait; None: ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            InvalidConfigurationError: the metadata of an offset is not Unicode text; nothing was
                committed.
            UnknownTopicOrPartitionError: a topic or partition does not exist; nothing was
                committed.
            CommitFailedError: the commit failed. For a member of a group this may mean that it lost
                one of the partitions, and that others may read the records again. For a consumer
                with assigned partitions it may mean that the group has members.
            UnknownOutcomeError: it is not known whether the commit took effect; commit again.
            KafkaTimeoutError: the topics could not be read; nothing was committed.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        with self._acquire():
            future = self._submit(offsets, None)
        self._wait_for(future, limit_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """Commit offsets without waiting, after all earlier commits.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            callback: called with the offsets, and with None or the error, on another thread. None:
                the ``default_offset_commit_callback``.

        Returns:
            A future that is done when the offsets are durable; its errors are those of `commit`.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        with self._acquire():
            return self._submit(offsets, callback or self._commit_callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group (KIP-447).

        The generation is that of the assignment that the last `poll` applied, so it changes only
        inside of `poll`. Before the first `poll`, and for assigned partitions, the member id is
        empty. Reads nothing from the storage.
        """
        with self._acquire():
            return self._membership.group_metadata()

    def _submit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> Future[None]:
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
        if callback is not None:

            def on_done(done: Future[None]) -> None:
                error = done.exception()
                callback(chosen, error if isinstance(error, Exception) else None)

            future.add_done_callback(on_done)
        self._auto_commit.forget(chosen)
        return future

    def _wait_for(self, future: Future[None], timeout_ms: float) -> None:
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
        from spark_log.coordinator import check_metadata

        checked_partitions(offsets)
        for tp, position in offsets.items():
            if not isinstance(position, OffsetAndMetadata):
                raise TypeError(
                    f"{tp}: {position!r} is a {type(position).__name__}; give "
                    f"OffsetAndMetadata(offset)"
                )
            if position.offset < 0:
                raise ValueError(f"{tp}: offset {position.offset} is negative")
            check_metadata(tp, position)
        # Assigned partitions exist; the commit itself checks whether they still do.
        if others := offsets.keys() - self._subscription.partitions.keys():
            image = self._executor.run_stateless("commit", self._cluster.image)
            for tp in sorted(others):
                self._cluster.partition_log(image.topic(tp.topic), tp.partition)

    def _required_committer(self) -> Committer:
        if self._committer is None:
            raise InvalidGroupIdError(
                "offsets are committed for a group: give the consumer a group_id"
            )
        return self._committer
