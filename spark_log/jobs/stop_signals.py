"""SIGINT and SIGTERM as a wish to end, for a program that has something to put in order first."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any, Self

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Takes note of the first signal; the second one ends the process as it always would.

    Under ``spark-submit`` a Java process is between the user and this one, and dies of a signal
    that is sent to it alone: that counts as SIGTERM. In the main thread only.

    Attributes:
        received: the signal, once one has come.
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
        """Return whether it is time to end."""
        if self.received is None and self._parent not in (None, os.getppid()):
            self.received = signal.SIGTERM
        return self.received is not None

    @property
    def exit_status(self) -> int:
        """As a shell counts: 128 and the signal's number; 0 where none came."""
        return 0 if self.received is None else 128 + self.received

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._previous_handlers.items():
            signal.signal(each, handler)
        self._previous_handlers = {}
