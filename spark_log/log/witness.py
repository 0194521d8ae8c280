"""What tells that a log was begun when all of its files are gone (docs/adr/0019).

On storage: ``__witnesses/<the log's directory>``, an empty file, made when the log's first segment
stands, and removed with the topic. It is looked for only where a listing shows an empty log. A
crash between the segment and it leaves a log without: a removal of all its files is noticed then
by those only who knew it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.storage import Store

WITNESSES: Final = "__witnesses"
"""The directory of the witnesses, relative to a root."""


@dataclass(frozen=True, slots=True)
class Witness:
    """The witness of one log.

    Attributes:
        directory: the log's, relative to the root.
    """

    directory: str

    @property
    def path(self) -> str:
        """Of its file, relative to the root."""
        return f"{WITNESSES}/{self.directory}"

    def exists(self, store: Store) -> bool:
        """Whether the log was begun.

        Raises:
            StorageError: the storage does not answer.
        """
        try:
            store.head(self.path)
        except NotFoundError:
            return False
        return True

    def create(self, store: Store) -> None:
        """Tell that the log was begun.

        Raises:
            StorageError: it may not be told.
        """
        with suppress(AlreadyExistsError):
            store.put_if_absent(self.path, b"")


def delete_witnesses(store: Store, directory: str) -> None:
    """Remove the witnesses of all logs below a directory: a deleted topic's.

    Raises:
        StorageError: the storage does not answer.
    """
    store.delete_directory(f"{WITNESSES}/{directory}")
