"""A short command imports only what it needs: imports are most of its time."""

import os
import subprocess
import sys
from typing import Any

import pytest
import typer

from spark_log import Admin, NewTopic
from spark_log.cli.lazy_command import loaded
from spark_log.cli.main import COMMANDS, app
from tests.cli.support import environment

LARGE = {
    "asyncio",
    "deltalake",
    "obstore",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark",
    "rich",
    "spark_log.console",
    "spark_log.consumer",
    "spark_log.coordinator.group.group",
    "spark_log.doctor",
    "spark_log.producer",
    "spark_log.transaction.coordinator",
    "tenacity",
}
"""Modules that take long to import, or import many others."""

CODE = """
import sys
from spark_log.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("imports"))
    Admin(root).create_topics([NewTopic("orders", 2)])
    return root


def imported(arguments, root):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments.split()],
        env=environment(SPARK_LOG_ROOT=root),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    return set(done.stderr.split())


def test_the_list_of_the_commands_needs_none_of_them(root):
    found = imported("--help", root)
    assert not found & {"numpy", "pyarrow", "pydantic", "spark_log.admin", "spark_log.metadata"}
    assert not found & {f"spark_log.cli.commands.{name.replace('-', '_')}" for name in COMMANDS}


@pytest.mark.parametrize(
    "arguments",
    [
        "topics --help",
        "topics list",
        "offsets list orders",
        "version",
    ],
)
def test_a_short_command_imports_nothing_large(arguments, root):
    found = imported(arguments, root)
    assert not found & LARGE
    assert "spark_log.cli.commands.groups" not in found


def test_the_collector_searches_neither_imports_nor_what_a_command_leaves(root):
    code = (
        "import atexit, gc\n"
        "def tell(): print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "atexit.register(tell)\n"  # called last
        "from spark_log.cli.main import main\n"
        "main(['topics', 'list'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(SPARK_LOG_ROOT=root),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split()[:3] == ["orders", "True", "True"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="numpy starts a thread for each core")
def test_a_command_lets_numpy_start_no_threads_unless_the_user_has_set_it(root):
    code = (
        "import atexit, os\n"
        "variable, tasks = 'OPENBLAS_NUM_THREADS', '/proc/self/task'\n"
        "found = lambda: (os.environ.get(variable), len(os.listdir(tasks)))\n"
        "atexit.register(lambda: print(*found()))\n"
        "from spark_log.cli.main import main\n"
        "main(['topics', 'list'])\n"
    )

    def run(**variables):
        variables = environment(SPARK_LOG_ROOT=root, **variables)
        return subprocess.check_output([sys.executable, "-c", code], env=variables, text=True)

    _, setting, threads = run().split()
    assert setting == "None", "the processes that a command starts may use all cores"
    _, setting, more_threads = run(OPENBLAS_NUM_THREADS="2").split()
    assert setting == "2"
    assert int(more_threads) == int(threads) + 1


def test_the_summary_of_a_command_is_the_first_line_of_its_help():
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert loaded(command).help.splitlines()[0] == command.help.splitlines()[0], name
