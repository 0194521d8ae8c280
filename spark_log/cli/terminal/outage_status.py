"""The status line of a command that waits for a storage that does not answer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from spark_log.cli.format import status_line
from spark_log.storage import OUTAGE_LOG

if TYPE_CHECKING:
    from collections.abc import Callable


class _StatusHandler(logging.Handler):
    """Shows the last record as a line with a spinner, which the next record replaces."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._shown = ExitStack()
        self._update: Callable[[str], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_over", False):
            self.end()
        elif self._update is None:
            self._update = self._shown.enter_context(status_line(record.getMessage()))
        else:
            self._update(record.getMessage())

    def end(self) -> None:
        """Clear the line."""
        self._shown.close()
        self._update = None


@contextmanager
def outages_shown() -> Iterator[None]:
    """Show the cause of a wait in the block: in a terminal as a status line, else on stderr."""
    log = logging.getLogger(OUTAGE_LOG)
    if not sys.stderr.isatty():
        yield
        return
    handler = _StatusHandler()
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = True
        log.removeHandler(handler)
        handler.end()
