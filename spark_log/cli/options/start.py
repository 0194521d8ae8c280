"""Options of ``console-consumer`` for the range to read: its start and end, or a time window."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from spark_log.cli.options.time_window import TimeWindow
from spark_log.cli.records import PartitionRange
from spark_log.errors import OffsetOutOfRangeError
from spark_log.log import IsolationLevel, PartitionLog

_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class Start:
    """The partitions to read, and the start and the end of the range.

    Attributes:
        from_beginning: whether to start at the earliest record.
        partition: the number of the only partition to read; None for all.
        position: the offset to start at (negative: before the end of each partition), or the name
            of one end of the log.
        window: the time window; only records with a timestamp in it are read.
        exits_at_end: whether a partition is read up to the end that it had when the command began.
        given: the names of given options that have no effect for a group.
    """

    from_beginning: bool
    partition: int | None
    position: int | str
    window: TimeWindow
    exits_at_end: bool
    given: tuple[str, ...]

    @classmethod
    def from_options(
        cls,
        from_beginning: Annotated[
            bool,
            typer.Option(
                "--from-beginning",
                help="Start at the earliest record (with --group only without a committed offset).",
            ),
        ] = False,
        partition: Annotated[
            int | None,
            typer.Option("--partition", help="Number of the partition to read. [default: all]"),
        ] = None,
        offset: Annotated[
            str | None,
            typer.Option(
                "--offset",
                metavar="N|-N|earliest|latest",
                help="Offset to start at. N requires --partition if the topic has several "
                "partitions. -N is N offsets before the end of each partition. [default: latest]",
            ),
        ] = None,
        tail: Annotated[
            int | None,
            typer.Option(
                "--tail",
                metavar="N",
                min=1,
                help="Start N offsets before the end of each partition, and wait for "
                "more records unless --max-messages or --timeout-ms ends the command.",
            ),
        ] = None,
        from_time: Annotated[
            str | None,
            typer.Option(
                "--from-time",
                metavar="TIME",
                help="Print only records with this timestamp or a later one. ISO 8601 (UTC unless "
                "it has an offset), or milliseconds since the epoch.",
            ),
        ] = None,
        to_time: Annotated[
            str | None,
            typer.Option(
                "--to-time", metavar="TIME", help="Print only records with an earlier timestamp."
            ),
        ] = None,
        exit_at_end: Annotated[
            bool,
            typer.Option(
                "--exit-at-end",
                help="End where each partition ended when the command began, also while others "
                "write. The start is the earliest record, if no other start is given.",
            ),
        ] = False,
    ) -> Start:
        """Return the start that the user asked for.

        Raises:
            InvalidConfigurationError: a time has an unknown form.
            typer.BadParameter: the offset has an unknown form, or two options exclude each other.
        """
        options = {
            "--partition": partition,
            "--offset": offset,
            "--tail": tail,
            "--from-time": from_time,
            "--to-time": to_time,
        }
        window = TimeWindow.parse(from_time, to_time)
        return cls(
            from_beginning,
            partition,
            _parse_position(from_beginning, offset, tail, window, exit_at_end),
            window,
            exit_at_end,
            tuple(name for name, value in options.items() if value is not None),
        )

    @property
    def reset(self) -> str:
        """The ``auto.offset.reset`` for a group without committed offsets."""
        return _EARLIEST if self.from_beginning or self.exits_at_end else _LATEST

    def ranges(
        self, topic: str, logs: Mapping[int, PartitionLog], isolation_level: IsolationLevel
    ) -> dict[int, PartitionRange]:
        """Return the offsets to read, by partition; an end, if any, is the log's present end.

        Args:
            topic: the name of the topic, for errors.
            logs: the log of each partition to read.
            isolation_level: the isolation level; with ``read_committed`` a log ends at its last
                stable offset.

        Raises:
            typer.BadParameter: one offset was given for several partitions.
            OffsetOutOfRangeError: the offset is after the end at which the command exits.
            SparkLogError: a log cannot be read.
        """
        if isinstance(self.position, int) and self.position >= 0 and len(logs) > 1:
            raise typer.BadParameter(
                f"{self.position} needs --partition, too: topic {topic!r} has {len(logs)} "
                f"partitions",
                param_hint="'--offset'",
            )
        return {number: self._range(log, isolation_level) for number, log in logs.items()}

    def _range(self, log: PartitionLog, isolation_level: IsolationLevel) -> PartitionRange:
        view = log.observe()
        log_end = log.end_offset(view, isolation_level=isolation_level)
        end = log_end if self.exits_at_end or not self.window.is_open else None
        if self.window.from_us is not None:
            found = log.offset_for_time(self.window.from_us, isolation_level=isolation_level)
            # Not found: no record of the log is in the window, so start at its end.
            return PartitionRange(log_end if found is None else found[0], end)
        if isinstance(self.position, str):
            is_earliest = self.position == _EARLIEST
            return PartitionRange(view.log_start_offset if is_earliest else log_end, end)
        if self.position < 0:
            return PartitionRange(max(view.log_start_offset, log_end + self.position), end)
        if end is not None and self.position > end:
            raise OffsetOutOfRangeError(
                f"offset {self.position} is after the end of {log.files.path}, {end}; give one of "
                f"{view.log_start_offset} to {end}",
                offset=self.position,
                log_start_offset=view.log_start_offset,
                log_end_offset=end,
            )
        return PartitionRange(self.position, end)


def _parse_position(
    from_beginning: bool,
    offset: str | None,
    tail: int | None,
    window: TimeWindow,
    exit_at_end: bool,
) -> int | str:
    if tail is not None:
        if offset is not None:
            raise typer.BadParameter("--tail and --offset exclude each other")
        offset = f"-{tail}"
    if from_beginning and offset is not None:
        raise typer.BadParameter("--from-beginning and --offset exclude each other")
    if window.from_us is not None and (from_beginning or offset is not None):
        other = "--offset" if offset is not None else "--from-beginning"
        raise typer.BadParameter(f"--from-time and {other} exclude each other")
    if offset is None:
        has_end = exit_at_end or not window.is_open
        return _EARLIEST if from_beginning or has_end else _LATEST
    if offset in (_EARLIEST, _LATEST):
        return offset
    if not re.fullmatch(r"[0-9]{1,18}|-[1-9][0-9]{0,17}", offset):
        raise typer.BadParameter(
            f"{offset!r} is not an offset; give a number, {_EARLIEST} or {_LATEST}",
            param_hint="'--offset'",
        )
    return int(offset)
