"""The rules of replication that few seeds of its simulation miss: one situation for each.

A situation returns whether the guarantee held. It does, and does not without the rule.
"""

from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster as RealCluster
from spark_log.cluster import register_broker
from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log.append import DivergedReplicaError
from spark_log.log.chain import ReplicaFetcher
from spark_log.log.files.file_names import SegmentName
from spark_log.log.files.live_segments import live_log
from spark_log.log.rewrite.merger import merge
from spark_log.metadata import METADATA_LEASE_MS, begin_joining, shrink_isr
from spark_log.record import ProducerAppend
from spark_log.util.clock import ManualClock
from tests.log.chain.support import Cluster
from tests.log.support import DIRECTORY, failing, move_start, values, values_of
from tests.metadata.replicas import append, leave, log_of, replicated_cluster, state
from tests.record.samples import numbered
from tests.simulation.patches import patched
from tests.simulation.replication.controllers import Controller
from tests.simulation.replication.rules import REPLICATION_RULES
from tests.simulation.test_replication import RARE
from tests.sleeping_clock import SleepingClock


def are_read(cluster, count):
    """Whether a new reader gets the numbered records, each once."""
    read = [value for _, value in values(cluster.process().log)]
    return read == [b"record:%d" % number for number in range(count)]


def merge_all(process, broker_id):
    """Merge all segments of a replica into one, as its writers and cleaners do."""
    files = process.replica(broker_id).files
    view = files.observe()
    merge(files, view, 0, len(view.live.segments) - 1)


def give_back(cluster, process, source, broker_id):
    """Copy a log to a replica that is not in sync, which is in sync then, and leads alone."""
    end_offset = process.replica(source).files.observe().log_end_offset
    fetcher = ReplicaFetcher(process.replica(source), process.replica(broker_id))
    fetcher.fetch(process.replica(broker_id).files.observe().log_end_offset, end_offset)
    cluster.metadata.change(isr=(*cluster.metadata.state.isr, broker_id))
    process.log.replicate()
    cluster.metadata.change(isr=(broker_id,))


def leader_again_with_a_merged_segment(producer=None):
    """A writer knows the end of a leader, which got a merged segment when it led no more.

    Returns:
        The cluster; the writer, which has not read the metadata since; and another process.
    """
    cluster = Cluster()
    writer, other = cluster.process(), cluster.process()
    writer.log.append(numbered(0, 2), producer=producer)
    cluster.metadata.change(isr=(2, 3))
    other.states.refresh()
    other.log.append(numbered(2, 1))
    other.log.append(numbered(3, 1))
    merge_all(other, 2)
    give_back(cluster, other, 2, 1)
    return cluster, writer, other


def barrier_at_a_free_name(_):
    cluster, writer, _ = leader_again_with_a_merged_segment()
    writer.states.refresh()
    writer.log.append(numbered(4, 1))
    return are_read(cluster, 5)


def record_at_a_free_name(_):
    cluster, writer, _ = leader_again_with_a_merged_segment(ProducerAppend(9, 0, 0))
    writer.log.append(numbered(4, 1), producer=ProducerAppend(9, 0, 2))
    return are_read(cluster, 5)


def emptied_one_after_the_other(_):
    """A writer knows two replicas. A third one joins, and then these two lose their files."""
    cluster = Cluster(1, 2)
    writer, other = cluster.process(), cluster.process()
    cluster.metadata.change()
    writer.states.refresh()
    writer.log.append(numbered(0, 1), producer=ProducerAppend(9, 0, 0))
    cluster.metadata.change(isr=(2,))
    give_back(cluster, other, 2, 3)
    cluster.clock.advance_ms(METADATA_LEASE_MS)  # so long the third one was joining
    for broker_id in (1, 2):
        cluster.empty(broker_id)
    writer.log.append(numbered(1, 1), producer=ProducerAppend(9, 0, 1))
    return are_read(cluster, 2)


def alone_and_emptied_before_a_writer_came(_):
    cluster = Cluster(1)
    cluster.metadata.change()
    cluster.process().log.append(numbered(0, 2))
    cluster.empty(1)
    try:
        cluster.process().log.append(numbered(2, 1))
    except StorageUnavailableError:
        return True
    return False


