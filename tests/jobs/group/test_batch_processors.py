"""Member tasks in a real Spark session: group jobs, and queries with an assignor."""

import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.coordinator import OffsetsTable
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.jobs.group.batch_processors import DeltaProcessor, DestinationProcessor
from spark_log.jobs.group.group_job import BatchResult, GroupJob
from spark_log.jobs.group.job_member import JobMember
from spark_log.jobs.sink.delta_sink import DeltaSink
from spark_log.jobs.sink.destination import Destination, Sink
from spark_log.util.stop_signals import StopSignals
from tests.datasource.streams import append
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

PARTITIONS, SIZE, LIMIT_S = 4, 50, 120
ONCE = Counter((number, offset) for number in range(PARTITIONS) for offset in range(SIZE))


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=PARTITIONS)])
    for number in range(PARTITIONS):
        append(url, "t", number, range(SIZE))
    return url


def member_of(root, group="g", **settings):
    cluster = Cluster(root)
    options = parse_read_options({"path": root, "subscribe": "t", "group.id": group})
    config = ConsumerConfig.parse({"auto.offset.reset": "earliest", **settings})
    return JobMember(cluster, options, config)


def run(member, processor, root):
    return GroupJob(
        member, processor, Cluster(root).clock, stop=StopSignals(), max_poll_interval_ms=300_000
    ).run()


def processor_of(kind, spark, root, path, group="g", members=2):
    arguments = (lambda: spark, {"path": root}, group, members)
    if kind == "parquet":
        return DestinationProcessor(Destination(Sink.PARQUET, path, 0, False), *arguments)
    sink = DeltaSink(path, {}, group)
    sink.prepare()
    return DeltaProcessor(sink, *arguments)


def written(kind, path):
    table = (
        DeltaTable(path).to_pyarrow_table()
        if kind == "delta"
        else ds.dataset(path, format="parquet").to_table()
    )
    return Counter((row["partition"], row["offset"]) for row in table.to_pylist())


def settle(*members):
    """Let all members release and take over partitions until every one has its share."""
    even = PARTITIONS // len(members)
    wait_until(
        lambda: {len(member.next_batch()[0].starts) for member in members} == {even},
        "the group does not settle",
    )


@pytest.mark.parametrize("kind", ["delta", pytest.param("parquet", marks=pytest.mark.long)])
def test_two_jobs_of_a_group_share_the_partitions_and_do_all_of_them(spark, root, tmp_path, kind):
    path = str(tmp_path / "out")
    members = [member_of(root), member_of(root)]
    for member in members:
        member.join()
    settle(*members)
    with ThreadPoolExecutor(2) as threads:
        jobs = [
            threads.submit(run, member, processor_of(kind, spark, root, path), root)
            for member in members
        ]
    tallies = [job.result() for job in jobs]

    assert [tally.records for tally in tallies] == [2 * SIZE, 2 * SIZE]
    assert written(kind, path) == ONCE
    found = OffsetsTable(Cluster(root)).fetch("g")
    assert {tp.partition: each.offset for tp, each in found.items()} == dict.fromkeys(
        range(PARTITIONS), SIZE
    )
    assert {each.generation > 0 and bool(each.member_id) for each in found.values()} == {True}


@pytest.mark.long
def test_a_table_takes_what_spark_wrote_and_spark_reads_what_it_took(spark, root, tmp_path):
    path = str(tmp_path / "table")
    read = spark.read.format("spark_log").option("subscribe", "t").load(root)
    Destination(Sink.DELTA, path, 0, False).write(read)
    tally = run(member_of(root), processor_of("delta", spark, root, path), root)

    assert tally.records == PARTITIONS * SIZE
    rows = spark.read.format("delta").load(path)
    assert rows.count() == 2 * PARTITIONS * SIZE
    assert rows.distinct().count() == PARTITIONS * SIZE, "no column differs"


