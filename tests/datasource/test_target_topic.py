"""The option ``createTopic``: a write creates its topic, if everything else about it is right."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_log import (
    Admin,
    InvalidConfigurationError,
    InvalidOptionError,
    NewTopic,
    SparkLogError,
    UnknownTopicOrPartitionError,
)
from spark_log.datasource import SparkLogDataSource
from spark_log.datasource.options.write_options import WriteOptions, parse_write_options
from spark_log.datasource.write.target_topic import prepare_topic
from tests.docs.blocks import block

ROW = "SELECT 'k' AS key, 'v' AS value"
CREATE = {"topic": "new", "createTopic": "true"}
VALUE = StructType().add("value", StringType())


def options(root: str, **given: str) -> WriteOptions:
    return parse_write_options({"path": root, **CREATE, **given})


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A root that does not exist yet."""
    return str(tmp_path / "nowhere")


class TestOptions:
    def test_names_are_case_insensitive(self) -> None:
        given = {
            "path": "/r",
            "TOPIC": "t",
            "CREATETOPIC": "TRUE",
            "createtopic.PARTITIONS": "3",
            "CREATETOPIC.CONFIG.Cleanup.Policy": "compact",
        }
        assert parse_write_options(given).new_topic == NewTopic(
            "t", 3, topic_configs={"cleanup.policy": "compact"}
        )

    def test_one_partition_and_no_setting_is_the_default(self) -> None:
        assert options("/r").new_topic == NewTopic("new")

    def test_nothing_is_created_unless_it_is_asked_for(self) -> None:
        assert parse_write_options({"path": "/r", "topic": "t"}).new_topic is None
        switched_off = options("/r", createTopic="false", **{"createTopic.partitions": "3"})
        assert switched_off.new_topic is None

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"createTopic.partitions": "3"}, "no effect without 'createTopic=true'"),
            ({"createTopic.config.a": "b"}, "'createTopic.config.a' has no effect without"),
            ({"createTopic": "true"}, "'createTopic' needs the option 'topic'"),
            ({"topic": "t", "createTopic": "yes"}, "expected true or false"),
            ({"topic": "t", "createTopic": "true", "createTopic.partitions": "0"}, "at least 1"),
            ({"topic": "t", "createTopics": "true"}, "did you mean 'createTopic'"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, given: dict[str, str], expected: str) -> None:
        with pytest.raises(InvalidOptionError, match=expected):
            parse_write_options({"path": "/r", **given})


class TestATopic:
    def test_that_is_missing_is_created_with_its_settings_and_its_root(self, nowhere: str) -> None:
        settings = {"createTopic.partitions": "3", "createTopic.config.cleanup.policy": "compact"}
        prepare_topic(options(nowhere, **settings))

        (topic,) = Admin(nowhere).describe_topics(["new"])
        assert len(topic.partitions) == 3
        assert topic.configs == {"cleanup.policy": "compact"}

    def test_that_exists_keeps_its_partitions_and_settings(self, root: str) -> None:
        before = Admin(root).describe_topics(["t"])
        prepare_topic(options(root, topic="t", **{"createTopic.partitions": "9"}))
        assert Admin(root).describe_topics(["t"]) == before

    def test_may_be_created_by_many_writers_at_once(self, nowhere: str) -> None:
        together = Barrier(8)

        def write() -> None:
            together.wait(30)
            prepare_topic(options(nowhere))

        with ThreadPoolExecutor(8) as pool:
            for attempt in [pool.submit(write) for _ in range(8)]:
                attempt.result(60)
        assert Admin(nowhere).list_topics() == ["new"]

    def test_on_an_object_store_is_created_too(self, s3_server) -> None:
        root = f"{s3_server.new_bucket()}/root"
        storage = {f"storage.{key}": value for key, value in s3_server.storage_options.items()}
        prepare_topic(options(root, **storage))
        assert Admin(root, storage_options=s3_server.storage_options).list_topics() == ["new"]

    def test_that_is_missing_is_an_error_that_names_the_option(self, root: str) -> None:
        with pytest.raises(UnknownTopicOrPartitionError) as raised:
            prepare_topic(parse_write_options({"path": root, "topic": "tt"}))
        assert "did you mean t?" in str(raised.value)
        assert "createTopic=true" in str(raised.value)
        assert raised.value.near == ("t",)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (StructType().add("key", StringType()), {}),
        (StructType().add("value", IntegerType()), {}),
        (VALUE, {"topc": "new"}),
        (VALUE, {"idempotent": "maybe"}),
        (VALUE, {"createTopic.config.cleanup.polcy": "compact"}),
        (VALUE, {"createTopic.partitions": "1000000"}),
        (VALUE, {"topic": "no/name"}),
        (VALUE, {"summaryPath": "/no/such/directory/summary.json"}),
    ],
)
def test_a_write_that_is_refused_leaves_no_topic_and_no_root(
    nowhere: str, schema: StructType, given: dict[str, str], is_stream: bool
) -> None:
    source = SparkLogDataSource({"path": nowhere, **CREATE, **given})
    make = source.streamWriter if is_stream else source.writer

    with pytest.raises(SparkLogError):
        make(schema, False)

    assert not Path(nowhere).exists()


def test_an_unknown_setting_is_named(nowhere: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"did you mean 'cleanup\.policy'"):
        prepare_topic(options(nowhere, **{"createTopic.config.cleanup.polcy": "compact"}))


@pytest.mark.spark
def test_a_batch_creates_its_topic_and_a_misspelt_name_is_refused(
    spark: SparkSession, root: str
) -> None:
    example = block("docs/spark.md", "createTopic.config")
    rows = spark.sql(ROW)

    exec(example.replace("/data/log", root), {"df": rows})

    (topic,) = Admin(root).describe_topics(["latest"])
    assert (len(topic.partitions), topic.configs) == (4, {"cleanup.policy": "compact"})
    read = spark.read.format("spark_log").option("subscribe", "latest").load(root)
    assert [(row.key, row.value) for row in read.collect()] == [(b"k", b"v")]

    write = rows.write.format("spark_log").mode("append").option("topic", "lates")
    with pytest.raises(PySparkException, match=r"did you mean latest\?.*createTopic=true"):
        write.save(root)


@pytest.mark.spark
def test_a_stream_creates_its_topic(spark: SparkSession, nowhere: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "1.txt").write_text("a\nb\n")

    def run() -> None:
        query = (
            spark.readStream.text(str(files))
            .writeStream.format("spark_log")
            .options(path=nowhere, checkpointLocation=str(tmp_path / "checkpoint"), **CREATE)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    (files / "2.txt").write_text("c\n")
    run()

    read = spark.read.format("spark_log").option("subscribe", "new").load(nowhere)
    assert sorted(row.value for row in read.collect()) == [b"a", b"b", b"c"]
