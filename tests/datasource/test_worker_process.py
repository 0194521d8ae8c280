"""Errors and warnings in the Python processes in which Spark runs the source."""

import gc
import importlib
import io
import os
import pickle
import subprocess
import sys
import traceback
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_log.datasource import worker_process
from spark_log.datasource.options import parse_read_options
from spark_log.datasource.read.task_reader import read_in_task
from spark_log.datasource.session import spark_session
from spark_log.datasource.source import SparkLogDataSource
from spark_log.datasource.worker_process import (
    REDACTION,
    REDACTION_SETTING,
    exposed_secrets,
    freeze_modules,
    silence_broken_pipe,
)
from spark_log.datasource.write.batch_writer import LogBatchWriter
from spark_log.datasource.write.stream_writer import LogStreamWriter
from spark_log.errors import InvalidConfigurationError, InvalidOptionError
from tests.datasource.reading import create, fill

KEYS = ["account_key", "connection_string", "key", "sas_token", "secret", "anon", "endpoint_url"]
NAMES = [f"storage.{key}" for key in KEYS]
NOTHING: Any = None
SPARKS = "(?i)secret|password|token|access[.]?key"


def test_secrets_are_those_that_the_sessions_pattern_leaves_out():
    shown = ["storage.account_key", "storage.connection_string", "storage.key"]
    assert exposed_secrets(NAMES, SPARKS) == shown
    assert exposed_secrets(NAMES, REDACTION) == []
    assert exposed_secrets(NAMES, "key$") == [
        "storage.connection_string",
        "storage.sas_token",
        "storage.secret",
    ]
    assert exposed_secrets(["brokers.1.storage.key", "brokers.2.storage.anon"], SPARKS) == [
        "brokers.1.storage.key"
    ]
    assert exposed_secrets(["brokers.1.storage.key"], REDACTION) == []
    assert exposed_secrets(NAMES, "(?i)\\p{Alpha}++(") == [], "valid in Java only"


def test_a_warning_comes_from_the_first_task_alone_and_names_the_setting(monkeypatch, recwarn):
    def task(number, pattern):
        properties = {worker_process.REDACTION_SETTING: pattern}
        context = SimpleNamespace(partitionId=lambda: number, getLocalProperty=properties.get)
        monkeypatch.setattr(TaskContext, "get", lambda: context)

    given = {"path": "/r", "subscribe": "t", "brokers.1.storage.key": "k"}
    options = parse_read_options(given)
    task(1, None)
    worker_process.warn_exposed_secrets(options)
    task(0, REDACTION)
    worker_process.warn_exposed_secrets(options)
    assert not recwarn.list
    task(0, None)
    with pytest.warns(
        worker_process.ShownSecretWarning,
        match=r"brokers\.1\.storage\.key .* set spark\.redaction\.regex",
    ):
        worker_process.warn_exposed_secrets(options)


@pytest.mark.spark
def test_a_session_hides_options_for_the_file_system_unless_it_is_told_what_to_hide(spark):
    settings = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    settings.unsetConf(REDACTION_SETTING)
    try:
        assert spark_session("test").conf.get(REDACTION_SETTING) == REDACTION
        settings.setConfString(REDACTION_SETTING, "mine")
        assert spark_session("test").conf.get(REDACTION_SETTING) == "mine"
    finally:
        settings.setConfString(REDACTION_SETTING, REDACTION)


@pytest.mark.spark
def test_a_running_session_without_delta_cannot_get_it(spark):
    assert spark_session("test", delta=True) is spark
    settings = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    extensions = spark.conf.get("spark.sql.extensions")
    settings.setConfString("spark.sql.extensions", "")
    try:
        assert spark_session("test") is spark
        with pytest.raises(InvalidConfigurationError, match="before any other session"):
            spark_session("test", delta=True)
    finally:
        settings.setConfString("spark.sql.extensions", extensions)


@pytest.mark.parametrize(("runtime", "hidden"), [("PYTHON_WORKER", "1"), ("", None)])
def test_an_error_is_its_message_where_spark_makes_a_text_of_it(monkeypatch, runtime, hidden):
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", runtime)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # restored at the end
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")
    with pytest.raises(InvalidOptionError):
        SparkLogDataSource({"path": "/r", "startingOffset": "earliest"}).schema()
    assert os.environ.get("SPARK_HIDE_TRACEBACK") == hidden


