"""The metadata log: a partition log of JSON records with conditional appends (protocol M1).

A change is decided on a state, and appended at exactly the log end offset of that state. If another
change was first, nothing is appended, and the change is decided again on the new state. Any number
of writers are safe without a lock or a leader.

On storage: the log in ``__cluster_metadata-0``, and its state after the last change in
``__witnesses/__cluster_metadata-0`` (`spark_log.metadata.checkpoint`). A process begins with that
state instead of replaying the log. If the log ends before its offset, or is empty while topic
directories exist, files were removed: then it is not read, and no new log is started.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.errors import CorruptRecordError, LogEndOffsetMismatchError, SparkLogError
from spark_log.log import LocalLog, LogView, SeekResult
from spark_log.log.files import ExistenceMarker
from spark_log.metadata.checkpoint import MetadataCheckpoint, read_checkpoint
from spark_log.metadata.features import with_features
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import MetadataRecord, from_json
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, binary_array, timestamp_array
from spark_log.storage import METADATA_LOG, Store, is_topic_directory
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors

METADATA_DIRECTORY = METADATA_LOG
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""KRaft's fixed id of the metadata topic (``Uuid.METADATA_TOPIC_ID``)."""

METADATA_MARKER = ExistenceMarker(METADATA_DIRECTORY)
"""The existence marker of the metadata log. Its file contains the checkpoint."""

METADATA_LEASE_MS: Final = 5_000
"""Time for which a writer that has read the metadata acknowledges appends without reading them
again. On object stores the deletion of a topic, and the joining of a replica, take at least as
long."""

Decide = Callable[[MetadataImage], Sequence[MetadataRecord]]

_log = logging.getLogger(__name__)


class _Replayed(NamedTuple):
    """The state after the records before an offset; replaced as a whole, for concurrent readers.

    Attributes:
        image: the state.
        offset: the log offset after the last record of the state.
        last_segment: the base offset of the segment that ends at `offset`.
        checkpoint: the checkpoint of the state; None if it must be made from the image.
    """

    image: MetadataImage
    offset: int = 0
    last_segment: int = -1
    checkpoint: MetadataCheckpoint | None = None