def emptied_after_a_lost_answer(_):
    """A writer has found its record on the leader, where another one puts its own before a copy."""
    cluster = Cluster(1, 2)
    writer, other = cluster.process(), cluster.process()
    writer.log.append(numbered(0, 1), producer=ProducerAppend(9, 0, 0))
    other.log.append(numbered(1, 1))

    def empty_first(path, call):
        cluster.empty(1)
        other.log.append(numbered(2, 1))
        call()

    def lose_answer(path, call):
        call()  # the first name is taken
        del writer.stores[1].hooks["put_if_absent"]
        writer.stores[2].once("put_if_absent", empty_first)
        raise UnknownOutcomeError("the answer was lost", path=path)

    writer.stores[1].on("put_if_absent", lose_answer)
    writer.log.append(numbered(3, 1), producer=ProducerAppend(9, 0, 1))
    return are_read(cluster, 4)


def leader_emptied_while_its_start_moves(_):
    """The leader has only a start marker, which another process put after its files were lost."""
    cluster = Cluster(1, 2)
    cluster.metadata.change()
    cluster.process().log.append(numbered(0, 2))
    cluster.empty(1)
    move_start(cluster.root(1), 4, 4)
    cluster.process().log.append(numbered(2, 1), producer=ProducerAppend(9, 0, 0))
    return are_read(cluster, 3)


def emptied_while_it_is_copied(_):
    """The leader has deleted all records, and a follower begins where they ended."""
    cluster = Cluster(1)
    process = cluster.process()
    process.log.append(numbered(0, 2))
    process.log.move_start(2)

    def put_and_empty(path, call):
        call()
        cluster.empty(2)

    process.stores[2].once("put_if_absent", put_and_empty)
    try:
        ReplicaFetcher(process.replica(1), process.replica(2)).fetch(0, 2)
    except LogTruncatedError:
        return True
    except OffsetOutOfRangeError:
        return False
    raise AssertionError("nobody has noticed")


def emptied_before_records_are_deleted(_):
    cluster = Cluster(1, 2)
    process = cluster.process()
    process.log.append(numbered(0, 2))
    cluster.empty(2)
    try:
        cluster.process().log.move_start(1)
    except OffsetOutOfRangeError:
        return False
    return cluster.metadata.state.isr == (1,)


def emptied_before_a_merge(_):
    """The partition has one replica, on an object store: only a merge reads what is there."""
    cluster = Cluster(1, merge_tail_segments=4)
    writer = cluster.process()
    writer.log.append(numbered(0, 1))
    cluster.empty(1)
    try:
        for number in range(1, 8):
            writer.log.append(numbered(number, 1))
    except CorruptRecordError:
        return True
    return False


def old_listing_of_a_replica_that_has_come_back(_):
    """A reader knows where a replica ended. It got a merged segment since, and a late record."""
    cluster = Cluster(1)
    late, other, reader = cluster.process(), cluster.process(), cluster.process()
    other.log.append(numbered(0, 1))
    _, position = reader.log.read(0)
    ReplicaFetcher(other.replica(1), other.replica(2)).fetch(0, 1)
    cluster.metadata.change(isr=(1, 2))
    late.states.refresh()
    late.log.append(numbered(1, 1))
    cluster.metadata.change(isr=(2,))
    other.log.append(numbered(2, 1))
    merge_all(other, 2)
    give_back(cluster, other, 2, 1)
    with suppress(UnknownOutcomeError):
        late.log.append(numbered(3, 1))  # where replica 1 ended, and on this one alone
    cluster.clock.advance_ms(1000)
    batches, _ = reader.log.read(position)
    return values_of(batches) == values(cluster.process().log, position)


def joining_replica_that_lacks_a_record(_):
    """A record is on the in-sync replica alone. Then the joining one is in sync, and leads."""
    cluster = Cluster(1)
    writer, reader = cluster.process(), cluster.process()
    writer.log.append(numbered(0, 1))
    cluster.metadata.change(joining=(2,))
    writer.log.replicate()
    writer.stores[2].once("put_if_absent", failing(KeyboardInterrupt()))  # it dies
    with suppress(KeyboardInterrupt):
        writer.log.append(numbered(1, 1))
    count = len(values(reader.log))
    cluster.metadata.change(isr=(1, 2), joining=())
    cluster.metadata.change(isr=(2,))
    return are_read(cluster, count)