def test_any_other_error_keeps_its_traceback(monkeypatch):
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(ZeroDivisionError), worker_process.hide_traceback():
        raise ZeroDivisionError
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def printed(daemon, error):
    stderr = io.StringIO()
    try:
        raise error
    except Exception:
        daemon.traceback.print_exc(file=stderr)
    return stderr.getvalue()


@pytest.fixture
def daemon(monkeypatch):
    """The module ``__main__`` of a process that Spark's daemon has forked."""
    daemon: Any = ModuleType("__main__")
    daemon.__spec__ = SimpleNamespace(name="pyspark.daemon")
    daemon.traceback = traceback
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    return daemon


@pytest.mark.parametrize(
    "call",
    [
        SparkLogDataSource.name,
        lambda: SparkLogDataSource({"path": "/r", "subscribe": "t"}).schema(),
        lambda: list(read_in_task(InputPartition(0), [], NOTHING)),
        lambda: LogBatchWriter.write(NOTHING, iter(())),
        lambda: LogStreamWriter.write(NOTHING, iter(())),
    ],
)
def test_whatever_a_process_does_a_closed_pipe_is_not_printed(daemon, call):
    """Spark closes the pipes of idle processes, too: of those that plan, write or look up."""
    with suppress(AttributeError, TypeError):  # the first line is enough
        call()
    assert printed(daemon, BrokenPipeError(32, "Broken pipe")) == ""


def test_the_daemon_prints_no_closed_pipe_and_everything_else(daemon):
    assert "BrokenPipeError" in printed(daemon, BrokenPipeError(32, "Broken pipe"))
    silence_broken_pipe()
    silence_broken_pipe()
    assert printed(daemon, BrokenPipeError(32, "Broken pipe")) == ""
    assert printed(daemon, ConnectionResetError(104, "reset")) == ""
    assert "ValueError: another" in printed(daemon, ValueError("another"))
    assert daemon.traceback.format_exc is traceback.format_exc
    assert traceback.print_exc is importlib.import_module("traceback").print_exc


def test_sparks_daemon_prints_through_the_module_that_is_replaced():
    daemon = importlib.import_module("pyspark.daemon")
    assert isinstance(daemon.traceback, ModuleType)
    assert "traceback.print_exc()" in importlib.import_module("inspect").getsource(daemon.manager)


def test_another_program_is_left_alone(monkeypatch):
    program: Any = ModuleType("__main__")
    program.traceback = traceback
    monkeypatch.setitem(sys.modules, "__main__", program)
    silence_broken_pipe()
    assert program.traceback is traceback


def test_a_worker_freezes_its_modules_after_each_import(monkeypatch):
    frozen = []
    monkeypatch.setattr(worker_process, "_frozen_modules", 0)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "")
    freeze_modules()
    assert not frozen, "a user's own process"
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    freeze_modules()
    freeze_modules()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "imported_since", ModuleType("imported_since"))
    freeze_modules()
    assert len(frozen) == 2


TASK = """
import gc, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_log.datasource import SparkLogDataSource

schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
values = pa.array([b"%d" % number for number in range(100)], pa.binary())
rows = pa.RecordBatch.from_arrays([values, values], ["key", "value"])
writer = SparkLogDataSource({"path": sys.argv[1], "topic": "t"}).writer(schema, False)
writer.write(iter([rows]))
import asyncio, unittest.mock  # as Spark, which imports pandas behind a task's write
imported = len(gc.get_objects())
writer.write(iter([rows]))
print(imported, len(gc.get_objects()))  # without those that are frozen
"""


