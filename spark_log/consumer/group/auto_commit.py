"""Automatic commits of positions (``enable.auto.commit``)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from spark_log.consumer.group.committer import CommitCallback, Committer
from spark_log.consumer.position import SubscriptionState
from spark_log.errors import SparkLogError
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import Clock

_log = logging.getLogger(__name__)


class AutoCommit:
    """Commits positions at the beginning of a poll, when all returned records are processed.

    A position that did not change since its last commit is not committed again, so an idle consumer
    commits nothing.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        committer: Committer | None,
        *,
        interval_ms: float,
        clock: Clock,
        callback: CommitCallback | None = None,
    ) -> None:
        """Start the first interval.

        Args:
            subscription: the subscription state, which has the positions.
            committer: the committer that writes the commits; None to commit nothing.
            interval_ms: the minimum time between two commits of `commit_if_due`.
            clock: the clock that measures the interval.
            callback: the function that is called for each commit, on another thread.
        """
        self._subscription = subscription
        self._committer = committer
        self._interval_ms = interval_ms
        self._clock = clock
        self._callback = callback
        self._due_ms = clock.monotonic_ms() + interval_ms
        self._committed: dict[tuple[TopicPartition, str], int] = {}
        self._pending: Future[None] | None = None

    def commit_if_due(self) -> None:
        """Commit in the background if the interval has passed. A failure is logged."""
        if self._committer is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms or (self._pending is not None and not self._pending.done()):
            return
        self._due_ms = now_ms + self._interval_ms
        self._begin()

    def commit_now(self, timeout_ms: float | None = None) -> None:
        """Commit and wait. A failure is logged: the records will be consumed again."""
        if self._committer is None:
            return
        future = self._begin()
        if future is None:
            return
        try:
            future.result(None if timeout_ms is None else timeout_ms / 1000)
        except SparkLogError:
            pass  # the callback of the future has logged it
        except FutureTimeoutError:
            _log.warning("the last automatic commit was not done within %.0f ms", timeout_ms)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Commit these partitions again even if their positions do not change.

        Their committed offsets may be changed by the user or by other members.
        """
        for key in [key for key in list(self._committed) if key[0] in partitions]:
            self._committed.pop(key, None)

    def _begin(self) -> Future[None] | None:
        assert self._committer is not None
        moved: dict[tuple[TopicPartition, str], int] = {}
        for tp, state in list(self._subscription.partitions.items()):
            key = tp, state.topic.topic_id
            if state.position is not None and self._committed.get(key) != state.position:
                moved[key] = state.position
        if not moved:
            return None
        offsets = {tp: OffsetAndMetadata(position) for (tp, _), position in moved.items()}
        topic_ids = {tp.topic: topic_id for tp, topic_id in moved}
        self._committed.update(moved)
        self._pending = self._committer.commit(offsets, topic_ids)

        def on_done(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                for key in moved:
                    self._committed.pop(key, None)
                _log.warning("the automatic commit of offsets failed, retrying: %s", error)
            if self._callback is not None:
                self._callback(offsets, error if isinstance(error, Exception) else None)

        self._pending.add_done_callback(on_done)
        return self._pending
