"""Points in time and durations as text: one parser for the command line and for options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, ValidationError

from spark_log.errors import InvalidConfigurationError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_US, _MAX_US = -(2**63), 2**63 - 1
_DURATION: Final = TypeAdapter(timedelta)


def parse_time_us(name: str, text: str) -> int:
    """Return a point in time in microseconds since the epoch.

    Args:
        name: option or key that has the value; errors begin with it.
        text: the time in ISO 8601, in UTC if it names no offset, or in milliseconds since the
            epoch. Eight digits are a date: as milliseconds they would be a time on the first two
            days of 1970.

    Raises:
        InvalidConfigurationError: the text is not a time, or the time does not fit into a record's
            timestamp.
    """
    if re.fullmatch(r"-?[0-9]+", text) and not re.fullmatch(r"[0-9]{8}", text):
        time_us = int(text) * 1000
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidConfigurationError(
                f"{name} is {text!r}, expected ISO 8601 such as 2013-06-01T12:00:00 (UTC unless "
                f"it has an offset), or milliseconds since the epoch",
                key=name,
            ) from None
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        time_us = (aware - _EPOCH) // timedelta(microseconds=1)
    if not _MIN_US <= time_us <= _MAX_US:
        raise InvalidConfigurationError(
            f"{name} is {text}, expected a time within 292,000 years of 1970", key=name
        )
    return time_us


def parse_time_ms(name: str, text: str) -> int:
    """Return the first whole millisecond at or after a point in time, since the epoch.

    Args:
        name: option or key that has the value; errors begin with it.
        text: the time, in a form that `parse_time_us` accepts.

    Raises:
        InvalidConfigurationError: the text is not a time.
    """
    return -(-parse_time_us(name, text) // 1000)


def parse_duration(name: str, text: str) -> timedelta:
    """Return an ISO 8601 duration such as ``P1DT2H30M``; it may be negative.

    Args:
        name: option or key that has the value; errors begin with it.
        text: the duration.

    Raises:
        InvalidConfigurationError: the text is not a duration.
    """
    try:
        if not text.lstrip("-").startswith("P"):
            raise ValueError(text)
        return _DURATION.validate_python(text)
    except (ValidationError, ValueError):
        raise InvalidConfigurationError(
            f"{name} is {text!r}, expected a duration such as P1DT2H30M", key=name
        ) from None
