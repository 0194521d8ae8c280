"""SIGINT and SIGTERM as a request to stop, for a program that has to clean up first."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Records the first signal; the second one ends the process as usual.

    Under ``spark-submit`` a Java process is between the user and this process. If a signal kills
    only the Java process, that counts as SIGTERM. For the main thread only.

    Attributes:
        received: the number of the signal; None before the first.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous_handlers: dict[int, Any] = {}
        self._parent = os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else None

    def __enter__(self) -> Self:
        self._previous_handlers = {
            each: signal.signal(each, self._on_signal) for each in _STOP_SIGNALS
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def is_set(self) -> bool:
        """Return whether a signal was received."""
        if self.received is None and self._parent not in (None, os.getppid()):
            self.received = signal.SIGTERM
        return self.received is not None

    @property
    def exit_status(self) -> int:
        """The exit status as in a shell: 128 plus the signal's number; 0 without a signal."""
        return 0 if self.received is None else 128 + self.received

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._previous_handlers.items():
            signal.signal(each, handler)
        self._previous_handlers = {}
