"""A process that reads one partition from its start, follows it, and notes all records."""

from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from spark_log.errors import StorageTimeoutError
from spark_log.log.tail_reader import TailReader
from spark_log.storage import Store
from tests.faults.notes import Notes
from tests.log.support import open_log, values_of

_FETCH_MAX_BYTES = 100_000
_FETCH_MAX_WAIT_MS = 100


@dataclass(frozen=True)
class Reader:
    """The role of one reader: its log, and the path of its notes of offsets and values."""

    store: Store
    notes: str
    log_config: dict[str, Any]


def read_until_told(reader: Reader, stop: Connection):
    """Follow the log; when the pipe is closed, read up to the log's end, and end."""
    tail = TailReader(open_log(reader.store, **reader.log_config), 0)
    with Notes(reader.notes) as notes:
        is_told = False
        while not is_told:
            is_told = stop.poll()
            while batches := _fetch(tail):
                for offset, value in values_of(batches):
                    notes.write(offset, value.decode())


def _fetch(tail):
    while True:
        with suppress(
            StorageTimeoutError
        ):  # it was stopped so often that no listing was fast enough
            return tail.fetch(_FETCH_MAX_BYTES, _FETCH_MAX_WAIT_MS)
