"""`scan`: the rows of table and log as one, exactly."""

import itertools
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spark_log import Admin, ConfigResource, Producer, TopicPartition, scan
from spark_log.cluster import Cluster
from spark_log.errors import (
    CorruptRecordError,
    InvalidOptionError,
    LogTruncatedError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.record import READ_SCHEMA
from tests.record.samples import START_US
from tests.topic_read.topics import (
    TOPIC,
    clean,
    consumed,
    fill,
    make_topic,
    make_typed_topic,
    reader_of,
    scanned,
    sorted_rows,
    version_of,
)

START = datetime.fromtimestamp(START_US / 1_000_000, UTC)


@pytest.fixture
def root(tmp_path):
    """A root whose topic ``t`` has two partitions, and is a table."""
    url = str(tmp_path / "root")
    make_topic(url)
    return url


class TestTableAndLog:
    def test_have_together_what_a_consumer_reads(self, root):
        fill(root, 0, 1000)
        clean(root)
        fill(root, 1000, 300)
        cluster = Cluster(root)
        version = version_of(cluster)
        assert {each.end for each in version.partitions.values()} == {500}
        found = scanned(cluster, version)
        assert found.schema == READ_SCHEMA
        assert found == consumed(root)
        assert found.num_rows == 1300

    def test_rows_of_a_partition_are_in_offset_order(self, root):
        for step in range(3):
            fill(root, 400 * step, 400)
            clean(root)
        cluster = Cluster(root)
        reader = reader_of(cluster, version_of(cluster))
        table = reader.read_all()
        for partition in range(2):
            rows = table.filter(pc.field("partition") == partition)
            assert rows["offset"].to_pylist() == list(range(600))

    def test_an_older_version_gives_the_same_rows(self, root):
        """The log is read from its end, however much has been written and rewritten since."""
        fill(root, 0, 400)
        clean(root)
        cluster = Cluster(root)
        older = version_of(cluster)
        fill(root, 400, 400)
        clean(root)
        fill(root, 800, 30)
        assert version_of(cluster).partitions[0].end == 400
        assert scanned(cluster, older) == scanned(cluster, version_of(cluster)) == consumed(root)

    def test_without_a_table_the_log_has_all(self, root):
        fill(root, 0, 300)
        assert sorted_rows(scan(root, TOPIC).read_all()) == consumed(root)

    def test_what_is_written_after_the_call_does_not_appear(self, root):
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 100)
        cluster = Cluster(root)
        reader = reader_of(cluster, version_of(cluster))
        expected = consumed(root)
        fill(root, 500, 100)
        clean(root)
        assert sorted_rows(reader.read_all()) == expected

    def test_a_partition_that_the_version_does_not_have_is_read_from_its_log(self, root):
        fill(root, 0, 400)
        clean(root)
        cluster = Cluster(root)
        version = version_of(cluster)
        partitions = {0: version.partitions[0]}
        version = replace(version, partitions=partitions)
        assert scanned(cluster, version) == consumed(root)

    def test_an_empty_topic_has_no_rows(self, root):
        assert scan(root, TOPIC).read_all() == READ_SCHEMA.empty_table()

    def test_only_a_version(self, root):
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 100)
        cluster = Cluster(root)
        found = scanned(cluster, version_of(cluster), with_log=False)
        assert found == consumed(root).filter(pc.field("offset") < 200)

    def test_both_timestamp_types_are_told(self, root):
        admin = Admin(root)
        fill(root, 0, 100)
        change = {"message.timestamp.type": "LogAppendTime"}
        admin.alter_configs([_resource(change)])
        fill(root, 100, 100)
        admin.alter_configs([_resource({"message.timestamp.type": "CreateTime"})])
        fill(root, 200, 100)
        clean(root)
        cluster = Cluster(root)
        version = version_of(cluster)
        assert len(version.partitions[0].files) == 1
        found = scanned(cluster, version)
        assert found == consumed(root)
        assert found["timestampType"].to_pylist()[:150] == [0] * 50 + [1] * 50 + [0] * 50
        part = scanned(cluster, version, starting_offsets={0: 60}, ending_offsets={0: 140, 1: 3})
        kinds = part.filter(pc.field("partition") == 0)["timestampType"].to_pylist()
        assert kinds == [1] * 40 + [0] * 40


def _resource(settings):
    return ConfigResource("TOPIC", TOPIC, settings)


