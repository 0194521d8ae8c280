"""A short command imports only what it needs: imports are most of its time."""

import os
import subprocess
import sys
from typing import Any

import pytest
import typer

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cli.lazy_command import loaded
from spark_log.cli.main import COMMANDS, app
from tests.cli.support import append, environment, segment_files

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
    "spark_log.storage.memory",
    "spark_log.transaction.coordinator",
    "tenacity",
}
"""Modules that take long to import, or import many others."""

UNUSED = {
    "asyncio",
    "deltalake",
    "obstore",
    "pandas",
    "pyspark",
    "rich",
    "spark_log.storage.memory",
}
"""Large modules that no command needs on a local root, if it draws no progress bar."""

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


@pytest.fixture(scope="module")
def root_with_records(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("records"))
    admin = Admin(root)
    admin.create_topics([NewTopic("orders", 2)])
    append(root, "orders", b"0", b"1", b"2")
    admin.alter_group_offsets("reports", {TopicPartition("orders", 0): OffsetAndMetadata(1)})
    return root


def imported(arguments, root, given=""):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments.split()],
        env=environment(SPARK_LOG_ROOT=root),
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
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


@pytest.mark.parametrize(
    "arguments",
    [
        "groups list",
        "groups describe reports",
        "groups members reports --verbose",
        "groups reset-offsets reports --all-topics --to-latest --execute",
        "groups reset-offsets reports --all-topics --to-committed-at 2100-01-01",
        "groups repair",
        "console-consumer orders --from-beginning --max-messages 2",
        "console-consumer orders --from-beginning --max-messages 2 --group readers --json",
        "console-consumer orders --from-time 1970-01-01 --to-time 2100-01-01",
        "console-producer orders",
        "console-producer orders --property parse.key=true --property parse.headers=true",
        "exporter --once",
        "verify",
        "clean orders --dry-run",
        "transactions find-hanging",
        "top --iterations 1",
        "canary --once",
        "doctor",
    ],
)
def test_a_command_that_reads_or_writes_rows_imports_nothing_that_it_does_not_use(
    arguments, root_with_records
):
    assert not imported(arguments, root_with_records, "name:header\tkey\tvalue\n") & UNUSED


def test_a_dump_of_records_imports_no_pandas(root_with_records):
    file = segment_files(root_with_records, "orders")[0]
    assert not imported(f"dump-log {file} --print-data-log", root_with_records) & UNUSED


def test_only_a_repair_imports_what_repairs_offsets(root):
    repair = "spark_log.coordinator.offsets.repair"
    assert repair not in imported("groups list", root)
    assert repair in imported("groups repair", root)


def test_the_collector_does_not_search_imports_while_a_command_runs(root):
    code = (
        "import atexit, gc, sys\n"
        "searched = [0]\n"
        "def note(phase, info):\n"
        "    if phase == 'start' and 'spark_log.admin.admin' in sys.modules:\n"
        "        ages = range(info['generation'] + 1)\n"
        "        searched.append(sum(len(gc.get_objects(age)) for age in ages))\n"
        "gc.callbacks.append(note)\n"
        "atexit.register(lambda: print(max(searched)))\n"
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
    topic, searched = ran.stdout.split()[:2]
    assert topic == "orders"
    assert int(searched) < 10_000, "imports are more than 50,000 objects"


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
