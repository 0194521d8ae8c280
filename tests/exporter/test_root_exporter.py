"""Scrapes of a root: kafka_exporter's names, one reading for all who ask meanwhile."""

import logging
import threading
from collections import Counter

import pytest

from spark_log import Admin, ConfigResource, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.coordinator import GroupCoordinator
from spark_log.errors import StorageUnavailableError
from spark_log.exporter import RootExporter
from tests.metrics.support import samples, value
from tests.record.samples import record_batch, row
from tests.store_calls import counted_calls


def append(cluster, *ages_s, partition=0, topic="t"):
    log = cluster.partition_log(cluster.topic(topic), partition)
    for age_s in ages_s:
        log.append(record_batch([row(b"v", timestamp=cluster.clock.time_us() - age_s * 1_000_000)]))


def commit(cluster, group, offset, *partitions):
    offsets = {TopicPartition("t", each): OffsetAndMetadata(offset) for each in partitions}
    Admin(cluster.root).alter_group_offsets(group, offsets)


@pytest.fixture
def exporter(cluster):
    return RootExporter(lambda: cluster, None)


def in_t(name, partition):
    return (name, ("partition", str(partition)), ("topic", "t"))


def of_group(name, partition, group="g"):
    place = ("partition", str(partition)), ("topic", "t")
    return (name, ("consumergroup", group), *place)


def test_partitions_have_the_metrics_of_kafka_exporter(cluster, exporter):
    append(cluster, 1, 1, 1)
    append(cluster, 1, partition=1)
    Admin(cluster.root).delete_records({TopicPartition("t", 0): 1})
    found = samples(exporter.scrape().text)
    assert found["kafka_brokers",] == 1
    assert found["kafka_broker_info", ("address", ""), ("id", "0")] == 1
    assert found["kafka_topic_partitions", ("topic", "t")] == 2
    partition = "kafka_topic_partition"
    expected = {
        f"{partition}_current_offset": (3, 1),
        f"{partition}_oldest_offset": (1, 0),
        f"{partition}_leader": (0, 0),
        f"{partition}_replicas": (1, 1),
        f"{partition}_in_sync_replica": (1, 1),
        f"{partition}_leader_is_preferred": (1, 1),
        f"{partition}_under_replicated_partition": (0, 0),
    }
    for name, (first, second) in expected.items():
        assert (found[in_t(name, 0)], found[in_t(name, 1)]) == (first, second), name
    assert found[in_t("spark_log_topic_partition_size_bytes", 0)] > 0
    assert found["spark_log_exporter_up",] == 1


def test_groups_have_their_offsets_lag_and_members(cluster, exporter):
    append(cluster, 9, 5, 2)
    append(cluster, 3, partition=1)
    commit(cluster, "g", 1, 0, 1)
    member = GroupCoordinator(cluster, "g")
    member.join(["t"], client_id="c")
    found = samples(exporter.scrape().text)
    group = "kafka_consumergroup"
    assert found[f"{group}_members", ("consumergroup", "g")] == 1
    assert found[of_group(f"{group}_current_offset", 0)] == 1
    assert [found[of_group(f"{group}_lag", each)] for each in (0, 1)] == [2, 0]
    both = ("consumergroup", "g"), ("topic", "t")
    assert (found[f"{group}_lag_sum", *both], found[f"{group}_current_offset_sum", *both]) == (2, 2)
    seconds = {
        dict(labels)["partition"]: (dict(labels), lag)
        for (name, *labels), lag in found.items()
        if name == f"{group}_group_lag_seconds"
    }
    assert [seconds["0"][1], seconds["1"][1]] == [5, 0]
    labels = seconds["0"][0]
    assert labels.pop("member_host")
    assert labels == {
        "cluster_name": cluster.cluster_id,
        "group": "g",
        "topic": "t",
        "partition": "0",
        "consumer_id": member.member_id,
        "client_id": "c",
    }


def table_metrics(found):
    table = "spark_log_topic_table"
    of_topic = [found.get((f"{table}_{each}", ("topic", "t"))) for each in ("version", "files")]
    lag = "spark_log_topic_partition_table_lag"
    lags = [found.get(in_t(name, each)) for name in (lag, f"{lag}_seconds") for each in (0, 1)]
    return [*of_topic, *lags]


def test_a_topic_that_is_a_table_has_its_version_files_and_lag(cluster, exporter):
    append(cluster, 9, 5, 2)
    assert table_metrics(samples(exporter.scrape().text)) == [None] * 6
    config = {"table.format": "delta", "retention.ms": -1}
    Admin(cluster.root).alter_configs([ConfigResource("topic", "t", config)])
    assert table_metrics(samples(exporter.scrape().text)) == [-1, 0, 3, 0, 9, 0]
    cleaned = ClusterCleaner(Cluster(cluster.root), ["t"], table_at_once=True).clean()
    assert [each.error for each in cleaned] == [None, None]
    found = samples(exporter.scrape().text)
    assert table_metrics(found) == [1, 1, 0, 0, 0, 0]
    assert found["spark_log_topic_table_size_bytes", ("topic", "t")] > 1000
    append(cluster, 4, 1)
    append(cluster, 7, partition=1)
    assert table_metrics(samples(exporter.scrape().text)) == [1, 1, 2, 1, 4, 7]
    Admin(cluster.root).alter_configs([ConfigResource("topic", "t", {"table.format": "none"})])
    assert table_metrics(samples(exporter.scrape().text)) == [None] * 6


