"""A process that runs commands with the rights of POSIX users.

From each line of stdin it reads the arguments of `run_as` as JSON, and answers with the status,
stdout and stderr. First it runs a few commands as the user root, to load all modules: other users
may have no permission to read them.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from spark_log.cli.main import main
from spark_log.storage import file_system


def run(argv, typed=""):
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    status: object = None
    lines = Path(tempfile.gettempdir(), f"stdin-{os.getpid()}-{os.geteuid()}")
    lines.write_text(typed, "utf-8")
    with (
        lines.open() as sys.stdin,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(argv)
        except SystemExit as end:
            status = end.code
    lines.unlink()
    printed = (stream.buffer.getvalue().decode() for stream in (out, err))
    return dict(zip(("status", "out", "err"), (status, *printed), strict=True))


def load():
    """Load all modules that the tests' commands need, by running these commands."""
    with tempfile.TemporaryDirectory() as root:
        given = ["--root", f"{root}/root"]
        for line in (
            "topics create t",
            "topics list",
            "console-producer t",
            "console-consumer t --group g --from-beginning --max-messages 1",
            "console-consumer t --from-beginning --max-messages 1",
            "offsets list t",
            "groups list",
            "verify",
            "delete-records t --partition 0 --before-offset 1 --yes",
            "clean --all-topics",
            "topics delete t --yes",
        ):
            done = run([*line.split(), *given], "a line\n")
            assert done["status"] == 0, (line, done)
        run(["topics", "list", "--root", f"{root}/none"])


def run_as(answers, uid, groups, umask, argv, typed):
    """Run a command in a child, which gives up the rights of root, and answer."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setgroups(groups)
    os.setgid(groups[0])
    os.setuid(uid)
    os.umask(umask)
    file_system._umask.cache_clear()  # noqa: SLF001 - a process begins with its umask
    try:
        answer = json.dumps(run(argv, typed))
    except BaseException:
        answer = json.dumps({"status": "crashed", "out": "", "err": traceback.format_exc()})
    print(answer, file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    given, to_tests = sys.stdin, os.fdopen(os.dup(1), "w")
    load()
    for request in given:
        run_as(to_tests, *json.loads(request))
