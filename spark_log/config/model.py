"""`ConfigModel`: a table of configuration keys that checks the values that users set.

A field ``segment_bytes`` of a model is the key ``segment.bytes`` in files and Spark options, and
the keyword argument ``segment_bytes`` in Python. Unknown keys are refused, with the nearest known
key in the error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from spark_log.config.foreign_keys import NO_KEYS, ForeignKeys, is_security_key
from spark_log.config.ignored_settings import warn_ignored_settings, warn_of_setting
from spark_log.errors import InvalidConfigurationError, check_unicode, nearest

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_NO_CONNECTIONS: Final = (
    "there are no connections to brokers. The storage's permissions decide who may read and write "
    "the log; give credentials as storage_options={…}"
)

NonNegativeInt = Annotated[int, Field(ge=0, le=INT_MAX)]
PositiveInt = Annotated[int, Field(ge=1, le=INT_MAX)]
NonNegativeLong = Annotated[int, Field(ge=0, le=LONG_MAX)]
PositiveLong = Annotated[int, Field(ge=1, le=LONG_MAX)]


def split_list(value: object) -> object:
    """Return the items of a comma-separated text; any other value unchanged.

    For fields of type ``Annotated[tuple[…, ...], BeforeValidator(split_list)]``: in files a list
    is a text with commas.
    """
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


@dataclass(frozen=True, slots=True)
class Synonyms:
    """Metadata of a key: other accepted values, and the value that each of them means."""

    meanings: Mapping[object, str]

    def __iter__(self) -> Iterator[object]:
        return iter(self.meanings)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic replace a synonym before it checks the value."""
        return no_info_before_validator_function(self._meaning, handler(source))

    def _meaning(self, value: object) -> object:
        return self.meanings.get(value, value) if isinstance(value, Hashable) else value


@dataclass(frozen=True, slots=True)
class Substitutes(Synonyms):
    """Metadata of a key: values that Kafka has, and their substitutes here, used with a warning.

    Attributes:
        reason: the reason why the value does not exist here.
    """

    reason: str

    def substitute(self, name: str, value: str) -> str:
        """Return the substitute of a value, with a warning; any other value unchanged.

        Args:
            name: the name of the setting, for the warning.
            value: the value that a program gave.
        """
        meaning = self.meanings.get(value, value)
        if meaning != value:
            warn_of_setting(f"{name} is {value}, {self.reason}; {meaning} is used instead")
        return meaning


