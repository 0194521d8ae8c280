"""`ToolConfig`: the settings of the command line, and the properties file that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

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


def load_properties(path: str | Path) -> tuple[ToolConfig, dict[str, str]]:
    """Read a Java-style properties file: ``key=value`` lines, ``#`` or ``!`` comments.

    Returns:
        The settings of the command line, and the storage options: keys that begin with
        ``storage.`` lose that prefix and are passed to the file system.

    Raises:
        InvalidConfigurationError: for a line without ``=``, and as `ConfigModel.parse`.
    """
    settings: dict[str, object] = {}
    storage_options: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            shown = "something else" if key.startswith("storage.") else repr(text)
            raise InvalidConfigurationError(
                f"{path}, line {number}: expected key=value, got {shown}", key=key.split()[0]
            )
        if key.startswith("storage."):
            storage_options[key.removeprefix("storage.")] = value
        else:
            settings[key] = value
    return ToolConfig.parse(settings), storage_options
