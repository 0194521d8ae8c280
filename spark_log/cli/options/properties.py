"""``KEY=VALUE`` arguments, as Kafka's tools take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from spark_log.cli.format import print_note
from spark_log.errors import InvalidConfigurationError, nearest

_SECRETS: Final = re.compile(
    r"(?i)secret|passw|token|credential|connection_?string|(account|private)[._]?key|sas(_|$)|jaas"
    r"|ssl[._]?key(?!(store)?[._]location)"
)
"""Names of options of file systems, of librdkafka and of gateways whose values are secrets."""

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)


def parse_pairs(option: str, pairs: Sequence[str], *, secret: bool = False) -> dict[str, str]:
    """Return the pairs as a dict; of a key that is given twice, the last value.

    Args:
        option: the name of the option, for errors.
        pairs: texts of the form ``KEY=VALUE``.
        secret: whether the values are secrets, which errors do not show.

    Raises:
        InvalidConfigurationError: a text has another form.
    """
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.strip() or not equals:
            shown = "something else" if secret else repr(pair)
            raise InvalidConfigurationError(f"{option} takes KEY=VALUE, got {shown}", key=key)
        parsed[key.strip()] = value
    return parsed


def load_pairs(path: Path) -> dict[str, str]:
    """Return the pairs of a properties file whose values may be secrets.

    Raises:
        InvalidConfigurationError: the file cannot be read, or a line is no pair; no value is shown.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
        raise InvalidConfigurationError(f"cannot read {path}: {reason}") from None
    pairs = [line.strip() for line in lines if line.strip() and line.strip()[0] not in "#!"]
    parsed = parse_pairs(str(path), pairs, secret=True)
    return {key: value.strip() for key, value in parsed.items()}


def warn_of_secrets(option: str, keys: Iterable[str], instead: str) -> None:
    """Warn about a secret that was given as an argument: ``ps`` shows it to every user.

    Args:
        option: the name of the option.
        keys: the keys of its pairs.
        instead: the place for secrets, in the words of the warning.
    """
    found = sorted(key for key in keys if _SECRETS.search(key))
    if found:
        print_note(
            f"warning: every user of this machine sees the value of {option} {', '.join(found)} "
            f"in the list of processes, and it stays in the history of the shell: {instead}"
        )


def with_properties(settings: Settings, pairs: Sequence[str]) -> Settings:
    """Return a copy of ``settings`` with the values of ``--property`` pairs.

    Args:
        settings: a dataclass of texts and booleans; a field ``print_key`` is the property
            ``print.key``.
        pairs: texts of the form ``KEY=VALUE``.

    Raises:
        InvalidConfigurationError: a property does not exist, or its value has the wrong type.
    """
    known = {field.name.replace("_", "."): field.name for field in fields(settings)}
    changes: dict[str, str | bool] = {}
    for key, value in parse_pairs("--property", pairs).items():
        if key not in known:
            close = nearest(key, known)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"known properties: {', '.join(known)}"
            )
            raise InvalidConfigurationError(
                f"unknown property {key!r}; {hint}", key=key, nearest=close[0] if close else None
            )
        is_boolean = isinstance(getattr(settings, known[key]), bool)
        changes[known[key]] = _parse_boolean(key, value) if is_boolean else value
    return replace(settings, **changes)


def _parse_boolean(key: str, value: str) -> bool:
    lower = value.strip().lower()
    if lower not in ("true", "false"):
        raise InvalidConfigurationError(
            f"property {key!r} is {value!r}, expected true or false", key=key
        )
    return lower == "true"
