"""The state log of a transactional id: its state after each change, by conditional appends.

On storage: ``__transaction_state/ids/<transactional id>/`` is the directory of the log
(`StateLog`).
"""

from __future__ import annotations

from typing import ClassVar, Final

from spark_log.config import TopicConfig
from spark_log.log import StateLog
from spark_log.storage import TRANSACTIONS_DIRECTORY, Store, file_name
from spark_log.transaction.records import TransactionRecord, from_json
from spark_log.transaction.state import TransactionMetadata
from spark_log.util import Clock

TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAw"
"""The topic id of the logs of all transactional ids; no topic has it."""


IDS_DIRECTORY: Final = f"{TRANSACTIONS_DIRECTORY}/ids"
"""The directory of the logs of all transactional ids."""


class TransactionStateLog(StateLog[TransactionMetadata, TransactionRecord]):
    """Reads and changes the state of one transactional id. For one thread at a time."""

    replays_first: ClassVar[bool] = False

    def __init__(
        self, store: Store, transactional_id: str, clock: Clock, config: TopicConfig | None = None
    ) -> None:
        """Return the log of a transactional id; nothing is read yet.

        Args:
            store: the store of the root.
            transactional_id: any string.
            clock: the clock that gives records their timestamps.
            config: the log's topic config; None for the default.
        """
        super().__init__(
            store,
            transaction_directory(transactional_id),
            TransactionMetadata(transactional_id),
            clock,
            key=transactional_id,
            topic_id=TOPIC_ID,
            config=config,
        )

    def _parse(self, value: bytes) -> TransactionRecord:
        return from_json(value)

    def _after(self, record: TransactionRecord) -> TransactionMetadata:
        return self.state.replay(record)


def transaction_directory(transactional_id: str) -> str:
    """Return the directory of a transactional id's log, relative to the root."""
    return f"{IDS_DIRECTORY}/{file_name(transactional_id)}"
