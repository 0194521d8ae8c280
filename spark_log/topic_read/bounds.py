"""The partitions, offsets and times that a read of a topic is limited to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Final, Self

from spark_log.errors import InvalidOptionError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The limits of a read.

    Attributes:
        partitions: numbers of the partitions to read; None for all.
        starting_offsets: partition → first offset; other partitions start at their start.
        ending_offsets: partition → offset after the last; other partitions end at their end.
        from_us: the smallest timestamp, microseconds since the epoch; None for no limit.
        to_us: the timestamp after the largest; None for no limit.
    """

    partitions: frozenset[int] | None = None
    starting_offsets: Mapping[int, int] = field(default_factory=dict)
    ending_offsets: Mapping[int, int] = field(default_factory=dict)
    from_us: int | None = None
    to_us: int | None = None

    @classmethod
    def parse(
        cls,
        *,
        partitions: Collection[int] | None = None,
        starting_offsets: Mapping[int, int] | None = None,
        ending_offsets: Mapping[int, int] | None = None,
        from_time: datetime | None = None,
        to_time: datetime | None = None,
    ) -> Self:
        """Return the limits that a user gave.

        Raises:
            InvalidOptionError: a limit has the wrong type, an offset is negative, a time has no
                time zone, or limits are of partitions that are not read.
        """
        for number in partitions or ():
            _check_int("partitions", number)
        chosen = None if partitions is None else frozenset(partitions)
        limits = {"starting_offsets": starting_offsets, "ending_offsets": ending_offsets}
        for name, offsets in limits.items():
            for partition, offset in (offsets or {}).items():
                _check_int(name, partition)
                _check_int(name, offset)
                if offset < 0:
                    raise InvalidOptionError(
                        f"{name} has {offset} for partition {partition}, expected an offset; "
                        f"leave a partition out to read all of it",
                        key=name,
                    )
                if chosen is not None and partition not in chosen:
                    raise InvalidOptionError(
                        f"{name} names partition {partition}, which is not in partitions", key=name
                    )
        return cls(
            chosen,
            dict(starting_offsets or {}),
            dict(ending_offsets or {}),
            _time_us("from_time", from_time),
            _time_us("to_time", to_time),
        )

    @property
    def has_times(self) -> bool:
        """Whether timestamps are limited."""
        return self.from_us is not None or self.to_us is not None

    def may_have(self, times_us: tuple[int, int] | None) -> bool:
        """Return whether rows with timestamps in a range may be read.

        Args:
            times_us: the smallest and the largest timestamp; None if they are not known.
        """
        if times_us is None:
            return True
        is_late = self.to_us is not None and times_us[0] >= self.to_us
        return not is_late and (self.from_us is None or times_us[1] >= self.from_us)


def _check_int(name: str, number: object) -> None:
    if not isinstance(number, Integral):
        raise InvalidOptionError(f"{name} has {number!r}, expected an int", key=name)


def _time_us(name: str, time: datetime | None) -> int | None:
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise InvalidOptionError(
            f"{name} is {time!r}, expected a datetime with a time zone", key=name
        )
    if time.tzinfo is None:
        raise InvalidOptionError(
            f"{name} is {time.isoformat()} without a time zone; give it one, for example "
            f"{name}.replace(tzinfo=datetime.UTC)",
            key=name,
        )
    return (time - _EPOCH) // timedelta(microseconds=1)