class MetadataLog:
    """Reads and changes the cluster's metadata. Safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        suppressed: SuppressedErrors = IN_PROCESS,
        *,
        cluster_id: str = "",
        checkpoint: MetadataCheckpoint | None = None,
    ) -> None:
        """Return the metadata log of a root; nothing is read yet.

        Args:
            store: the store of the root.
            clock: gives records their timestamps.
            suppressed: counts failures that do not stop a caller.
            cluster_id: the id of the root's cluster, for checkpoints.
            checkpoint: the checkpoint, if it was read already; None reads it when it is needed.
        """
        self._clock = clock
        self._log = LocalLog(
            store,
            METADATA_DIRECTORY,
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            config=INTERNAL_LOG_CONFIG,
            clock=clock,
            suppressed=suppressed,
            has_existence_marker=True,
        )
        self._store = store
        self._cluster_id = cluster_id
        self._checkpoint = checkpoint
        self._is_checked = False
        self._known = _Replayed(MetadataImage())
        # The state of the latest read or change, and the monotonic time before its request.
        self._latest = self._known.image, -math.inf
        self._lock = threading.Lock()

    def image(self) -> MetadataImage:
        """Return the state after replaying the log to its present end; the image never changes.

        Without a new record this is one lookup of a file name. Threads do not wait for each other's
        lookups.

        Raises:
            CorruptRecordError: the log is damaged.
            LogTruncatedError: files of the log were removed.
            StorageError: the log cannot be read.
            UnsupportedVersionError: the cluster uses a feature that this release does not know.
        """
        known, began_ms = self._known, self._clock.monotonic_ms()
        if self._is_checked and self._log.tail_ends_at(known.offset):
            self._latest = known.image, began_ms
            return known.image
        with self._lock:
            self._replay_to_end()
            return self._known.image

    def recent_image(self, max_age_ms: float) -> MetadataImage | None:
        """Return a state that was the newest one at some time within the last ``max_age_ms``.

        Returns:
            None if this process has neither read nor changed the metadata since then. Sends no
            request.
        """
        image, began_ms = self._latest
        return image if self._clock.monotonic_ms() - began_ms < max_age_ms else None

    def observe(self) -> LogView:
        """Return the log as it is now: one listing, and the last header of the last segment.

        Raises:
            CorruptRecordError: the log is damaged.
            StorageError: the log cannot be read.
        """
        with self._lock:
            return self._log.observe()

    def checkpoint_offset(self) -> int:
        """Return the offset of the checkpoint on storage; 0 without a valid checkpoint.

        Raises:
            StorageError: the storage does not answer.
        """
        found = read_checkpoint(self._store, METADATA_MARKER.path)
        return 0 if isinstance(found, int) else found.offset

    def known_image(self) -> MetadataImage:
        """Return the state that the last `image` or `commit` found, without a request.

        Before the first such call the state is empty. The image never changes.
        """
        return self._known.image

    def commit(self, decide: Decide) -> Sequence[MetadataRecord]:
        """Append the records that ``decide`` returns, at the log end offset of its state.

        If no other process has changed the metadata since this one read or changed them, this costs
        the append and the put of the checkpoint.

        Args:
            decide: called with the known state. It is called again with the present state if that
                is newer, or if the first call returned no records or raised: only an append shows
                that a state was the newest. It must have no effects; it raises to refuse the
                change. If it returns no records for the present state, nothing is appended.

        Returns:
            The appended records; empty if nothing was to be changed. The first use of a feature
            is preceded by the record of its level.

        Raises:
            UnknownOutcomeError: it is not known whether the change was made.
        """
        with self._lock:
            records: Sequence[MetadataRecord] = ()
            if self._is_checked:
                with suppress(SparkLogError):  # the present state decides
                    records = self._decided(decide)
            while not records or not self._append(records):
                self._replay_to_end()
                records = self._decided(decide)
                if not records:
                    return records
            # The change is made. After a crash or an error here the checkpoint is an older one.
            with self._log.suppressed.suppress("checkpoint", METADATA_DIRECTORY, SparkLogError):
                self._write_checkpoint()
            return records

    def _decided(self, decide: Decide) -> Sequence[MetadataRecord]:
        # A late import: most processes change no metadata.
        from spark_log.metadata.stripe_requirements import check_stripes
        from spark_log.metadata.table_requirements import check_tables

        image = self._known.image
        records = decide(image)
        check_tables(image, records)
        check_stripes(image, records)
        return with_features(image.features, records)

    def _write_checkpoint(self) -> None:
        content = self._checkpoint_bytes()
        self._store.put(METADATA_MARKER.path, content)
        _log.debug(
            "%s: wrote the checkpoint of offset %d, %d bytes",
            self._store.url,
            self._known.offset,
            len(content),
        )

    def _checkpoint_bytes(self) -> bytes:
        """Return the checkpoint of the known state; its offset if no checkpoint is possible."""
        image, offset, last_segment, checkpoint = self._known
        if checkpoint is None:
            checkpoint = MetadataCheckpoint.of_image(image, offset, last_segment, self._cluster_id)
            self._known = self._known._replace(checkpoint=checkpoint)
        return b"%d\n" % offset if checkpoint is None else checkpoint.to_bytes()

    def _append(self, records: Sequence[MetadataRecord]) -> bool:
        """Append records that were decided on the known state; return whether it was the newest."""
        known, began_ms = self._known, self._clock.monotonic_ms()
        image = known.image.copy()
        values = [record.to_json() for record in records]
        for value in values:
            image.replay(from_json(value))
        batch = _record_batch(values, self._clock.time_us())
        try:
            self._log.append(batch, expected_end_offset=known.offset)
        except LogEndOffsetMismatchError:
            _log.debug("%s: another change was first at offset %d", self._store.url, known.offset)
            return False
        offset, checkpoint = known.offset + len(values), known.checkpoint
        if checkpoint is not None:
            checkpoint = checkpoint.after(values, known.offset, offset)
        image.offset = offset
        self._known = _Replayed(image, offset, known.offset, checkpoint)
        self._latest = image, began_ms
        self._is_checked = True
        if _log.isEnabledFor(logging.DEBUG):
            kinds = ", ".join(dict.fromkeys(type(record).__name__ for record in records))
            _log.debug(
                "%s: appended offsets %d to %d: %s",
                self._store.url,
                known.offset,
                offset - 1,
                kinds,
            )
        return True

    def _replay_to_end(self) -> None:
        began_ms = self._clock.monotonic_ms()
        reached = 0 if self._is_checked else self._load_checkpoint()
        known = self._known
        sought = None
        if known.last_segment >= 0:
            sought = self._log.seek_past_segment(known.last_segment, known.offset)
            if sought is SeekResult.UNCONFIRMED and not self._is_checked:
                self._known = _Replayed(MetadataImage())  # the log does not confirm the checkpoint
        if sought is not SeekResult.LOG_ENDS:
            self._read_on()
        if not self._is_checked:
            self._check_is_whole(reached)
            self._is_checked = self._known.offset > 0
        self._latest = self._known.image, began_ms

    def _load_checkpoint(self) -> int:
        """Begin with the state of the checkpoint, if one exists; return its offset."""
        found: MetadataCheckpoint | int | None = self._checkpoint
        self._checkpoint = None
        if found is None:
            found = read_checkpoint(self._store, METADATA_MARKER.path)
        if isinstance(found, int):
            return found
        with self._log.suppressed.suppress("checkpoint", METADATA_DIRECTORY, CorruptRecordError):
            self._known = _Replayed(found.image(), found.offset, found.last_segment, found)
            _log.debug("%s: began with the checkpoint of offset %d", self._store.url, found.offset)
        return found.offset

    def _check_is_whole(self, reached: int) -> None:
        """Check once that the log does not end before an offset that it is known to have reached.

        Raises:
            LogTruncatedError: some or all of its files were removed.
        """
        if not reached and not self._known.offset:
            names = self._store.list_directories("")
            reached = int(any(map(is_topic_directory, names)))
        if reached > self._known.offset:
            self._read_on()  # another process may have appended since the log was read
        if reached > self._known.offset:
            raise self._log.files.truncated(self._known.offset, reached)

    def _read_on(self) -> None:
        """Replay the records after the known state; at its end this costs one lookup."""
        image, offset, last_segment, checkpoint = self._known
        for batch, next_offset in self._log.stream(offset):
            if batch is not None:
                image = image.copy() if image is self._known.image else image
                values = batch.records.column("value").to_pylist()
                for value in values:
                    image.replay(from_json(value))
                last_segment = batch.segment_base_offset
                if checkpoint is not None:
                    checkpoint = checkpoint.after(values, last_segment, next_offset)
            offset = next_offset
        if image is not self._known.image:
            image.offset = offset
        if offset > self._known.offset:
            _log.debug(
                "%s: replayed offsets %d to %d", self._store.url, self._known.offset, offset - 1
            )
        self._known = _Replayed(image, offset, last_segment, checkpoint)


def _record_batch(values: Sequence[bytes], now_us: int) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            binary_array(values),
            pa.nulls(count, HEADERS_TYPE),
            timestamp_array(np.full(count, now_us)),
        ],
        schema=RECORD_SCHEMA,
    )
