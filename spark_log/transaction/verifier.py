"""Compares the markers in partitions with the decisions in state logs, for ``spark-log verify``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from spark_log.cluster import Cluster
from spark_log.errors import CorruptRecordError, UnknownTopicOrPartitionError
from spark_log.log import PartitionLog
from spark_log.log.verify import LogFinding, LogFindingKind, LogSeverity
from spark_log.record import EndTransactionMarker
from spark_log.transaction.markers import transaction_markers
from spark_log.transaction.state import TopicIdPartition, TransactionState
from spark_log.transaction.state_log import TransactionStateLog

_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TransactionVerifier:
    """Verifies the newest transaction of each transactional id, if it is complete.

    Each registered partition must have the transaction's markers, of the decided type. A marker
    that was deleted with old records is known from the partition's producers. The state log is read
    before the partition, which makes a finding certain even while others write.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Return a verifier; nothing is read yet.

        Args:
            cluster: the opened root.
        """
        self._cluster = cluster

    def findings(self) -> Iterator[LogFinding]:
        """Yield each problem as soon as it is found.

        Raises:
            StorageError: the storage does not answer.
        """
        expected: dict[TopicIdPartition, list[EndTransactionMarker]] = {}
        store, clock = self._cluster.store, self._cluster.clock
        for directory in TransactionStateLog.directories(store):
            try:
                state = TransactionStateLog.view_directory(store, directory, clock).state
            except CorruptRecordError as error:
                yield LogFinding(
                    directory, LogFindingKind.UNREADABLE, LogSeverity.ERROR, str(error)
                )
                continue
            if state.state in _COMPLETE:
                for partition, markers in transaction_markers(state).items():
                    expected.setdefault(partition, []).extend(markers)
        try:
            image = self._cluster.image()
        except CorruptRecordError:
            return  # the verification of the metadata reports the damage
        for partition, markers in sorted(expected.items()):
            topic = image.find_by_id(partition.topic_id)
            if topic is None or partition.partition not in topic.partitions:
                continue
            log = self._cluster.partition_log(topic, partition.partition)
            by_producer = {each.producer_id: each for each in markers}
            # Deleted meanwhile; or damaged, which the verification of the partition reports.
            with (
                suppress(UnknownTopicOrPartitionError, CorruptRecordError),
                self._cluster.detecting_deletion(topic),
            ):
                yield from list(_compare(log, by_producer))


def _compare(
    log: PartitionLog, expected: Mapping[int, EndTransactionMarker]
) -> Iterator[LogFinding]:
    entries = dict(log.producers().entries())
    for producer_id, marker in expected.items():
        entry = entries.get(producer_id)
        if entry is not None and entry.epoch < marker.producer_epoch:
            yield LogFinding(
                log.directory,
                LogFindingKind.MISSING_MARKER,
                LogSeverity.ERROR,
                f"{_name(marker)} is complete in its state log, and has no marker here: "
                f"readers with read_committed stop before it. One that waits there puts the marker",
            )
    for marker in _decided_otherwise(log, expected):
        decided = "committed" if marker.is_committed else "aborted"
        found = "aborts" if marker.is_committed else "commits"
        yield LogFinding(
            log.directory,
            LogFindingKind.WRONG_MARKER,
            LogSeverity.ERROR,
            f"{_name(marker)} is {decided} in its state log, and its marker here {found} it",
        )


def _decided_otherwise(
    log: PartitionLog, expected: Mapping[int, EndTransactionMarker]
) -> list[EndTransactionMarker]:
    """Return the expected markers for which the log has only markers of the other type.

    A marker that aborts may follow one that commits: it ends a record that was appended much later.
    """
    missing, wrong = dict(expected), set[int]()
    for segment in reversed(log.observe().live.segments):
        if not missing:
            break
        for _, headers in log.files.open(segment.name).all_headers():
            for found in filter(None, map(EndTransactionMarker.of_header, headers)):
                marker = missing.get(found.producer_id)
                if marker is None or found.producer_epoch != marker.producer_epoch:
                    continue
                if found.is_committed == marker.is_committed:
                    del missing[found.producer_id]
                else:
                    wrong.add(found.producer_id)
    return [marker for producer_id, marker in missing.items() if producer_id in wrong]


def _name(marker: EndTransactionMarker) -> str:
    return f"the transaction of producer {marker.producer_id}, epoch {marker.producer_epoch - 1},"
