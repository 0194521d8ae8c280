"""Storage options of brokers: the options of all roots of a cluster but the cluster root.

In properties files and in Spark they are keys ``brokers.<id>.storage.<key>``, in Python a dict of
each broker's options. Their values may be secrets: no error shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from spark_log.errors import InvalidConfigurationError

BROKERS_PREFIX: Final = "brokers."
"""The prefix of the keys."""

_REST: Final = re.compile(r"(\d+)\.storage\.(.+)", re.IGNORECASE)
_ARGUMENT: Final = "broker_storage_options"

BrokerOptions = Mapping[int, Mapping[str, object]]
"""Broker id → its storage options."""


def parse_broker_options(options: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """Return the storage options of each broker.

    Args:
        options: the options: ``<id>.storage.<key>``, a key without `BROKERS_PREFIX`, → value.

    Raises:
        InvalidConfigurationError: a key has another form, or is for broker 0.
    """
    parsed: dict[int, dict[str, str]] = {}
    for rest, value in options.items():
        found = _REST.fullmatch(rest)
        if found is None:
            raise InvalidConfigurationError(
                f"unknown key {BROKERS_PREFIX + rest!r}; expected "
                f"{BROKERS_PREFIX}<id>.storage.<option of the file system>",
                key=BROKERS_PREFIX + rest,
            )
        if int(found[1]) == 0:
            raise InvalidConfigurationError(
                f"{BROKERS_PREFIX + rest!r}: broker 0 is the root of the cluster; its options "
                f"begin with storage.",
                key=BROKERS_PREFIX + rest,
            )
        parsed.setdefault(int(found[1]), {})[found[2]] = value
    return parsed


def to_keys(options: BrokerOptions) -> dict[str, str]:
    """Return options as keys ``brokers.<id>.storage.<key>``, the inverse of `parse_broker_options`.

    Args:
        options: broker id → its storage options.
    """
    return {
        f"{BROKERS_PREFIX}{broker_id}.storage.{key}": str(value)
        for broker_id, given in options.items()
        for key, value in given.items()
    }


def checked_broker_options(options: object) -> dict[int, Mapping[str, object]]:
    """Return the options that a program gave as ``broker_storage_options``; empty for None.

    Raises:
        InvalidConfigurationError: the options are not a mapping from ids to mappings, or an id is
            0.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidConfigurationError(
            f"{_ARGUMENT} is a {type(options).__name__}; give a dict: broker id → its storage "
            f"options, such as {{1: {{'key': '…', 'secret': '…'}}}}",
            key=_ARGUMENT,
        )
    for broker_id, given in options.items():
        if type(broker_id) is not int or broker_id < 1:
            hint = "; those of broker 0 are storage_options" if broker_id == 0 else ""
            raise InvalidConfigurationError(
                f"{_ARGUMENT} has the key {broker_id!r}; a key is the id of a broker, from 1 "
                f"on{hint}",
                key=_ARGUMENT,
            )
        if not isinstance(given, Mapping):
            raise InvalidConfigurationError(
                f"{_ARGUMENT}[{broker_id}] is a {type(given).__name__}; give a dict of storage "
                f"options",
                key=_ARGUMENT,
            )
    return dict(options)
