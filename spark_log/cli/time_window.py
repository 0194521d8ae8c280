"""A span of event time, as the user names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from spark_log.errors import InvalidOptionError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_US: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Timestamps from ``from_us`` to before ``to_us``, microseconds since the epoch; None: open."""

    from_us: int | None = None
    to_us: int | None = None

    @classmethod
    def parse(cls, from_time: str | None, to_time: str | None) -> TimeWindow:
        """Read both ends, see `parse_time_us`.

        Raises:
            InvalidOptionError: an end is not a time, or nothing lies between them.
        """
        from_us = None if from_time is None else parse_time_us("--from-time", from_time)
        to_us = None if to_time is None else parse_time_us("--to-time", to_time)
        if from_us is not None and to_us is not None and from_us >= to_us:
            raise InvalidOptionError(
                f"--from-time {from_time} is not before --to-time {to_time}", key="--from-time"
            )
        return cls(from_us, to_us)

    @property
    def is_bounded(self) -> bool:
        """Whether it has an end at all."""
        return self.from_us is not None or self.to_us is not None

    def contains(self, timestamps: pa.Array) -> pa.Array | None:
        """Return for each timestamp (any Arrow timestamp type) whether it is inside; None: all are."""
        import pyarrow.compute as pc

        if not self.is_bounded:
            return None
        times_us = timestamps.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        low = -_MAX_US if self.from_us is None else self.from_us
        inside = pc.greater_equal(times_us, low)
        return inside if self.to_us is None else pc.and_(inside, pc.less(times_us, self.to_us))


def parse_time_us(option: str, text: str) -> int:
    """Return a time in microseconds since the epoch.

    Args:
        option: where it was given, for errors.
        text: digits are milliseconds since the epoch; all else is ISO 8601, UTC where it has no
            offset. Eight digits are refused: they could be either.

    Raises:
        InvalidOptionError: it is neither, or too far away.
    """
    if re.fullmatch(r"\d{8}", text):
        raise InvalidOptionError(
            f"{option} {text} could be a date or milliseconds; write the date as "
            f"{text[:4]}-{text[4:6]}-{text[6:]}",
            key=option,
        )
    if re.fullmatch(r"-?\d+", text):
        time_us = int(text) * 1000
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidOptionError(
                f"{option} {text!r} is not a time; give milliseconds since the epoch, or ISO 8601 "
                f"like 2013-06-01T12:00:00 (UTC unless it says otherwise)",
                key=option,
            ) from None
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        time_us = (aware - _EPOCH) // timedelta(microseconds=1)
    if abs(time_us) > _MAX_US:
        raise InvalidOptionError(f"{option} {text} is too far away", key=option)
    return time_us
