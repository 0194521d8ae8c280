"""A topic that has lived long becomes a table, is no table again, and so on, while it is used."""

import threading
import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_log import Admin, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner, ConversionProgress
from spark_log.jobs.task import CleaningTask
from spark_log.table import TopicTable

PARTITIONS = 2
SETTINGS = {
    "flush.on.append": False,
    "segment.bytes": 1 << 20,
    "table.commit.interval.ms": 0,
    "file.delete.delay.ms": 1000,
}


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", PARTITIONS, topic_configs=SETTINGS)])
    return url


def fill(root, first, count):
    with Producer(root, linger_ms=1, batch_size=4096) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, key=b"k", partition=number % PARTITIONS)


def set_format(root, value):
    Admin(root).alter_configs([ConfigResource("topic", "t", {"table.format": value})])


def clean(root, **options):
    options.setdefault("table_at_once", True)
    errors = [each.error for each in ClusterCleaner(Cluster(root), ["t"], **options).clean()]
    assert not any(errors), errors


def table_of(root):
    cluster = Cluster(root)
    return TopicTable(cluster.store, cluster.image().topic("t"), cluster.clock)


def numbers_of(table):
    """Return the values by partition that another program reads from the table, in offset order."""
    rows = DeltaTable(table.url).to_pyarrow_table(columns=["partition", "offset", "value"])
    rows = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for partition, offset, value in zip(*(each.to_pylist() for each in rows.columns), strict=True):
        assert offset == len(found[partition]), (partition, offset)
        found[partition].append(int(value))
    return found


class Load:
    """A producer and a consumer that use the topic until they are stopped."""

    def __init__(self, root, sent):
        self.root, self.sent = root, sent
        self.values: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._stopped = threading.Event()
        self._errors = []
        self._threads = [
            threading.Thread(target=self._run, args=(each,))
            for each in (self._produce, self._consume)
        ]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error):
        self._stopped.set()
        for each in self._threads:
            each.join(120)
        assert self._errors == []
        for number, values in self.values.items():
            assert values == list(range(number, self.sent, PARTITIONS))

    def _run(self, work):
        try:
            work()
        except BaseException as error:
            self._errors.append(error)

    def _produce(self):
        with Producer(self.root, linger_ms=1) as producer:
            while not self._stopped.wait(0.02):
                for _ in range(20):
                    value, partition = b"%d" % self.sent, self.sent % PARTITIONS
                    producer.send("t", value, key=b"k", partition=partition)
                    self.sent += 1

    def _consume(self):
        with Consumer(root=self.root) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
            consumer.seek_to_beginning()
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                if self._stopped.is_set() and sum(map(len, self.values.values())) == self.sent:
                    break
                for tp, records in consumer.poll(100).items():
                    for record in records:
                        assert record.offset == len(self.values[tp.partition])
                        assert isinstance(record.value, bytes)
                        self.values[tp.partition].append(int(record.value))


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_topic_is_a_table_and_none_again_under_load(root, count):
    fill(root, 0, count)
    table = table_of(root)
    with Load(root, count):
        for _ in range(3):
            set_format(root, "delta")
            clean(root)
            version = table.refresh()
            assert version.is_on
            ends = version.ends()
            assert sum(ends.values()) >= count
            found = numbers_of(table)
            for number, values in found.items():
                assert values == list(range(number, number + PARTITIONS * ends[number], PARTITIONS))

            set_format(root, "none")
            before = parquet_names(root)
            clean(root)
            version = table.refresh()
            assert (version.is_on, dict(version.data_files)) == (False, {})
            assert parquet_names(root) <= before, "new merges are no Parquet files"
            assert DeltaTable(table.url).to_pyarrow_table().num_rows == 0


def parquet_names(root):
    store, directory = Cluster(root).store, Cluster(root).image().topic("t").directory
    return {
        file.path
        for number in range(PARTITIONS)
        for file in store.list(f"{directory}/t-{number}")
        if file.name.endswith(".parquet")
    }


class KilledError(BaseException):
    """The process ends here."""


def test_a_cleaner_that_is_killed_is_continued(root):
    fill(root, 0, 50_000)
    clean(root)  # merged, and not a table yet
    set_format(root, "delta")
    cluster = Cluster(root)
    progress = ConversionProgress(cluster, [cluster.image().topic("t")])

    def kill(done_bytes):
        if progress.read()[0]:  # the first partition is converted, the second has begun
            raise KilledError

    with pytest.raises(KilledError):
        clean(root, on_progress=kill)
    some, offsets = progress.read()
    assert (0 < some < offsets, offsets) == (True, 50_000)
    assert progress.text() == f"{some:,} of 50,000 offsets ({some / 50_000:.1%}) converted"
    kept = parquet_names(root)

    clean(root)
    assert progress.read() == (50_000, 50_000)
    assert kept <= parquet_names(root), "converted segments are not converted again"
    assert sum(table_of(root).refresh().ends().values()) == 50_000


def test_each_task_of_the_job_commits_its_partition(root):
    fill(root, 0, 4000)
    set_format(root, "delta")
    task = CleaningTask(root, {}, {}, 1 << 20)
    assert task.plan(TopicPartition("t", 1))["merged_bytes"] > 0
    report = task.clean(TopicPartition("t", 1))
    assert (report.get("error"), report["parquet_offsets"]) == (None, 2000)
    assert table_of(root).refresh().ends() == {0: 0, 1: 2000}
    task.clean(TopicPartition("t", 0))
    assert table_of(root).refresh().ends() == {0: 2000, 1: 2000}
    schema = DeltaTable(table_of(root).url).to_pyarrow_table().schema
    assert schema.field("offset").type == pa.int64()


def test_without_a_table_nothing_is_counted(root):
    fill(root, 0, 100)
    cluster = Cluster(root)
    progress = ConversionProgress(cluster, cluster.image().topics())
    assert (progress.text(), progress.document()) == ("", {})
