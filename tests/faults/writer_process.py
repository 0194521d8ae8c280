"""A process that does nothing but append to one partition, and may be killed at any moment.

Every record tells who wrote it and its number: ``<producer>.<epoch>.<number>``. What the log
acknowledged is written to a file of the process's own, one line at a time and unbuffered: a line
that SIGKILL comes before is an append that nobody was told of.
"""

import os
import random
import signal
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from spark_log.errors import (
    InvalidProducerEpochError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.log.append.appender import Appender
from spark_log.log.append.producer_state import ProducerAppend
from spark_log.storage import Store
from tests.faults.notes import Notes
from tests.log.support import HookedStore, open_log
from tests.record.samples import record_batch, row

MAX_RECORDS = 4
"""Of one append."""


@dataclass(frozen=True)
class Writer:
    """Who writes, where, and where it notes what was acknowledged.

    Attributes:
        producer: its producer id; names its records also where it is not idempotent.
        epoch: of the producer; the process that takes another's place has the next one.
        idempotent: whether appends carry sequence numbers.
        notes: path of its file of acknowledgements.
        log_config: of the topic.
        without: name from `LEAVE_OUT` of a safety rule that this writer does without.
    """

    store: Store
    producer: int
    epoch: int
    idempotent: bool
    notes: str
    log_config: dict
    without: str | None = None

    @property
    def mark(self):
        """What its records begin with."""
        return f"{self.producer}.{self.epoch}"

    def open_log(self):
        log = open_log(self.store, **self.log_config)
        if self.without is not None:
            log._appender.__class__ = LEAVE_OUT[self.without]
        return log

    def append(self, log, number, count):
        """Append the records from ``number`` on."""
        rows = [row(f"{self.mark}.{each}".encode()) for each in range(number, number + count)]
        if not self.idempotent:
            return log.append(record_batch(rows))
        identity = ProducerAppend(self.producer, self.epoch, number)
        return log.append(record_batch(rows), producer=identity)


def append_until_told(writer: Writer, stop: Connection):
    """Append small batches, one after the other, until the other end of the pipe is closed."""
    chance = random.Random(writer.mark)
    log = writer.open_log()
    number = 0
    with Notes(writer.notes) as notes:
        while not stop.poll():
            count = chance.randint(1, MAX_RECORDS)
            try:
                while not _append(writer, log, notes, number, count):
                    if stop.poll():
                        return
            except InvalidProducerEpochError:
                notes.write("fenced", number, count)
                return
            number += count


def append_and_stop_once(writer: Writer, stopped_at: str):
    """Append twice, and stop in the midst of the second time until SIGCONT comes.

    Args:
        writer: who.
        stopped_at: ``put``, before the put that is to take effect, or ``answer``, behind it.
    """
    store = HookedStore(writer.store)
    log = replace(writer, store=store).open_log()

    def put_and_stop(path, put):
        if stopped_at == "answer":
            put()
        os.kill(os.getpid(), signal.SIGSTOP)
        if stopped_at == "put":
            put()

    with Notes(writer.notes) as notes:
        assert _append(writer, log, notes, 0, 3)
        store.once("put_if_absent", put_and_stop)
        while not _append(writer, log, notes, 3, 3):
            pass


def _append(writer, log, notes, number, count):
    """Append once, note what came of it, and return whether it is done."""
    try:
        placed = writer.append(log, number, count)
    except StorageTimeoutError:
        return False  # it was stopped so often that no listing came to its end in time
    except UnknownOutcomeError:
        notes.write("unknown", number, count)
        return False
    notes.write("acknowledged", number, count, placed.base_offset, placed.last_offset)
    return True


# --- rules that a writer may do without, to see that a test notices ------------------------------


class TrustsLateSuccess(Appender):
    """Takes a put that succeeded for final, however long ago the log's end was looked at."""

    _has_put = False

    def append_segment(self, *args, **kwargs):
        self._has_put = False
        return super().append_segment(*args, **kwargs)

    def _try_put(self, *args, **kwargs):
        self._has_put = True
        return super()._try_put(*args, **kwargs)

    def _is_recent(self, tail):
        return self._has_put or super()._is_recent(tail)


LEAVE_OUT = {"late success": TrustsLateSuccess}