def test_a_table_that_cannot_be_read_is_left_out(cluster, exporter):
    append(cluster, 1)
    Admin(cluster.root).alter_configs([ConfigResource("topic", "t", {"table.format": "delta"})])
    directory = cluster.image().topic("t").directory
    cluster.store.put_if_absent(f"{directory}/_delta_log/{0:020}.json", b"no version")
    found = samples(exporter.scrape().text)
    assert table_metrics(found) == [None] * 6
    assert found[in_t("kafka_topic_partition_current_offset", 0)] == 1
    suppressed = {"client_id": "exporter", "action": "table sample"}
    assert value(exporter.scrape().text, "spark_log_suppressed_errors_total", **suppressed)


def test_what_was_deleted_unread_is_no_lag(cluster, exporter):
    append(cluster, 9, 5, 2)
    append(cluster, 9, 5, 2, partition=1)
    commit(cluster, "g", 1, 0, 1)
    Admin(cluster.root).delete_records({TopicPartition("t", 0): 3, TopicPartition("t", 1): 1})
    found = samples(exporter.scrape().text)

    def told(name):
        return [found[of_group(name, each)] for each in (0, 1)]

    assert told("kafka_consumergroup_current_offset") == [1, 1]
    assert told("kafka_consumergroup_lag") == [0, 2]
    assert told("spark_log_consumergroup_deleted_offsets") == [2, 0]
    seconds = {
        dict(labels)["partition"]: lag
        for (name, *labels), lag in found.items()
        if name == "kafka_consumergroup_group_lag_seconds"
    }
    assert seconds == {"0": 0, "1": 5}
    assert not any(name == "spark_log_suppressed_errors_total" for name, *_ in found)


def groups_told(exporter):
    """Each value of the metrics of groups by partition, without labels that tell nothing here."""
    wanted = ("kafka_consumergroup_lag", "kafka_consumergroup_current_offset")
    return {
        (name.removeprefix("kafka_consumergroup_"), int(dict(labels)["partition"])): told
        for (name, *labels), told in samples(exporter.scrape().text).items()
        if name in wanted
    }


def test_a_topic_that_comes_back_smaller_leaves_no_stale_and_no_negative_lag(cluster, exporter):
    append(cluster, 9, 5, 2)
    append(cluster, 9, partition=1)
    commit(cluster, "g", 1, 0, 1)
    assert groups_told(exporter) == {
        ("lag", 0): 2,
        ("lag", 1): 0,
        ("current_offset", 0): 1,
        ("current_offset", 1): 1,
    }
    admin = Admin(cluster.root)
    admin.delete_topics(["t"])
    admin.create_topics([NewTopic("t", 1, topic_configs={"flush.on.append": False})])
    assert groups_told(exporter) == {}, "the group has committed nothing in the new topic"
    commit(cluster, "g", 1, 0)  # of a client that has missed that the topic is another one
    assert groups_told(exporter) == {("lag", 0): 0, ("current_offset", 0): 1}
    append(cluster, 4, 3)
    assert groups_told(exporter) == {("lag", 0): 1, ("current_offset", 0): 1}


def test_a_deleted_group_is_exported_no_more(cluster, exporter):
    append(cluster, 9)
    commit(cluster, "g", 0, 0)
    assert groups_told(exporter)
    Admin(cluster.root).delete_groups(["g"])
    assert groups_told(exporter) == {}
    assert not any(
        ("consumergroup", "g") in labels or ("group", "g") in labels
        for _, *labels in samples(exporter.scrape().text)
    )


def test_names_that_others_chose_are_escaped(cluster, exporter):
    name = 'a"b\\c\nd{}ü'
    commit(cluster, name, 0, 0)
    found = samples(exporter.scrape().text)
    assert found[of_group("kafka_consumergroup_lag", 0, name)] == 0


def in_topic(calls):
    """Return the calls of the one topic's files by operation, and begin to count again."""
    found: Counter[str] = Counter()
    for (name, path), count in calls.items():
        if path.startswith("t."):
            found[name] += count
    calls.clear()
    return found


def test_a_scrape_without_changes_costs_a_request_for_each_partition(cluster, exporter):
    append(cluster, 1, 1)
    with counted_calls() as calls:
        exporter.scrape()
        for _ in range(5):  # longer than half of file.delete.delay.ms, but not between two scrapes
            cluster.clock.advance_ms(20_000)
            in_topic(calls)
            exporter.scrape()
            assert in_topic(calls) == {"open_buffer": 2}
        append(cluster, 1)
        text = exporter.scrape().text
        assert in_topic(calls)["list"] >= 1
    assert value(text, "kafka_topic_partition_current_offset", topic="t", partition="0") == 3


