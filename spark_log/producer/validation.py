"""Checks the arguments of `Producer`: configs, keys, values, headers and timestamps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    RecordTooLargeError,
    SerializationError,
    check_unicode,
)

_MIN_SECONDS = 1_000_000_000
"""September 2001 as seconds since the epoch; as milliseconds it is 12 January 1970."""

_MAX_SECONDS_NS = 2_500_000_000 * 1_000_000
"""March 2049 as seconds, interpreted as milliseconds (29 January 1970), in nanoseconds."""

_has_warned_of_seconds = False

Headers = Iterable[tuple[str, bytes | None]]


def checked_config(config: Mapping[str, object]) -> ProducerConfig:
    """Return the parsed config; idempotence is turned off if other keys rule it out (KIP-679).

    Raises:
        InvalidConfigurationError: an unknown key, a bad value, or values that contradict.
    """
    settings = ProducerConfig.parse(config)
    conflicts = [
        text
        for text, is_so in (
            (f"acks is {settings.acks!r}, not 'all'", settings.acks != "all"),
            ("retries is 0", settings.retries == 0),
        )
        if is_so
    ]
    if settings.enable_idempotence and conflicts:
        if {"enable_idempotence", "enable.idempotence"} & config.keys():
            raise InvalidConfigurationError(
                f"enable.idempotence needs acks=all and retries above 0, but "
                f"{' and '.join(conflicts)}: remove one of these settings",
                key="enable.idempotence",
            )
        settings = settings.model_copy(update={"enable_idempotence": False})
    if settings.transactional_id is not None and not settings.enable_idempotence:
        reason = " and ".join(conflicts) or "it is set to false"
        raise InvalidConfigurationError(
            f"transactional.id needs enable.idempotence, but {reason}: remove one of these "
            f"settings",
            key="transactional.id",
        )
    if settings.delivery_timeout_ms < settings.linger_ms:
        raise InvalidConfigurationError(
            f"delivery.timeout.ms ({settings.delivery_timeout_ms}) is less than linger.ms "
            f"({settings.linger_ms}): records would expire while they wait for others",
            key="delivery.timeout.ms",
        )
    return settings


def serializer_of(name: str, given: object) -> Callable[[str, Any], object] | None:
    """Return a serializer as a function of topic and value; None without a serializer.

    Raises:
        InvalidConfigurationError: the argument is neither a function nor an object with
            ``serialize``.
    """
    if given is None:
        return None
    serialize = getattr(given, "serialize", None)
    if callable(serialize):
        return serialize  # type: ignore[no-any-return]
    if callable(given):
        return lambda topic, value: given(value)
    raise InvalidConfigurationError(
        f"{name} is {given!r}; give a function of the value, or an object with "
        f"serialize(topic, value)",
        key=name,
    )


def serialized(
    topic: str, what: str, value: object, serialize: Callable[[str, Any], object] | None
) -> Any:
    """Return a key or a value as the serializer makes it; unchanged without a serializer.

    Raises:
        SerializationError: the serializer failed, or did not return bytes.
    """
    if serialize is None:
        return value
    try:
        made = serialize(topic, value)
        return made if made is None else as_bytes(topic, what, made)
    except Exception as error:
        raise SerializationError(
            f"the {what}_serializer failed on a {type(value).__name__}: {error}", topic=topic
        ) from error


def too_large(size_bytes: int, limit_bytes: int, record: str = "a record") -> RecordTooLargeError:
    """Return the error of a record that exceeds the maximum size."""
    return RecordTooLargeError(
        f"{record} has {size_bytes} bytes (key, value and headers); max.request.size and the "
        f"topic's max.message.bytes allow {limit_bytes}: store large values elsewhere and send "
        f"a reference, or raise both",
        size_bytes=size_bytes,
        max_bytes=limit_bytes,
    )


def as_bytes(topic: str, what: str, value: object) -> bytes:
    """Return a key or a value as immutable bytes.

    Raises:
        SerializationError: the key or value is not bytes, bytearray or memoryview.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the {what} of a record for {topic!r} is a {type(value).__name__}, not bytes: encode it, "
        f"or give the producer a {what}_serializer",
        topic=topic,
    )


def checked_headers(headers: Headers) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return headers as a list of pairs, and their size in bytes.

    Raises:
        InvalidRecordError: the headers are not pairs of a text and bytes, or a text is not Unicode.
    """
    checked = []
    size_bytes = 0
    try:
        for name, value in headers:
            if not isinstance(name, str):
                raise TypeError
            check_unicode("the name of a header", name, InvalidRecordError)
            content = None if value is None else bytes(memoryview(value))
            size_bytes += len(name.encode()) + len(content or b"")
            checked.append((name, content))
    except (TypeError, ValueError):
        raise InvalidRecordError(
            f"headers are pairs of a text and bytes (or None), such as [('trace', b'7')]; got "
            f"{headers!r}"
        ) from None
    return checked, size_bytes


def checked_timestamp_ns(timestamp_ms: object) -> int:
    """Return a timestamp, given in milliseconds since the epoch, in nanoseconds.

    Raises:
        InvalidRecordError: the timestamp is not a number, is negative, or is after the year 2262.
    """
    reason = f"it is a {type(timestamp_ms).__name__}"
    is_number = isinstance(timestamp_ms, int | float) and not isinstance(timestamp_ms, bool)
    if is_number and math.isfinite(timestamp_ms):  # type: ignore[arg-type]
        time_ns = int(timestamp_ms * 1000) * 1000  # type: ignore[operator]
        if 0 <= time_ns < 2**63:
            if time_ns < _MAX_SECONDS_NS and timestamp_ms >= _MIN_SECONDS:  # type: ignore[operator]
                _warn_of_seconds(timestamp_ms)
            return time_ns
        reason = "it is negative" if time_ns < 0 else "it is after the year 2262"
        if time_ns >= 10**23:
            reason = "it looks like nanoseconds: divide it by 1_000_000"
        elif time_ns >= 10**20:
            reason = "it looks like microseconds: divide it by 1_000"
    elif isinstance(timestamp_ms, datetime):
        reason = "it is a datetime: give int(time.timestamp() * 1000)"
    raise InvalidRecordError(
        f"timestamp_ms is {timestamp_ms!r}; expected milliseconds since the epoch, and {reason}"
    )


def _warn_of_seconds(timestamp_ms: object) -> None:
    """Warn once per process of a timestamp that is probably in seconds, as `time.time` returns."""
    global _has_warned_of_seconds  # noqa: PLW0603 - once a process
    if not _has_warned_of_seconds:
        _has_warned_of_seconds = True
        warnings.warn(
            f"timestamp_ms={timestamp_ms!r} is a time in January 1970; it looks like seconds: "
            f"multiply it by 1_000",
            stacklevel=4,
        )
