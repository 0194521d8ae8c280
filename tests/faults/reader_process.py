"""A process that reads one partition as a consumer does, and notes its polls."""

from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.errors import StorageTimeoutError
from spark_log.storage import Store
from spark_log.testing.history import Polled
from spark_log.types import TopicPartition
from spark_log.util.clock import SYSTEM_CLOCK
from tests.faults.operation_notes import OperationNotes
from tests.log.support import open_log

PARTITION = TopicPartition("flights", 0)
_FETCH_MAX_WAIT_MS = 100


@dataclass(frozen=True)
class Reader:
    """The role of one reader: its log, and the path of its operation notes."""

    store: Store
    notes: str
    log_config: dict[str, Any]


def read_until_stopped(reader: Reader, stop: Connection):
    """Follow the log; when the pipe is closed, read up to the log's end, and end."""

    def new_log():
        return open_log(reader.store, **reader.log_config)

    position, end = 0, None
    fetcher = Fetcher(reader.store, ConsumerConfig(), now_ms=SYSTEM_CLOCK.monotonic_ms)
    fetcher.add(PARTITION, new_log(), position)
    with OperationNotes(reader.notes) as notes, closing(fetcher):
        notes.assign([PARTITION], position)
        while end is None or position < end:
            if end is None and stop.poll():
                end = _end_of(new_log())
            fetch = fetcher.collect_fetch(None, _FETCH_MAX_WAIT_MS)
            if fetch.failure is not None:
                raise fetch.failure[1]
            for rows in fetch.rows:
                values = rows.column("value").to_pylist()
                pairs = zip(rows.offsets().tolist(), values, strict=True)
                notes.poll(*(Polled(PARTITION, at, value.decode()) for at, value in pairs))
            position = fetch.positions.get(PARTITION, position)


def _end_of(log):
    while True:
        with suppress(
            StorageTimeoutError
        ):  # it was stopped so often that no listing was fast enough
            return log.observe().log_end_offset
