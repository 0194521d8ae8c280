"""Appends and reads through the chain: who has a record, what a failure changes, who is fenced."""

import pytest

from spark_log.errors import (
    CorruptRecordError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log import (
    BatchAppend,
    DivergedReplicaError,
    LogAppendInfo,
)
from spark_log.log.append import CopiedSegment
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.log_start import move_log_start
from spark_log.metadata import METADATA_LEASE_MS
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.log.chain.support import NO_LEADER, Cluster
from tests.log.support import DIRECTORY, done_but, failing, file_names, values
from tests.record.samples import START_US, numbered

FIRST = f"{DIRECTORY}/{SegmentName(0).file_name}"


def idempotent(sequence, epoch=0):
    return ProducerAppend(7, epoch, sequence)


def content(process, broker_id, number=0):
    """Return names and bytes of a replica's segments."""
    replica = process.replica(broker_id, number)
    return {
        each.name.file_name: replica.files.store.open_buffer(each.file.path).to_pybytes()
        for each in replica.files.observe().live.segments
    }


def epochs(process, broker_id, number=0):
    """Return the leader epoch of every batch in a replica."""
    replica = process.replica(broker_id, number)
    view = replica.files.observe()
    readers = replica.files.walk(view, view.log_start_offset, view.log_end_offset)
    return [
        header.leader_epoch
        for _, _, reader in readers
        for _, headers in reader.all_headers()
        for header in headers
    ]


class TestAppend:
    def test_puts_the_same_bytes_under_the_same_name_on_every_replica(self):
        process = Cluster().process()
        assert process.log.append(numbered(0, 3)) == LogAppendInfo(0, 2)
        assert process.log.append(numbered(3, 2)) == LogAppendInfo(3, 4)
        assert len(content(process, 1)) == 2
        assert content(process, 1) == content(process, 2) == content(process, 3)

    def test_puts_in_the_order_of_the_chain(self):
        process = Cluster(2, 3, 1).process()
        order: list[int] = []
        for each in (1, 2, 3):
            process.stores[each].on("put_if_absent", noting(order, each))
        process.log.append(numbered(0, 1))
        assert order == [2, 3, 1]

    def test_costs_one_put_on_each_root_and_nothing_else_once_it_knows_the_log(self):
        process = Cluster().process()
        process.log.append(numbered(0, 1))
        for store in process.stores.values():
            store.calls.clear()
        process.log.append(numbered(1, 1))
        for each in (1, 2, 3):
            kinds = [name for name, _ in process.stores[each].calls if name != "stage"]
            assert kinds == ["put_if_absent"]

    def test_to_the_only_replica_that_is_left_costs_one_put(self):
        cluster = Cluster(1, 2)
        cluster.metadata.change(isr=(1,))
        process = cluster.process()
        process.log.append(numbered(0, 1))
        process.stores[1].calls.clear()
        process.log.append(numbered(1, 1))
        kinds = [name for name, _ in process.stores[1].calls if name != "stage"]
        assert kinds == ["put_if_absent"]

    def test_is_acknowledged_by_metadata_of_the_last_seconds(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        assert process.states.refreshes == 0
        cluster.clock.advance_ms(METADATA_LEASE_MS)
        for number in (1, 2):
            process.log.append(numbered(number, 1))
        assert process.states.refreshes == 1

    def test_is_unknown_if_the_partition_has_no_leader_then(self):
        cluster = Cluster(1)
        cluster.metadata.change()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.clock.advance_ms(METADATA_LEASE_MS)
        process.stores[1].once(
            "put_if_absent", lambda path, call: (call(), cluster.metadata.change(leader=NO_LEADER))
        )
        with pytest.raises(UnknownOutcomeError, match="has no leader"):
            process.log.append(numbered(1, 1))

    def test_is_unknown_if_the_metadata_cannot_be_read_then(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.clock.advance_ms(METADATA_LEASE_MS)
        cluster.metadata.is_down = True
        with pytest.raises(UnknownOutcomeError, match="the metadata cannot be read"):
            process.log.append(numbered(1, 1), producer=ProducerAppend(9, 0, 0))
        assert cluster.metadata.state.isr == (1, 2, 3), "no replica is to blame"

    def test_of_another_writer_reaches_all_replicas_before_ones_own(self):
        cluster = Cluster()
        one, two = cluster.process(), cluster.process()
        two.log.append(numbered(0, 1))
        one.stores[2].once("put_if_absent", failing(KeyboardInterrupt()))  # it dies
        with pytest.raises(KeyboardInterrupt):
            one.log.append(numbered(1, 1))
        assert two.end_offsets() == [2, 1, 1]
        two.log.append(numbered(2, 1))
        assert two.end_offsets() == [3, 3, 3]
        assert content(two, 1) == content(two, 2) == content(two, 3)

    def test_with_acks_1_returns_when_the_leader_has_it(self):
        process = Cluster().process()
        writer = process.log.segment_writer()
        writer.write(numbered(0, 3))
        process.log.append_segment(writer.finish(), acks=1)
        writer.discard()
        assert process.end_offsets() == [3, 0, 0]
        process.log.catch_up()
        assert process.end_offsets() == [3, 3, 3]

    @pytest.mark.parametrize("acks", [1, -1])
    def test_of_several_producers_with_acks_1_returns_when_the_leader_has_it(self, acks):
        process = Cluster().process()
        batches = [BatchAppend(numbered(0, 2), idempotent(0)), BatchAppend(numbered(2, 1), None)]
        results = process.log.append_batches(batches, acks=acks)
        assert [each.base_offset for each in results] == [0, 2]
        assert process.end_offsets() == ([3, 0, 0] if acks == 1 else [3, 3, 3])
        process.log.catch_up()
        assert process.end_offsets() == [3, 3, 3]

    def test_with_acks_1_is_read_only_when_all_have_it(self):
        process = Cluster().process()
        writer = process.log.segment_writer()
        writer.write(numbered(0, 3))
        process.log.append_segment(writer.finish(), acks=1)
        assert process.log.observe().log_end_offset == 0
        process.log.catch_up()
        assert process.log.observe().log_end_offset == 3

    def test_of_a_duplicate_brings_the_replicas_up_before_it_is_acknowledged(self):
        cluster = Cluster()
        one, two = cluster.process(), cluster.process()
        one.stores[2].once("put_if_absent", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            one.log.append(numbered(0, 2), producer=idempotent(0))
        assert two.log.append(numbered(0, 2), producer=idempotent(0)) == LogAppendInfo(0, 1)
        assert two.end_offsets() == [2, 2, 2]

    def test_of_a_duplicate_copies_the_file_that_the_leader_has(self):
        cluster = Cluster()
        one, two = cluster.process(), cluster.process()
        two.log.append(numbered(0, 1))
        one.stores[2].once("put_if_absent", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            one.log.append(numbered(1, 2), producer=idempotent(0))
        two.log.append(numbered(1, 2), producer=idempotent(0))
        assert content(two, 1) == content(two, 2) == content(two, 3)

    def test_markers_go_through_the_chain_once(self):
        process = Cluster().process()
        transactional = ProducerAppend(7, 0, 0, is_transactional=True)
        process.log.append(numbered(0, 2), producer=transactional)
        marker = EndTransactionMarker(7, 1, is_committed=True)
        assert process.log.append_markers([marker]) == LogAppendInfo(2, 2)
        assert process.log.append_markers([marker]) is None
        assert process.end_offsets() == [3, 3, 3]
        assert content(process, 1) == content(process, 3)


class TestLoss:
    @pytest.mark.parametrize("lost", [2, 3])
    def test_of_a_follower_leaves_it_out(self, lost):
        process = Cluster().process()
        process.log.append(numbered(0, 2))
        process.lose(lost)
        process.log.append(numbered(2, 2))
        state = process.states.current()
        rest = tuple(each for each in (1, 2, 3) if each != lost)
        assert (state.leader, state.isr, state.leader_epoch) == (1, rest, 1)
        assert values_in(process.log) == values_of_numbers(4)
        assert process.suppressed.counts() == {"replica": 1}

    def test_of_the_leader_makes_the_next_one_the_leader(self):
        process = Cluster().process()
        process.log.append(numbered(0, 2), producer=idempotent(0))
        process.lose(1)
        info = process.log.append(numbered(2, 2), producer=idempotent(2))
        assert info == LogAppendInfo(3, 4)  # behind the barrier
        state = process.states.current()
        assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 1)
        assert epochs(process, 2) == epochs(process, 3) == [0, 1, 1]

    def test_of_the_leader_after_the_put_does_not_double_an_idempotent_append(self):
        process = Cluster().process()
        process.log.append(numbered(0, 1), producer=idempotent(0))

        def put_then_lose(path, call):
            call()
            process.lose(1)
            raise StorageUnavailableError("the other replicas hold it, and the leader is lost")

        process.stores[3].once("put_if_absent", put_then_lose)
        process.log.append(numbered(1, 1), producer=idempotent(1))
        assert values_in(process.log) == values_of_numbers(2)

    def test_of_the_leaders_files_takes_the_leader_out_and_not_those_that_have_them(self):
        cluster = Cluster()
        cluster.process().log.append(numbered(0, 2), producer=idempotent(0))
        for file in list(cluster.root(1).list(DIRECTORY)):
            cluster.root(1).delete(file.path)
        process = cluster.process()
        process.log.append(numbered(2, 1), producer=idempotent(2))
        assert process.states.current().isr == (2, 3)
        assert values_in(process.log) == values_of_numbers(3)

    def test_of_all_but_one_goes_on_with_this_one(self):
        process = Cluster().process()
        process.log.append(numbered(0, 1), producer=idempotent(0))
        process.lose(1)
        process.lose(2)
        process.log.append(numbered(1, 1), producer=idempotent(1))
        assert process.states.current().isr == (3,)
        assert values_in(process.log) == values_of_numbers(2)

    def test_of_all_is_an_error_and_the_last_one_stays_in_sync(self):
        process = Cluster().process()
        for each in (1, 2, 3):
            process.lose(each)
        with pytest.raises(StorageUnavailableError):
            process.log.append(numbered(0, 1), producer=idempotent(0))
        assert process.states.refresh().isr == (3,)
        for each in (1, 2, 3):
            process.find(each)
        process.log.append(numbered(0, 1), producer=idempotent(0))
        assert values_in(process.log) == values_of_numbers(1)

    def test_with_the_metadata_after_the_put_leaves_the_outcome_unknown(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        process.lose(2)
        cluster.metadata.is_down = True
        with pytest.raises(UnknownOutcomeError):
            process.log.append(numbered(1, 1), producer=idempotent(0))
        assert process.replica(1).files.observe().log_end_offset == 2

    def test_of_an_append_without_a_producer_is_unknown_once_the_leader_may_have_it(self):
        process = Cluster().process()
        process.log.append(numbered(0, 1))
        process.stores[1].on("put_if_absent", done_but(UnknownOutcomeError("lost")))
        process.stores[1].on("list", failing(StorageUnavailableError("lost")))
        with pytest.raises(UnknownOutcomeError):
            process.log.append(numbered(1, 1))

    def test_of_an_answer_of_a_follower_is_no_loss(self):
        process = Cluster().process()
        process.log.append(numbered(0, 1))
        process.stores[2].once("put_if_absent", done_but(UnknownOutcomeError("lost")))
        process.log.append(numbered(1, 1))
        assert process.states.refresh().isr == (1, 2, 3)
        assert process.end_offsets() == [2, 2, 2]

    def test_of_the_last_replica_does_not_stop_readers(self):
        process = Cluster().process()
        process.log.append(numbered(0, 3))
        reader = process
        reader.lose(3)
        assert values_in(reader.log) == values_of_numbers(3)
        assert reader.states.current().isr == (1, 2)


class TestTooFew:
    def test_in_sync_replicas_refuse_an_append_before_anything_is_written(self):
        cluster = Cluster(min_insync=2)
        cluster.metadata.change(isr=(1,))
        process = cluster.process()
        fewer = r"\[1\], fewer than min.insync.replicas, 2"
        with pytest.raises(NotEnoughReplicasError, match=fewer):
            process.log.append(numbered(0, 1))
        assert process.end_offsets(1) == [0]

    def test_after_the_append_is_told(self):
        process = Cluster(min_insync=3).process()
        process.log.append(numbered(0, 1), producer=idempotent(0))
        process.lose(2)
        with pytest.raises(NotEnoughReplicasAfterAppendError):
            process.log.append(numbered(1, 1), producer=idempotent(1))
        assert process.end_offsets(1) == [3]  # with the barrier

    def test_are_enough_for_acks_1(self):
        cluster = Cluster(min_insync=2)
        cluster.metadata.change(isr=(1,))
        process = cluster.process()
        writer = process.log.segment_writer()
        writer.write(numbered(0, 3))
        assert process.log.append_segment(writer.finish(), acks=1) == LogAppendInfo(1, 3)

    def test_in_sync_replicas_hide_what_is_written_then(self):
        """An eligible replica may be elected, which lacks it (KIP-966)."""
        cluster = Cluster(min_insync=2, merge_tail_segments=2)
        process = cluster.process()
        process.log.append(numbered(0, 2))
        batches, position = process.log.read(0)
        cluster.metadata.change(isr=(1,), cap_epoch=1)
        process.states.refresh()
        for number in range(3):
            append_to_leader(process, 2 + number)
        cluster.metadata.change(joining=(3,), cap_epoch=1)
        for reader in (process, cluster.process()):
            log = reader.log
            reader.states.refresh()
            assert values_in(log) == values_of_numbers(2)
            assert log.read(position) == ([], 2)
            assert log.tail_ends_at(position)
            view = log.observe()
            assert (view.log_end_offset, log.end_offset(view), log.reached_offset) == (2, 2, 2)
            assert log.end_offset(isolation_level="read_committed") == 2
            assert [each.name.base_offset for each in view.live.segments] == [0]
            assert log.offset_for_time(START_US + 1_000, view) == (1, START_US + 1_000)
            assert log.offset_for_time(START_US + 2_000, view) is None
            assert log.committed_end(reader.states.current(), 2) == 2
        cluster.metadata.change(isr=(1, 3), joining=())
        cluster.clock.advance_ms(500)
        assert values_in(process.log) == values_of_numbers(5)
        batches, position = process.log.read(2)
        assert sum(batch.records.num_rows for batch in batches) == 3

    def test_in_sync_replicas_are_merged_no_further(self):
        cluster = Cluster(min_insync=2, merge_tail_segments=2)
        cluster.metadata.change(isr=(1,), cap_epoch=1)
        process = cluster.process()
        for number in range(4):
            append_to_leader(process, number)
            process.log.catch_up()
        assert len(content(process, 1)) == 5  # with the barrier
        cluster.metadata.change(isr=(1, 2))
        process.states.refresh()
        process.log.append(numbered(4, 1))
        process.log.append(numbered(5, 1))
        assert len(content(process, 1)) < 8  # of which one is the next barrier

    def test_without_a_leader_nothing_is_appended(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.metadata.change(leader=NO_LEADER)
        process.states.refresh()
        with pytest.raises(LeaderNotAvailableError, match="no leader"):
            process.log.append(numbered(1, 1))


class TestLeaderEpochs:
    def test_begin_with_a_barrier_in_every_replica(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.metadata.change(isr=(1, 3))
        process.states.refresh()
        assert process.log.append(numbered(1, 1)) == LogAppendInfo(2, 2)
        assert epochs(process, 1) == epochs(process, 3) == [0, 1, 1]
        assert process.end_offsets(2) == [1]

    def test_are_learned_from_the_barrier(self):
        cluster = Cluster()
        old, new = cluster.process(), cluster.process()
        old.log.append(numbered(0, 1))
        cluster.metadata.change(isr=(1, 3))
        new.states.refresh()
        new.log.append(numbered(1, 1))
        old.log.append(numbered(2, 1))
        assert epochs(old, 1) == [0, 1, 1, 1]
        assert old.end_offsets() == [4, 1, 4]

    def test_fence_a_writer_that_knows_the_old_leader(self):
        cluster = Cluster()
        old, new = cluster.process(), cluster.process()
        old.log.append(numbered(0, 1), producer=ProducerAppend(1, 0, 0))
        cluster.metadata.change(isr=(2, 3))
        new.states.refresh()
        new.log.append(numbered(1, 1), producer=ProducerAppend(2, 0, 0))
        old.log.append(numbered(2, 1), producer=ProducerAppend(1, 0, 1))
        assert values_in(new.log) == values_of_numbers(3)
        assert epochs(new, 2) == [0, 1, 1, 1]
        assert old.end_offsets(1) == [2]  # what the old leader has is in no log

    def test_are_put_again_behind_a_segment_that_was_staged_before(self):
        cluster = Cluster()
        process = cluster.process()
        writer = process.log.segment_writer("zstd", idempotent(0))
        writer.write(numbered(0, 2))
        cluster.metadata.change(isr=(2, 3))
        process.states.refresh()
        staged = writer.finish()
        assert process.log.append_segment(staged) == LogAppendInfo(1, 2)
        assert epochs(process, 3) == [1, 1]
        assert values_in(process.log) == values_of_numbers(2)
        segment = process.replica(3).files.open(SegmentName(1))
        assert segment.compression(0) == "zstd"

    def test_are_seen_behind_a_merge(self):
        cluster = Cluster(merge_tail_segments=4)
        old, new = cluster.process(), cluster.process()
        old.log.append(numbered(0, 1))
        cluster.metadata.change(isr=(1, 3))
        new.states.refresh()
        for number in range(1, 8):
            new.log.append(numbered(number, 1))
        names = [each.name for each in new.replica(1).files.observe().live.segments]
        assert any(name.generation for name in names)
        cluster.clock.advance_ms(40_000)  # the old writer lists the log again
        old.log.append(numbered(8, 1))
        assert epochs(old, 1)[-1] == 1
        assert old.end_offsets(1) == old.end_offsets(3)

    def test_are_asked_of_the_metadata_if_the_log_was_emptied(self):
        cluster = Cluster(1)
        old, new = cluster.process(), cluster.process()
        cluster.metadata.change(isr=(1,))
        new.states.refresh()
        new.log.append(numbered(0, 1))
        end = new.log.observe().log_end_offset
        new.stores[1].put_if_absent(f"{DIRECTORY}/{end:020d}-{end:020d}.start", b"")
        old.log.append(numbered(1, 1))
        assert epochs(old, 1)[-2:] == [1, 1]  # a barrier again, and the record


class TestJoining:
    def test_nothing_is_acknowledged_that_a_joining_replica_lacks(self):
        cluster = Cluster(1, 2)
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.metadata.change(joining=(3,))
        process.states.refresh()
        process.log.append(numbered(1, 1))
        assert process.end_offsets() == [3, 3, 3]

    def test_one_that_fails_does_not_stop_the_others(self):
        cluster = Cluster(1, 2)
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.metadata.change(joining=(3,))
        process.states.refresh()
        process.lose(3)
        process.log.append(numbered(1, 1))
        state = process.states.current()
        assert (state.isr, state.joining) == ((1, 2), ())


class TestPrefix:
    def test_a_replica_with_other_records_is_left_out(self):
        cluster = Cluster()
        stale = cluster.process()
        writer = stale.log.segment_writer()
        writer.write(numbered(90, 2))
        stale.log.append_segment(writer.finish(), acks=1)  # only the leader has it, and fails
        cluster.metadata.change(isr=(2, 3))
        process = cluster.process()
        process.log.append(numbered(0, 1))
        cluster.metadata.change(isr=(2, 3, 1))  # against the rule: it diverged
        process.states.refresh()
        process.log.append(numbered(1, 1))
        assert process.states.current().isr == (2, 3)
        assert values_in(process.log) == values_of_numbers(2)

    def test_a_replica_stays_that_ends_where_the_leader_starts(self):
        cluster = Cluster()
        cluster.metadata.change()
        process = cluster.process()
        process.log.append(numbered(0, 2))
        leading = cluster.process().log.segment_writer()
        leading.write(numbered(2, 1))
        process.log.append_segment(leading.finish(), acks=1)
        process.log.move_start(3)  # the barrier and two records: all that the followers have
        newcomer = cluster.process()
        newcomer.log.append(numbered(3, 1))
        assert newcomer.states.current().isr == (1, 2, 3)
        assert newcomer.end_offsets() == [5, 5, 5]

    def test_records_are_not_deleted_by_a_listing_of_before_a_replica_was_emptied(self):
        cluster = Cluster(1, 2)
        process = cluster.process()
        process.log.append(numbered(0, 2))
        view = process.log.observe()  # it knows the headers of what it has appended
        cluster.empty(2)
        process.log.move_start(2, view)
        assert cluster.metadata.state.isr == (1,)
        assert not any(StartMarker.parse(name) for name in file_names(cluster.root(2)))

    def test_a_writer_of_an_old_epoch_does_not_append_to_a_log_that_was_emptied(self):
        cluster = Cluster(1, 2)
        stale, process = cluster.process(), cluster.process()
        for number in range(3):
            writer = stale.log.segment_writer()
            writer.write(numbered(90 + number, 1))
            stale.log.append_segment(writer.finish(), acks=1)  # only the leader has it
        cluster.metadata.change(isr=(2,))
        process.states.refresh()
        process.log.append(numbered(0, 1))
        process.log.move_start(2)  # the barrier and a record: all that it has
        move_log_start(stale.replica(1), 2)
        cluster.metadata.is_down = True
        with pytest.raises(UnknownOutcomeError):
            stale.log.catch_up()
        assert content(process, 2) == {}

    def test_what_an_old_leader_got_is_not_copied_as_what_the_new_one_has_at_its_end(self):
        cluster = Cluster()
        stale = cluster.process()
        stale.log.append(numbered(0, 1))
        writer = stale.log.segment_writer()
        writer.write(numbered(90, 1))
        stale.log.append_segment(writer.finish(), acks=1)
        cluster.metadata.change(isr=(2, 3))
        process = cluster.process()
        process.replica(2).append_barrier(1, (2, 3), ())  # as long as what the old leader got
        stale.log.catch_up()
        assert epochs(process, 3) == [0, 1]
        assert content(process, 3) == content(process, 2)

    def test_a_segment_of_the_leader_is_never_divided(self):
        process = Cluster(1, 2).process()
        process.log.append(numbered(0, 2))
        writer = process.log.segment_writer()
        writer.write(numbered(0, 3))
        data = writer.finish().load()
        divided = CopiedSegment(SegmentName(1), 4, "other", 0, data)
        with pytest.raises(DivergedReplicaError):
            process.replica(2).follower.copy(divided)
        assert len(content(process, 2)) == 1

    def test_a_replica_that_ends_before_a_segment_has_lost_files(self):
        process = Cluster(1, 2).process()
        process.log.append(numbered(0, 2))
        writer = process.log.segment_writer()
        writer.write(numbered(0, 3))
        behind = CopiedSegment(SegmentName(5), 8, "other", 0, writer.finish().load())
        with pytest.raises(CorruptRecordError, match="files were removed"):
            process.replica(2).follower.copy(behind)


class TestRead:
    def test_waits_for_the_barrier_on_the_last_replica(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 2))
        cluster.metadata.change(isr=(1, 2))
        reader = cluster.process()
        assert values_in(reader.log) == values_of_numbers(2)
        assert epochs(reader, 2) == [0, 1]  # the reader put it

    def test_follows_a_change_of_the_chain(self):
        cluster = Cluster()
        process, reader = cluster.process(), cluster.process()
        process.log.append(numbered(0, 2))
        batches, position = reader.log.read(0)
        assert position == 2
        cluster.metadata.change(isr=(1, 2))
        process.states.refresh()
        process.log.append(numbered(2, 2))
        assert reader.log.read(position) == ([], 2)  # replica 3 is not in sync any more
        cluster.clock.advance_ms(500)
        batches, position = reader.log.read(position)
        assert [batch.records.num_rows for batch in batches] == [2]
        assert position == 5

    def test_at_the_end_looks_at_the_metadata_twice_a_second_for_all_logs_of_a_process(self):
        cluster = Cluster()
        process = cluster.process()
        process.log.append(numbered(0, 1))
        readers = [process.log_again() for _ in range(40)]
        positions = [reader.read(0)[1] for reader in readers]
        process.states.refreshes = 0
        for _ in range(40):
            cluster.clock.advance_ms(100)
            for reader, position in zip(readers, positions, strict=True):
                assert reader.read(position) == ([], position)
        assert process.states.refreshes == 8

    def test_shows_no_record_that_one_in_sync_replica_lacks(self):
        cluster = Cluster()
        process, reader = cluster.process(), cluster.process()
        process.log.append(numbered(0, 1))
        process.stores[3].once("put_if_absent", failing(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            process.log.append(numbered(1, 1))
        assert process.end_offsets() == [2, 2, 1]
        assert values_in(reader.log) == values_of_numbers(1)


def append_to_leader(process, number):
    writer = process.log.segment_writer()
    writer.write(numbered(number, 1))
    process.log.append_segment(writer.finish(), acks=1)


def noting(order, what):
    """A hook that notes that a call is made."""

    def note(path, call):
        order.append(what)
        call()

    return note


def values_in(log):
    return [value for _, value in values(log)]


def values_of_numbers(count):
    return [b"record:%d" % number for number in range(count)]