def copy_that_a_reader_of_an_old_state_reads(folder):
    """A record is on the leader alone when the replica that a reader reads leaves, and gets it."""
    cluster = replicated_cluster(folder)
    append(log_of(cluster), numbered(0, 1))
    append(log_of(cluster), numbered(1, 1), acks=1)
    reader = log_of(RealCluster(cluster.root, clock=ManualClock()))
    _, position = reader.read(0)
    leave_without_barrier(cluster, 2)

    def die(_):
        raise KeyboardInterrupt

    recovery = Controller.recovery_class(
        RealCluster(cluster.root), cluster.topic("t"), 0, 2, on_progress=die
    )
    with suppress(KeyboardInterrupt):
        recovery.run()
    batches, _ = reader.read(position)
    leave_without_barrier(cluster, 0)
    later = dict(values(log_of(RealCluster(cluster.root))))
    return all(later.get(at) == value for at, value in values_of(batches))


def joining_that_was_given_up_and_began_again(folder):
    """A process completes a joining, and stands still meanwhile."""
    cluster = replicated_cluster(folder)
    leave(cluster, 2)
    join(cluster, 2)
    slow = RealCluster(cluster.root)
    recovery = Controller.recovery_class(slow, slow.topic("t"), 0, 2)

    def stand_still(_):
        leave(cluster, 2)
        append(log_of(cluster), numbered(0, 1))
        join(cluster, 2)
        slow.metadata.image()
        raise_after(slow.metadata, "commit")

    slow.check_broker = stand_still  # type: ignore[method-assign]
    with suppress(KeyboardInterrupt):
        recovery.run()
    log = log_of(RealCluster(cluster.root))
    log.states.remove_from_isr(log.states.refresh(), (0, 1))
    return [value for _, value in values(log)] == [b"record:0"]


def emptied_before_writers_know_who_has_joined(_):
    """A writer knows two replicas. A third one joins, and at once these two lose their files."""
    clock, name = SleepingClock(), f"memory://{uuid4()}"
    cluster = RealCluster(f"{name}-0", clock=clock, create=True)
    for broker_id in (1, 2, 3):
        register_broker(cluster, broker_id, f"{name}-{broker_id}")
    Admin(cluster.root, clock=clock).create_topics(
        [NewTopic("t", replica_assignment={0: [1, 2, 3]})]
    )
    leave(cluster, 3)
    writer = log_of(RealCluster(cluster.root, clock=clock))
    append(writer, numbered(0, 1), producer=ProducerAppend(9, 0, 0))
    leave(cluster, 1)
    Controller.recovery_class(cluster, cluster.topic("t"), 0, 3).run()
    for broker_id in (1, 2):
        store = cluster.broker_store(broker_id)
        store.delete_directory(cluster.topic("t").directory)
    append(writer, numbered(1, 1), producer=ProducerAppend(9, 0, 1))
    cluster.metadata.image()
    return [value for _, value in values(log_of(cluster))] == [b"record:0", b"record:1"]


def leave_without_barrier(cluster, broker_id):
    """Take a replica out of the in-sync ones, as a process does that dies then."""
    topic, epoch = cluster.topic("t"), state(cluster).leader_epoch
    cluster.metadata.commit(
        lambda image: shrink_isr(image, topic.topic_id, 0, (broker_id,), leader_epoch=epoch)
    )


def join(cluster, broker_id):
    """Let a replica join, which is a prefix of the leader's."""
    topic, epoch = cluster.topic("t"), state(cluster).leader_epoch
    cluster.metadata.commit(
        lambda image: begin_joining(
            image, topic.topic_id, 0, broker_id, leader_epoch=epoch, directory=0
        )
    )


def raise_after(thing, name):
    """Let a process die after its next call of a method."""
    method = getattr(thing, name)

    def call(*what, **how):
        method(*what, **how)
        raise KeyboardInterrupt

    setattr(thing, name, call)


def listing_that_lacks_a_barrier(_):
    """A replica that has a late record at the offset of the leader's barrier gets what follows."""
    cluster = Cluster(2, 1)
    late, other = cluster.process(), cluster.process()
    late.log.append(numbered(0, 1))
    cluster.metadata.change(isr=(1,))
    other.states.refresh()
    other.log.append(numbered(1, 1))
    with suppress(UnknownOutcomeError):
        late.log.append(numbered(9, 1))
    assert other.end_offsets(1, 2) == [3, 2]
    listed = other.stores[1].list

    def list_too_early(directory, start_after=None):
        other.stores[1].list = listed
        files = listed(directory, start_after)
        return (file for file in files if file.name != SegmentName(1).file_name)

    other.stores[1].list = list_too_early
    replica = other.replica(2)
    fetcher = ReplicaFetcher(other.replica(1), replica)
    with suppress(DivergedReplicaError):
        replica.follower.observe()
        fetcher.fetch(2, 3)
    assert other.stores[1].list == listed
    return are_read(cluster, 2) and other.end_offsets(2) == [2]


