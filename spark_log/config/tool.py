"""`ToolConfig`: the settings of the command line, and the properties file that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import Field

from spark_log.config.broker_options import BROKERS_PREFIX, parse_broker_options
from spark_log.config.client import DefaultApiTimeoutMs
from spark_log.config.defaults import DEFAULT_API_TIMEOUT_MS
from spark_log.config.model import ConfigModel, PositiveInt
from spark_log.errors import InvalidConfigurationError


class ToolConfig(ConfigModel):
    """Settings of the command line, read from ``spark-log.properties``."""

    title: ClassVar[str] = "Command line"

    root: str | None = Field(
        default=None,
        description="Root of the cluster: a path or a URL. The option `--root` and the environment "
        "variable `SPARK_LOG_ROOT` take precedence.",
    )
    num_partitions: PositiveInt = Field(
        default=1,
        description="Number of partitions of a topic that is created without `--partitions`.",
    )
    default_api_timeout_ms: DefaultApiTimeoutMs = DEFAULT_API_TIMEOUT_MS


class Properties(NamedTuple):
    """The content of a properties file.

    Attributes:
        settings: the settings of the command line.
        storage_options: the options of the root's file system: keys that begin with ``storage.``,
            without this prefix.
        broker_options: broker id → the options of its root's file system, from keys
            ``brokers.<id>.storage.<key>``.
    """

    settings: ToolConfig
    storage_options: dict[str, str]
    broker_options: dict[int, dict[str, str]]


def load_properties(path: str | Path) -> Properties:
    """Read a Java-style properties file: ``key=value`` lines, ``#`` or ``!`` comments.

    Raises:
        InvalidConfigurationError: a line has no ``=``, or `ConfigModel.parse` refuses a setting.
    """
    settings: dict[str, object] = {}
    storage_options: dict[str, str] = {}
    broker_options: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            is_secret = key.startswith(("storage.", BROKERS_PREFIX))
            shown = "something else" if is_secret else repr(text)
            raise InvalidConfigurationError(
                f"{path}, line {number}: expected key=value, got {shown}", key=key.split()[0]
            )
        if key.startswith("storage."):
            storage_options[key.removeprefix("storage.")] = value
        elif key.startswith(BROKERS_PREFIX):
            broker_options[key.removeprefix(BROKERS_PREFIX)] = value
        else:
            settings[key] = value
    return Properties(
        ToolConfig.parse(settings), storage_options, parse_broker_options(broker_options)
    )
