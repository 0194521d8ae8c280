"""The overview: what is wrong, how much is written, which groups are behind, and what it costs."""

from collections import Counter

import pytest
from starlette.testclient import TestClient

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.admin._runtime import AdminRuntime
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.console import create_app
from spark_log.console.activity import STEP_S, STEPS, step_of
from spark_log.console.checkup import Checkup
from spark_log.console.observations import ObservationCache
from spark_log.console.views import open_transactions, partition_observations
from spark_log.coordinator import OffsetsTable
from spark_log.doctor import Doctor
from spark_log.metrics import RequestTimes
from spark_log.util.clock import SYSTEM_CLOCK, ManualClock
from tests.cli.support import append, begin_transaction, segment_files
from tests.console.conftest import get
from tests.coordinator.storage_dates import dated_by
from tests.record.samples import record_batch, row
from tests.replication.support import Disks

T = TopicPartition("flights", 0)
STEP_MS = STEP_S * 1000


@pytest.fixture
def dated(monkeypatch):
    """The clock that files are dated by; it begins now, in the middle of a quarter minute."""
    now_us = step_of(SYSTEM_CLOCK.time_us()) * STEP_MS * 1000 + STEP_MS * 500
    clock = ManualClock(now_us)
    dated_by(clock, monkeypatch)
    return clock


@pytest.fixture
def dated_root(dated, tmp_path):
    root = str(tmp_path / "root")
    configs = {"flush.on.append": False, "retention.ms": -1, "file.delete.delay.ms": 0}
    Admin(root).create_topics([NewTopic("flights", 2, topic_configs=configs)])
    return root


def read(root, clock):
    """Return the overview of a console that reads a root for the first time."""
    app = create_app(Cluster(root, clock=clock), Admin(root, clock=clock))
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        return get(client, "")


def write(root, clock, count, partition=0, age_ms=0):
    """Append records as one segment; return its size."""
    timestamp_us = clock.time_us() - age_ms * 1000
    cluster = Cluster(root, clock=clock)
    log = cluster.partition_log(cluster.topic("flights"), partition)
    log.append(record_batch([row(b"%d" % each, timestamp=timestamp_us) for each in range(count)]))
    return log.observe().live.segments[-1].file.size_bytes


class TestHealth:
    def test_of_a_sound_root_is_one_sentence(self, client):
        found = get(client, "")
        assert (found["topics"], found["brokers"], found["partitions"]) == (3, 1, 4)
        assert found["groups"] == {"Empty": 1, "Stable": 1}
        assert [each["severity"] for each in found["findings"]] == ["ok"]

    def test_of_an_empty_root_too(self, tmp_path, clients):
        Cluster(tmp_path / "root", create=True)
        client = clients(tmp_path / "root")
        found = get(client, "")
        assert [each["severity"] for each in found["findings"]] == ["ok"]
        assert found["partitions_seen"] == found["oldest_look_ms"] == 0
        assert found["busiest_topics"] == found["groups_behind"] == []
        assert (found["records_per_second"], found["bytes_per_second"]) == (0, 0)
        assert "No topic yet" in client.get("/").text

    def test_has_what_the_doctor_finds(self, own_root, clients):
        admin = Admin(own_root)
        client = clients(own_root)
        assert [each["severity"] for each in get(client, "")["findings"]] == ["ok"]
        admin.register_broker(1, f"{own_root}-1")
        admin.fence_broker(1)
        (finding,) = get(client, "")["findings"]
        assert finding == {
            "severity": "warning",
            "sentence": "Broker 1: is fenced by a person: its 0 replicas lead no partition.",
            "path": "/brokers",
            "command": "spark-log brokers unfence 1",
        }

    def test_has_partitions_that_cannot_be_read(self, own_root, clients):
        append(own_root, "flights", b"another segment")
        segment_files(own_root, "flights")[0].unlink()
        (finding,) = get(clients(own_root), "")["findings"]
        assert (finding["severity"], finding["path"]) == ("error", "/topic?topic=flights")
        assert finding["sentence"] == "Logs of partitions cannot be read: flights-0."

    def test_of_a_broker_whose_root_is_away_changes_nothing(self, tmp_path, clients):
        disks = Disks(tmp_path)
        disks.create()
        disks.create(1, topic="alone", **{"min.insync.replicas": "1"})
        disks.send(b"1", b"2")
        disks.take_away(1)
        broker, partition = get(clients(disks.root), "")["findings"]
        assert (broker["severity"], broker["path"]) == ("error", "/brokers")
        assert broker["sentence"].startswith("Broker 1: its root cannot be used")
        assert broker["command"] == "spark-log brokers fence 1"
        assert partition["sentence"] == "Logs of partitions cannot be read: alone-0."
        assert disks.partition().isr == (1, 2, 0)
        assert not disks.path(1).exists()

    def test_has_groups_outside_of_the_log(self, own_root, clients):
        Admin(own_root).delete_records({T: 6})
        OffsetsTable(Cluster(own_root)).commit("beyond", {T: OffsetAndMetadata(99)})
        beyond, before = get(clients(own_root), "")["findings"]
        assert (beyond["severity"], beyond["path"]) == ("error", "/group?group=beyond")
        assert (before["severity"], before["path"]) == ("warning", "/group?group=reports")
        assert before["sentence"] == (
            "Group reports has not read records that were deleted, in flights-0."
        )

    def test_has_transactions_that_nobody_ends(self, dated, dated_root):
        begin_transaction(dated_root, "copy", T, timeout_ms=60_000)
        assert read(dated_root, dated)["findings"][0]["severity"] == "ok"
        dated.advance_ms(90_000)
        found = read(dated_root, dated)
        (finding,) = found["findings"]
        assert finding["severity"] == "warning"
        assert finding["path"] == "/transactions?q=copy"
        assert "readers with read_committed wait for it in flights-0" in finding["sentence"]
        (shown,) = found["open_transactions"]
        assert (shown["transactional_id"], shown["partitions"]) == ("copy", ["flights-0"])


