"""Fixtures and settings of all tests. Those for Spark are in the conftest beside its tests."""

import os
import signal
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

from tests.storage.emptying import delete_everything
from tests.striped_topics import give_stripes, skip_tests_of_partition_logs

# Each Spark of the tests reads its settings here: Delta's jars without Spark's own, and fewer logs.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parents[1] / "conf"))

from spark_log.storage import reserve
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from spark_log.testing.servers.s3_server import s3_server, server_name
from spark_log.util import suppressed
from spark_log.util.clock import ManualClock

__all__ = ["s3_server"]

# Tests make thousands of roots, and pytest keeps those of the last runs: reserve little disk space.
pytest.MonkeyPatch().setattr(reserve, "RESERVE_BYTES", 16_384)

# A shell lets background processes ignore SIGINT, and child processes inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No second JIT compiler: it takes a quarter of the time, which a JVM regains only after minutes.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

pytest.register_assert_rewrite(
    "spark_log.testing.store_suite", "spark_log.testing.store_stateful", "tests.log.support"
)

settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


def pytest_addoption(parser):
    parser.addoption(
        "--stripes",
        type=int,
        default=0,
        help="give each topic that an Admin creates, with one replica, this number of stripes",
    )


def pytest_configure(config):
    if stripes := config.getoption("--stripes"):
        give_stripes(pytest.MonkeyPatch(), stripes)


def pytest_collection_modifyitems(config, items):
    """Run long tests first, so that no worker runs one alone at the end."""
    if config.getoption("--stripes"):
        skip_tests_of_partition_logs(items)
    items.sort(key=lambda item: "tests/faults" not in str(item.path) and not _uses_spark(item))


def _uses_spark(item):
    return item.get_closest_marker("spark") is not None


def pytest_report_header():
    return f"S3 server: {server_name()}"


@pytest.fixture(autouse=True)
def _forget_causes():
    """Forget which errors were logged, so that each test logs its own."""
    suppressed._logged.clear()  # noqa: SLF001 - tests share the process


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def memory_store(clock):
    """A store in memory that no other test sees, on the clock of the test."""
    store = MemoryStore(uuid.uuid4().hex, clock)
    yield store
    delete_everything(store)


@pytest.fixture
def local_store(tmp_path):
    store = LocalStore(str(tmp_path / "root"))
    store.create_root()
    return store
