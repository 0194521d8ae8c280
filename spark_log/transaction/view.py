"""Reads transactional ids without changing them: their state, and the time of the last change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_log.errors import OffsetOutOfRangeError, StorageError
from spark_log.log import LocalLog
from spark_log.storage import Store, text_of
from spark_log.transaction.records import from_json
from spark_log.transaction.state import TransactionMetadata
from spark_log.transaction.state_log import IDS_DIRECTORY, TOPIC_ID, transaction_directory
from spark_log.util import Clock

_MAX_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class TransactionView:
    """A transactional id after its newest record.

    Attributes:
        state: the state of the id; its revision is 0 if the id was never initialized.
        changed_us: the time of the newest record by the storage's clock, in microseconds; 0 without
            a record.
    """

    state: TransactionMetadata
    changed_us: int = 0


def view_transaction(store: Store, transactional_id: str, clock: Clock) -> TransactionView:
    """Return the present state of a transactional id; changes nothing.

    Raises:
        CorruptRecordError: its log is damaged.
        StorageError: it cannot be read.
    """
    return view_directory(store, transaction_directory(transactional_id), transactional_id, clock)


def list_transactional_ids(store: Store, clock: Clock) -> list[str]:
    """Return all transactional ids that were ever initialized, sorted; also expired ones.

    Raises:
        CorruptRecordError: a log is damaged.
        StorageError: they cannot be read.
    """
    found = []
    for name in store.list_directories(IDS_DIRECTORY):
        transactional_id = text_of(name)
        if transactional_id is None:  # it was too long for a file name: read its records
            view = view_directory(store, f"{IDS_DIRECTORY}/{name}", None, clock)
            transactional_id = view.state.transactional_id
        found.append(transactional_id)
    return sorted(found)


def view_directory(
    store: Store, directory: str, transactional_id: str | None, clock: Clock
) -> TransactionView:
    """Return the state that a state log's directory holds; changes nothing.

    Args:
        store: the store of the root.
        directory: the log's directory, relative to the root.
        transactional_id: the transactional id; None to take it from the newest record.
        clock: the clock whose monotonic time decides how long a listing is valid.

    Raises:
        CorruptRecordError: the log is damaged.
        StorageError: it cannot be read.
    """
    log = LocalLog(store, directory, topic_id=TOPIC_ID, partition=0, clock=clock)
    for _ in range(_MAX_TRIES):
        live = log.observe().live
        if not live.segments:
            return TransactionView(TransactionMetadata(transactional_id or ""))
        try:
            batches, _ = log.read(live.segments[-1].start_offset)
        except OffsetOutOfRangeError:  # trimmed meanwhile: there is a newer record
            continue
        record = from_json(batches[-1].records.column("value")[-1].as_py())
        before = TransactionMetadata(transactional_id or record.transactional_id)
        return TransactionView(before.replay(record), live.segments[-1].file.modified_us)
    raise StorageError(
        f"{directory}: the log was trimmed {_MAX_TRIES} times while it was read; try again",
        path=directory,
    )
