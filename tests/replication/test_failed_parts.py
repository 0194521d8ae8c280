"""A failure of one part is told of this part, and the others go on."""

import pytest

from spark_log import Consumer, TopicPartition
from spark_log.admin.partition_sampler import PartitionSampler
from spark_log.errors import AuthorizationError, SparkLogError, StorageUnavailableError
from spark_log.log import PartitionDirectory
from spark_log.replication.chain_checks import ChainChecks
from tests.waiting import wait_until

GOOD, BAD = TopicPartition("good", 0), TopicPartition("bad", 0)


@pytest.fixture
def parts(disks):
    """Two topics with one replica each: one on the cluster's root, one on broker 1."""
    for topic, broker_id in (("good", 0), ("bad", 1)):
        disks.create(broker_id, topic=topic, **{"min.insync.replicas": "1"})
        disks.send(b"a", b"b", topic=topic)
    return disks


def poll_until(consumer, wanted):
    """Poll until the values of these partitions were returned."""
    found: dict[TopicPartition, list[bytes | None]] = {tp: [] for tp in wanted}

    def is_found():
        for tp, records in consumer.poll(timeout_ms=50).items():
            found[tp] += [each.value for each in records]
        return all(found[tp] == values for tp, values in wanted.items())

    wait_until(is_found, f"got {found}")


@pytest.mark.parametrize("how", ["taken away", "fenced"])
def test_a_consumer_reads_the_others_while_one_partition_cannot_be_read(parts, how):
    if how == "taken away":
        parts.take_away(1)
    else:
        parts.admin.fence_broker(1)
    with Consumer(
        root=parts.root,
        auto_offset_reset="earliest",
        retry_backoff_ms=10,
        default_api_timeout_ms=1_000,
    ) as consumer:
        consumer.assign([BAD, GOOD])
        poll_until(consumer, {GOOD: [b"a", b"b"]})
        assert consumer.position(GOOD) == 2
        with pytest.raises(SparkLogError) as raised:
            consumer.position(BAD)
        assert raised.value.retriable
        if how == "taken away":
            parts.bring_back(1)
        else:
            parts.admin.unfence_broker(1)
        poll_until(consumer, {BAD: [b"a", b"b"]})


def test_a_controllers_checks_go_on_after_one_that_has_failed(parts, monkeypatch):
    checks = ChainChecks(parts.cluster())
    calls = []

    def fails_first(partitions):
        calls.append(partitions)
        if len(calls) == 1:
            raise StorageUnavailableError("a fault")
        return []

    monkeypatch.setattr(checks, "_check_all", fails_first)
    monkeypatch.setattr(checks, "_is_due", lambda: True)
    image = parts.cluster().image()
    told: list[object] = []
    checks.poll(image, told.append)

    def is_told():
        try:
            checks.poll(image, told.append)
        except StorageUnavailableError:
            told.append("failed")
        return len(calls) >= 3

    wait_until(is_told, "the checks do not go on")
    assert told == ["failed"]


def test_checks_warn_once_of_all_partitions_whose_root_is_away(disks, caplog):
    disks.create(1, 2, partitions=5)
    checks = ChainChecks(disks.cluster())
    image = disks.cluster().image()
    disks.take_away(1)
    disks.take_away(2)
    checks.poll(image, lambda _: None)

    def is_finished():
        checks.poll(image, lambda _: None)
        return checks.is_idle

    wait_until(is_finished, "the checks do not end")
    warned = [record.getMessage() for record in caplog.records if "compared" in record.msg]
    assert len(warned) == 1
    assert "5 partitions that broker 1 leads could not be compared: t-0, t-1, t-2, …" in warned[0]


def test_a_controller_leaves_out_a_leader_whose_files_cannot_be_read(disks):
    """Its root has `meta.properties`: no probe tells it, and nobody may write for days."""
    disks.create(1, 2, 0)
    disks.send(b"a")
    for file in disks.path(1).rglob("*.log"):
        file.unlink()
    cluster = disks.cluster()
    checks = ChainChecks(cluster)
    told: list[object] = []

    def is_left_out():
        checks.poll(cluster.image(), told.append)
        return 1 not in disks.partition().isr

    wait_until(is_left_out, "it stays in sync")
    assert disks.values() == [b"a"]


def test_a_sample_lists_the_log_if_the_replica_that_it_looked_at_fails(disks, monkeypatch):
    disks.create(1, 2)
    disks.send(b"a", b"b")
    cluster = disks.cluster()
    log = cluster.partition_log(cluster.topic("t"), 0)
    sampler = PartitionSampler(log, is_new=False, max_listing_age_ms=60_000)
    assert sampler.read().log_end_offset == 2
    disks.send(b"c")
    open_segment = PartitionDirectory.open

    def denied(*_):
        monkeypatch.setattr(PartitionDirectory, "open", open_segment)
        raise AuthorizationError("denied")

    monkeypatch.setattr(PartitionDirectory, "open", denied)
    assert sampler.read().log_end_offset == 3
