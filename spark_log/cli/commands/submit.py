"""``spark-log produce``, ``consume``, ``transform``, …: jobs run by ``spark-submit``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

import typer

from spark_log.cli.terminal import PROGRAM_VARIABLE
from spark_log.config import conf_directory
from spark_log.errors import InvalidConfigurationError

JOBS: Final = {
    "produce": "Write files into a topic, by Spark.",
    "consume": "Write a group's new records elsewhere, by Spark.",
    "transform": "Pass new records into another topic, by Spark.",
    "replay": "Read a range of offsets or times again, by Spark.",
    "reprocess": "Pass retained records through a function, by Spark.",
}
"""The jobs that are commands, and the first line of their help."""

_RUN_NO_FUNCTION: Final = {"consume", "produce", "replay"}
"""Jobs that need Delta only if an argument names it: they run no function of the user's."""
_NO_DELTA: Final = (
    *("--conf", "spark.jars.packages="),
    *("--conf", "spark.sql.extensions="),
    *("--conf", "spark.sql.catalog.spark_catalog=builtin"),
)

_SUBMIT_OPTIONS: Final = ("--master", "--conf")


def submit(job: str, arguments: Sequence[str]) -> NoReturn:
    """Become ``spark-submit`` with one of the shipped jobs.

    ``--master URL`` and ``--conf KEY=VALUE`` go to ``spark-submit``, other arguments to the job.
    Spark's settings are those of the folder that ``SPARK_CONF_DIR`` names, else those of the
    shipped ``conf/``. The shipped settings load Delta only if the job may need it, because Spark
    looks up its jars at each start. Tasks run with this Python unless ``PYSPARK_PYTHON`` is set.

    Raises:
        InvalidConfigurationError: an option of ``spark-submit`` has no value, or pyspark is not
            installed.
    """
    options, rest = _split(arguments)
    script = str(files("spark_log") / "jobs" / f"{job}.py")
    name = {PROGRAM_VARIABLE: f"spark-log {job}"}
    if {"-h", "--help"} & set(rest):
        command = [sys.executable, script, "--help"]
        os.execve(sys.executable, command, {**os.environ, **name})
    program = _spark_submit()
    needs_delta = job not in _RUN_NO_FUNCTION or any("delta" in each.lower() for each in rest)
    if "SPARK_CONF_DIR" not in os.environ and not needs_delta:
        options = [*_NO_DELTA, *options]  # the user's own come last, and win
    environment = {
        "SPARK_CONF_DIR": str(conf_directory()),
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
        **name,
    }
    os.execve(program, [program, *options, script, *rest], environment)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options for ``spark-submit``, and the job's arguments."""
    options: list[str] = []
    rest: list[str] = []
    given = iter(arguments)
    for argument in given:
        name, equals, _ = argument.partition("=")
        if name not in _SUBMIT_OPTIONS:
            rest.append(argument)
        elif equals:
            options += [name, argument.removeprefix(f"{name}=")]
        else:
            value = next(given, None)
            if value is None:
                raise InvalidConfigurationError(f"{name} needs a value", key=name)
            options += [name, value]
    return options, rest


def _spark_submit() -> str:
    """Return the path of ``spark-submit``: that of this Python's pyspark, else that on the PATH."""
    found = find_spec("pyspark")
    if found is not None and found.submodule_search_locations:
        for folder in found.submodule_search_locations:
            program = Path(folder) / "bin" / "spark-submit"
            if program.is_file():
                return str(program)
    on_path = shutil.which("spark-submit")
    if on_path is None:
        raise InvalidConfigurationError(
            "this command needs Spark, which is not installed here: pip install 'spark-log[spark]'"
        )
    return on_path


def add_commands(app: typer.Typer) -> None:
    """Add the jobs to an application. Arguments, ``--help`` too, go to the job as they are."""
    for job, summary in JOBS.items():
        app.command(
            job,
            help=summary,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_submitting(job))


def _submitting(job: str) -> Callable[[typer.Context], None]:
    def run_job(context: typer.Context) -> None:
        submit(job, context.args)

    return run_job
