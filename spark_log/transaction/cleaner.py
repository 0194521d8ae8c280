"""Cleans transactional ids: completes decided transactions, aborts dead ones, expires unused ids.

Ages are measured by the storage's time. A cleaner that runs for a second can therefore tell that a
transaction has had no change for longer than its timeout, even if nobody reads its partitions.

The rules: (protocol T16, T17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from spark_log.cluster import Cluster
from spark_log.errors import ClockSkewError, SparkLogError
from spark_log.log import StateView
from spark_log.metadata import METADATA_DIRECTORY
from spark_log.storage import check_clock_skew, storage_time_us
from spark_log.transaction.coordinator import CommitOffsets, TransactionCoordinator
from spark_log.transaction.state import TransactionMetadata
from spark_log.transaction.state_log import TransactionStateLog

CleaningAction = Literal["abort", "finish", "expire"]


class CleanedTransactionalId(NamedTuple):
    """The action of a cleaner on one transactional id; the planned action in a dry run.

    Attributes:
        transactional_id: the ``transactional.id``.
        action: ``abort``: its transaction had passed its timeout, and was aborted; ``finish``: it
            was decided, and was completed; ``expire``: its producer ids were forgotten.
        error: why it failed; None if it did not.
    """

    transactional_id: str
    action: CleaningAction
    error: SparkLogError | None = None


class TransactionCleaner:
    """Cleans all transactional ids of a root; a failure of one does not stop the others."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        dry_run: bool = False,
        commit_offsets: CommitOffsets | None = None,
    ) -> None:
        """Return a cleaner.

        Args:
            cluster: the opened root.
            dry_run: whether to report the actions and change nothing.
            commit_offsets: the function that commits a decided transaction's offsets to their
                groups; without it a transaction with offsets is not completed.
        """
        self._cluster = cluster
        self._dry_run = dry_run
        self._commit_offsets = commit_offsets

    def clean(self) -> Iterator[CleanedTransactionalId]:
        """Clean one transactional id after the other; yield those that needed an action.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing is done.
            StorageError: the storage does not answer.
        """
        cluster = self._cluster
        config = cluster.image().cluster_config()
        ids = TransactionStateLog.list_names(cluster.store, cluster.clock)
        if not ids:
            return
        now_us = storage_time_us(cluster.store, METADATA_DIRECTORY)
        check_clock_skew(cluster.clock, now_us, config.max_clock_skew_ms)
        for transactional_id in ids:
            view = TransactionStateLog.view(cluster.store, transactional_id, cluster.clock)
            age_ms = (now_us - view.changed_us) / 1000
            action = _action(view, age_ms, config.transactional_id_expiration_ms)
            if action is None:
                continue
            error = None
            if not self._dry_run:
                try:
                    if not self._perform(action, view):
                        continue
                except ClockSkewError:
                    raise
                except SparkLogError as failure:
                    error = failure
            yield CleanedTransactionalId(transactional_id, action, error)

    def _perform(self, action: CleaningAction, view: StateView[TransactionMetadata]) -> bool:
        """Perform an action unless the state has changed since; return whether it was performed."""
        coordinator = TransactionCoordinator(
            self._cluster, view.state.transactional_id, commit_offsets=self._commit_offsets
        )
        if coordinator.refresh().revision != view.state.revision:
            return False
        if action == "expire":
            return coordinator.forget(view.state.revision)
        coordinator.expire(
            view.state.transaction, f"a cleaner saw no change for {view.state.timeout_ms} ms"
        )
        coordinator.complete()
        return True


def _action(
    view: StateView[TransactionMetadata], age_ms: float, expiration_ms: int
) -> CleaningAction | None:
    state = view.state
    if state.is_ongoing:
        return "abort" if age_ms > state.timeout_ms else None
    if state.is_prepared:
        return "finish"
    return "expire" if state.owner is not None and age_ms > expiration_ms else None
