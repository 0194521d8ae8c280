"""A process of Spark keeps its root open between tasks: that saves reads, and changes nothing."""

import shutil
import subprocess
import sys

import pytest

from spark_log import Admin, ConfigResource, NewTopic, RootNotFoundError
from spark_log.datasource.write.job_transaction import commit_transaction
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.storage.local import LocalStore
from tests.datasource.sink_support import attempt, committed, numbers, rows


def write(root, batch_id, transactional="false", **settings):
    """Run a micro-batch of one record: one task, and the driver's commit."""
    message = attempt(
        root, [rows([batch_id])], batch_id=batch_id, transactional=transactional, **settings
    )
    if transactional == "true":
        with OpenRoot.acquire(root, {}) as opened:
            commit_transaction(opened, [message], batch_id)


def recreate(root, partitions=4):
    """Remove the root, and make it again as another process does: this one has it open."""
    shutil.rmtree(root)
    command = [sys.executable, "-m", "spark_log", "topics", "create", "t", "--root", root]
    subprocess.run([*command, "--partitions", str(partitions)], check=True, capture_output=True)


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_micro_batch_reads_no_more_files_however_many_were_before_it(
    root, monkeypatch, transactional
):
    opened = []
    open_buffer = LocalStore.open_buffer

    def noting(store, path, *arguments, **options):
        opened.append(path)
        return open_buffer(store, path, *arguments, **options)

    monkeypatch.setattr(LocalStore, "open_buffer", noting)
    counts = []
    for batch_id in range(12):
        opened.clear()
        write(root, batch_id, transactional)
        counts.append(len(opened))
    assert counts[11] == counts[4] <= {"false": 3, "true": 8}[transactional]


def test_two_users_at_once_have_a_root_each(root):
    with OpenRoot.acquire(root, {}) as one, OpenRoot.acquire(root, {}) as other:
        assert one is not other
    assert OpenRoot.acquire(root, {}) in (one, other)


def test_after_an_error_the_root_is_opened_anew(root):
    with OpenRoot.acquire(root, {}) as first:
        pass
    with pytest.raises(KeyError), OpenRoot.acquire(root, {}) as second:
        raise KeyError
    assert second is first
    assert OpenRoot.acquire(root, {}) is not first


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_root_that_was_removed_and_created_again_is_another_one(root, transactional):
    write(root, 0, transactional)
    recreate(root)
    write(root, 1, transactional)
    assert committed(root)[0] == [1]


def test_a_root_that_was_removed_is_reported(root):
    write(root, 0)
    shutil.rmtree(root)
    with pytest.raises(RootNotFoundError):
        write(root, 1)


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_topic_that_was_created_again_gets_the_next_micro_batch(root, transactional):
    write(root, 0, transactional)
    with Admin(root) as admin:
        admin.delete_topics(["t"])
        admin.create_topics([NewTopic("t")])
    write(root, 1, transactional)
    assert committed(root) == [[1]]


def test_settings_of_a_topic_hold_from_the_next_micro_batch(root):
    write(root, 0)
    with Admin(root) as admin:
        admin.alter_configs([ConfigResource("topic", "t", {"max.message.bytes": 100})])
    with pytest.raises(Exception, match=r"max\.message\.bytes"):
        attempt(root, [rows([1], padding=500)], batch_id=1)
    assert numbers(root)[0] == [0]
