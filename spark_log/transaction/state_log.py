"""The state log of a transactional id: its state after each change, by conditional appends.

On storage: ``__transaction_state/ids/<transactional id>/`` is the directory of the log
(`StateLog`).
"""

from __future__ import annotations

from typing import ClassVar

from spark_log.log import StateLog
from spark_log.storage import TRANSACTIONS_DIRECTORY
from spark_log.transaction.records import TransactionRecord, from_json
from spark_log.transaction.state import TransactionMetadata


class TransactionStateLog(StateLog[TransactionMetadata, TransactionRecord]):
    """Reads and changes the state of one transactional id. For one thread at a time."""

    parent_directory: ClassVar[str] = f"{TRANSACTIONS_DIRECTORY}/ids"
    topic_id: ClassVar[str] = "AAAAAAAAAAAAAAAAAAAAAw"
    replays_first: ClassVar[bool] = False

    @staticmethod
    def _initial(name: str) -> TransactionMetadata:
        return TransactionMetadata(name)

    @staticmethod
    def _parse(value: bytes) -> TransactionRecord:
        return from_json(value)