def test_what_another_group_position_says_is_passed_over_where_the_table_is_ahead(
    spark, root, tmp_path
):
    """A reset of the group's offsets does not write records to the same table again."""
    path = str(tmp_path / "table")
    run(member_of(root), processor_of("delta", spark, root, path), root)
    back = {TopicPartition("t", number): OffsetAndMetadata(at) for number, at in ((0, 0), (1, 20))}
    Admin(root).alter_group_offsets("g", back)
    tally = run(member_of(root), processor_of("delta", spark, root, path), root)
    assert (tally.records, tally.skipped) == (0, SIZE + SIZE - 20)
    assert tally.committed == {TopicPartition("t", n): SIZE for n in range(PARTITIONS)}
    assert written("delta", path) == ONCE


def test_members_are_tasks_and_each_writes_one_file(spark, root, tmp_path):
    path = str(tmp_path / "table")
    run(member_of(root), processor_of("delta", spark, root, path, members=3), root)
    assert len(DeltaTable(path).file_uris()) == 3


def test_a_job_that_is_told_to_stop_cancels_what_spark_does(spark, root, tmp_path):
    """The batch waits in a task, and ends only because it is cancelled."""
    begun = tmp_path / "begun"

    class Waiting(DestinationProcessor):
        def _write(self, spark, batch):
            def wait(number):
                begun.touch()
                time.sleep(3_600)

            spark.sparkContext.parallelize([1], 1).foreach(wait)

    class Stop:
        def is_set(self):
            return begun.exists()

    member = member_of(root)
    destination = Destination(Sink.PARQUET, str(tmp_path / "out"), 0, False)
    processor = Waiting(destination, lambda: spark, {"path": root}, "g", 2)
    tally = GroupJob(
        member, processor, Cluster(root).clock, stop=Stop(), max_poll_interval_ms=300_000
    ).run()
    assert tally.records == 0
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveStageIds(), "Spark continues the batch")
    assert processor.progress() == ([], []), "nothing is running, and progress works"
    found = OffsetsTable(Cluster(root)).fetch("g")
    assert {each.offset for each in found.values()} == {0}


@pytest.mark.long
def test_a_batch_that_spark_gets_on_with_is_seen_to(spark, root, tmp_path):
    """Metrics of a running query arrive with the executor's heartbeats, before any task ends."""

    class Slow(DestinationProcessor):
        def _write(self, spark, batch):
            def slowly(batches):
                for each in batches:
                    yield each
                    while not (tmp_path / "seen").exists():
                        time.sleep(0.05)

            rows = spark.read.format("spark_log").options(**self._options(batch)).load()
            rows.mapInArrow(slowly, rows.schema).write.format("noop").mode("overwrite").save()
            return BatchResult(batch.ends, batch.size, batch.size)

    counted = []

    class Watched(Slow):
        def progress(self):
            found = super().progress()
            if isinstance(found, tuple) and any("->" in metrics for _, metrics in found[1]):
                counted.append(found)
                (tmp_path / "seen").touch()
            return found

    destination = Destination(Sink.PARQUET, str(tmp_path / "out"), 0, False)
    processor = Watched(destination, lambda: spark, {"path": root}, "g", 2)
    assert run(member_of(root), processor, root).records == PARTITIONS * SIZE
    assert counted


def test_a_query_keeps_partitions_with_their_members_and_reports(spark, root, tmp_path):
    seen = defaultdict(set)

    def remember(rows, batch_id):
        placed = rows.select(F.spark_partition_id().alias("task"), "partition").distinct()
        for row in placed.collect():
            seen[batch_id].add((row.task, row.partition))

    query = (
        spark.readStream.format("spark_log")
        .options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="80")
        .options(minPartitions="2", **{"group.id": "q", "partition.assignment.strategy": "sticky"})
        .load(root)
        .writeStream.foreachBatch(remember)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT_S)

    batches = [seen[number] for number in sorted(seen)]
    assert len(batches) == 3
    assert batches[0] == batches[1] == batches[2]
    assert sorted(Counter(task for task, _ in batches[0]).values()) == [2, 2]
    found = OffsetsTable(Cluster(root)).fetch("q")
    assert {each.offset for each in found.values()} == {SIZE}
