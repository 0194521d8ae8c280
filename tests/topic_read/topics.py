"""Topics that are tables, and what a consumer reads of them."""

import pyarrow as pa

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.table import TopicTable
from spark_log.topic_read import ReadBounds, plan_version, scan_read
from tests.record.samples import START_US

TOPIC = "t"


def make_topic(root, storage_options=None, **settings):
    """Create a topic of two partitions that is a table."""
    settings = {"retention.ms": "-1", "table.format": "delta"} | settings
    admin = Admin(root, storage_options=storage_options)
    admin.create_topics([NewTopic(TOPIC, 2, topic_configs=settings)])


def make_typed_topic(root, keeps):
    """Create a topic with typed columns: 200 records in its table, and 40 behind it.

    Every 50th value does not decode.
    """
    make_topic(
        root,
        **{
            "table.value.format": "json",
            "table.schema": "n INT, text STRING",
            "table.keep.value": keeps,
        },
    )
    for first, count in ((0, 200), (200, 40)):
        with Producer(root, linger_ms=1000) as producer:
            for number in range(first, first + count):
                value = b"{" if number % 50 == 7 else b'{"n":%d,"text":"a"}' % number
                producer.send(TOPIC, value, partition=number % 2)
        if not first:
            clean(root)


def fill(root, first, count, *, storage_options=None):
    """Send records with numbers from ``first`` on, in segments of 50; one a second."""
    with Producer(root, storage_options=storage_options, linger_ms=0) as producer:
        for number in range(first, first + count):
            producer.send(
                TOPIC,
                None if number % 7 == 3 else b"value-%d" % number,
                key=b"key-%d" % (number % 10),
                headers=[("n", b"%d" % number)] if number % 2 else None,
                partition=number % 2,
                timestamp_ms=START_US // 1000 + 1000 * number,
            )
            if number % 50 == 49:
                producer.flush()


def clean(root, storage_options=None):
    """Convert what is cold to Parquet, apply retention and compaction, and commit to the table."""
    for each in ClusterCleaner(Cluster(root, storage_options), table_at_once=True).clean():
        assert each.error is None, each


def version_of(cluster, topic=TOPIC):
    """Return the newest version of a topic's table."""
    return TopicTable(cluster.store, cluster.topic(topic), cluster.clock).refresh()


def consumed(root):
    """Return what a consumer with ``read_committed`` reads of both partitions."""
    consumer = Consumer(root=root, auto_offset_reset="earliest", isolation_level="read_committed")
    tables = []
    for partition in range(2):
        tp = TopicPartition(TOPIC, partition)
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            tables.append(consumer.poll_table(timeout_ms=1000))
    consumer.close()
    return sorted_rows(pa.concat_tables(tables))


def sorted_rows(table):
    """Return the rows by partition and offset."""
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def reader_of(cluster, version, *, columns=None, where=None, with_log=True, **bounds):
    """Return a reader of a version, and of the log behind it."""
    read = plan_version(
        cluster, cluster.topic(TOPIC), version, ReadBounds.parse(**bounds), with_log=with_log
    )
    return scan_read(read, columns=columns, where=where)


def scanned(cluster, version, **options):
    """Return the rows of `reader_of`, by partition and offset."""
    return sorted_rows(reader_of(cluster, version, **options).read_all())
