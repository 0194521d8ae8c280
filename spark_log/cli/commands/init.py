"""``spark-log init``: writes the configuration files into a folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import Output
from spark_log.cli.options import with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.config import CONF_FILES, conf_directory
from spark_log.errors import InvalidConfigurationError


@with_examples("spark-log init conf")
@with_option_groups
def init(
    output: Output,
    directory: Annotated[
        Path, typer.Argument(help="Folder to write to. It is created if it does not exist.")
    ] = Path("conf"),
) -> None:
    """Write the configuration files into a folder.

    They are for Spark (Delta, quiet logs, hidden secrets) and for this command.

    SPARK_CONF_DIR=conf makes spark-submit, spark_session() and jobs such as spark-log produce use
    them. Without it, spark_session() and these jobs use the files of the installed package.
    Every command reads conf/spark-log.properties.

    Existing files are never overwritten: if one of them exists, nothing is written.
    """
    existing = [name for name in CONF_FILES if (directory / name).exists()]
    if existing:
        raise InvalidConfigurationError(
            f"{directory} has {', '.join(existing)} already, and nothing was written: remove "
            f"these files, or give another folder"
        )
    directory.mkdir(parents=True, exist_ok=True)
    shipped = conf_directory()
    written = [str(shutil.copyfile(shipped / name, directory / name)) for name in CONF_FILES]
    output.answer("\n".join(f"wrote {path}" for path in written), {"files": written})
