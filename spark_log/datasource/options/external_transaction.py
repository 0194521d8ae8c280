"""The option ``joinTransaction``: a transaction of the caller, which the write joins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from spark_log.errors import InvalidOptionError

if TYPE_CHECKING:
    from spark_log.record import ProducerIdAndEpoch

JOIN_TRANSACTION = "joinTransaction"


@dataclass(frozen=True, slots=True)
class ExternalTransaction:
    """A transaction that the tasks of a write join, and that the caller commits or aborts.

    Attributes:
        transactional_id: the ``transactional.id``.
        owner: the caller's producer id, and its epoch in this transaction.
    """

    transactional_id: str
    owner: ProducerIdAndEpoch

    def to_json(self) -> str:
        """Return the value of the option."""
        return json.dumps(
            {
                "transactionalId": self.transactional_id,
                "producerId": self.owner.producer_id,
                "producerEpoch": self.owner.producer_epoch,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the value of the option.

        Raises:
            InvalidOptionError: the text is not in the format of `to_json`.
        """
        from spark_log.record import ProducerIdAndEpoch  # late: few writes join a transaction

        try:
            found = json.loads(text)
            owner = ProducerIdAndEpoch(int(found["producerId"]), int(found["producerEpoch"]))
            return cls(str(found["transactionalId"]), owner)
        except (ValueError, TypeError, KeyError):
            raise InvalidOptionError(
                f"option {JOIN_TRANSACTION!r} is {text!r}, expected JSON with transactionalId, "
                f"producerId and producerEpoch",
                key=JOIN_TRANSACTION,
            ) from None
