"""Checks of a log's leader epochs by batch headers: leader epochs never go down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_log.record import BatchHeader


class LeaderEpochs:
    """Finds batches of a leader epoch after batches of a newer epoch.

    The barrier of an epoch fences the writers of all earlier epochs. If a batch of an earlier epoch
    comes after the barrier, two leaders wrote, or files of another replica were put into the
    directory.
    """

    def __init__(self) -> None:
        """Start before the first header."""
        self._position = 0
        self._newest = -1

    def replay(self, base_offset: int, headers: Iterable[BatchHeader]) -> Iterator[str]:
        """Yield the problems of the next headers of the live log.

        Args:
            base_offset: the offset that the headers' deltas are relative to.
            headers: sound headers, in offset order.
        """
        for header in headers:
            start = base_offset + header.base_offset_delta
            if start < self._position:
                continue
            self._position = start + 1
            if header.leader_epoch < self._newest:
                yield (
                    f"the batch at offset {start} is of leader epoch {header.leader_epoch}, behind "
                    f"one of epoch {self._newest}: its writer was fenced. Find out which replica "
                    f"has the right records"
                )
            self._newest = max(self._newest, header.leader_epoch)
