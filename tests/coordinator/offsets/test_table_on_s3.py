"""Committed offsets on an object store."""

import multiprocessing
import threading

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import IllegalGenerationError, StorageError
from spark_log.storage.object.object_store import ObjectStore
from spark_log.testing.servers.faulty_proxy import FaultyProxy
from spark_log.util.clock import ManualClock, SystemClock

LONG_S = 60
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def root(s3_server):
    url = f"{s3_server.new_bucket()}/a-root"
    Admin(url, storage_options=s3_server.storage_options).create_topics([NewTopic("t", 2)])
    return url


def offsets_table(root, options):
    return OffsetsTable(Cluster(root, options))


def positions(table, group):
    return {tp: committed.offset for tp, committed in table.fetch(group).items()}


def _commit_many(root, options, group):
    table = offsets_table(root, options)
    for offset in range(5):
        table.commit(group, {P0: OffsetAndMetadata(offset)})


def test_what_one_handle_commits_another_fetches(root, s3_server):
    table = offsets_table(root, s3_server.storage_options)
    assert positions(table, "g") == {}
    table.commit("g", {P0: OffsetAndMetadata(7), P1: OffsetAndMetadata(70)})
    table.commit("g", {P0: OffsetAndMetadata(9, "note")})

    other = offsets_table(root, s3_server.storage_options)
    assert positions(other, "g") == {P0: 9, P1: 70}
    assert other.fetch("g")[P0].metadata == "note"
    assert table.url == f"{root}/__consumer_offsets"


def test_commits_of_processes_at_once_are_all_there(root, s3_server):
    context = multiprocessing.get_context("spawn")
    groups = ["a", "b", "c"]
    processes = [
        context.Process(target=_commit_many, args=(root, s3_server.storage_options, group))
        for group in groups
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    table = offsets_table(root, s3_server.storage_options)
    assert [positions(table, group) for group in groups] == [{P0: 4}] * 3


def test_a_store_that_fails_commits_nothing_and_shows_no_address(root, s3_server):
    with FaultyProxy(s3_server.endpoint_url) as proxy:
        table = offsets_table(root, {**s3_server.storage_options, "endpoint_url": proxy.url})
        table.commit("g", {P0: OffsetAndMetadata(1)})
        offsets = "__consumer_offsets"
        proxy.rule = lambda request: 403 if offsets in request.path else "pass"
        with pytest.raises(StorageError) as failed:
            table.commit("g", {P0: OffsetAndMetadata(2)})
        with pytest.raises(StorageError) as unreadable:
            table.fetch("g")
        assert proxy.url not in f"{failed.value} {unreadable.value}"
        proxy.rule = lambda request: "pass"
        assert positions(table, "g") == {P0: 1}


def test_a_commit_writes_its_rows_while_it_reads_the_log(root, s3_server, monkeypatch):
    clock = ManualClock()
    table = OffsetsTable(Cluster(root, s3_server.storage_options, clock=clock))
    table.commit("g", {P0: OffsetAndMetadata(1)})
    clock.advance_ms(1_000)  # right after a commit the log is not read
    calls: list[str] = []
    is_written = threading.Event()

    def recorded(name, before=lambda path: None):
        original = getattr(ObjectStore, name)

        def call(self, path, *args, **settings):
            before(path)
            if path.startswith("__consumer_offsets"):
                calls.append(name)
            return original(self, path, *args, **settings)

        monkeypatch.setattr(ObjectStore, name, call)

    def note_rows(path):
        if path.endswith(".parquet"):
            is_written.set()

    def wait_for_rows(path):
        if path.endswith("_delta_log"):
            assert is_written.wait(LONG_S), "the log is read before the rows are written"

    recorded("put_if_absent", note_rows)
    recorded("list", wait_for_rows)
    for name in ("head", "open_buffer", "read", "read_tail", "put", "delete"):
        recorded(name)
    table.commit("g", {P0: OffsetAndMetadata(2)})
    assert sorted(set(calls)) == ["list", "put_if_absent"]
    assert calls.count("put_if_absent") == 2
    assert positions(table, "g") == {P0: 2}


def test_another_process_that_commits_right_after_this_one_is_noticed_by_the_put(root, s3_server):
    table = offsets_table(root, s3_server.storage_options)
    other = OffsetsTable(Cluster(root, s3_server.storage_options, clock=SystemClock()))
    for offset in range(3):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
        other.commit("g", {P1: OffsetAndMetadata(offset)})
    assert positions(table, "g") == positions(other, "g") == {P0: 2, P1: 2}


def test_rows_that_were_written_for_a_refused_commit_are_deleted(root, s3_server):
    table = offsets_table(root, s3_server.storage_options)
    other = OffsetsTable(Cluster(root, s3_server.storage_options, clock=SystemClock()))
    table.commit("g", {P0: OffsetAndMetadata(1)}, generation=1)
    other.fence("g", 2)
    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(2)}, generation=1)
    store = Cluster(root, s3_server.storage_options).store
    files = [file.name for file in store.list("__consumer_offsets")]
    assert len([name for name in files if name.endswith(".parquet")]) == 1
    assert positions(table, "g") == positions(other, "g") == {P0: 1}
