"""A process that runs ``spark-log clean`` or ``replicate`` on a whole root, repeatedly."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spark_log.cli.main import main
from tests.faults.notes import Notes

_PAUSE_S = 0.05


@dataclass(frozen=True)
class CleanRole:
    """The role of one process: its properties file, the path of its notes, and its pauses."""

    properties: str
    notes: str
    pause_s: float = _PAUSE_S


def clean_until_stopped(role: CleanRole, orders: Connection):
    """Clean until the other end of the pipe is closed, and note the command's exit statuses."""
    _run_until_stopped(role, orders, "clean", "--all-topics")


def replicate_until_stopped(role: CleanRole, orders: Connection):
    """Bring replicas back until the pipe is closed, and note the command's exit statuses."""
    _run_until_stopped(role, orders, "replicate")


def _run_until_stopped(role, orders, *command):
    with Notes(role.notes) as notes:
        while not orders.poll(role.pause_s):
            status, _, error = run(*command, "--json", "--config", role.properties)
            notes.write(status, error.replace("\n", " "))


def run(*argv):
    """Run ``spark-log`` in this process; return its exit status, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(argv)
    except SystemExit as end:
        out.flush()
        return end.code or 0, out.buffer.getvalue().decode(), err.getvalue()
    raise AssertionError("the command has not ended")
