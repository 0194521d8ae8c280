"""Leader epochs in one log: the epoch at its end, at an offset, and where an epoch begins."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import LiveSegment


class LeaderEpochs:
    """Looks up leader epochs in the batch headers of one log (Kafka's ``LeaderEpochFileCache``).

    Epochs never go back within a log. Nothing is kept: each lookup opens segments.
    """

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory

    def latest(self, view: LogView) -> int | None:
        """Return the leader epoch of the last batch of a view.

        Returns:
            -1 for a log that never had a batch; None for an emptied log whose start marker does not
            contain it.

        Raises:
            NotFoundError: the last segment was rewritten and deleted meanwhile.
            CorruptRecordError: the last segment is damaged.
        """
        if view.leader_epoch is not None:
            return view.leader_epoch
        if not view.live.segments:
            return self._directory.leader_epoch_at_start(view.log_start_offset)
        return self._directory.open_listed(view.live.segments[-1], view.observed_ms).leader_epoch

    def epoch_for_offset(self, offset: int, view: LogView) -> int:
        """Return the leader epoch of the batch that contains an offset of a view.

        Raises:
            OffsetOutOfRangeError: the log starts behind the offset now.
            CorruptRecordError: the segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        while True:
            # The listing may lack a segment that appeared during it. The segment before it has
            # records of the same epoch, or of an older one.
            _, segment, reader = next(self._directory.walk(view, offset, offset + 1))
            headers = reader.header_array()
            is_before = headers["base_offset_delta"] <= offset - reader.base_offset
            if is_before.any():
                return int(headers["leader_epoch"][is_before][-1])
            # A compaction has removed the batch, and the ones before it in its segment.
            if segment.start_offset <= view.log_start_offset:
                return int(headers["leader_epoch"][0])
            offset = segment.start_offset - 1

    def start_offset_of(self, leader_epoch: int, view: LogView) -> int:
        """Return the offset at which a leader epoch, or else a later one, begins in a view.

        Returns:
            The log end offset if the log has no such batch.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        doubted: LiveSegment | None = None
        while True:
            try:
                segments = view.live.segments
                epochs_of = partial(self._first_epoch, view)
                index = bisect_left(segments, leader_epoch, key=epochs_of)
                if index:
                    segment = segments[index - 1]
                    before = self._directory.open_listed(segment, view.observed_ms)
                    if segment.end_offset not in (None, before.end_offset):
                        if segment == doubted:
                            raise self._directory.missing(segment, before.end_offset)
                        doubted = segment  # the listing may lack one that appeared during it
                        view = self._directory.observe()
                        continue
                    headers = before.header_array()
                    deltas = headers["base_offset_delta"][headers["leader_epoch"] >= leader_epoch]
                    if len(deltas):
                        return before.base_offset + int(deltas[0])
                if index == len(segments):
                    return view.log_end_offset
                return segments[index].start_offset
            except NotFoundError:  # rewritten since
                view = self._directory.observe()

    def _first_epoch(self, view: LogView, segment: LiveSegment) -> int:
        headers = self._directory.open_listed(segment, view.observed_ms).header_array()
        return int(headers["leader_epoch"][0])