def test_a_partition_is_listed_after_a_pause_and_sometimes(cluster, exporter):
    append(cluster, 1)
    with counted_calls() as calls:
        exporter.scrape()
        in_topic(calls)
        cluster.clock.advance_ms(30_000)
        exporter.scrape()
        assert in_topic(calls)["list"] == 2, "a name that was not looked for may have been freed"
        for _ in range(30):  # ten minutes
            cluster.clock.advance_ms(20_000)
            exporter.scrape()
        assert 2 <= in_topic(calls)["list"] <= 4, "files that were deleted or merged"


def test_scrapes_at_the_same_time_share_one_reading(root):
    begun, go_on, opened = threading.Event(), threading.Event(), []

    def slowly():
        opened.append(1)
        begun.set()
        assert go_on.wait(30)
        return Cluster(root)

    exporter = RootExporter(slowly, "c")
    found = []
    threads = [threading.Thread(target=lambda: found.append(exporter.scrape())) for _ in range(5)]
    threads[0].start()
    assert begun.wait(30)
    for each in threads[1:]:
        each.start()
    go_on.set()
    for each in threads:
        each.join()
    assert len(opened) == 1
    first = [each for each in found if each is found[0]]
    assert len(first) > 1, "all that came while it ran got the same answer"


def test_a_root_that_cannot_be_read_is_told_and_logged_once(root, caplog):
    is_gone = True

    def opened():
        if is_gone:
            raise StorageUnavailableError("the disk is not mounted")
        return Cluster(root)

    exporter = RootExporter(opened, None)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            scrape = exporter.scrape()
            assert samples(scrape.text)["spark_log_exporter_up",] == 0
            assert isinstance(scrape.error, StorageUnavailableError)
        assert len(caplog.messages) == 1
        assert "the disk is not mounted" in caplog.messages[0]
        is_gone = False
        assert samples(exporter.scrape().text)["spark_log_exporter_up",] == 1
        assert caplog.messages[1:] == ["the root can be read again"]


def test_a_partition_that_cannot_be_read_hides_no_other(cluster, exporter, tmp_path):
    append(cluster, 1)
    append(cluster, 1, partition=1)
    (segment,) = tmp_path.glob("root/t.*/t-0/*.log")
    segment.write_bytes(b"damaged")
    found = samples(exporter.scrape().text)
    assert in_t("kafka_topic_partition_current_offset", 0) not in found
    assert found[in_t("kafka_topic_partition_current_offset", 1)] == 1
    assert found["spark_log_exporter_unreadable_partitions",] == 1


def test_a_topic_that_is_deleted_or_created_later_is_seen(cluster, exporter):
    exporter.scrape()
    Admin(cluster.root).create_topics([NewTopic("u")])
    Admin(cluster.root).delete_topics(["t"])
    found = samples(exporter.scrape().text)
    assert found["kafka_topic_partitions", ("topic", "u")] == 1
    assert ("kafka_topic_partitions", ("topic", "t")) not in found


def test_a_group_that_cannot_be_read_hides_no_other(cluster, exporter, tmp_path):
    for group_id in ("damaged", "sound"):
        GroupCoordinator(cluster, group_id).join(["t"])
    for segment in tmp_path.glob("root/__consumer_groups/damaged/*.log"):
        segment.write_bytes(b"damaged")
    found = samples(exporter.scrape().text)
    assert found["kafka_consumergroup_members", ("consumergroup", "sound")] == 1
    assert ("kafka_consumergroup_members", ("consumergroup", "damaged")) not in found
    failed = ("action", "group sample"), ("client_id", "exporter")
    assert found["spark_log_suppressed_errors_total", *failed] == 1


def test_a_member_that_leaves_is_not_counted_any_more(cluster, exporter):
    members = [GroupCoordinator(cluster, "g") for _ in range(2)]
    for each in members:
        each.join(["t"])
    name = "kafka_consumergroup_members"
    assert value(exporter.scrape().text, name, consumergroup="g") == 2
    members[0].leave()
    assert value(exporter.scrape().text, name, consumergroup="g") == 1


def test_stripes_have_what_is_not_at_home(cluster, exporter):
    names = [f"spark_log_topic_stripe_objects{each}" for each in ("", "_bytes", "_age_seconds")]
    assert not any(key[0] in names for key in samples(exporter.scrape().text))
    Admin(cluster.root).create_topics([NewTopic("orders", 3, topic_configs={"stripes": 2})])
    for partition in (0, 1, 2):
        append(cluster, 0, partition=partition, topic="orders")
    topic = cluster.topic("orders")
    cluster.stripe(topic, 1).take_home()
    before = cluster.stripe(topic, 0).directory.describe()

    def shown(stripe):
        found = samples(exporter.scrape().text)
        return [found[name, ("stripe", str(stripe)), ("topic", "orders")] for name in names]

    assert shown(0) == [2, before.behind_bytes, before.behind_ms / 1000]
    assert before.behind_bytes > 0
    assert shown(1) == [0, 0, 0]