class TestTransactions:
    @pytest.mark.parametrize("seed", range(3))
    def test_aborted_records_are_on_neither_side(self, root, seed):
        rng = random.Random(seed)
        with Producer(root, transactional_id="x", linger_ms=0) as producer:
            producer.init_transactions()
            for number in range(60):
                producer.begin_transaction()
                for _ in range(rng.randint(1, 5)):
                    producer.send(TOPIC, b"%d" % number, partition=rng.randrange(2))
                if rng.random() < 0.3:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                if number == 40:
                    clean(root)
            producer.begin_transaction()
            producer.send(TOPIC, b"open", partition=0)
            producer.flush()
            fill(root, 0, 20)  # partition 0 has these behind the open transaction
            cluster = Cluster(root)
            version = version_of(cluster)
            assert all(each.files for each in version.partitions.values())
            found = scanned(cluster, version)
            assert found == consumed(root)
            assert b"open" not in found["value"].to_pylist()
            last = found.filter(pc.field("partition") == 0)["value"].to_pylist()
            assert b"value-0" not in last
            producer.commit_transaction()
        assert scanned(cluster, version) == consumed(root)
        assert scanned(cluster, version).num_rows == found.num_rows + 11


class TestStart:
    def test_rows_before_it_are_cut_off(self, root):
        fill(root, 0, 400)
        clean(root)
        cluster = Cluster(root)
        version = version_of(cluster)
        Admin(root).delete_records({TopicPartition(TOPIC, 0): 77, TopicPartition(TOPIC, 1): 200})
        found = scanned(cluster, version)
        assert found == consumed(root)
        assert found["offset"].to_pylist() == list(range(77, 200))

    def test_an_offset_before_it_is_refused(self, root):
        fill(root, 0, 400)
        clean(root)
        Admin(root).delete_records({TopicPartition(TOPIC, 0): 77})
        cluster = Cluster(root)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 76 for t-0, .* from 77 to 200"):
            scanned(cluster, version_of(cluster), starting_offsets={0: 76})

    def test_a_log_that_ends_before_its_table_is_damaged(self, root):
        fill(root, 0, 400)
        clean(root)
        cluster = Cluster(root)
        version = version_of(cluster)
        longer = {0: replace(version.partitions[0], end=300), 1: version.partitions[1]}
        version = replace(version, partitions=longer)
        with pytest.raises(LogTruncatedError, match=r"ends at offset 200, .* up to 300"):
            scanned(cluster, version)


class TestDeletionMeanwhile:
    def test_of_a_file_is_an_error_that_names_it(self, root):
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 100)
        cluster = Cluster(root)
        version = version_of(cluster)
        (name,) = version.partitions[1].files
        reader = reader_of(cluster, version)
        Admin(root).delete_records({TopicPartition(TOPIC, 1): 200})
        log = cluster.partition_log(cluster.topic(TOPIC), 1)
        log.files.store.delete(log.files.file_path(name.file_name))
        with pytest.raises(NotFoundError, match=f"{name.file_name} does not exist any more"):
            reader.read_all()

    def test_of_records_in_the_log_is_an_error(self, root):
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 100)
        cluster = Cluster(root)
        reader = reader_of(cluster, version_of(cluster))
        Admin(root).delete_records({TopicPartition(TOPIC, 1): 230})
        with pytest.raises(OffsetOutOfRangeError):
            reader.read_all()

    def test_of_the_topic_is_told(self, root):
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 100)
        cluster = Cluster(root)
        reader = reader_of(cluster, version_of(cluster))
        Admin(root).delete_topics([TOPIC])
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted while it was read"):
            reader.read_all()


class TestDamage:
    @pytest.mark.parametrize("columns", [None, ["value"]])
    def test_names_the_file(self, root, columns):
        fill(root, 0, 400)
        clean(root)
        cluster = Cluster(root)
        version = version_of(cluster)
        (name,) = version.partitions[1].files
        log = cluster.partition_log(cluster.topic(TOPIC), 1)
        path = log.files.store.directory_url(log.files.file_path(name.file_name))
        values = pq.ParquetFile(path).metadata.row_group(0).column(3)
        assert values.path_in_schema == "value"
        with open(path, "r+b") as file:
            at = values.data_page_offset + values.total_compressed_size - 5
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        reader = reader_of(cluster, version, columns=columns)
        with pytest.raises(CorruptRecordError, match=name.file_name):
            reader.read_all()


