"""Existence marker of a log: an empty file that shows that the log has had records (ADR 19).

Without it, a log whose files were all removed would look like a new log, and its offsets would be
used again. On storage: ``__witnesses/<directory of the log>``, created after the log's first
segment, and removed with the topic. It is looked up only if a listing shows an empty log. A crash
between the first segment and the marker leaves a log without one: then only processes that knew
the log notice that all of its files are gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.storage import WITNESSES, Store


@dataclass(frozen=True, slots=True)
class ExistenceMarker:
    """The existence marker of one log.

    Attributes:
        directory: the log's directory, relative to the storage root.
    """

    directory: str

    @property
    def path(self) -> str:
        """Path of the marker, relative to the storage root."""
        return f"{WITNESSES}/{self.directory}"

    def exists(self, store: Store) -> bool:
        """Whether the log has had records.

        Raises:
            StorageError: the storage does not answer.
        """
        try:
            store.head(self.path)
        except NotFoundError:
            return False
        return True

    def create(self, store: Store) -> None:
        """Create the marker; does nothing if it exists.

        Raises:
            StorageError: the file may not have been created.
        """
        with suppress(AlreadyExistsError):
            store.put_if_absent(self.path, b"")

    def delete_all_below(self, store: Store) -> None:
        """Delete the markers of all logs below the directory, which was a deleted topic's.

        Raises:
            StorageError: the storage does not answer.
        """
        store.delete_directory(self.path)
