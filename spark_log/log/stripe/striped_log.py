"""The log of a striped partition: as any log, with its newest records in a stripe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_log.errors import CorruptRecordError, FencedLeaderEpochError
from spark_log.log.append import LogAppendInfo
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import ProducerState, TransactionIndex
from spark_log.log.read import LogReader
from spark_log.log.segment import StagedSegment
from spark_log.log.snapshot import Snapshot, Snapshots
from spark_log.log.stripe.reader import StripeReader
from spark_log.log.stripe.stripe import Stripe
from spark_log.log.stripe.striped_appender import StripedAppender
from spark_log.log.stripe.striped_directory import StripedDirectory
from spark_log.record import EndTransactionMarker
from spark_log.storage import Store
from spark_log.util import IN_PROCESS, SuppressedErrors


class StripedSnapshots(Snapshots):
    """The snapshots of a striped partition: a home marker has the producers, as a snapshot has."""

    def newest(self, view: LogView) -> Snapshot | None:
        """Return the newest snapshot at home, or that of the home marker if it is newer.

        That of the marker has the summaries of the one at home.

        Raises:
            StorageError: the storage does not answer, so it is not known whether one exists.
        """
        found = super().newest(view)
        directory = self._directory
        assert isinstance(directory, StripedDirectory)
        producers = directory.stripe.home_producers(directory.partition)
        start = view.log_start_offset
        if (
            producers is None
            or not start <= producers.offset <= view.log_end_offset
            or (found is not None and found.offset >= producers.offset)
        ):
            return found
        index = TransactionIndex(
            producers.offset,
            open_transactions=producers.transactions.open,
            unlisted=((0, producers.offset),) if producers.offset else (),
        )
        entries = producers.entries()
        summaries = () if found is None else found.segments
        state = ProducerState(producers.offset, entries, index)
        return Snapshot(producers.offset, summaries, state)

    def write(self, view: LogView | None = None) -> Snapshot:
        """Write a snapshot of the files at home.

        A later one would show whatever lists these files alone that the log's end was lost.

        Args:
            view: not used: it has records of the stripe, too.

        Raises:
            StorageError: the snapshot was not written.
            CorruptRecordError: a segment is damaged or missing.
        """
        directory = self._directory
        assert isinstance(directory, StripedDirectory)
        return Snapshots(directory.at_home, self._config).write()


def open_striped(
    store: Store, directory: str, stripe: StripeReader, *, partition: int
) -> LogReader:
    """Return the reader of a striped partition that this process only reads.

    Accesses no storage yet.

    Args:
        store: the store of the cluster's root.
        directory: the partition's directory, relative to the store's root.
        stripe: what the process has read of the partition's stripe.
        partition: number of the partition.
    """
    files = StripedDirectory(
        store,
        directory,
        stripe=stripe,
        topic_id=stripe.directory.topic_id,
        partition=partition,
        clock=stripe.directory.clock,
        valid_ms=stripe.directory.valid_ms,
        suppressed=SuppressedErrors(IN_PROCESS),
    )
    return LogReader(files, StripedSnapshots(files))


class StripedLog(LocalLog):
    """The log of a striped partition. Its appends go to the stripe.

    Everything that reads a log reads this one. Whatever rewrites or deletes files uses the
    `LocalLog` of the same directory, which has the records at home.

    Attributes:
        striped: appends to the partition's stripe.
    """

    snapshots_class = StripedSnapshots

    def __init__(self, stripe: Stripe, *where: Any, **how: Any) -> None:
        """Open a log. Accesses no storage yet.

        Args:
            stripe: the partition's stripe, as the process uses it.
            where: arguments of `LocalLog`.
            how: further arguments of `LocalLog`.
        """
        self.directory_class = partial(StripedDirectory, stripe=stripe.reader)
        super().__init__(*where, **how)
        self.striped = StripedAppender(stripe, self.files.partition)

    def leave_polls(self) -> StripeReader:
        """Look for no next entries at the known end: the caller polls the stripe that it gets."""
        assert isinstance(self.files, StripedDirectory)
        self.files.polls_at_end = False
        return self.files.stripe

    def _append_segment(
        self, segment: StagedSegment, expected_end_offset: int | None
    ) -> LogAppendInfo:
        return self.striped.append_segment(segment, expected_end_offset=expected_end_offset)

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append transaction markers (`StripedAppender.append_markers`)."""
        return self.striped.append_markers(markers)

    def append_barrier(self, leader_epoch: int, isr: Sequence[int], joining: Sequence[int]) -> None:
        """Check that the stripe knows the barrier: it was put before the stripe began.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch.
            CorruptRecordError: the stripe does not have the epoch.
            StorageError: the storage does not answer.
        """
        assert isinstance(self.files, StripedDirectory)
        self.files.stripe.poll()
        path, epoch = self.files.path, self.files.stripe.leader_epoch(self.files.partition)
        if epoch == leader_epoch:
            return  # a listing may have lacked it
        if epoch > leader_epoch:
            raise FencedLeaderEpochError(
                f"{path}: leader epoch {leader_epoch} is fenced; the log has epoch {epoch}",
                leader_epoch=leader_epoch,
                log_epoch=epoch,
            )
        raise CorruptRecordError(
            f"{path}: the barrier of leader epoch {leader_epoch} is missing, which was put when "
            f"the partition got its stripe. Restore the files from a copy",
            path=path,
        )

    def __repr__(self) -> str:
        return f"<StripedLog url={self.files.url!r}>"
