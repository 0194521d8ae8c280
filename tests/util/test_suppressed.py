"""Failures that are survived: each counted, each cause logged once."""

import ast
import multiprocessing
import threading
from pathlib import Path

import pytest

import spark_log
from spark_log.errors import StorageError, StorageFullError
from spark_log.util import suppressed
from spark_log.util.suppressed import IN_PROCESS, MAX_CAUSES, SuppressedErrors


@pytest.fixture(autouse=True)
def logged(caplog):
    """The lines that were logged."""
    caplog.set_level("WARNING", "spark_log.util.suppressed")
    return caplog


def fail(errors, what="index", path="t/t-0", error=None):
    with errors.suppress(what, path, StorageError):
        raise error or StorageError("t/t-0/00.index: no")


def test_each_is_counted_and_a_cause_is_logged_once(logged):
    errors = SuppressedErrors()
    for _ in range(3):
        fail(errors)
    assert errors.counts() == {"index": 3}
    (line,) = logged.messages
    assert line.startswith("t/t-0: index failed and was skipped (StorageError: t/t-0/00.index: no)")


@pytest.mark.parametrize(
    "other",
    [{"what": "merge"}, {"path": "t/t-1"}, {"error": StorageFullError("full")}],
    ids=lambda given: next(iter(given)),
)
def test_another_cause_is_logged_as_well(logged, other):
    errors = SuppressedErrors()
    fail(errors)
    fail(errors, **other)
    assert len(logged.messages) == 2
    assert errors.total() == 2


def test_what_does_not_fail_and_what_is_not_named_is_let_through(logged):
    errors = SuppressedErrors()
    with errors.suppress("index", "t", StorageError):
        pass
    with pytest.raises(ZeroDivisionError), errors.suppress("index", "t", StorageError):
        raise ZeroDivisionError
    assert (errors.counts(), logged.messages) == ({}, [])


def test_an_owner_counts_what_its_parts_do_and_a_cause_is_one_for_all(logged):
    client = SuppressedErrors(IN_PROCESS)
    before = IN_PROCESS.total()
    for log in (SuppressedErrors(client), SuppressedErrors(client)):
        fail(log)
        assert log.total() == 1
    assert (client.total(), IN_PROCESS.total() - before) == (2, 2)
    assert len(logged.messages) == 1


def test_counts_are_metrics_by_action(logged):
    errors = SuppressedErrors()
    assert errors.figures() == {"suppressed-errors-total": 0}
    fail(errors, "tail merge")
    fail(errors, "index")
    fail(errors, "index")
    assert errors.figures() == {
        "suppressed-errors-total": 3,
        "index-errors-total": 2,
        "tail-merge-errors-total": 1,
    }


def test_memory_is_bounded_and_what_keeps_failing_stays_known(logged):
    errors = SuppressedErrors()
    for number in range(3 * MAX_CAUSES):
        fail(errors, path="always")
        fail(errors, path=f"t-{number}")
    assert sum(line.startswith("always:") for line in logged.messages) == 1
    logged.clear()
    fail(errors, path=f"t-{2 * MAX_CAUSES + 1}")  # the oldest one beside "always"
    assert logged.messages == []
    fail(errors, path=f"t-{2 * MAX_CAUSES}")
    assert len(logged.messages) == 1


