"""`read_table`: the rows of table and log as one DataFrame, exactly."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spark_log import (
    Admin,
    ConfigResource,
    NewTopic,
    Producer,
    TopicPartition,
    read_table,
    scan,
)
from spark_log.cluster import Cluster
from spark_log.datasource.table import parquet_relation
from spark_log.errors import InvalidOptionError, OffsetOutOfRangeError
from tests.datasource.conftest import spark
from tests.docs.blocks import block
from tests.record.samples import START_US
from tests.topic_read.topics import (
    TOPIC,
    clean,
    consumed,
    fill,
    make_topic,
    make_typed_topic,
    sorted_rows,
    version_of,
)

__all__ = ["spark"]
pytestmark = pytest.mark.spark

SPARK_ERRORS = Exception  # PySparkException, or py4j's
START = datetime.fromtimestamp(START_US / 1_000_000, UTC)


@pytest.fixture
def root(tmp_path):
    """A root whose topic ``t`` has two partitions, and is a table."""
    url = str(tmp_path / "root")
    make_topic(url)
    return url


@pytest.fixture
def filled(root):
    """The root, with a cold part of three files in each partition, and a log behind it."""
    for step in range(3):
        fill(root, 200 * step, 200)
        clean(root)
    fill(root, 600, 100)
    return root


def rows_of(frame):
    return sorted_rows(frame.toArrow())


def expected(root, names=None, where=None):
    """Return what a consumer reads, with the nullable columns of Spark."""
    table = consumed(root)
    if where is not None:
        table = table.filter(where)
    return table.select(names or [name for name in table.schema.names if name != "headers"])


def check(frame, table):
    found = rows_of(frame)
    assert found.schema.names == table.schema.names
    assert found.cast(table.schema) == table


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001


class TestRows:
    def test_are_those_of_a_consumer(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        check(frame, expected(filled))
        kafka = spark.read.format("spark_log").option("subscribe", TOPIC).load(filled)
        assert frame.schema == kafka.schema
        assert plan_of(frame).count("FileScan") == 1

    def test_with_headers(self, spark, filled):
        frame = read_table(spark, filled, TOPIC, include_headers=True)
        check(frame, consumed(filled))

    def test_stay_the_same_while_others_write_and_clean(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        table = expected(filled)
        fill(filled, 700, 200)
        clean(filled)
        check(frame, table)
        check(frame, table)
        check(read_table(spark, filled, TOPIC), expected(filled))

    def test_have_what_is_acknowledged_at_once(self, spark, root):
        """While another process converts and commits all the time."""
        stopped = threading.Event()

        def clean_until_stopped():
            cleanings = 0
            while not stopped.is_set():
                clean(root)
                cleanings += 1
            return cleanings

        with Producer(root, linger_ms=0) as producer, ThreadPoolExecutor(1) as threads:
            cleaner = threads.submit(clean_until_stopped)
            try:
                sent = []
                for number in range(8):
                    value = b"%d" % number
                    metadata = producer.send(TOPIC, value, partition=number % 2).result()
                    sent.append((number % 2, metadata.offset, value))
                    frame = read_table(spark, root, TOPIC)
                    rows = rows_of(frame.select("partition", "offset", "value")).to_pylist()
                    assert [tuple(row.values()) for row in rows] == sorted(sent)
            finally:
                stopped.set()
            assert cleaner.result() > 1
        assert version_of(Cluster(root)).number > 1

    def test_without_a_table_are_those_of_the_log(self, spark, root):
        fill(root, 0, 100)
        check(read_table(spark, root, TOPIC), expected(root))

    def test_of_an_empty_topic_are_none(self, spark, root):
        assert read_table(spark, root, TOPIC).count() == 0

    def test_of_a_version_end_with_it(self, spark, root):
        fill(root, 0, 200)
        clean(root)
        number = version_of(Cluster(root)).number
        fill(root, 200, 200)
        clean(root)
        frame = read_table(spark, root, TOPIC, version=number)
        check(frame, expected(root, where=pc.field("offset") < 100))
        assert scan(root, TOPIC, version=number, columns=["offset"]).read_all().num_rows == 200

    def test_of_aborted_and_open_transactions_are_left_out(self, spark, root):
        with Producer(root, transactional_id="x", linger_ms=0) as producer:
            producer.init_transactions()
            for number in range(30):
                producer.begin_transaction()
                producer.send(TOPIC, b"%d" % number, partition=number % 2)
                producer.flush()
                if number % 3:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
                if number == 20:
                    clean(root)
            producer.begin_transaction()
            producer.send(TOPIC, b"open", partition=0)
            producer.flush()
            fill(root, 0, 2)
            check(read_table(spark, root, TOPIC), expected(root))
            producer.abort_transaction()
        check(read_table(spark, root, TOPIC), expected(root))

    @pytest.mark.long
    def test_of_both_timestamp_types(self, spark, root):
        admin = Admin(root)
        for number, kind in enumerate(("CreateTime", "LogAppendTime", "CreateTime")):
            change = {"message.timestamp.type": kind}
            admin.alter_configs([ConfigResource("TOPIC", TOPIC, change)])
            fill(root, 100 * number, 100)
        clean(root)
        check(read_table(spark, root, TOPIC), expected(root))

    def test_of_a_compacted_topic(self, spark, tmp_path):
        root = str(tmp_path / "compacted")
        make_topic(root, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        fill(root, 0, 400)
        clean(root)
        clean(root)
        assert version_of(Cluster(root)).partitions[0].compaction
        fill(root, 400, 50)
        check(read_table(spark, root, TOPIC), expected(root))


class TestStart:
    def test_rows_before_it_are_cut_off(self, spark, filled):
        Admin(filled).delete_records({TopicPartition(TOPIC, 0): 77, TopicPartition(TOPIC, 1): 150})
        check(read_table(spark, filled, TOPIC), expected(filled))

    def test_files_that_are_gone_are_an_error(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        cluster = Cluster(filled)
        log = cluster.partition_log(cluster.topic(TOPIC), 1)
        name = version_of(cluster).partitions[1].files[0]
        log.files.store.delete(log.files.file_path(name.file_name))
        spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
        try:
            with pytest.raises(SPARK_ERRORS, match=name.file_name):
                frame.select("value").collect()
        finally:
            spark.conf.unset("spark.sql.files.ignoreMissingFiles")

    def test_a_flipped_bit_is_an_error(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        cluster = Cluster(filled)
        log = cluster.partition_log(cluster.topic(TOPIC), 1)
        path = log.files.file_path(version_of(cluster).partitions[1].files[0].file_name)
        path = log.files.store.directory_url(path)
        values = pq.ParquetFile(path).metadata.row_group(0).column(3)
        with open(path, "r+b") as file:
            at = values.data_page_offset + values.total_compressed_size - 5
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(SPARK_ERRORS):
            frame.select("value").collect()

    def test_records_of_the_log_that_are_gone_are_an_error(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        Admin(filled).delete_records({TopicPartition(TOPIC, 1): 320})
        with pytest.raises(SPARK_ERRORS, match="OffsetOutOfRangeError"):
            frame.collect()


LONG_BOUNDS = [(0, 310), (120, 130), (305, 310)]


class TestBounds:
    @pytest.mark.parametrize(
        ("low", "high"),
        [
            (99, 301),
            *(pytest.param(*each, marks=pytest.mark.long) for each in LONG_BOUNDS),
        ],
    )
    def test_of_offsets(self, spark, filled, low, high):
        frame = read_table(
            spark, filled, TOPIC, starting_offsets={0: low}, ending_offsets={0: high}
        )
        offset, partition = pc.field("offset"), pc.field("partition")
        wanted = (partition == 1) | ((offset >= low) & (offset < high))
        check(frame, expected(filled, where=wanted))

    def test_of_times(self, spark, filled):
        first, behind = START + timedelta(seconds=350), START + timedelta(seconds=660)
        frame = read_table(spark, filled, TOPIC, from_time=first, to_time=behind)
        seconds = range(350, 660)
        offsets = [second // 2 for second in seconds]
        assert sorted(rows_of(frame)["offset"].to_pylist()) == offsets
        assert "(4 paths)" in plan_of(frame)  # of six files, two are too old

    def test_columns_reach_both_sides(self, spark, filled):
        names = ["partition", "offset", "value", "timestampType"]
        frame = read_table(spark, filled, TOPIC, columns=names)
        check(frame, expected(filled, names))
        plan = plan_of(frame)
        assert "ReadSchema: struct<value:binary,offset:bigint>" in plan
        assert "key" not in plan

    def test_filters_reach_the_files(self, spark, filled):
        frame = read_table(spark, filled, TOPIC)
        chosen = frame.where("partition = 1 AND offset > 295").select(
            "offset", "value", "partition"
        )
        plan = plan_of(chosen)
        assert "PartitionFilters: [(partition" in plan
        assert "GreaterThan(offset,295)" in plan
        assert "ReadSchema: struct<value:binary,offset:bigint>" in plan
        assert sorted(row.offset for row in chosen.collect()) == list(range(296, 350))

    def test_of_a_partition(self, spark, filled):
        frame = read_table(spark, filled, TOPIC, partitions=[1])
        check(frame, expected(filled, where=pc.field("partition") == 1))

    def test_that_do_not_exist_are_refused(self, spark, filled):
        with pytest.raises(InvalidOptionError, match="did you mean 'value'"):
            read_table(spark, filled, TOPIC, columns=["vaule"])
        with pytest.raises(OffsetOutOfRangeError):
            read_table(spark, filled, TOPIC, ending_offsets={0: 351})
        with pytest.raises(InvalidOptionError, match="no version 99"):
            read_table(spark, filled, TOPIC, version=99)


class TestWithoutCatalystsClasses:
    """As with Spark Connect."""

    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch):
        def absent(*_):
            raise AttributeError("_jvm")

        monkeypatch.setattr(parquet_relation, "_relation", absent)

    def test_rows_are_the_same(self, spark, filled):
        Admin(filled).delete_records({TopicPartition(TOPIC, 0): 77})
        frame = read_table(spark, filled, TOPIC)
        check(frame, expected(filled))
        assert frame.where("partition = 1").count() == 350

    def test_both_timestamp_types(self, spark, root):
        admin = Admin(root)
        for number, kind in enumerate(("CreateTime", "LogAppendTime", "CreateTime")):
            change = {"message.timestamp.type": kind}
            admin.alter_configs([ConfigResource("TOPIC", TOPIC, change)])
            fill(root, 100 * number, 100)
        clean(root)
        check(read_table(spark, root, TOPIC), expected(root))


def test_a_root_whose_path_has_unusual_characters(spark, tmp_path):
    root = str(tmp_path / "a b+c%20d=é")
    make_topic(root)
    fill(root, 0, 100)
    clean(root)
    check(read_table(spark, root, TOPIC), expected(root))


@pytest.mark.long
def test_two_hundred_partitions_are_one_scan(spark, tmp_path):
    root = str(tmp_path / "wide")
    settings = {"table.format": "delta"}
    Admin(root).create_topics([NewTopic(TOPIC, 200, topic_configs=settings)])
    with Producer(root, linger_ms=1000) as producer:
        for number in range(2000):
            producer.send(TOPIC, b"%d" % number, partition=number % 200)
    clean(root)
    frame = read_table(spark, root, TOPIC)
    assert plan_of(frame).count("FileScan") == 1
    counts = {row.partition: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert counts == dict.fromkeys(range(200), 10)


class TestTypedColumns:
    @pytest.mark.parametrize("keeps", ["true", "false"])
    def test_are_those_of_the_files_and_are_decoded_behind_them(self, spark, tmp_path, keeps):
        root = str(tmp_path / "typed")
        make_typed_topic(root, keeps)
        frame = read_table(spark, root, TOPIC)
        assert ("value" in frame.columns) == (keeps == "true")
        table = rows_of(frame)
        names = table.schema.names
        assert names[-3:] == ["n", "text", "_decode_error"]
        assert table == sorted_rows(scan(root, TOPIC, columns=names).read_all()).cast(table.schema)
        names = ["partition", "offset", "value", "n"]
        both = rows_of(read_table(spark, root, TOPIC, columns=names))
        assert both == sorted_rows(scan(root, TOPIC, columns=names).read_all()).cast(both.schema)
        assert both["value"].null_count == 0
        assert frame.where("n >= 190").count() == 49


class TestThePage:
    def test_reads_what_it_says(self, spark, tmp_path):
        root = str(tmp_path / "log")
        settings = {"table.format": "delta", "retention.ms": "-1"}
        Admin(root).create_topics([NewTopic("flights", 2, topic_configs=settings)])
        with Producer(root, linger_ms=1000) as producer:
            for day in range(1, 31):
                for number in range(10):
                    time = datetime(2013, 1, day, number, tzinfo=UTC)
                    producer.send(
                        "flights",
                        b"%d" % number,
                        key=b"%d" % day,
                        partition=number % 2,
                        timestamp_ms=int(time.timestamp() * 1000),
                    )
        clean(root)
        names = {"spark": spark}
        exec(block("docs/spark.md", "late = flights").replace("/data/log", root), names)
        assert names["flights"].count() == 300
        assert names["late"].count() == 49
        assert {bytes(row.key) for row in names["day"].collect()} == {b"14"}
        assert names["day"].count() == 10

    def test_scans_what_it_says(self, tmp_path, capsys):
        root = str(tmp_path / "log")
        Admin(root).create_topics([NewTopic("flights", 2)])
        with Producer(root) as producer:
            for number in range(100):
                producer.send("flights", b"", key=b"%d" % (number % 3))
        exec(block("docs/spark.md", "for batch in flights").replace("/data/log", root))
        assert sum(map(int, capsys.readouterr().out.split())) == 100
        pytest.importorskip("duckdb")
        exec(block("docs/spark.md", "import duckdb").replace("/data/log", root), {})
        assert "34" in capsys.readouterr().out


class TestStream:
    def test_begins_in_parquet_and_goes_on_in_the_log(self, spark, filled, tmp_path):
        stream = spark.readStream.format("spark_log").option("subscribe", TOPIC)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150)
        write = stream.load(filled).writeStream.format("parquet").trigger(availableNow=True)
        write = write.option("checkpointLocation", str(tmp_path / "checkpoint"))
        for first in (700, 800):
            write.start(str(tmp_path / "copy")).awaitTermination()
            fill(filled, first, 100)
            clean(filled)
        write.start(str(tmp_path / "copy")).awaitTermination()
        check(spark.read.parquet(str(tmp_path / "copy")), expected(filled))

    def test_goes_on_where_a_table_was_read_to(self, spark, tmp_path):
        root = str(tmp_path / "log")
        settings = {"table.format": "delta", "retention.ms": "-1"}
        Admin(root).create_topics([NewTopic("flights", 2, topic_configs=settings)])

        def send(first):
            with Producer(root) as producer:
                for number in range(first, first + 40):
                    producer.send("flights", b"%d" % number, partition=number % 2)

        send(0)
        clean(root)
        send(40)  # behind the table's end
        names = {"spark": spark}
        exec(block("docs/spark.md", "ending_offsets=ends").replace("/data/log", root), names)
        send(80)
        clean(root)  # what the stream begins with is Parquet now
        copy, checkpoint = str(tmp_path / "copy"), str(tmp_path / "checkpoint")
        write = names["live"].writeStream.format("parquet").option("checkpointLocation", checkpoint)
        write.trigger(availableNow=True).start(copy).awaitTermination()
        past, live = (
            [int(row.value) for row in frame.collect()]
            for frame in (names["past"], spark.read.parquet(copy))
        )
        assert (len(past), len(live)) == (80, 40)
        assert sorted(past + live) == list(range(120))
