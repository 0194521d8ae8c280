"""A process that appends to one partition, and may be killed at any moment.

The value of a record is ``<producer>.<epoch>.<number>``. Each append is noted as an operation.
"""

import os
import random
import signal
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from spark_log.errors import (
    InvalidProducerEpochError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.log.append import appender
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.record.producer_append import ProducerAppend
from spark_log.storage import Store
from tests.faults.operation_notes import OperationNotes
from tests.faults.reader_process import PARTITION
from tests.log.support import HookedStore, open_log
from tests.record.samples import record_batch, row

MAX_RECORDS = 4
"""Maximum number of records of one append."""


@dataclass(frozen=True)
class Writer:
    """The role of one writer.

    Attributes:
        producer: its producer id, which is part of its records' values.
        epoch: its producer epoch; a replacement process has the next one.
        idempotent: whether its appends have sequence numbers.
        notes: path of its operation notes.
        log_config: the topic's config.
        without: name in `LEAVE_OUT` of a safety rule that this writer leaves out.
    """

    store: Store
    producer: int
    epoch: int
    idempotent: bool
    notes: str
    log_config: dict[str, Any]
    without: str | None = None

    @property
    def mark(self):
        """The beginning of its records' values."""
        return f"{self.producer}.{self.epoch}"

    def open_log(self):
        log = open_log(self.store, **self.log_config)
        if self.without is not None:
            log.appender.__class__ = LEAVE_OUT[self.without]  # leaves a rule out
        return log

    def values(self, number, count):
        return [f"{self.mark}.{each}" for each in range(number, number + count)]

    def append(self, log, number, count):
        """Append records, beginning with ``number``."""
        rows = [row(each.encode()) for each in self.values(number, count)]
        if not self.idempotent:
            return log.append(record_batch(rows))
        identity = ProducerAppend(self.producer, self.epoch, number)
        return log.append(record_batch(rows), producer=identity)


def append_until_stopped(writer: Writer, stop: Connection):
    """Append small batches until the pipe is closed."""
    chance = random.Random(writer.mark)
    log = writer.open_log()
    number = 0
    with OperationNotes(writer.notes) as notes:
        while number is not None and not stop.poll():
            number = _append(writer, log, notes, number, chance.randint(1, MAX_RECORDS), stop)


def append_and_stop_once(writer: Writer, stopped_at: str):
    """Append twice, and stop during the second append until SIGCONT.

    Args:
        writer: the writer.
        stopped_at: ``put``: stop before the put takes effect; ``answer``: stop after it.
    """
    store = HookedStore(writer.store)
    log = replace(writer, store=store).open_log()

    def put_and_stop(path, put):
        if stopped_at == "answer":
            put()
        os.kill(os.getpid(), signal.SIGSTOP)
        if stopped_at == "put":
            put()

    with OperationNotes(writer.notes) as notes:
        assert _append(writer, log, notes, 0, 3) == 3
        store.once("put_if_absent", put_and_stop)
        _append(writer, log, notes, 3, 3)


def _append(writer, log, notes, number, count, stop=None):
    """Append records until an append is acknowledged, and return the next number.

    After an unknown outcome, an idempotent writer retries the same operation, and another writer
    begins a new operation with new numbers. Returns None if the writer is fenced or has to stop.
    """
    operation = notes.begin(PARTITION, *writer.values(number, count))
    may_be_there = False
    while True:
        try:
            placed = writer.append(log, number, count)
        except StorageTimeoutError:
            pass  # it was stopped so often that no listing was fast enough
        except UnknownOutcomeError:
            may_be_there = True
            if not writer.idempotent:
                number += count
                operation = notes.begin(PARTITION, *writer.values(number, count))
        except InvalidProducerEpochError:
            if not may_be_there:
                notes.refuse(operation)
            return None
        else:
            notes.acknowledge(operation, range(placed.base_offset, placed.last_offset + 1))
            return number + count
        if stop is not None and stop.poll():
            return None


# --- rules that a writer may do without, to see that a test notices ------------------------------


class AlwaysRecent(AppenderState):
    @property
    def is_recent(self):
        return True


class TrustsLateSuccess(Appender):
    """Treats each successful put as final, even if its view of the log end is old."""

    def append_segment(self, *args, **kwargs):
        self._state.__class__ = AppenderState
        return super().append_segment(*args, **kwargs)

    def _try_put(self, *args, **kwargs):
        self._state.__class__ = AlwaysRecent
        with patch.object(appender, "is_last_gone", return_value=False):
            return super()._try_put(*args, **kwargs)


LEAVE_OUT = {"late success": TrustsLateSuccess}
