"""The metadata log: a partition log of JSON records on conditional appends (DESIGN.md, 8).

A change is decided on the state after the whole log, and appended at exactly that log's end. If
another change came first nothing is appended, and the decision is taken again on the new state. So
no lock and no leader is needed for any number of writers to be safe.

On storage: the log in ``__cluster_metadata-0``, and how far it reached after a change in
``__witnesses/__cluster_metadata-0``. A log that is shorter, or empty beside topics' directories, is
not read or begun anew: its files were removed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from spark_log.clock import Clock
from spark_log.config import TopicConfig
from spark_log.errors import LogEndOffsetMismatchError, NotFoundError, SparkLogError
from spark_log.log import PartitionLog
from spark_log.log.witness import Witness
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import MetadataRecord, from_json
from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

DIRECTORY = "__cluster_metadata-0"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""KRaft's fixed id of the metadata topic (``Uuid.METADATA_TOPIC_ID``)."""

_TOPIC_DIRECTORY = re.compile(r".+\.[\w-]{22}")

Decide = Callable[[MetadataImage], Sequence[MetadataRecord]]


class MetadataLog:
    """Reads and changes the cluster's metadata. Safe to use from several threads."""

    def __init__(
        self, store: Store, clock: Clock, suppressed: SuppressedErrors = IN_PROCESS
    ) -> None:
        self._clock = clock
        self._log = PartitionLog(
            store,
            DIRECTORY,
            topic_id=TOPIC_ID,
            partition=0,
            config=TopicConfig(merge_tail_segments=0),
            clock=clock,
            suppressed=suppressed,
            has_witness=True,
        )
        self._store = store
        self._witness = Witness(DIRECTORY)
        self._is_checked = False
        self._image = MetadataImage()
        self._offset = 0
        self._lock = threading.Lock()

    def image(self) -> MetadataImage:
        """Return the state after replaying the log to its present end; it stays as it is.

        Raises:
            CorruptRecordError: the log is damaged.
        """
        with self._lock:
            self._replay_to_end()
            return self._image

    def commit(self, decide: Decide) -> None:
        """Append what ``decide`` answers, at the end of exactly the log that it was shown.

        Args:
            decide: called with the current state, again and again until its records are appended;
                it changes nothing, and raises to refuse. No records: nothing is appended.

        Raises:
            UnknownOutcomeError: whether the change was made could not be found out.
        """
        with self._lock:
            while True:
                self._replay_to_end()
                records = decide(self._image)
                if not records:
                    return
                batch = _record_batch(records, self._clock.time_us())
                try:
                    self._log.append(batch, expected_leo=self._offset)
                except LogEndOffsetMismatchError:
                    continue
                self._replay_to_end()
                # The change is made; a crash here, or an error, leaves an earlier end told.
                with self._log.suppressed.suppress("witness", DIRECTORY, SparkLogError):
                    self._store.put(self._witness.path, b"%d\n" % self._offset)
                return

    def _replay_to_end(self) -> None:
        self._read_on()
        if not self._is_checked:
            self._check_is_whole()
            self._is_checked = self._offset > 0

    def _check_is_whole(self) -> None:
        """Check, once, that the log reaches as far as is told beside it.

        Raises:
            LogTruncatedError: its files were removed, some or all.
        """
        try:
            text = self._store.open_buffer(self._witness.path).to_pybytes().strip()
            told = int(text or b"1")
        except NotFoundError:
            told = 0
        except ValueError:
            told = 1
        if not told and not self._offset:
            names = self._store.list_directories("")
            told = int(any(_TOPIC_DIRECTORY.fullmatch(name) for name in names))
        if told > self._offset:
            self._read_on()  # what was looked at since may have come since
        if told > self._offset:
            raise self._log.files.truncated(self._offset, told)

    def _read_on(self) -> None:
        image, offset = None, self._offset
        while True:  # at the log's end this is one look for the next segment's name
            batches, offset = self._log.fetch_from(offset)
            if not batches:
                break
            image = image or self._image.copy()
            for batch in batches:
                for value in batch.records.column("value").to_pylist():
                    image.replay(from_json(value))
        if image is not None:
            self._image, self._offset = image, offset


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
