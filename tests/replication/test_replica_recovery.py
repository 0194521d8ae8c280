"""A replica that is not in sync comes back: after an absence, a loss, a divergence, any kill."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from spark_log import Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.errors import CorruptRecordError, LeaderNotAvailableError, StorageUnavailableError
from spark_log.log.clean import PartitionCleaner
from spark_log.log.log_start import move_log_start
from spark_log.producer import RecordFuture
from spark_log.record import ProducerAppend
from spark_log.replication import (
    ClusterRecovery,
    RecoveredReplica,
    ReplicaRecovery,
    TopicPartitionReplica,
    out_of_sync_replicas,
)
from spark_log.storage import STRAY_REPLICAS
from spark_log.storage.local import LocalStore
from spark_log.util import Throttle
from tests.record.samples import numbered
from tests.replication.support import Disks, values_of
from tests.sleeping_clock import SleepingClock

NUMBERS = [b"%d" % number for number in range(60)]


def recovery(cluster, broker_id, **options):
    return ReplicaRecovery(cluster, cluster.topic("t"), 0, broker_id, **options)


def recover(disks, broker_id, **options):
    return recovery(disks.cluster(), broker_id, **options).run()


class TestComesBack:
    def test_and_each_step_is_logged(self, disks, caplog):
        disks.create()
        disks.send(*NUMBERS[:3])
        disks.leave(2)
        disks.send(*NUMBERS[3:6])
        caplog.set_level("DEBUG", "spark_log.replication")
        report = recover(disks, 2)
        steps = [each.partition(": ")[2] for each in caplog.messages]
        epoch = disks.partition().leader_epoch
        assert steps == [
            f"the replica on broker 2 joins in directory 0, after a copy of "
            f"{report.copied_segments} segments, {report.copied_bytes} bytes from the leader on "
            f"broker 1 in leader epoch {epoch - 2}",
            f"the barrier of leader epoch {epoch - 1} is on the joining replica of broker 2, which "
            "enters the isr after 0 ms",
            "the replica on broker 2 is in sync",
        ]

    def test_after_an_absence_in_which_a_producer_wrote_on(self, disks):
        disks.create()
        with Producer(disks.root) as producer:
            futures: list[RecordFuture] = []

            def write(count):
                for value in itertools.islice(NUMBERS, len(futures), len(futures) + count):
                    futures.append(producer.send("t", value))
                producer.flush()

            write(20)
            disks.take_away(2)
            write(20)
            assert disks.partition().isr == (1, 0)
            disks.bring_back(2)
            writer = threading.Thread(target=write, args=(10,))
            writer.start()
            (result,) = disks.replicate()
            writer.join()
            assert result.report.is_in_sync
            assert disks.partition().isr == (1, 0, 2)
            write(10)
            assert len(futures) == len(NUMBERS)
        assert disks.values() == NUMBERS
        assert values_of(disks.replica(2)) == NUMBERS

    def test_and_only_what_it_lacks_is_copied(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.leave(2)
        disks.send(*NUMBERS[10:12])
        report = recover(disks, 2)
        # Two appends, and the barrier before them.
        assert (report.copied_segments, report.directory) == (3, 0)

    def test_after_its_disk_was_lost(self, disks):
        disks.create()
        disks.send(*NUMBERS)
        disks.wipe(2)
        (result,) = disks.replicate()
        assert result.report.is_in_sync
        assert disks.partition().isr == (1, 0, 2)
        assert values_of(disks.replica(2)) == NUMBERS

    def test_and_acknowledged_records_are_on_it_when_the_others_are_lost(self, disks):
        disks.create()
        disks.send(*NUMBERS[:20])
        disks.wipe(2)
        disks.replicate()
        disks.send(*NUMBERS[20:40])
        disks.take_away(1)
        disks.leave(1, 0)
        assert disks.partition().leader == 2
        assert disks.values() == NUMBERS[:40]

    def test_with_the_files_of_the_leader_byte_by_byte(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.wipe(2)
        disks.replicate()
        leading, following = (disks.replica(each).files for each in (1, 2))
        names = {file.name for file in leading.store.list(leading.path) if file.name[-4:] == ".log"}
        assert len(names) >= 10
        for name in names:
            assert leading.store.open_buffer(leading.file_path(name)).equals(
                following.store.open_buffer(following.file_path(name))
            )

    def test_not_if_its_broker_is_fenced(self, disks):
        disks.create()
        disks.admin.fence_broker(2)
        (result,) = disks.replicate()
        assert "broker 2 is fenced" in (result.error or "")
        assert disks.partition().joining == ()

    def test_not_into_a_mount_point_without_its_disk(self, disks):
        disks.create()
        disks.send(*NUMBERS[:3])
        disks.leave(2)
        cluster = disks.cluster()
        cluster.broker_store(2)
        disks.take_away(2)
        disks.path(2).mkdir()
        with pytest.raises(StorageUnavailableError, match="mount it again"):
            recovery(cluster, 2).run()
        assert list(disks.path(2).iterdir()) == []

    def test_after_a_reader_met_its_mount_point_without_its_disk(self, disks):
        disks.create(0, 1, 2)
        disks.send(*NUMBERS[:3])
        cluster = disks.cluster()
        cluster.broker_store(2)
        disks.take_away(2)
        disks.path(2).mkdir()
        assert values_of(cluster.partition_log(cluster.topic("t"), 0)) == NUMBERS[:3]
        assert disks.partition().isr == (0, 1)
        disks.bring_back(2)
        disks.replicate()
        assert disks.partition().isr == (0, 1, 2)

    def test_not_without_a_leader(self, disks):
        disks.create()
        for broker_id in (2, 1, 0):
            disks.admin.fence_broker(broker_id)
        disks.admin.unfence_broker(2)
        with pytest.raises(LeaderNotAvailableError):
            recover(disks, 2)

    def test_by_several_processes_at_once(self, disks):
        disks.create()
        disks.send(*NUMBERS[:30])
        disks.wipe(2)
        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda _: recover(disks, 2), range(4)))
        assert all(report.is_in_sync for report in reports)
        state = disks.partition()
        assert (state.isr, state.directory_of(2), state.leader_epoch) == ((1, 0, 2), 1, 3)
        assert values_of(disks.replica(2)) == NUMBERS[:30]

    def test_and_others_at_the_same_time(self, disks):
        disks.create()
        disks.send(*NUMBERS[:30])
        disks.leave(0, 2)
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(lambda each: recover(disks, each), (0, 2)))
        assert all(report.is_in_sync for report in reports)
        assert set(disks.partition().isr) == {0, 1, 2}

    def test_no_faster_than_the_throttle_allows(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.wipe(2)
        clock = SleepingClock()
        report = recover(disks, 2, on_progress=Throttle(1000, clock))
        assert clock.monotonic_ms() == pytest.approx(report.copied_bytes)

    def test_how_much_is_left_is_known_from_the_leaders_listing(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.wipe(2)
        remaining: list[int] = []
        assert remaining == [recover(disks, 2, on_listed=remaining.append).copied_bytes]

    def test_replicas_on_one_file_system_share_no_file(self, disks):
        disks.create()
        disks.send(*NUMBERS[:5])
        disks.wipe(2)
        disks.replicate()
        segments = [
            path for broker_id in (0, 1, 2) for path in disks.path(broker_id).glob("t.*/t-0*/*.log")
        ]
        assert len(segments) >= 15
        assert {path.stat().st_nlink for path in segments} == {1}


class TestDiverged:
    @pytest.fixture
    def diverged(self, disks):
        """Return disks whose broker 1 led, and has a record that was never acknowledged."""
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.replica(1).append(numbered(0, 3, mark="lost"))
        disks.leave(1)
        disks.send(*NUMBERS[10:20])
        return disks

    def test_comes_back_in_a_new_directory(self, diverged):
        (result,) = diverged.replicate()
        assert (result.report.is_in_sync, result.report.directory) == (True, 1)
        assert diverged.partition().directory_of(1) == 1
        assert values_of(diverged.replica(1)) == diverged.values() == NUMBERS[:20]

    def test_is_not_truncated(self, diverged):
        before = diverged.replica(1)
        end_offset = before.observe().log_end_offset
        diverged.replicate()
        assert before.observe().log_end_offset == end_offset

    def test_comes_back_once_more_in_the_next_one(self, diverged):
        diverged.replicate()
        diverged.leave(2, 0)
        diverged.replicate()
        diverged.replica(1).append(numbered(0, 3, mark="lost"))
        diverged.leave(1)
        diverged.send(*NUMBERS[20:30])
        diverged.replicate()
        assert diverged.partition().directory_of(1) == 2
        assert values_of(diverged.replica(1)) == NUMBERS[:30]

    def test_uses_what_an_earlier_try_has_copied(self, diverged):
        class Stopped(BaseException):
            pass

        def stop(done_bytes):
            raise Stopped

        with pytest.raises(Stopped):
            diverged.replicate(stop)
        (result,) = diverged.replicate()
        whole = result.report.copied_segments + 1
        assert (result.report.directory, whole) == (1, 21)

    @pytest.mark.parametrize("start", [12, 13, 15])
    def test_in_what_the_leader_has_deleted_since(self, disks, start):
        disks.create(**{"min.insync.replicas": "1"})
        disks.send(*NUMBERS[:10])
        lost = ProducerAppend(7, 0, 0)
        disks.replica(1).append(numbered(0, 3, mark="lost"), producer=lost)
        disks.leave(1)
        disks.send(*NUMBERS[10:20])
        cluster = disks.cluster()
        cluster.partition_log(cluster.topic("t"), 0).move_start(start)
        (result,) = disks.replicate()
        assert (result.report.is_in_sync, result.report.directory) == (True, 1)
        disks.leave(2, 0)
        assert disks.partition().leader == 1
        cluster = disks.cluster()
        log = cluster.partition_log(cluster.topic("t"), 0)
        info = log.append(numbered(0, 3), producer=lost)
        assert info.base_offset > 20  # the new leader does not take it for a retry
        assert values_of(log)[-3:] == numbered(0, 3).column("value").to_pylist()

    def test_comes_back_if_files_of_it_are_missing(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.leave(2)
        disks.send(*NUMBERS[10:12])
        log = disks.replica(2)
        for file in log.files.store.list(log.files.path):
            if file.name.startswith(f"{0:020d}"):
                log.files.store.delete(file.path)
        (result,) = disks.replicate()
        assert (result.report.is_in_sync, result.report.directory) == (True, 1)
        assert values_of(disks.replica(2)) == NUMBERS[:12]

    def test_never_comes_back_in_a_directory_that_may_be_deleted(self, disks):
        disks.create()
        disks.send(*NUMBERS[:3])
        disks.leave(2)
        cluster = disks.cluster()
        marker = f"{STRAY_REPLICAS}/{cluster.topic('t').partition_directory(0)}"
        cluster.broker_store(2).put(marker, b"")
        (result,) = disks.replicate()
        assert (result.report.is_in_sync, result.report.directory) == (True, 1)
        assert values_of(disks.replica(2)) == NUMBERS[:3]


class TestLogStart:
    """The leader's log starts behind the replica's end: after a retention, say."""

    @pytest.fixture
    def shortened(self, disks):
        disks.create(**{"min.insync.replicas": "1"})
        cluster = disks.cluster()
        log = cluster.partition_log(cluster.topic("t"), 0)
        for number in range(4):
            log.append(numbered(number * 5, 5), producer=ProducerAppend(9, 0, number * 5))
        log.append(numbered(20, 10), producer=ProducerAppend(10, 0, 0))
        log.append(numbered(30, 10), producer=ProducerAppend(11, 0, 0))
        return disks

    @pytest.mark.parametrize("start", [20, 25, 30, 40])
    def test_is_the_replicas_too(self, shortened, start):
        shortened.wipe(2)
        move_log_start(shortened.replica(1), start)
        shortened.replicate()
        leading, following = shortened.replica(1), shortened.replica(2)
        assert following.observe().log_start_offset == start
        assert values_of(following) == values_of(leading)

    @pytest.mark.parametrize("start", [20, 25, 30, 40])
    def test_takes_no_producer_away(self, shortened, start):
        shortened.wipe(2)
        move_log_start(shortened.replica(1), start)
        shortened.replicate()
        shortened.leave(1, 0)
        assert shortened.partition().leader == 2
        cluster = shortened.cluster()
        log = cluster.partition_log(cluster.topic("t"), 0)
        info = log.append(numbered(15, 5), producer=ProducerAppend(9, 0, 15))
        assert info.base_offset == 15  # a retry of an append whose records were deleted

    def test_is_moved_in_a_replica_that_has_the_records(self, shortened):
        shortened.leave(2)
        move_log_start(shortened.replica(1), 25)
        shortened.replicate()
        assert shortened.replica(2).observe().log_start_offset == 25

    def test_behind_the_end_of_a_replica_with_records(self, shortened):
        shortened.leave(2)
        shortened.send(*NUMBERS[:20])
        move_log_start(shortened.replica(1), 50)
        shortened.replicate()
        assert shortened.partition().isr == (1, 0, 2)
        assert shortened.partition().directory_of(2) == 1  # none of its records is left to compare
        assert shortened.replica(2).observe().log_start_offset == 50
        assert values_of(shortened.replica(2)) == values_of(shortened.replica(1))


class TestRewritten:
    def test_segments_of_the_leader_are_copied_as_they_are(self, disks):
        disks.create()
        disks.send(*NUMBERS[:15])
        disks.leave(2)
        disks.send(*NUMBERS[15:30])
        PartitionCleaner(disks.replica(1)).clean()
        (result,) = disks.replicate()
        assert result.report.is_in_sync
        assert result.report.copied_segments < 15
        assert values_of(disks.replica(2)) == NUMBERS[:30]


class TestDamaged:
    def test_segments_of_the_leader_are_not_copied(self, disks):
        disks.create()
        disks.send(b"alpha", b"beta", b"gamma")
        disks.wipe(2)
        log = disks.replica(1)
        path = disks.path(1) / log.files.file_path(f"{1:020d}.log")
        damaged = path.read_bytes().replace(b"beta", b"bEta")
        path.unlink()
        path.write_bytes(damaged)
        cluster = disks.cluster()
        with pytest.raises(CorruptRecordError, match=r"0001\.log"):
            recovery(cluster, 2).run()
        assert values_of(disks.replica(2)) == [b"alpha"]


class TestKilled:
    def test_by_a_signal_amid_the_copy_then_the_rest_is_copied(self, disks):
        disks.create()
        disks.send(*NUMBERS[:10])
        disks.leave(2)
        shutil.rmtree(disks.path(2) / disks.cluster().topic("t").directory)
        shutil.rmtree(disks.path(2) / "__witnesses")
        script = (
            "import sys\n"
            "from spark_log.cluster import Cluster\n"
            "from spark_log.replication import ReplicaRecovery\n"
            "done = []\n"
            "def stop(done_bytes):\n"
            "    done.append(done_bytes)\n"
            "    if len(done) == 4:\n"
            "        print('copied', flush=True)\n"
            "        sys.stdin.read()\n"
            "cluster = Cluster(sys.argv[1])\n"
            "ReplicaRecovery(cluster, cluster.topic('t'), 0, 2, on_progress=stop).run()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, disks.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"copied\n"
            os.kill(child.pid, signal.SIGKILL)
        assert disks.partition().isr == (1, 0)
        report = recover(disks, 2)
        assert (report.is_in_sync, report.directory) == (True, 0)
        assert report.copied_segments == 10 + 1 - 4
        assert values_of(disks.replica(2)) == NUMBERS[:10]

    @pytest.mark.parametrize("start", [pytest.param(0, marks=pytest.mark.long), 2])
    def test_before_any_change_of_the_storage_then_the_rest_is_done(self, tmp_path, start):
        disks = Disks(tmp_path / "disks")
        disks.create()
        disks.send(*NUMBERS[:4])
        disks.wipe(2)
        if start:
            move_log_start(disks.replica(1), start)
        saved = tmp_path / "saved"
        shutil.copytree(disks.folder, saved)
        for kills in itertools.count():
            if not dies(disks, kills):
                break
            recover(disks, 2)
            state = disks.partition()
            assert (state.isr, state.joining) == ((1, 0, 2), ())
            assert values_of(disks.replica(2)) == NUMBERS[start:4]
            disks.send(NUMBERS[4])
            assert disks.values() == NUMBERS[start:5]
            shutil.rmtree(disks.folder)
            shutil.copytree(saved, disks.folder)
        assert kills > 10


class _Killed(BaseException):
    """Stands for the end of the process: no code handles it."""


def dies(disks, count):
    """Run a recovery that dies after some changes of the storage; return whether it did."""
    left = itertools.count(count, -1)

    def dying(original):
        def method(self, *args, **kwargs):
            if next(left) == 0:
                raise _Killed
            return original(self, *args, **kwargs)

        return method

    changes = {name: dying(getattr(LocalStore, name)) for name in ("put_if_absent", "put")}
    with mock.patch.multiple(LocalStore, **changes):
        try:
            recover(disks, 2)
        except _Killed:
            return True
    return False


class TestWhichReplicas:
    def test_are_all_that_are_not_in_sync(self, disks):
        disks.create(partitions=2)
        disks.leave(2, number=1)
        image = disks.cluster().image()
        lagging = TopicPartitionReplica("t", 1, 2)
        assert out_of_sync_replicas(image) == [lagging]
        assert out_of_sync_replicas(image, ["first"]) == []
        assert out_of_sync_replicas(image, brokers=[1]) == []
        assert str(lagging) == "t-1-2"

    def test_of_a_deleted_topic_are_left_out(self, disks):
        disks.create()
        disks.leave(2)
        cluster = Cluster(disks.root)
        replicas = out_of_sync_replicas(cluster.image())
        disks.admin.delete_topics(["t"])
        assert list(ClusterRecovery(cluster).run(replicas)) == []


def test_the_last_replica_that_a_reassignment_waits_for_completes_it(disks):
    disks.admin.register_broker(3, disks.path(3))
    disks.create(0)
    disks.admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 3]})
    first, last = (RecoveredReplica.from_document(each.document()) for each in disks.replicate())
    assert (first.completes_reassignment, last.completes_reassignment) == (False, True)
    assert disks.partition().replicas == (1, 3)