class TestWritersAndCleaners:
    """A writer, transactions and a cleaner act between the steps of a read."""

    @pytest.mark.parametrize(
        "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 8))]
    )
    def test_between_all_steps(self, root, seed):
        rng = random.Random(seed)
        with Producer(root, transactional_id="x", linger_ms=0) as producer:
            producer.init_transactions()
            number = itertools.count()

            def act():
                for _ in range(rng.randint(1, 6)):
                    producer.begin_transaction()
                    for _ in range(rng.randint(1, 20)):
                        value = b"%d" % next(number)
                        producer.send(TOPIC, value, key=value[-1:], partition=rng.randrange(2))
                    producer.flush()
                    if rng.random() < 0.3:
                        producer.abort_transaction()
                    else:
                        producer.commit_transaction()
                if rng.random() < 0.7:
                    clean(root)

            for _ in range(4):
                act()
                cluster = Cluster(root)
                version = version_of(cluster)
                act()
                expected = consumed(root)
                reader = reader_of(cluster, version)
                act()
                batches = [reader.read_next_batch()]
                act()
                batches += list(reader)
                assert sorted_rows(pa.Table.from_batches(batches)) == expected


class TestCompactedTopic:
    @pytest.mark.partition_logs_only(
        "one cleaning leaves one segment, and the last is not compacted"
    )
    def test_has_the_newest_row_of_each_key_and_the_log_behind(self, root):
        Admin(root).alter_configs([_resource({"cleanup.policy": "compact"})])
        fill(root, 0, 400)
        clean(root)
        fill(root, 400, 50)
        cluster = Cluster(root)
        version = version_of(cluster)
        assert all(each.files[0].is_compacted for each in version.partitions.values())
        found = scanned(cluster, version)
        assert found == consumed(root)
        assert found.num_rows < 200
        fill(root, 450, 200)
        clean(root)
        again = scanned(cluster, version)
        newest = {row["key"]: row["value"] for row in consumed(root).to_pylist()}
        assert {row["key"]: row["value"] for row in again.to_pylist()} == newest


class TestTypedColumns:
    @pytest.mark.parametrize("keeps", ["true", "false"])
    def test_are_those_of_the_files_and_are_decoded_behind_them(self, tmp_path, keeps):
        root = str(tmp_path / "typed")
        make_typed_topic(root, keeps)
        cluster = Cluster(root)
        version = version_of(cluster)
        assert {each.end for each in version.partitions.values()} == {100}
        found = scanned(cluster, version)
        assert found.select(READ_SCHEMA.names) == consumed(root)
        delays = [row["n"] for row in found.to_pylist() if row["_decode_error"] is None]
        assert sorted(delays) == [number for number in range(240) if number % 50 != 7]
        assert found.filter(pc.field("value") == b"{")["_decode_error"].null_count == 0
        part = scanned(
            cluster, version, columns=["partition", "offset", "n"], where=pc.field("n") >= 190
        )
        assert sorted(part["n"].to_pylist()) == [n for n in range(190, 240) if n != 207]


class TestObjectStore:
    def test_gives_the_same_rows(self, s3_server):
        root, options = f"{s3_server.new_bucket()}/root", s3_server.storage_options
        make_topic(root, options)
        fill(root, 0, 300, storage_options=options)
        clean(root, options)
        fill(root, 300, 60, storage_options=options)
        cluster = Cluster(root, options)
        version = version_of(cluster)
        assert all(each.files for each in version.partitions.values())
        found = scanned(cluster, version)
        assert found["offset"].to_pylist() == [*range(180), *range(180)]
        assert found == sorted_rows(scan(root, TOPIC, storage_options=options).read_all())
        part = scanned(
            cluster, version, columns=["partition", "offset", "value"], starting_offsets={1: 100}
        )
        values = part.filter(pc.field("partition") == 1)["value"].to_pylist()
        assert values[:2] == [b"value-201", b"value-203"]


class TestOtherPrograms:
    def test_take_the_reader(self, root):
        fill(root, 0, 100)
        polars = pytest.importorskip("polars")
        assert polars.from_arrow(scan(root, TOPIC)).height == 100

    def test_duckdb_takes_the_reader(self, root):
        fill(root, 0, 100)
        duckdb = pytest.importorskip("duckdb")
        reader = scan(root, TOPIC, columns=["offset"])  # noqa: F841 - DuckDB finds it by its name
        assert duckdb.sql('SELECT count(*), max("offset") FROM reader').fetchall() == [(100, 49)]


