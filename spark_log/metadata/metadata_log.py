"""The metadata log: a partition log of JSON records with conditional appends (docs/protocol.md).

A change is decided on a state, and appended at exactly the log end offset of that state. If another
change was first, nothing is appended, and the change is decided again on the new state. So any
number of writers are safe without a lock or a leader.

On storage: the log in ``__cluster_metadata-0``, and its end offset after the last change in
``__witnesses/__cluster_metadata-0``. If the log ends before that offset, or is empty while topic
directories exist, files were removed: then it is not read, and no new log is started.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.clock import Clock
from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.errors import LogEndOffsetMismatchError, NotFoundError, SparkLogError
from spark_log.log import LogView, PartitionLog, Witness
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import MetadataRecord, from_json
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

METADATA_DIRECTORY = "__cluster_metadata-0"
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""KRaft's fixed id of the metadata topic (``Uuid.METADATA_TOPIC_ID``)."""

_TOPIC_DIRECTORY = re.compile(r".+\.[\w-]{22}")

Decide = Callable[[MetadataImage], Sequence[MetadataRecord]]


class _Replayed(NamedTuple):
    """The state after the records before an offset; replaced as a whole, for threads that look."""

    image: MetadataImage
    offset: int


class MetadataLog:
    """Reads and changes the cluster's metadata. Safe to use from several threads."""

    def __init__(
        self, store: Store, clock: Clock, suppressed: SuppressedErrors = IN_PROCESS
    ) -> None:
        """Return the metadata log of a root; nothing is read yet.

        Args:
            store: the store of the root.
            clock: gives records their timestamps.
            suppressed: counts failures that do not stop a caller.
        """
        self._clock = clock
        self._log = PartitionLog(
            store,
            METADATA_DIRECTORY,
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            config=INTERNAL_LOG_CONFIG,
            clock=clock,
            suppressed=suppressed,
            has_witness=True,
        )
        self._store = store
        self._witness = Witness(METADATA_DIRECTORY)
        self._is_checked = False
        self._known = _Replayed(MetadataImage(), 0)
        self._lock = threading.Lock()

    def image(self) -> MetadataImage:
        """Return the state after replaying the log to its present end; the image never changes.

        Without a new record this is one lookup of a file name. Several threads make theirs at once.

        Raises:
            CorruptRecordError: the log is damaged.
            LogTruncatedError: files of the log were removed.
            StorageError: the log cannot be read.
        """
        known = self._known
        if self._is_checked and self._log.ends_at(known.offset):
            return known.image
        with self._lock:
            self._replay_to_end()
            return self._known.image

    def observe(self) -> LogView:
        """Return the log as it is now: one listing, and the last header of the last segment.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: the log cannot be read.
        """
        with self._lock:
            return self._log.observe()

    def known_image(self) -> MetadataImage:
        """Return the state as `image` or `commit` last found it, without a request.

        Before the first of them it is empty. The image never changes.
        """
        return self._known.image

    def commit(self, decide: Decide) -> None:
        """Append the records that ``decide`` returns, at the end of the log that it was decided on.

        If no other process has changed the metadata since this one read or changed them, this costs
        the append and the put of the witness.

        Args:
            decide: called with the state as it is known, and again with the present one if that is
                newer, or if it returned no records or raised: only an append shows that a state was
                the newest. It must have no effects; it raises to refuse the change. If it returns
                no records for the present state, nothing is appended.

        Raises:
            UnknownOutcomeError: it is not known whether the change was made.
        """
        with self._lock:
            records: Sequence[MetadataRecord] = ()
            if self._is_checked:
                with suppress(SparkLogError):  # the present state decides
                    records = decide(self._known.image)
            while not records or not self._append(records):
                self._replay_to_end()
                records = decide(self._known.image)
                if not records:
                    return
            # The change is made. After a crash or an error here the witness has an older end.
            with self._log.suppressed.suppress("witness", METADATA_DIRECTORY, SparkLogError):
                self._store.put(self._witness.path, b"%d\n" % self._known.offset)

    def _append(self, records: Sequence[MetadataRecord]) -> bool:
        """Append records that were decided on the known state; return whether it was the newest."""
        image = self._known.image.copy()
        for record in records:
            image.replay(from_json(record.to_json()))
        batch = _record_batch(records, self._clock.time_us())
        try:
            self._log.append(batch, expected_leo=self._known.offset)
        except LogEndOffsetMismatchError:
            return False
        self._known = _Replayed(image, self._known.offset + len(records))
        self._is_checked = True
        return True

    def _replay_to_end(self) -> None:
        self._read_on()
        if not self._is_checked:
            self._check_is_whole()
            self._is_checked = self._known.offset > 0

    def _check_is_whole(self) -> None:
        """Check once that the log does not end before the offset in its witness.

        Raises:
            LogTruncatedError: some or all of its files were removed.
        """
        try:
            text = self._store.open_buffer(self._witness.path).to_pybytes().strip()
            witnessed = int(text or b"1")
        except NotFoundError:
            witnessed = 0
        except ValueError:
            witnessed = 1
        if not witnessed and not self._known.offset:
            names = self._store.list_directories("")
            witnessed = int(any(_TOPIC_DIRECTORY.fullmatch(name) for name in names))
        if witnessed > self._known.offset:
            self._read_on()  # another process may have appended since the log was read
        if witnessed > self._known.offset:
            raise self._log.files.truncated(self._known.offset, witnessed)

    def _read_on(self) -> None:
        image, offset = None, self._known.offset
        # At the log's end this is one lookup of the next segment's name.
        for batch, next_offset in self._log.read_on(offset):
            if batch is not None:
                image = image or self._known.image.copy()
                for value in batch.records.column("value").to_pylist():
                    image.replay(from_json(value))
            offset = next_offset
        if image is not None:
            self._known = _Replayed(image, offset)


def _record_batch(records: Sequence[MetadataRecord], now_us: int) -> pa.RecordBatch:
    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            binary_array([record.to_json() for record in records]),
            pa.nulls(count, HEADERS_TYPE),
            timestamp_array(np.full(count, now_us)),
        ],
        schema=RECORD_SCHEMA,
    )