SITUATIONS = {
    "a new leader's barrier is put behind its copies as a follower": barrier_at_a_free_name,
    "an append is looked for again in a new leader epoch": record_at_a_free_name,
    "an append is acknowledged by a recent state": emptied_one_after_the_other,
    "a replica joins until every writer knows it": emptied_before_writers_know_who_has_joined,
    "a copy of the leader's log needs its root": emptied_after_a_lost_answer,
    "the first put into a log needs its root": alone_and_emptied_before_a_writer_came,
    "a leader without its files leaves, and no follower": leader_emptied_while_its_start_moves,
    "a replica that ends before the log start was emptied": emptied_while_it_is_copied,
    "records are deleted without a replica that was emptied": emptied_before_records_are_deleted,
    "a writer whose merge misses files lists the log": emptied_before_a_merge,
    "a reader reads the last replica, also a joining one": joining_replica_that_lacks_a_record,
    "a replica is listed again before it is read in a new state": (
        old_listing_of_a_replica_that_has_come_back
    ),
    "a replica outside of the chain gets committed records": (
        copy_that_a_reader_of_an_old_state_reads
    ),
    "a leader epoch is that of the segment that has the offset": listing_that_lacks_a_barrier,
    "joining is completed in the epoch of its barrier": joining_that_was_given_up_and_began_again,
}


def test_followers_get_the_record_after_which_a_merge_misses_files():
    cluster = Cluster(merge_tail_segments=4)
    writer = cluster.process()
    for number in range(3):
        writer.log.append(numbered(number, 1))
    cluster.root(1).delete(f"{DIRECTORY}/{SegmentName(1).file_name}")
    writer.log.append(numbered(3, 1))
    assert writer.end_offsets(2, 3) == [4, 4]
    writer.log.append(numbered(4, 1), producer=ProducerAppend(9, 0, 0))
    assert cluster.metadata.state.isr == (2, 3)
    assert are_read(cluster, 5)


def test_a_listing_that_lacks_a_segment_is_read_again_to_copy_it():
    cluster = Cluster(1)
    process = cluster.process()
    for number in range(4):
        process.log.append(numbered(number, 1))
    listed = process.stores[1].list

    def list_too_early(directory, start_after=None):
        process.stores[1].list = listed
        files = listed(directory, start_after)
        return (file for file in files if file.name != SegmentName(2).file_name)

    process.stores[1].list = list_too_early
    assert ReplicaFetcher(process.replica(1), process.replica(2)).fetch(0, 4) == 4
    assert process.end_offsets(2) == [4]


def test_an_epoch_begins_where_it_does_although_a_listing_lacks_its_barrier():
    cluster = Cluster(1)
    process = cluster.process()
    process.log.append(numbered(0, 1))
    cluster.metadata.change()
    process.states.refresh()
    process.log.append(numbered(1, 1))
    replica = process.replica(1)
    view = replica.files.observe()
    barrier = SegmentName(1).file_name
    files = (file for file in process.stores[1].list(DIRECTORY) if file.name != barrier)
    early = replace(view, live=live_log(files))
    assert (
        replica.leader_epochs.start_offset_of(1, early)
        == replica.leader_epochs.start_offset_of(1, view)
        == 1
    )


def test_a_record_at_a_free_name_is_not_known_without_a_producer():
    _, writer, _ = leader_again_with_a_merged_segment()
    with pytest.raises(UnknownOutcomeError):
        writer.log.append(numbered(4, 1))


def test_each_rare_rule_has_a_situation():
    assert set(SITUATIONS) >= RARE


@pytest.mark.parametrize("rule", SITUATIONS)
def test_the_guarantee_holds_in_the_situation_for(rule, tmp_path):
    assert SITUATIONS[rule](tmp_path)


@pytest.mark.parametrize("rule", SITUATIONS)
def test_the_guarantee_does_not_hold_without(rule, tmp_path):
    with patched(*REPLICATION_RULES[rule].patches):
        assert not SITUATIONS[rule](tmp_path)
