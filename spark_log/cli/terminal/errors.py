"""The end of a command: an error is one line on stderr, and the exit status shows its kind."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import typer

from spark_log import errors
from spark_log.cli.format import print_note
from spark_log.cli.terminal.outage_status import outages_shown
from spark_log.util import printable, printable_lines, set_log_level

PROGRAM_VARIABLE: Final = "SPARK_LOG_PROGRAM"
"""Environment variable with the name of a program that another command starts."""

HELP_NAMES: Final = {"help_option_names": ["-h", "--help"]}
"""Settings of a command whose help ``-h`` shows, too."""

FAILURE: Final = 1
"""Exit status: storage failed, data is damaged, or this program has a fault."""
MISTAKE: Final = 2
"""Exit status: the user asked for something impossible."""
INTERRUPTED: Final = 130
"""Exit status: Ctrl-C; 128 + SIGINT, as shells report it."""
CLOSED_PIPE: Final = 141
"""Exit status: the reader of stdout has ended; 128 + SIGPIPE, as for ``cat`` before ``head``."""

_MISTAKES = (
    errors.BrokerIdNotRegisteredError,
    errors.DuplicateBrokerRegistrationError,
    errors.DuplicateResourceError,
    errors.ElectionNotNeededError,
    errors.GroupIdNotFoundError,
    errors.GroupNotEmptyError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidConfigurationError,
    errors.InvalidGroupIdError,
    errors.InvalidPartitionsError,
    errors.InvalidRecordError,
    errors.InvalidReplicaAssignmentError,
    errors.InvalidReplicationFactorError,
    errors.InvalidRootError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTopicError,
    errors.InvalidTxnTimeoutError,
    errors.InvalidUpdateVersionError,
    errors.NoOffsetForPartitionError,
    errors.NoReassignmentInProgressError,
    errors.OffsetOutOfRangeError,
    errors.ResourceNotFoundError,
    errors.RootNotFoundError,
    errors.SerializationError,
    errors.TopicAlreadyExistsError,
    errors.TransactionalIdNotFoundError,
    errors.UnacceptableCredentialError,
    errors.UnknownTopicOrPartitionError,
    errors.UnsupportedStoreError,
    errors.UnsupportedVersionError,
)

_RAISED_IN_SPARK = re.compile(r"^(?:.*: )?spark_log\.errors\.(\w+): (.+)$", re.MULTILINE)
"""Last line of a Python traceback, as Spark quotes it when a task or a reader fails."""


class ProcessExit(typer.Exit):
    """End of a command whose process ends at once, without the end of Python's interpreter.

    For a command whose threads may be in the code of a library when it has nothing left to do: at
    the interpreter's end, a thread in Arrow's code that calls Python aborts the process, and one
    that waits for S3 loses the library that it uses.
    """


def run(
    command: typer.Typer | Callable[..., None],
    *,
    argv: Sequence[str] | None = None,
    prog: str | None = None,
) -> NoReturn:
    """Run a command line and exit; any error is one line on stderr, not a traceback.

    With the environment variable ``SPARK_LOG_DEBUG=1`` the traceback is shown before that line;
    `LOG_LEVEL_VARIABLE` turns on log lines.

    Args:
        command: the application, or a function whose parameters have Typer's annotations.
        argv: the arguments; None for those of the process.
        prog: the name with which the usage and errors begin; None for the value of the environment
            variable `PROGRAM_VARIABLE`, or else the name of the script.
    """
    name = prog or os.environ.get(PROGRAM_VARIABLE) or Path(sys.argv[0]).name
    _replace_closed_streams()
    _escape_warnings(name)
    # At exit the interpreter searches all objects for garbage several times, which takes a tenth of
    # the time of a short command. The memory is returned to the system in any case.
    atexit.register(gc.freeze)
    ends_at_once = False
    try:
        set_log_level()
        with outages_shown():
            status = _invoke(_application(command), name, sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except ProcessExit as end:
        status, ends_at_once = end.exit_code, True
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        status = CLOSED_PIPE
    except Exception as error:
        if os.environ.get("SPARK_LOG_DEBUG", "0") not in ("", "0"):
            print_note(traceback.format_exc().rstrip("\n"))
        status, message = verdict(error)
        with suppress(OSError):
            print_note(f"{name}: error: {printable(message)}")
    _flush_or_forget()
    if ends_at_once:
        _end_process(status)
    sys.exit(status)


def _end_process(status: int) -> None:
    """End the process without the end of its interpreter; what was logged is written before."""
    logging.shutdown()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


def verdict(error: Exception) -> tuple[int, str]:
    """Return the exit status and the one-line message for an error."""
    if isinstance(error, typer.TyperException):
        return error.exit_code, _typer_line(error)
    if isinstance(error, errors.SparkLogError):
        return _status(type(error)), _one_line(error.message)
    if quoted := _RAISED_IN_SPARK.findall(str(error)):
        name, message = quoted[-1]
        return _status(getattr(errors, name, Exception)), _one_line(message)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        return FAILURE, _one_line(f"{where}{error.strerror}")
    kind = type(error).__name__
    return FAILURE, _one_line(f"{kind}: {error} (SPARK_LOG_DEBUG=1 shows the traceback)")


def _application(command: typer.Typer | Callable[..., None]) -> typer.Typer:
    if isinstance(command, typer.Typer):
        return command
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    application.command(context_settings=HELP_NAMES)(command)
    return application


def _invoke(application: typer.Typer, name: str, argv: Sequence[str]) -> int:
    """Run the command; errors are raised, not shown in Typer's way."""
    command = typer.main.get_command(application)
    completion = f"_{name}_COMPLETE".replace("-", "_").upper()
    if completion in os.environ:  # the shell asks for completions
        command.main(list(argv), prog_name=name, complete_var=completion)
    try:
        with command.make_context(name, list(argv)) as context:
            command.invoke(context)
    except ProcessExit:
        raise
    except typer.Exit as end:
        return end.exit_code
    return 0


def _status(kind: type[Exception]) -> int:
    return MISTAKE if issubclass(kind, _MISTAKES) else FAILURE


def _one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def _typer_line(error: typer.TyperException) -> str:
    # Pydantic checks some values for Typer; its message does not show the value.
    line = _one_line(error.format_message().replace(": Value error, ", ": "))
    cause = error.__cause__ or error.__context__
    from pydantic import ValidationError  # most commands do without

    for found in cause.errors() if isinstance(cause, ValidationError) else ():
        given = found.get("input")
        line = line.replace("Input should be", f"{given!r} should be", 1)
    context = getattr(error, "ctx", None)
    return line if context is None else f"{line} (see {context.command_path} --help)"


def _replace_closed_streams() -> None:
    """Open empty streams for a process that was started without stdin, stdout or stderr."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            empty = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for good
            setattr(sys, stream, empty)


class _PrintableFormatter(logging.Formatter):
    """Escapes control characters, because log lines contain names from untrusted sources."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def _escape_warnings(name: str) -> None:
    """Escape control characters in log lines that go to stderr because no handler takes them.

    A Python warning becomes one line, because a line of code does not help a user of a command.
    """
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())

    def show(message: Warning | str, *place: object, **more: object) -> None:
        print_note(f"{name}: warning: {printable(str(message))}")

    warnings.showwarning = show


def _flush_or_forget() -> None:
    """Flush stdout, or discard its buffer, so that the interpreter's own flush cannot fail."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
