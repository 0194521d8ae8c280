"""A controller fences and unfences brokers, elects, balances, replicates and completes moves."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log import ConfigResource
from spark_log.cluster import Cluster
from spark_log.errors import StorageUnavailableError
from spark_log.metadata import PartitionChangeRecord, fence_broker_records, reassign_partition
from spark_log.replication import Controller, ControllerDecision, RecoveredReplica, controller
from spark_log.util.clock import ManualClock
from tests.record.samples import numbered
from tests.replication.support import values_of
from tests.waiting import wait_until

LAG_MS = 30_000
LONG_MS = LAG_MS + 1


class Watch:
    """A controller as a test runs it, and what it decided."""

    def __init__(self, disks, **options):
        self.clock = ManualClock()
        self.cluster = Cluster(disks.root, clock=self.clock)
        self.decisions: list[ControllerDecision] = []
        self.controller = Controller(self.cluster, on_decision=self.decisions.append, **options)

    def round(self, after_ms=0):
        """Do one round; return what it decided."""
        self.clock.advance_ms(after_ms)
        before = len(self.decisions)
        self.controller.do_round()
        return [decision.action for decision in self.decisions[before:]]

    def settle(self):
        """Do rounds until nothing is left to do; return what they decided."""
        before = len(self.decisions)
        pause = threading.Event()
        assert self.controller.run_once(lambda: pause.wait(0.005)) == []
        return [decision.action for decision in self.decisions[before:]]


@pytest.fixture
def watch(disks):
    disks.create()
    disks.send(b"one", b"two")
    watch = Watch(disks)
    assert watch.settle() == []
    return watch


class TestBrokers:
    def test_are_fenced_when_their_roots_have_failed_for_long(self, disks, watch):
        disks.take_away(1)
        assert watch.round() == []
        assert watch.round(LAG_MS - 1) == []
        assert watch.round(1) == ["fence broker"]
        assert disks.partition().isr == (2, 0)
        (decision,) = watch.decisions
        assert decision.broker == 1
        assert "failed for 30.0 s: the root" in decision.reason
        assert "this changes 1 partitions" in decision.reason

    def test_a_fence_is_a_warning_and_what_mends_it_is_logged_once(self, disks, watch, caplog):
        caplog.set_level("INFO", "spark_log.replication")
        disks.take_away(1)
        watch.round()
        watch.round(LONG_MS)
        disks.bring_back(1)
        watch.settle()
        logged = [
            (each.levelname, " ".join(each.getMessage().split()[:4])) for each in caplog.records
        ]
        assert logged == [
            ("INFO", "broker 1: its root"),
            ("WARNING", "fence broker 1: its"),
            ("INFO", "broker 1: its root"),
            ("INFO", "unfence broker 1: its"),
            ("INFO", "expand the isr 1"),
        ]

    def test_are_not_fenced_for_failures_with_a_success_between(self, disks, watch):
        for _ in range(3):
            disks.take_away(1)
            assert watch.round() == []
            assert watch.round(LAG_MS - 1) == []
            disks.bring_back(1)
            assert watch.round(10) == []

    def test_are_unfenced_and_their_replicas_come_back_when_their_roots_do(self, disks, watch):
        disks.take_away(1)
        watch.round()
        watch.round(LONG_MS)
        disks.send(b"three")
        disks.bring_back(1)
        assert watch.settle() == ["unfence broker", "expand the isr"]
        assert disks.partition().isr == (2, 0, 1)
        assert values_of(disks.replica(1)) == [b"one", b"two", b"three"]

    def test_that_another_controller_fenced_are_unfenced_too(self, disks, watch):
        disks.take_away(1)
        watch.round()
        watch.round(LONG_MS)
        disks.bring_back(1)
        assert "unfence broker" in Watch(disks).settle()

    def test_that_a_user_fenced_stay_fenced(self, disks, watch):
        disks.admin.fence_broker(1)
        assert watch.settle() == []
        assert disks.cluster().image().broker(1).fenced

    def test_that_failed_and_that_a_user_fenced_then_stay_fenced(self, disks, watch):
        disks.take_away(1)
        watch.round()
        watch.round(LONG_MS)
        disks.admin.fence_broker(1)
        disks.bring_back(1)
        assert watch.settle() == []

    def test_with_a_root_that_hangs_are_fenced(self, disks, watch, monkeypatch):
        monkeypatch.setattr(controller, "_PROBE_TIMEOUT_MS", 50)
        hanging = Watch(disks)
        hanging.settle()
        end = threading.Event()
        check = Cluster.check_broker

        def hang(self, broker_id):
            return end.wait(60) if broker_id == 1 else check(self, broker_id)

        monkeypatch.setattr(Cluster, "check_broker", hang)
        hanging.round()
        assert hanging.round(LONG_MS) == ["fence broker"]
        end.set()
        wait_until(lambda: "unfence broker" in hanging.round())

    def test_are_not_fenced_by_a_process_that_reaches_none_of_them(self, disks, watch):
        """It may lack the mounts or the credentials that writers have."""
        disks.take_away(1)
        disks.take_away(2)
        blind = Watch(disks)
        assert blind.round() == []
        assert blind.round(LONG_MS) == []
        assert watch.round() == []
        assert watch.round(LONG_MS) == ["fence broker", "fence broker"]


class TestPartitions:
    def test_of_a_topic_with_a_shorter_lag_lose_a_failing_replica_earlier(self, disks, watch):
        disks.create(topic="hasty", **{"replica.lag.time.max.ms": "500"})
        disks.take_away(2)
        watch.round()
        assert watch.round(500) == ["shrink the isr"]
        assert (disks.partition("hasty").isr, disks.partition().isr) == ((1, 0), (1, 2, 0))

    def test_without_a_leader_get_one(self, disks, watch):
        topic = disks.cluster().topic("t")
        lost = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=-1)
        disks.cluster().metadata.commit(lambda image: [lost])
        assert watch.settle() == ["elect a leader"]
        assert disks.partition().leader == 1
        assert watch.decisions[-1].reason == "it has none; now broker 1 leads"

    def test_move_back_to_their_preferred_leaders(self, disks, watch):
        disks.leave(1)
        moves = Watch(disks).settle()
        assert moves.count("move the leadership") == 2
        state = disks.partition()
        assert (state.leader, state.isr) == (1, (1, 2, 0))

    def test_do_not_move_back_before_the_interval(self, disks, watch):
        disks.leave(1)
        assert watch.settle() == ["expand the isr"]
        assert disks.partition().leader == 2
        watch.clock.advance_ms(300_000)
        assert "move the leadership" in watch.settle()

    def test_stay_with_their_leaders_if_rebalancing_is_off(self, disks, watch):
        off = ConfigResource("broker", "", {"auto.leader.rebalance.enable": False})
        disks.admin.alter_configs([off])
        disks.leave(1)
        assert "move the leadership" not in Watch(disks).settle()
        assert disks.partition().leader == 2

    def test_are_moved_to_other_brokers(self, disks, watch):
        disks.admin.register_broker(3, disks.path(3))
        topic_id = disks.cluster().topic("t").topic_id
        disks.cluster().metadata.commit(
            lambda image: reassign_partition(image, topic_id, 0, (3, 0))
        )
        assert watch.settle().count("complete the reassignment") == 1
        state = disks.partition()
        assert (set(state.replicas), set(state.isr)) == ({3, 0}, {3, 0})
        assert values_of(disks.replica(3)) == disks.values() == [b"one", b"two"]

    def test_whose_writer_ended_after_the_leader_had_its_records_are_brought_up(self, disks, watch):
        cluster = disks.cluster()
        log = cluster.partition_log(cluster.topic("t"), 0)
        writer = log.segment_writer()
        writer.write(numbered(0, 3))
        log.append_segment(writer.finish(), acks=1)
        assert disks.replica(0).observe().log_end_offset == 2
        watch.clock.advance_ms(300_000)
        assert watch.settle() == ["bring up the replicas"]
        assert disks.replica(0).observe().log_end_offset == 5

    def test_get_a_missing_barrier(self, disks, watch):
        disks.admin.fence_broker(2)  # so that its replica does not come back, with a barrier
        watch.clock.advance_ms(300_000)
        assert watch.settle() == ["bring up the replicas"]


class TestCopies:
    def test_that_fail_are_tried_again_after_a_pause(self, disks):
        disks.create()
        disks.leave(2)
        tries = itertools.count()

        def fail(partition, replicas):
            number = next(tries)
            for replica in replicas:
                yield RecoveredReplica(replica, None, f"full {number}")

        watch = Watch(disks, copy=fail)

        def wait_for(number):
            wait_until(
                lambda: f"full {number}" in [decision.reason for decision in watch.decisions],
                meanwhile=watch.round,
            )

        wait_for(0)
        watch.round(1_000)
        assert next(tries) == 1
        watch.round(6_000)
        wait_for(2)

    def test_that_fail_are_the_result_of_a_single_run(self, disks):
        disks.create()
        disks.leave(2)

        def fail(partition, replicas):
            raise StorageUnavailableError("away")

        watch = Watch(disks, copy=fail)
        pause = threading.Event()
        (failed,) = watch.controller.run_once(lambda: pause.wait(0.005))
        assert str(failed) == "t-0-2"
        (decision,) = (each for each in watch.decisions if each.action == "replicate failed")
        assert decision.document() == {
            "action": "replicate failed",
            "reason": "away",
            "topic": "t",
            "partition": 0,
            "broker": 2,
        }
        assert str(decision) == "replicate failed 2 of t-0: away"

    def test_of_several_partitions_run_at_the_same_time(self, disks):
        disks.create(partitions=2)
        for number in (0, 1):
            disks.leave(2, number=number)
        both, met = threading.Barrier(2), threading.Semaphore(0)

        def meet(partition, replicas):
            both.wait(60)
            met.release()
            return []

        watch = Watch(disks, copy=meet, threads=2)
        watch.round()
        met.acquire(timeout=60)
        assert met.acquire(timeout=60)


class TestSeveralControllers:
    def test_the_newest_one_works_and_the_others_stop(self, disks, watch):
        older = Watch(disks)
        rounds = []

        def wait():
            rounds.append(1)
            if len(rounds) == 2:
                assert watch.controller.register() == 2
            return False

        older.controller.run(wait)
        assert len(rounds) == 2
        assert [decision.action for decision in older.decisions] == ["register", "stop"]
        assert "a controller with epoch 2 has registered" in older.decisions[-1].reason
        assert disks.cluster().image().controller_epoch == 2

    def test_one_that_is_overtaken_amid_a_round_changes_nothing(self, disks, watch, monkeypatch):
        older = Watch(disks)
        older.controller.register()
        older.round()
        disks.take_away(1)
        older.round()
        probe = older.controller._probe  # noqa: SLF001 - between its looks

        def overtaken(image):
            watch.controller.register()
            return probe(image)

        monkeypatch.setattr(older.controller, "_probe", overtaken)
        with pytest.raises(controller.NewerControllerError):
            older.round(LONG_MS)
        assert not disks.cluster().image().broker(1).fenced

    def test_two_at_once_are_safe(self, disks):
        disks.create(partitions=3)
        disks.send(*[b"%d" % number for number in range(10)])
        disks.wipe(2)
        watches = [Watch(disks) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Watch.settle, watches))
        assert {frozenset(disks.partition(number=each).isr) for each in range(3)} == {
            frozenset({0, 1, 2})
        }
        assert values_of(disks.replica(2)) == disks.values()

    def test_a_round_that_fails_does_not_end_a_controller(self, watch, caplog, monkeypatch):
        calls, rounds = itertools.count(), itertools.count(1)
        image = watch.cluster.image

        def sometimes():
            if next(calls) == 1:  # the first one is of the registration
                raise StorageUnavailableError("away")
            return image()

        monkeypatch.setattr(watch.cluster, "image", sometimes)
        watch.controller.run(lambda: next(rounds) == 2)
        assert next(rounds) == 3
        assert "a round was not finished: away" in caplog.text


def test_a_fence_of_a_user_takes_the_place_of_a_controllers(disks):
    cluster = disks.cluster()

    def fence(**how):
        cluster.metadata.commit(lambda image: fence_broker_records(image, 1, **how))
        return cluster.image().broker(1)

    assert fence(fenced=True, failed=True).failed
    assert fence(fenced=True, failed=True).failed
    broker = fence(fenced=True)
    assert (broker.fenced, broker.failed) == (True, False)
    assert not fence(fenced=True, failed=True).failed
    assert not fence(fenced=False).fenced
