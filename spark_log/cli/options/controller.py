"""Options of the command and of the job that run a controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from spark_log.cli.format import print_note
from spark_log.replication import Controller

_FAILED: Final = 1
"""Exit status of a single run after which some replica is not in sync."""

_INTERVAL_MS: Final = 2_000
_ONCE_INTERVAL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """The duration and the interval of a controller, from command line options.

    Attributes:
        once: whether to stop when nothing is left to do.
        interval_ms: the time between two checks of the brokers.
    """

    once: bool
    interval_ms: int

    @classmethod
    def from_options(
        cls,
        once: Annotated[
            bool,
            typer.Option(
                "--once",
                help="Stop when nothing is left to do. Does not replace another controller.",
            ),
        ] = False,
        interval_ms: Annotated[
            int | None,
            typer.Option(
                "--interval-ms",
                min=10,
                help="Time between two checks of the brokers. [default: 2000; with --once 100]",
            ),
        ] = None,
    ) -> ControllerOptions:
        """Return the options, with the default interval if none is given."""
        return cls(once, interval_ms or (_ONCE_INTERVAL_MS if once else _INTERVAL_MS))

    def run(self, controller: Controller, wait: Callable[[float], bool]) -> None:
        """Let a controller work.

        Args:
            controller: the controller.
            wait: the function that is called with the seconds between two checks of the brokers,
                and returns whether to stop.

        Raises:
            typer.Exit: a single run ended, and some replica is not in sync.
        """

        def pause() -> bool:
            return wait(self.interval_ms / 1000)

        if not self.once:
            controller.run(pause)
            return
        failed = controller.run_once(pause)
        for replica in failed:
            print_note(f"error: {replica} is still not in sync")
        if failed:
            raise typer.Exit(_FAILED)