class TestThroughput:
    def test_is_by_the_dates_of_appends(self, dated, dated_root):
        first = write(dated_root, dated, 30)
        dated.advance_ms(10 * STEP_MS)
        second = write(dated_root, dated, 60)
        third = write(dated_root, dated, 15, partition=1)
        dated.advance_ms(STEP_MS)
        found = read(dated_root, dated)
        throughput = found["throughput"]
        assert len(throughput["times_us"]) == STEPS
        assert throughput["times_us"][-1] == (step_of(dated.time_us()) - 1) * STEP_MS * 1000
        assert throughput["records_per_second"] == [0] * (STEPS - 11) + [2] + [0] * 9 + [5]
        assert throughput["bytes_per_second"][-11] == round(first / STEP_S, 1)
        assert throughput["bytes_per_second"][-1] == round((second + third) / STEP_S, 1)
        assert found["records_per_second"] == 75 / 60
        (topic,) = found["busiest_topics"]
        assert topic["records_per_second"] == 75 / 60
        assert topic["bytes_per_second"] == pytest.approx((second + third) / 60)

    def test_of_a_merged_segment_is_by_the_timestamps_of_its_records(self, dated, dated_root):
        """The date of a merge says nothing: a merge of old records is no rush of new ones."""
        for _ in range(12):
            write(dated_root, dated, 15)
            dated.advance_ms(STEP_MS)
        cluster = Cluster(dated_root, clock=dated)
        assert {each.error for each in ClusterCleaner(cluster).clean()} == {None}
        log = cluster.partition_log(cluster.topic("flights"), 0)
        assert [each.name.generation for each in log.observe().live.segments] == [1]
        dated.advance_ms(STEP_MS)
        rates = read(dated_root, dated)["throughput"]["records_per_second"]
        assert sum(rates) * STEP_S == pytest.approx(12 * 15, abs=1)
        assert max(rates) == pytest.approx(12 / 11, abs=0.01)
        assert rates[-1] == 0

    def test_leaves_out_what_was_written_long_ago(self, dated, dated_root):
        write(dated_root, dated, 100)
        dated.advance_ms((STEPS + 2) * STEP_MS)
        assert set(read(dated_root, dated)["throughput"]["records_per_second"]) == {0}


