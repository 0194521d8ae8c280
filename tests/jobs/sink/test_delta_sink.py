"""A Delta table that gets each record once: attempts of a task, without Spark."""

import os
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import plan_splits
from spark_log.errors import InvalidOptionError, OffsetOutOfRangeError, StorageError
from spark_log.jobs.sink import delta_sink
from spark_log.jobs.sink.delta_sink import DeltaSink
from spark_log.record.schema import RECORD_SCHEMA
from tests.datasource.reading import (
    ALL_COLUMNS,
    BASE_MS,
    create,
    fill,
    log_of,
    options_of,
    plan,
    records,
)

WITHOUT_RULE = pytest.param(True, id="without the rule")


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t", 2)
    fill(url, "t", 0, range(100), segments=4)
    fill(url, "t", 1, range(40))
    return url


@pytest.fixture
def sink(tmp_path):
    made = DeltaSink(str(tmp_path / "table"), {}, "g")
    made.prepare()
    return made


def reading(root):
    return lambda split: read_split(split, ALL_COLUMNS, options_of(root))


def elsewhere(function):
    """Call a function in a thread, like deltalake, which does not allow any in its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def append(sink, root, read=None, splits=None):
    """Append everything in one attempt, and return by partition: reached, skipped, records."""
    done = sink.append(plan(root) if splits is None else splits, read or reading(root))
    return {each.split.partition: (each.reached, each.skipped, each.records) for each in done}


def rows(sink):
    return DeltaTable(sink.url).to_pyarrow_table().to_pylist()


def times(sink):
    return Counter((row["partition"], row["offset"]) for row in rows(sink))


ONCE = Counter([(0, offset) for offset in range(100)] + [(1, offset) for offset in range(40)])


class TestEachRecordIsAppendedOnce:
    def test_with_the_position_in_the_same_commit(self, root, sink):
        assert append(sink, root) == {0: (100, 0, 100), 1: (40, 0, 40)}
        assert times(sink) == ONCE
        table = DeltaTable(sink.url)
        assert (table.version(), len(table.file_uris())) == (1, 1)
        topic_id = plan(root)[0].topic_id
        assert [sink.position(table, topic_id, number) for number in (0, 1, 2)] == [100, 40, None]
        first = min(rows(sink), key=lambda row: (row["partition"], row["offset"]))
        assert first == {
            "key": "k",
            "value": "0",
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(BASE_MS / 1000, UTC),
            "timestampType": 0,
        }

    def test_by_an_attempt_that_is_made_again(self, root, sink):
        append(sink, root)
        assert append(sink, root) == {0: (100, 100, 0), 1: (40, 40, 0)}
        fill(root, "t", 0, range(100, 120))
        assert append(sink, root) == {0: (120, 100, 20), 1: (40, 40, 0)}
        assert times(sink) == ONCE + Counter((0, offset) for offset in range(100, 120))

    @pytest.mark.parametrize("is_without", [False, WITHOUT_RULE])
    def test_by_two_attempts_at_once(self, root, sink, monkeypatch, is_without):
        """The second attempt runs while the first one reads: Delta refuses the first commit."""
        if is_without:
            monkeypatch.setattr(DeltaSink, "app_id", lambda *_: uuid.uuid4().hex)
        others: list[Any] = []

        def read(split):
            if not others:
                others.append(elsewhere(lambda: append(sink, root)))
            yield from reading(root)(split)

        mine = append(sink, root, read)

        assert others == [{0: (100, 0, 100), 1: (40, 0, 40)}]
        if is_without:
            assert times(sink) == ONCE + ONCE, "the test detects duplicates"
        else:
            assert mine == {0: (100, 0, 0), 1: (40, 0, 0)}
            assert times(sink) == ONCE

    def test_by_a_zombie_that_is_some_way_ahead(self, root, sink, monkeypatch):
        """Records that the zombie has appended meanwhile are skipped, the others appended."""
        zombie = [replace(each, end_offset=25) for each in plan(root)[:1]]
        seen: list[tuple[int, int]] = []

        def read(split):
            if not seen:
                elsewhere(lambda: append(sink, root, splits=zombie))
            seen.append((split.partition, split.start_offset))
            yield from reading(root)(split)

        assert append(sink, root, read) == {0: (100, 0, 75), 1: (40, 0, 40)}
        assert (0, 25) in seen
        assert times(sink) == ONCE

    def test_by_many_attempts_in_threads(self, root, sink, monkeypatch):
        monkeypatch.setattr(delta_sink, "COMMIT_OFFSETS", 30)
        begin = threading.Barrier(4)

        def attempt():
            begin.wait()
            append(sink, root)

        threads = [threading.Thread(target=attempt) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert times(sink) == ONCE

    @pytest.mark.parametrize("kind", [DeltaError, OSError])
    def test_although_the_answer_of_a_commit_was_lost(self, root, sink, monkeypatch, kind):
        def losing(*arguments, **keywords):
            write_deltalake(*arguments, **keywords)
            monkeypatch.undo()
            raise kind("the connection broke")

        monkeypatch.setattr(delta_sink, "write_deltalake", losing)
        assert append(sink, root) == {0: (100, 0, 0), 1: (40, 0, 0)}
        assert times(sink) == ONCE

    def test_of_each_group_and_of_each_topic_of_a_name(self, root, sink):
        append(sink, root)
        append(replace(sink, group="other"), root)
        assert times(sink) == ONCE + ONCE
        again = [replace(each, topic_id="another") for each in plan(root)]
        now_id = plan(root)[0].topic_id
        append(
            sink, root, lambda split: reading(root)(replace(split, topic_id=now_id)), splits=again
        )
        assert times(sink) == ONCE + ONCE + ONCE

    def test_and_what_a_group_passes_over_is_not(self, root, sink):
        append(sink, root, splits=[replace(each, start_offset=30) for each in plan(root)])
        assert min(row["offset"] for row in rows(sink)) == 30
        append(sink, root)
        assert min(row["offset"] for row in rows(sink)) == 30, "the table's offset counts"


class TestCommits:
    def test_take_so_many_offsets_and_a_task_that_died_goes_on_behind_the_last(
        self, root, sink, monkeypatch
    ):
        monkeypatch.setattr(delta_sink, "COMMIT_OFFSETS", 60)

        def dying(split):
            if split.start_offset >= 60:
                raise RuntimeError("killed")
            yield from reading(root)(split)

        with pytest.raises(RuntimeError, match="killed"):
            append(sink, root, dying)
        assert times(sink) == Counter((0, offset) for offset in range(60))
        assert append(sink, root) == {0: (100, 60, 40), 1: (40, 0, 40)}
        assert times(sink) == ONCE
        assert DeltaTable(sink.url).version() == 3

    def test_of_ranges_without_a_record_move_the_position(self, root, sink):
        assert append(sink, root, lambda _: iter(())) == {0: (100, 0, 0), 1: (40, 0, 0)}
        assert append(sink, root) == {0: (100, 100, 0), 1: (40, 40, 0)}
        assert rows(sink) == []

    def test_are_not_made_when_the_log_cannot_be_read(self, root, sink):
        beyond = [replace(plan(root)[0], end_offset=1_000)]
        with pytest.raises(OffsetOutOfRangeError, match="does not exist any more"):
            append(sink, root, splits=beyond)
        assert DeltaTable(sink.url).version() == 0

    def test_are_given_up_when_the_table_is_gone(self, root, tmp_path):
        with pytest.raises(StorageError, match="is not a Delta table any more"):
            append(DeltaSink(str(tmp_path / "gone"), {}, "g"), root)

    def test_go_on_beside_those_of_others(self, root, sink, monkeypatch):
        def read(split):
            if not begun:
                begun.append(1)
                elsewhere(lambda: append(replace(sink, group="other"), root))
                elsewhere(lambda: DeltaTable(sink.url).optimize.compact(max_concurrent_tasks=1))
            yield from reading(root)(split)

        begun: list[Any] = []
        append(replace(sink, group="before"), root)
        append(sink, root, read)
        assert times(sink) == ONCE + ONCE + ONCE
        assert len(begun) == 1

    def test_are_tried_again_when_the_tables_properties_change(self, root, sink):
        changed: list[int] = []

        def read(split):
            if not changed:
                changed.append(1)
                properties = {"delta.appendOnly": "true"}
                elsewhere(lambda: DeltaTable(sink.url).alter.set_table_properties(properties))
            yield from reading(root)(split)

        append(sink, root, read)
        assert times(sink) == ONCE

    def test_are_synced_with_their_files(self, root, sink, monkeypatch):
        synced = []
        open_file = os.open

        def opening(path, flags):
            synced.append(str(path).removeprefix(f"{sink.url}/"))
            return open_file(path, flags)

        monkeypatch.setattr(os, "open", opening)
        append(sink, root)
        (file,) = DeltaTable(sink.url).file_uris()
        assert {"_delta_log/00000000000000000001.json", file.rpartition("/")[2]} <= set(synced)


class TestText:
    def test_is_what_keys_and_values_become_also_when_they_are_none(self, tmp_path):
        root = str(tmp_path / "root")
        create(root, "t", 1)
        values = [b"a", b"\xff\xfe", "ü".encode(), None]
        batch = pa.RecordBatch.from_pylist(
            [{"key": None, "value": each, "headers": None, "timestamp": 1} for each in values],
            schema=RECORD_SCHEMA,
        )
        log_of(root).append(batch)
        for is_binary, expected in ((False, ["a", "\ufffd\ufffd", "ü", None]), (True, values)):
            sink = DeltaSink(str(tmp_path / f"table{is_binary}"), {}, "g", is_binary)
            sink.prepare()
            append(sink, root)
            found = sorted(rows(sink), key=lambda row: row["offset"])
            assert [row["value"] for row in found] == expected


class TestATable:
    def test_is_made_once_by_however_many(self, tmp_path):
        sink = DeltaSink(str(tmp_path / "a" / "table"), {}, "g")
        begin, failed = threading.Barrier(8), []

        def prepare():
            begin.wait()
            try:
                sink.prepare()
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=prepare) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert failed == []
        assert DeltaTable(sink.url).version() == 0

    def test_that_is_there_is_taken_as_it_is(self, sink):
        DeltaTable(sink.url).alter.set_table_properties({"delta.appendOnly": "true"})
        sink.prepare()
        assert DeltaTable(sink.url).metadata().configuration == {"delta.appendOnly": "true"}

    def test_is_not_made_where_other_things_lie(self, tmp_path):
        (tmp_path / "year=2013").mkdir()
        (tmp_path / "year=2013" / "part.parquet").touch()
        with pytest.raises(
            InvalidOptionError, match="not a Delta table, and not empty: it contains year=2013"
        ):
            DeltaSink(str(tmp_path), {}, "g").prepare()
        assert [path.name for path in tmp_path.iterdir()] == ["year=2013"]

    def test_with_other_columns_is_refused(self, tmp_path):
        path = str(tmp_path / "table")
        write_deltalake(path, pa.table({"key": ["a"], "value": [1]}))
        with pytest.raises(InvalidOptionError) as caught:
            DeltaSink(path, {}, "g").prepare()
        assert "value is long instead of string, topic is missing" in caught.value.message

    def test_of_bytes_is_refused_for_text_and_says_how(self, tmp_path):
        path = str(tmp_path / "table")
        DeltaSink(path, {}, "g", is_binary=True).prepare()
        DeltaSink(path, {}, "g", is_binary=True).prepare()
        with pytest.raises(InvalidOptionError, match="with --binary keys and values are binary"):
            DeltaSink(path, {}, "g").prepare()

    def test_that_forgets_transactions_is_refused(self, sink):
        forgets = {"delta.setTransactionRetentionDuration": "interval 1 days"}
        DeltaTable(sink.url).alter.set_table_properties(forgets)
        with pytest.raises(InvalidOptionError, match="would forget the group's offsets"):
            sink.prepare()

    def test_that_wants_what_records_do_not_have_is_refused(self, sink, tmp_path):
        path = str(tmp_path / "strict")
        fields = [
            each.with_nullable(each.name != "key")
            for each in DeltaTable(sink.url).to_pyarrow_table().schema
        ]
        DeltaTable.create(path, pa.schema(fields))
        with pytest.raises(InvalidOptionError, match="does not allow nulls in key"):
            DeltaSink(path, {}, "g").prepare()

    def test_does_not_show_credentials(self):
        assert "secret" not in repr(DeltaSink("s3://b/t", {"key": "secret"}, "g"))


def test_a_table_and_a_root_on_s3(s3_server):
    """The log is read in deltalake's thread, by a client with threads of its own."""
    bucket, options = s3_server.new_bucket(), s3_server.storage_options
    root = f"{bucket}/root"
    Admin(root, storage_options=options).create_topics([NewTopic("t")])
    cluster = Cluster(root, options)
    for numbers in (range(60), range(60, 100)):
        log = cluster.partition_log(cluster.topic("t"), 0)
        log.append(records(list(numbers)))
    storage = {f"storage.{key}": str(value) for key, value in options.items()}
    read_options = options_of(root, **storage)
    sink = DeltaSink(f"{bucket}/table", options, "g")
    sink.prepare()
    sink.prepare()
    splits = plan_splits(read_options)
    others: list[Any] = []

    def reading_only(split):
        return read_split(split, ALL_COLUMNS, read_options)

    def read(split):
        if not others:
            others.append(elsewhere(lambda: append(sink, root, reading_only, splits)))
        yield from reading_only(split)

    assert append(sink, root, read, splits) == {0: (100, 0, 0)}
    found = sink.open().to_pyarrow_table().to_pylist()
    assert Counter(row["offset"] for row in found) == Counter(range(100))
