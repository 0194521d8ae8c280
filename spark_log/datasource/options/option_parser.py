"""Parser for Spark options: finds them by name in any case, and converts their values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Literal

from spark_log.config import BROKERS_PREFIX, misspelled, parse_broker_options
from spark_log.datasource.options.kafka_options import OptionTranslation
from spark_log.datasource.options.offsets import (
    AtOffsets,
    AtTime,
    OffsetLimit,
    parse_offsets,
    parse_times,
)
from spark_log.errors import InvalidConfigurationError, InvalidOptionError, check_unicode, nearest
from spark_log.types import TopicPartition

STORAGE_PREFIX: Final = "storage."
COMMON_OPTIONS: Final = {
    "path": "the cluster root: a directory or a URL",
    STORAGE_PREFIX: "storage.<key>: an option of the file system",
    BROKERS_PREFIX: "brokers.<id>.storage.<key>: an option of the file system of another broker",
}
"""Options of both reads and writes."""

_LONG_MAX: Final = 2**63 - 1
_MILLISECONDS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionParser:
    """The options of one read or write.

    Attributes:
        storage_options: options of the file system, without the prefix `STORAGE_PREFIX`.
        broker_options: broker id → options of the file system of its root.
        ignored: options that have no effect here, as the user wrote them, sorted.
    """

    def __init__(
        self, options: Mapping[str, str], known: Mapping[str, str], kafka: OptionTranslation
    ) -> None:
        """Sort the options into known, translated and ignored ones.

        An unknown option is ignored, as in Spark's Kafka connector. A name close to a known option
        is refused: ignoring it would change, without a warning, what is read or written.

        Args:
            options: options as the user gave them; names in any case.
            known: description of each supported option besides `COMMON_OPTIONS`, by name. A name
                that ends in a dot is a prefix: every name that starts with it is supported.
            kafka: translation of the options for Kafka's clients.

        Raises:
            InvalidOptionError: an option is probably misspelled (the error names the known one), is
                unsupported, or the options belong to a table ``USING spark_log``.
        """
        _refuse_table(options)
        self._known = COMMON_OPTIONS | dict(known)
        by_lower = {name.lower(): name for name in self._known}
        self._values: dict[str, str] = {}
        self._prefixed: dict[str, dict[str, str]] = {
            prefix: {} for prefix in self._known if prefix.endswith(".")
        }
        translated, foreign, self._kafka_servers = kafka.translate(options)
        for name, value in options.items():
            lower = name.lower()
            prefix = next((each for each in self._prefixed if lower.startswith(each.lower())), None)
            if prefix is not None:
                self._prefixed[prefix][name[len(prefix) :]] = value
            elif lower in by_lower:
                check_unicode(f"option {name!r}", value, InvalidOptionError)
                self._values[by_lower[lower]] = value
            elif name not in foreign and lower not in kafka.renamed:
                meant = None if _is_client_key(lower) else misspelled(name, self._known)
                if meant is not None:
                    raise InvalidOptionError(
                        f"unknown option {name!r} for format spark_log; did you mean {meant!r}?",
                        key=name,
                        nearest=meant,
                    )
                foreign.add(name)
        self.ignored = tuple(sorted(foreign))
        self._values = translated | self._values
        self.storage_options = self.prefixed(STORAGE_PREFIX)
        try:
            self.broker_options = parse_broker_options(self.prefixed(BROKERS_PREFIX))
        except InvalidConfigurationError as error:
            raise InvalidOptionError(error.message, key=error.key) from None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: str = "") -> str:
        """Return an option as text."""
        return self._values.get(name, default)

    def subset(self, *names: str) -> dict[str, str]:
        """Return the options among ``names`` that were given."""
        return {name: self._values[name] for name in names if name in self._values}

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options with a prefix, by the rest of their names as the user wrote them."""
        return dict(self._prefixed[prefix])

    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions of the option ``assign``.

        Raises:
            InvalidOptionError: the value is not the expected JSON, or names no partition.
        """
        text = self._values["assign"]
        try:
            found = frozenset(
                TopicPartition(topic, _partition_number(number))
                for topic, numbers in json.loads(text).items()
                for number in numbers
            )
            if not found:
                raise ValueError(text)
        except (ValueError, AttributeError, TypeError):
            raise InvalidOptionError(
                f"option 'assign' is {text!r}, expected {self._known['assign']}", key="assign"
            ) from None
        return found

    def root(self) -> str:
        """Return the root's URL, absolute because tasks run in another directory than the driver.

        Raises:
            InvalidOptionError: the option ``path`` is missing.
        """
        path = self._values.get("path", "")
        if not path:
            servers = self._kafka_servers
            instead = f"; {servers} has no effect, spark-log has no brokers" if servers else ""
            raise InvalidOptionError(
                f"option 'path' is missing: {self._known['path']}{instead}", key="path"
            )
        from spark_log.storage import open_store  # late: the commit of a write imports this module

        return open_store(path, self.storage_options).url

    def limit(self, side: Literal["starting", "ending"]) -> OffsetLimit | None:
        """Return the start or end of a read; None if no option sets it.

        Precedence is that of Spark's Kafka connector: ``…Timestamp``, ``…OffsetsByTimestamp``,
        ``…Offsets``.

        Raises:
            InvalidOptionError: the option's value is invalid.
        """
        timestamp_ms = self.integer(f"{side}Timestamp", minimum=None)
        if timestamp_ms is not None:
            return AtTime(f"{side}Timestamp", timestamp_ms)
        option = f"{side}OffsetsByTimestamp"
        if option in self:
            return AtTime(option, parse_times(self.get(option), option))
        option = f"{side}Offsets"
        return (
            AtOffsets(option, parse_offsets(self.get(option), option)) if option in self else None
        )

    def integer(
        self, name: str, *, minimum: int | None = 0, maximum: int = _LONG_MAX
    ) -> int | None:
        """Return a whole number; None if the option was not given.

        Args:
            name: the option.
            minimum: the smallest value; None for no limit.
            maximum: the largest value.

        Raises:
            InvalidOptionError: the value is not a whole number within the limits.
        """
        text = self._values.get(name)
        if text is None:
            return None
        try:
            value = int(text)
            if value > maximum or (minimum is not None and value < minimum):
                raise ValueError(text)
        except ValueError:
            bounds = "" if minimum is None else f" (a whole number of at least {minimum})"
            if maximum != _LONG_MAX:
                bounds = f"{bounds[:-1]} and at most {maximum})"
            raise InvalidOptionError(
                f"option {name!r} is {text!r}, expected {self._known[name]}{bounds}", key=name
            ) from None
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return a boolean.

        Raises:
            InvalidOptionError: the value is neither ``true`` nor ``false``.
        """
        value = self._values.get(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise InvalidOptionError(
                f"option {name!r} is {value!r}, expected true or false", key=name
            )
        return value == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of ``choices``, by default the first.

        Raises:
            InvalidOptionError: the value is not among them.
        """
        value = self._values.get(name, choices[0]).strip().lower()
        if value not in choices:
            close = nearest(value, choices)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidOptionError(
                f"option {name!r} is {value!r}, expected {' or '.join(choices)}{hint}", key=name
            )
        return value

    def duration_ms(self, name: str, default: str) -> int:
        """Return a duration in milliseconds, such as ``30s``, ``15m`` or ``1h``.

        Raises:
            InvalidOptionError: the value is not a duration.
        """
        text = self._values.get(name, default)
        found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
        if found is None or (found[2] or "ms") not in _MILLISECONDS:
            raise InvalidOptionError(
                f"option {name!r} is {text!r}, expected a time such as 30s, 15m or 1h", key=name
            )
        return int(int(found[1]) * _MILLISECONDS[found[2] or "ms"])


_NO_TABLES: Final = (
    "read or written, because Spark does not pass the options of a table to a Python source. Use "
    "CREATE TEMPORARY VIEW name USING spark_log OPTIONS (path '…', subscribe '…') to read, and "
    "CREATE TEMPORARY VIEW name (key STRING, value STRING) USING spark_log OPTIONS (path '…', "
    "topic '…') to write"
)


def _refuse_table(options: Mapping[str, str]) -> None:
    """Refuse tables ``USING spark_log``.

    Spark 4.2.0 passes a new table's properties with its options: ``owner``, ``provider`` and
    ``location``, and each option again as ``option.<name>``. It asks nothing if the statement lists
    columns. When such a table is read or written, a Python source gets no options at all.
    """
    if {"owner", "provider"} <= {name.lower() for name in options}:
        raise InvalidOptionError(
            f"a table USING spark_log could not be {_NO_TABLES}", key="provider"
        )
    if not options:
        raise InvalidOptionError(
            f"no option is given, not even 'path'. A table USING spark_log cannot be {_NO_TABLES}",
            key="path",
        )


def _is_client_key(name: str) -> bool:
    """Return whether a setting of Kafka's clients has this name: it is no misspelled option."""
    from spark_log.config import ConsumerConfig, ProducerConfig  # late: most reads need neither

    return name in (ConsumerConfig.keys() | ProducerConfig.keys())


def _partition_number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value