def test_of_many_threads_none_is_lost(logged):
    errors = SuppressedErrors()
    threads = [
        threading.Thread(target=lambda: [fail(errors) for _ in range(500)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors.total() == 4_000
    assert len(logged.messages) == 1


def test_a_child_counts_although_a_thread_of_its_parent_held_the_lock():
    errors = SuppressedErrors()
    with suppressed._lock:  # noqa: SLF001 - as a thread does
        child = multiprocessing.get_context("fork").Process(target=fail, args=(errors,))
        child.start()
        child.join(timeout=60)
    assert child.exitcode == 0


# --- nothing fails in silence --------------------------------------------------------------------

BROAD = {"SparkLogError", "StorageError", "OSError", "Exception", "BaseException", "REQUEST_ERRORS"}

SILENT = {
    (
        "cli/options/completion.py",
        "Exception",
    ): "what is printed would stand in the user's command line",
    ("cli/terminal/errors.py", "OSError"): "stdout itself is gone: there is nowhere to tell it",
    ("cli/format/segment_dump.py", "OSError"): "what is dumped may be damaged: shown as that",
    ("cli/format/stripe_dump.py", "OSError"): "what is dumped may be damaged: shown as that",
    ("consumer/group/auto_commit.py", "SparkLogError"): "the commit's own callback has logged it",
    (
        "consumer/position/fetch_positions.py",
        "StorageError",
    ): "the caller raises what it was told first",
    ("delta/delta_log.py", "StorageError"): "the put is then looked for, which raises",
    ("coordinator/offsets/repair.py", "StorageError"): "the report names what was lost",
    ("jobs/sink/destination.py", "Exception"): "Hadoop's: the directory is not empty, or not there",
    ("jobs/program/progress_bar.py", "OSError"): "there is no terminal",
    ("jobs/serving/gateway_tasks.py", "OSError"): "a connection has ended, and with it its task",
    (
        "log/chain/replicated_appender.py",
        "StorageError",
    ): "followers copy the leader's file instead",
    ("log/append/appender_state.py", "StorageError"): "the put at this name tells what is there",
    ("log/chain/chain_followers.py", "SparkLogError"): "it is not staged ahead: the put raises",
    (
        "log/segment/staged_copies.py",
        "SparkLogError",
    ): "no copy was made: the put writes, or raises",
    ("log/segment/parquet/writer.py", "OSError"): "the segment is given up; its file is discarded",
    ("cluster/cluster.py", "SparkLogError"): "the caller raises the error that it asked about",
    ("cluster/verifier.py", "StorageError"): "another finding tells of the replica",
    (
        "metadata/metadata_log.py",
        "SparkLogError",
    ): "the state may be old: it is read, and asked again",
    ("log/state_log.py", "SparkLogError"): "the state may be old: it is read, and asked again",
    ("cluster/cleaner.py", "StorageError"): "the caller reports the error it began with",
    ("producer/send/topic_check.py", "OSError"): "the error of the append is raised",
    ("record/arrow_template.py", "OSError"): "the file is opened by Arrow, which tells what it is",
    ("storage/file_system.py", "OSError"): "no /proc: the type of the file system is not known",
    ("storage/local.py", "OSError"): "a directory above the root may belong to another user",
    ("storage/root_guard.py", "OSError"): "the check behind it raises the error of a missing root",
    ("util/any_address.py", "OSError"): "the text is no address: it is the name of a host",
}
"""Where a broad error is passed over without a word, and why that hides nothing."""


def names_in(node):
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def passes_over(node):
    """The broad errors that a node catches without raising, logging or looking at them."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "suppress":
        return set().union(*map(names_in, node.args)) & BROAD
    if not isinstance(node, ast.ExceptHandler):
        return set()
    body = ast.Module(node.body, [])
    used = names_in(body)
    is_told = any(isinstance(each, ast.Raise) for each in ast.walk(body)) or (
        used & {"_log", "_logger", node.name}
    )
    caught = {"BaseException"} if node.type is None else names_in(node.type) & BROAD
    return set() if is_told else caught


def test_no_broad_error_is_passed_over_without_being_counted():
    """`suppress` of a wide error hides a failure: `SuppressedErrors.suppress` counts and logs."""
    package = Path(spark_log.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        relative = path.relative_to(package)
        if relative.parts[0] == "testing" or str(relative) == "util/suppressed.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found |= {(str(relative), error) for error in passes_over(node)}
    hidden = {place for place in found if place not in SILENT}
    # One handler that catches several is listed by its widest.
    hidden -= {(path, error) for path, error in hidden if (path, "OSError") in SILENT}
    hidden -= {(path, error) for path, error in hidden if (path, "StorageError") in SILENT}
    assert hidden == set(), (
        "count them by spark_log.util.suppressed, or say here why they hide nothing"
    )
    assert SILENT.keys() <= found, "no longer there"