def to_text(value: object) -> str:
    """Return a config value in Kafka's form: ``true`` and ``false`` in lower case, ``a,b``."""
    if isinstance(value, tuple):
        return ",".join(map(to_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


class ConfigModel(BaseModel):
    """Base of all config models: Kafka's dotted names, frozen, unknown keys refused.

    Attributes:
        title: the name of the model in errors and in ``docs/configuration.md``.
        foreign: the keys that Kafka has and the model lacks.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda field: field.replace("_", "."),
    )

    title: ClassVar[str]
    foreign: ClassVar[ForeignKeys] = NO_KEYS

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Check ``values`` (dotted or snake_case keys, text or typed values) and freeze them.

        Keys of Kafka's that have no effect here are left out, and values that have a substitute
        here are replaced, both with an `IgnoredOptionWarning`.

        Raises:
            InvalidConfigurationError: a key is unknown (the error has the nearest known key), a
                value has the wrong type or is out of range (the error has the allowed values), or a
                text is not valid Unicode.
        """
        given = cls.without_ignored(values)
        substitutes = _substitutes(cls)
        for key, value in given.items():
            if isinstance(key, str):
                check_unicode(f"a key of {cls.title.lower()} configs", key)
            if isinstance(value, str | list | tuple):
                for text in [value] if isinstance(value, str) else value:
                    if isinstance(text, str):
                        check_unicode(f"config {cls.key_name(key)!r}", text)
            if isinstance(value, str) and (found := substitutes.get(cls.key_name(key))):
                given[key] = found.substitute(cls.key_name(key), value)
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise _as_config_error(cls, error) from None

    @classmethod
    def keys(cls) -> dict[str, ConfigKey]:
        """Return the table of this model's keys, by Kafka name."""
        return dict(_key_table(cls))

    @classmethod
    def without_ignored(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Return the values without keys of Kafka's that have no effect here; warn about these."""
        known = cls.keys()
        ignored = [
            key for key in values if isinstance(key, str) and cls.foreign.is_ignored(key, known)
        ]
        is_secured = any(map(is_security_key, ignored))
        warn_ignored_settings(cls.title, ignored, _NO_CONNECTIONS if is_secured else "")
        return {key: value for key, value in values.items() if key not in ignored}

    @classmethod
    def key_name(cls, text: str) -> str:
        """Return the Kafka name of a key that may be given as a keyword argument."""
        return text.replace("_", ".")

    def dotted(self) -> dict[str, object]:
        """Return all values by their Kafka names."""
        return self.model_dump(by_alias=True)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of the table: a key, with type, default, allowed values and description as text."""

    name: str
    type: str
    default: str
    allowed: str
    doc: str


def unknown_key_error(model: type[ConfigModel], name: str) -> InvalidConfigurationError:
    """Return the error for a key that a model does not have.

    The error names the nearest known key. For a key of Kafka's it has advice on a replacement.
    """
    keys = model.keys()
    if advice := model.foreign.advice_for(name):
        return InvalidConfigurationError(
            f"{model.title.lower()} config {name!r} does not exist: {advice}", key=name
        )
    close = nearest(name, keys)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(keys)}"
    return InvalidConfigurationError(
        f"unknown {model.title.lower()} config {name!r}; {hint}",
        key=name,
        nearest=close[0] if close else None,
    )


def _as_config_error(model: type[ConfigModel], error: ValidationError) -> InvalidConfigurationError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    keys = model.keys()
    if first["type"] in ("extra_forbidden", "invalid_key"):
        return unknown_key_error(model, name)
    key = keys[model.key_name(name)]
    wanted = f"{key.type} {key.allowed}".replace("`", "").strip()
    return InvalidConfigurationError(
        f"config {key.name!r} is {first['input']!r}, expected {wanted}", key=key.name
    )


@cache
def _substitutes(model: type[ConfigModel]) -> Mapping[str, Substitutes]:
    """Return the `Substitutes` of a model by key."""
    return {
        model.key_name(name): each
        for name, info in model.model_fields.items()
        for each in info.metadata
        if isinstance(each, Substitutes)
    }


@cache
def _key_table(model: type[ConfigModel]) -> Mapping[str, ConfigKey]:
    """Return the keys of a model by name. Cached, because logs parse their settings very often."""
    return {key.name: key for key in _keys_of(model)}


def _keys_of(model: type[ConfigModel]) -> Iterator[ConfigKey]:
    for field_name, field in model.model_fields.items():
        yield ConfigKey(
            name=field.alias or field_name,
            type=_type_name(field),
            default="" if field.default is None else f"`{to_text(field.default)}`",
            allowed=_allowed(field),
            doc=field.description or "",
        )


def _type_name(field: FieldInfo) -> str:
    names = {bool: "boolean", int: "int", float: "double"}
    annotation: Any = field.annotation
    return "list" if get_origin(annotation) is tuple else names.get(annotation, "string")


def _allowed(field: FieldInfo) -> str:
    annotation = field.annotation
    item_type = get_args(annotation)[0] if get_origin(annotation) is tuple else annotation
    choices = [choice for choice in get_args(item_type) if isinstance(choice, str)]
    choices = choices or field.examples or []
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.annotation is bool:
        return "`true`, `false`"
    bounds = {type(item).__name__: item for item in field.metadata}
    parts = [f"≥ {bounds['Ge'].ge}"] if "Ge" in bounds else []
    if "Le" in bounds and bounds["Le"].le not in (INT_MAX, LONG_MAX):
        parts.append(f"≤ {bounds['Le'].le}")
    if "MinLen" in bounds:
        parts.append("not empty")
    return ", ".join(parts)
