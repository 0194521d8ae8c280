"""Maps producer ids to their transactional ids (protocol T8).

A batch in a partition has a producer id only. A reader that has to know whether the batch's
transaction is decided finds the transactional id here, by one read.

On storage: ``__transaction_state/producers/<producer id>`` holds
``{"type": "TransactionalProducerRecord", "version": 0, "data": {"transactionalId": …}}``. It is put
before the first record of the state log that has the producer id, so the producer id of each
transactional batch has a file. That costs one put for each producer id, which lasts for 32,767
transactions. A crash between the two writes leaves the file of a producer id that nobody uses. The
files are deleted when the transactional id has expired: an open transaction whose producer id has
no file was decided long before.
"""

from __future__ import annotations

from spark_log.errors import AlreadyExistsError, InvalidTxnStateError, NotFoundError
from spark_log.storage import TRANSACTIONS_DIRECTORY, Store
from spark_log.util import VersionedRecord, record_from_json


class TransactionalProducerRecord(VersionedRecord):
    """A producer id belongs to a transactional id, for ever."""

    transactional_id: str


def record_producer(store: Store, producer_id: int, transactional_id: str) -> None:
    """Record the transactional id of a newly allocated producer id; durable on return.

    May be repeated after any error.

    Raises:
        InvalidTxnStateError: it belongs to another one.
        UnknownOutcomeError: it may be recorded.
        StorageError: it is not recorded.
    """
    path = _path(producer_id)
    record = TransactionalProducerRecord(transactional_id=transactional_id)
    try:
        store.put_if_absent(path, record.to_json())
    except AlreadyExistsError:
        found = find_transactional_id(store, producer_id)
        if found != transactional_id:
            raise InvalidTxnStateError(
                f"producer id {producer_id} belongs to transactional id {found!r}, not to "
                f"{transactional_id!r}; allocate another one",
                transactional_id=transactional_id,
            ) from None
        store.sync(path)


def find_transactional_id(store: Store, producer_id: int) -> str | None:
    """Return the transactional id of a producer id; None if its producer has no transactions.

    Raises:
        CorruptRecordError: the file is damaged.
        StorageError: it cannot be read.
    """
    try:
        value = store.open_buffer(_path(producer_id)).to_pybytes()
    except NotFoundError:
        return None
    kinds = {TransactionalProducerRecord.__name__: TransactionalProducerRecord}
    return record_from_json(value, kinds, "transactional producer").transactional_id


def forget_producer(store: Store, producer_id: int) -> None:
    """Delete the record of a producer id that its transactional id has forgotten.

    Raises:
        StorageError: it may still exist.
    """
    store.delete(_path(producer_id))


def _path(producer_id: int) -> str:
    return f"{TRANSACTIONS_DIRECTORY}/producers/{producer_id}"