class TestBounds:
    @pytest.fixture
    def filled(self, root):
        for step in range(4):
            fill(root, 200 * step, 200)
            clean(root)
        fill(root, 800, 100)
        return root

    @pytest.mark.parametrize(
        ("low", "high"), [(0, 450), (30, 40), (99, 301), (410, 420), (120, 440), (7, 7)]
    )
    def test_of_offsets(self, filled, low, high):
        cluster = Cluster(filled)
        found = scanned(
            cluster, version_of(cluster), starting_offsets={0: low}, ending_offsets={0: high}
        )
        offset, partition = pc.field("offset"), pc.field("partition")
        wanted = (partition == 1) | ((offset >= low) & (offset < high))
        assert found == consumed(filled).filter(wanted)

    @pytest.mark.parametrize(("low", "high"), [(0, 900), (350, 360), (795, 860), (850, None)])
    def test_of_times(self, filled, low, high):
        cluster = Cluster(filled)
        first = START + timedelta(seconds=low)
        behind = None if high is None else START + timedelta(seconds=high)
        found = scanned(cluster, version_of(cluster), from_time=first, to_time=behind)
        wanted = pc.field("timestamp") >= pa.scalar(first)
        if behind is not None:
            wanted &= pc.field("timestamp") < pa.scalar(behind)
        expected = consumed(filled).filter(wanted)
        assert found == expected
        assert found.num_rows == (high or 900) - low

    def test_of_partitions(self, filled):
        cluster = Cluster(filled)
        found = scanned(cluster, version_of(cluster), partitions=[1])
        assert found == consumed(filled).filter(pc.field("partition") == 1)

    def test_columns(self, filled):
        cluster = Cluster(filled)
        names = ["timestampType", "offset", "partition", "value"]
        found = scanned(cluster, version_of(cluster), columns=names)
        assert found.schema.names == names
        assert found == consumed(filled).select(names)

    def test_where_on_columns_that_are_not_returned(self, filled):
        cluster = Cluster(filled)
        where = (pc.field("key") == b"key-3") & (pc.field("partition") == 1)
        found = scanned(
            cluster, version_of(cluster), columns=["partition", "offset", "value"], where=where
        )
        assert found.num_rows == 90
        assert found == consumed(filled).filter(where).select(["partition", "offset", "value"])

    def test_files_outside_of_times_are_not_opened(self, filled, monkeypatch):
        cluster = Cluster(filled)
        version = version_of(cluster)
        image = cluster.topic(TOPIC)
        reader = reader_of(cluster, version, to_time=START + timedelta(seconds=150))
        for partition, each in version.partitions.items():
            log = cluster.partition_log(image, partition)
            for name in each.files:
                if name.base_offset > 100:
                    log.files.store.delete(log.files.file_path(name.file_name))
        offsets = pc.field("offset")
        table = sorted_rows(reader.read_all())
        assert table.num_rows == 150
        assert table == table.filter(offsets < 75)


class TestMistakes:
    def test_of_a_column(self, root):
        with pytest.raises(
            InvalidOptionError, match="'vlaue' does not exist; did you mean 'value'"
        ):
            scan(root, TOPIC, columns=["vlaue"])

    def test_of_no_column(self, root):
        with pytest.raises(InvalidOptionError, match="at least one"):
            scan(root, TOPIC, columns=[])

    def test_of_a_time(self, root):
        with pytest.raises(InvalidOptionError, match="without a time zone"):
            scan(root, TOPIC, from_time=datetime(2026, 1, 1))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"from_time": "2026-01-01"}, "from_time is '2026-01-01', expected a datetime"),
            ({"partitions": ["0"]}, "partitions has '0', expected an int"),
            ({"starting_offsets": {0: "5"}}, "starting_offsets has '5', expected an int"),
            ({"version": "1"}, "version is '1', expected the number"),
            ({"where": "offset > 1"}, "where is 'offset > 1', expected an expression"),
            ({"where": pc.field("ofset") > 1}, "does not fit the columns key, value"),
            ({"where": pc.field("offset") > "a"}, "does not fit the columns key, value"),
        ],
    )
    def test_of_a_type(self, root, given, message):
        with pytest.raises(InvalidOptionError) as raised:
            scan(root, TOPIC, **given)
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_numbers_of_numpy_are_numbers(self, root):
        fill(root, 0, 100)
        one: Any = np.int64(1)
        reader = scan(root, TOPIC, partitions=[one], starting_offsets={one: one})
        assert reader.read_all().num_rows == 49

    def test_of_a_partition(self, root):
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 5"):
            scan(root, TOPIC, partitions=[5])

    def test_of_an_order(self, root):
        fill(root, 0, 100)
        with pytest.raises(InvalidOptionError, match="starts at offset 20 and ends at 10"):
            scan(root, TOPIC, starting_offsets={0: 20}, ending_offsets={0: 10})

    def test_of_an_offset_that_does_not_exist_yet(self, root):
        fill(root, 0, 100)
        with pytest.raises(OffsetOutOfRangeError, match="not written yet"):
            scan(root, TOPIC, ending_offsets={0: 51})

    def test_of_a_negative_offset(self, root):
        with pytest.raises(InvalidOptionError, match="has -1 for partition 0"):
            scan(root, TOPIC, ending_offsets={0: -1})

    def test_of_a_version_without_a_table(self, root):
        with pytest.raises(InvalidOptionError, match="it has no table"):
            scan(root, TOPIC, version=3)