class TestGroups:
    def test_that_are_farthest_behind_come_first(self, dated, dated_root):
        write(dated_root, dated, 10, age_ms=5_000)
        write(dated_root, dated, 4, partition=1, age_ms=90_000)
        admin = Admin(dated_root)
        for group, offset in (("near", 9), ("far", 2), ("there", 10)):
            admin.alter_group_offsets(group, {T: OffsetAndMetadata(offset)})
        other = TopicPartition("flights", 1)
        admin.alter_group_offsets("near", {other: OffsetAndMetadata(0)})
        found = read(dated_root, dated)["groups_behind"]
        assert [(each["group_id"], each["lag"], each["lag_ms"]) for each in found] == [
            ("far", 8, 5_000),
            ("near", 5, 90_000),
        ]

    def test_lag_counts_what_can_be_read(self, dated, dated_root):
        write(dated_root, dated, 10)
        admin = Admin(dated_root)
        admin.alter_group_offsets("reports", {T: OffsetAndMetadata(1)})
        admin.delete_records({T: 6})
        (found,) = read(dated_root, dated)["groups_behind"]
        assert found["lag"] == 4
        admin.delete_records({T: -1})
        assert read(dated_root, dated)["groups_behind"] == []


class TestCost:
    """What a view costs does not grow with the number of partitions and transactional ids."""

    @pytest.fixture
    def calls(self, tmp_path, monkeypatch):
        """Counts the calls to the storage of a view of a root with some topics."""

        def count(topics, views=2):
            monkeypatch.setattr(partition_observations, "MAX_LISTED", 6)
            monkeypatch.setattr(open_transactions, "MAX_TRANSACTIONS", 2)
            root = str(tmp_path / f"root{topics}")
            admin = Admin(root)
            admin.create_topics([NewTopic(f"t{number}", 4) for number in range(topics)])
            for number in range(topics):
                append(root, f"t{number}", b"x")
                begin_transaction(root, f"id{number}", TopicPartition("t0", 0))
            cluster, times = Cluster(root), RequestTimes()
            times.measure(cluster.store)
            monkeypatch.setattr(AdminRuntime, "cluster", lambda _: cluster)
            app = create_app(cluster, Admin(root))
            with TestClient(app, base_url="http://127.0.0.1:8470") as client:
                for _ in range(views):
                    before = Counter(times.counts())
                    found = get(client, "")
                monkeypatch.undo()
                return sum((Counter(times.counts()) - before).values()), found

        return count

    def test_is_bounded(self, calls):
        few, _ = calls(3)
        many, found = calls(12)
        # Each transaction that is known to be open is looked at again.
        assert many <= few + 2 * 12
        assert (found["partitions"], found["partitions_seen"]) == (48, 12)

    def test_further_views_look_at_the_rest(self, calls):
        _, found = calls(3, views=3)
        assert found["partitions_seen"] == found["partitions"] == 12
        assert found["oldest_look_ms"] > 0


class TestLooks:
    def test_begin_with_what_was_never_seen_then_with_the_oldest(self, clock):
        observations: ObservationCache[str, str] = ObservationCache(clock)
        seen: list[list[str]] = []

        def see(keys):
            seen.append(list(keys))
            return [key.upper() for key in keys]

        for _ in range(4):
            found = observations.refresh("abcde", see, 2)
            clock.advance_ms(1)
        assert seen == [["a", "b"], ["c", "d"], ["e", "a"], ["b", "c"]]
        assert {key: each.seen for key, each in found.items()} == dict(
            zip("abcde", "ABCDE", strict=True)
        )
        assert found["d"].observed_ms == 1

    def test_forget_what_does_not_exist_any_more(self, clock):
        observations: ObservationCache[str, str] = ObservationCache(clock)
        observations.refresh("ab", list, 2)
        assert observations.refresh("b", list, 0).keys() == {"b"}
        assert observations.refresh("", list, 2) == {}


def test_a_checkup_that_took_long_is_not_repeated_soon(tmp_path, clock, monkeypatch):
    Cluster(tmp_path / "root", create=True)
    checkup = Checkup(Cluster(tmp_path / "root", clock=clock))
    runs: list[Doctor] = []
    took_ms = [10, 10, 2_000, 2_000]

    def findings(doctor):
        clock.advance_ms(took_ms[len(runs)])
        runs.append(doctor)
        return iter(())

    monkeypatch.setattr(Doctor, "findings", findings)
    for _ in range(3):
        checkup.findings()
    assert len(runs) == 3
    checkup.findings()
    assert len(runs) == 3
    clock.advance_ms(40_000)
    checkup.findings()
    assert len(runs) == 4
