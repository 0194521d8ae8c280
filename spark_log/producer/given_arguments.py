"""What `Producer` is given, checked: its settings, and keys, values, headers and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    RecordTooLargeError,
    SerializationError,
)

Headers = Iterable[tuple[str, bytes | None]]


def checked_config(config: dict[str, object]) -> ProducerConfig:
    """Return the settings; idempotence is switched off where it cannot be (KIP-679).

    Raises:
        InvalidConfigurationError: see `ProducerConfig.parse`; or values contradict each other.
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
                f"{' and '.join(conflicts)}: leave out the one or the other",
                key="enable.idempotence",
            )
        settings = settings.model_copy(update={"enable_idempotence": False})
    if settings.delivery_timeout_ms < settings.linger_ms:
        raise InvalidConfigurationError(
            f"delivery.timeout.ms ({settings.delivery_timeout_ms}) is less than linger.ms "
            f"({settings.linger_ms}): records would expire while they wait for others",
            key="delivery.timeout.ms",
        )
    return settings


def serializer_of(name: str, given: object) -> Callable[[str, Any], object] | None:
    """Return a function of topic and value, None where there is no serializer.

    Raises:
        InvalidConfigurationError: it cannot be called.
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
    """Return what a serializer makes of a key or a value.

    Raises:
        SerializationError: the serializer does not take it.
    """
    if serialize is None:
        return value
    try:
        made = serialize(topic, value)
        return made if made is None else as_bytes(topic, what, made)
    except Exception as error:
        raise SerializationError(
            f"the {what}_serializer does not take a {type(value).__name__}: {error}", topic=topic
        ) from error


def too_large(size_bytes: int, limit_bytes: int) -> RecordTooLargeError:
    """Return the error of a record that is larger than records may be."""
    return RecordTooLargeError(
        f"a record has {size_bytes} bytes (key, value and headers); max.request.size and the "
        f"topic's max.message.bytes allow {limit_bytes}: store large values elsewhere and send "
        f"where they are, or raise both",
        size_bytes=size_bytes,
        max_bytes=limit_bytes,
    )


def as_bytes(topic: str, what: str, value: object) -> bytes:
    """Return a key or a value as bytes that nobody else can change.

    Raises:
        SerializationError: it is not bytes.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the {what} of a record for {topic!r} is a {type(value).__name__}, not bytes: encode it, "
        f"or give the producer a {what}_serializer",
        topic=topic,
    )


def checked_headers(headers: Headers) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return headers as they are kept, and their size.

    Raises:
        InvalidRecordError: they are not pairs of a text and bytes.
    """
    checked = []
    size_bytes = 0
    try:
        for name, value in headers:
            if not isinstance(name, str):
                raise TypeError
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
    """Return a timestamp in nanoseconds.

    Raises:
        InvalidRecordError: it is not milliseconds since the epoch.
    """
    if isinstance(timestamp_ms, int | float) and not isinstance(timestamp_ms, bool):
        time_ns = int(timestamp_ms * 1000) * 1000
        if 0 <= time_ns < 2**63:
            return time_ns
    raise InvalidRecordError(
        f"timestamp_ms is {timestamp_ms!r}; expected milliseconds since the epoch, not negative"
    )
