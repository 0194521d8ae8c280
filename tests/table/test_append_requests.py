"""Whoever appends to a topic that is a table makes the requests of any topic, and no other."""

from collections import Counter
from contextlib import contextmanager
from unittest import mock

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.storage.local import LocalStore
from spark_log.util import SYSTEM_CLOCK
from tests.record.samples import record_batch, row
from tests.store_calls import counted_calls
from tests.table.support import TableRoot

APPENDS = 40


@contextmanager
def counted_puts():
    """Count the puts of local stores, by operation and kind of file."""
    puts: Counter[tuple[str, str]] = Counter()

    def counting(name):
        original = getattr(LocalStore, name)

        def put(store, path, *arguments, **options):
            puts[name, path.rpartition(".")[2]] += 1
            return original(store, path, *arguments, **options)

        return put

    names = ("put_if_absent", "put", "delete")
    with mock.patch.multiple(LocalStore, **{name: counting(name) for name in names}):
        yield puts


def send(root):
    """Append by a producer, whose merges would be made on another thread, at any time."""
    with Producer(root.url, linger_ms=0) as producer:
        for number in range(APPENDS):
            producer.send("t", b"%d" % number, partition=0).get(60)


def append(root):
    """Append by the log itself, which merges its end in between."""
    log = root.log()
    for number in range(APPENDS):
        log.append(record_batch([row(b"%d" % number)]))


def requests_of(root, work):
    """Return the calls of some work, without directories."""
    with counted_calls() as calls, counted_puts() as puts:
        work(root)
    assert not [where for where in calls if "_delta_log" in where[1]]
    reads: Counter[str] = Counter()
    for (name, _), count in calls.items():
        reads[name] += count
    return reads, puts


@pytest.mark.parametrize(("work", "tail"), [(send, 0), (append, 16)])
def test_the_requests_are_those_of_any_topic(tmp_path, work, tail):
    found = []
    for table_format in ("none", "delta"):
        url = str(tmp_path / table_format)
        configs = {
            "table.format": table_format,
            "merge.tail.segments": tail,
            "flush.on.append": False,
            "message.timestamp.before.max.ms": 2**62,
        }
        Admin(url).create_topics([NewTopic("t", topic_configs=configs)])
        root = TableRoot(url, SYSTEM_CLOCK)
        root.fill(12)
        root.clean()
        assert bool(list(root.directory.glob("t-0/*.parquet"))) == (table_format == "delta")
        found.append(requests_of(root, work))
    plain, table = found
    assert table == plain
    merges = plain[1]["put_if_absent", "log"] - APPENDS
    assert (merges > 0) == (tail > 0)