def test_a_second_task_leaves_out_what_was_imported_behind_the_first_one(tmp_path):
    root = str(tmp_path / "root")
    create(root, "t", 4)
    env = os.environ | {"SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}
    command = [sys.executable, "-c", TASK, root]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    imported, left = map(int, ran.stdout.split())
    assert left < 1_000 < imported


@pytest.mark.spark
def test_sparks_collection_after_a_task_leaves_modules_out(spark, tmp_path):
    class Log(SparkLogDataSource):
        @classmethod
        def name(cls):
            return "log"

    class Counts(DataSource, DataSourceReader):
        @classmethod
        def name(cls):
            return "counts"

        def schema(self):
            return "frozen long"

        def reader(self, schema):
            return self

        def partitions(self):
            return [InputPartition(number) for number in range(2)]

        def read(self, partition):
            yield (gc.get_freeze_count(),)

    root = str(tmp_path / "root")
    create(root, "t")
    fill(root, "t", 0, range(10))
    # Tasks of sources that a program registers run in the processes of their earlier tasks.
    spark.dataSource.register(Log)
    spark.dataSource.register(Counts)
    spark.read.format("log").options(path=root, subscribe="t").load().collect()
    found = spark.read.format("counts").load().collect()
    assert any(row.frozen > 20_000 for row in found), found


LOOKUP = """
import subprocess
import sys
import pyspark_spark_log
print(pyspark_spark_log.DefaultSource.name(), sorted(sys.modules.keys() & {"pyarrow", "numpy"}))
"""
DRIVER = """
import subprocess
import sys
from spark_log.datasource.write import LogBatchWriter, LogStreamWriter
large = {"pandas", "deltalake", "pyarrow.compute", "spark_log.admin.admin"}
print(sorted(sys.modules.keys() & large))
"""


@pytest.mark.parametrize(("program", "imported"), [(LOOKUP, "spark_log []"), (DRIVER, "[]")])
def test_processes_of_the_driver_import_nothing_that_is_large(program, imported):
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.stdout.strip() == imported, ran.stderr


@pytest.mark.parametrize(("runtime", "is_frozen"), [("PYTHON_WORKER", True), ("", False)])
def test_a_process_of_spark_freezes_modules_before_it_imports_ours(runtime, is_frozen):
    program = "import gc, spark_log.datasource.worker_process; print(gc.get_freeze_count() > 0)"
    env = os.environ | {"SPARK_PYTHON_RUNTIME": runtime}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    assert ran.stdout.strip() == str(is_frozen), ran.stderr


SETTINGS = {"pydantic", "spark_log.config.model"}
APPENDS = {"spark_log.log.local_log", "spark_log.log.append.appender"}
METADATA = {"spark_log.metadata.image", "spark_log.cluster.cluster", "spark_log.coordinator"}


def test_the_process_that_asks_for_the_columns_imports_neither_settings_nor_logs(tmp_path):
    source = SparkLogDataSource({"path": str(tmp_path), "subscribe": "t"})
    names = _modules_after(tmp_path, source, "print(len(given.schema()))")
    assert names["printed"] == "7"
    assert not (SETTINGS | APPENDS | METADATA | {"spark_log.log.read.log_reader"}) & names.keys()


def test_a_task_that_reads_imports_neither_settings_nor_what_plans_and_appends(tmp_path):
    root = str(tmp_path / "root")
    create(root, "t")
    fill(root, "t", 0, range(10))
    source = SparkLogDataSource({"path": root, "subscribe": "t"})
    reader: Any = source.reader(source.schema())
    given = reader, reader.partitions()[0]
    names = _modules_after(tmp_path, given, "print(next(given[0].read(given[1])).num_rows)")
    assert names["printed"] == "10"
    assert not (SETTINGS | APPENDS | METADATA) & names.keys()


def test_the_process_that_commits_a_write_imports_nothing_that_writes(tmp_path):
    root = str(tmp_path / "root")
    create(root, "t")
    schema = StructType([StructField("value", BinaryType())])
    writer: Any = SparkLogDataSource({"path": root, "topic": "t"}).writer(schema, overwrite=False)
    message = writer.write(iter([pa.record_batch({"value": [b"1"]})]))
    run = "given[0].commit([given[1]]); print(len(given[1].results))"
    names = _modules_after(tmp_path, (writer, message), run)
    assert names["printed"] == "1"
    writes = {"spark_log.datasource.write.task_writer", "pyarrow"}
    assert not (SETTINGS | APPENDS | METADATA | writes) & names.keys()


def _modules_after(tmp_path, given, run):
    """Return the modules of a new process that unpickled ``given`` and ran a line of code.

    ``printed`` is the first line of its output.
    """
    pickled = tmp_path / "given.pickle"
    pickled.write_bytes(pickle.dumps(given))
    program = (
        "import pickle, sys\n"
        f"with open({str(pickled)!r}, 'rb') as file: given = pickle.load(file)\n"
        f"{run}\nprint(*sys.modules)"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    printed, _, modules = ran.stdout.partition("\n")
    assert modules, ran.stderr
    return dict.fromkeys(modules.split(), "") | {"printed": printed}
