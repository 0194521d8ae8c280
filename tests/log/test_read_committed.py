"""Reads with read_committed: what lies before the last stable offset, without aborted records."""

from collections import Counter

import pytest

from spark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from spark_log.log import OpenTransaction
from spark_log.log.cache_budget import LOG_CACHES
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.merger import merge
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.log.support import DIRECTORY, HookedStore, free, open_log, values_of
from tests.record.samples import START_US, numbered

COMMITTED = {"isolation_level": "read_committed"}


def send(log, producer_id=7, epoch=0, sequence=0, count=2):
    producer = ProducerAppend(producer_id, epoch, sequence, is_transactional=True)
    return log.append(numbered(sequence, count, mark=f"{producer_id}.{epoch}"), producer=producer)


def end(log, producer_id=7, epoch=1, *, commits):
    return log.append_markers([EndTransactionMarker(producer_id, epoch, commits)])


def plain(log, count=2):
    log.append(numbered(0, count, mark="plain"))


def merge_all(log, first=0, last=None):
    view = log.observe()
    return merge(log.files, view, first, len(view.live.segments) - 1 if last is None else last)


def scanned(log, start=0, stop=None):
    """Offsets of a scan."""
    return [offset for offset, _ in values_of(log.scan(start, stop, **COMMITTED))]


class Follower:
    """A reader that calls `stream` from where it stopped."""

    def __init__(self, log, position=0):
        self.log = log
        self.position = position

    def read(self):
        """Offsets of the records since the last read."""
        found = []
        for batch, following in self.log.stream(self.position, **COMMITTED):
            if batch is not None and not batch.is_control:
                found += batch.offsets().tolist()
            self.position = following
        return found


@pytest.fixture(params=[True, False], ids=["mapped", "ranged"])
def store(inner, request):
    return HookedStore(inner, is_mapped=request.param)


@pytest.fixture
def writer(inner, clock):
    return open_log(inner, clock=clock)


class TestScan:
    def test_it_ends_at_the_first_open_transaction(self, log, writer):
        plain(writer)
        send(writer, 7)
        plain(writer)
        assert scanned(log) == [0, 1]
        assert log.blocking_transaction == OpenTransaction(7, 0, 2)
        end(writer, 7, commits=True)
        assert scanned(log) == [0, 1, 2, 3, 4, 5]
        assert log.blocking_transaction is None

    def test_an_end_before_the_open_transaction_is_not_blocked(self, log, writer):
        plain(writer)
        send(writer)
        assert scanned(log, 0, 2) == [0, 1]
        assert log.blocking_transaction is None

    def test_aborted_records_are_left_out(self, log, writer):
        send(writer, 7)
        send(writer, 8)
        end(writer, 7, commits=False)
        send(writer, 7, epoch=1)
        end(writer, 8, commits=True)
        end(writer, 7, epoch=2, commits=True)
        assert scanned(log) == [2, 3, 5, 6]

    def test_batches_of_several_producers_in_one_arrow_batch_are_told_apart(self, log, writer):
        for producer_id in (7, 8, 9):
            send(writer, producer_id)
        plain(writer)
        end(writer, 8, commits=False)
        end(writer, 7, commits=True)
        end(writer, 9, commits=False)
        merge_all(writer)
        assert log.files.open(SegmentName(0, 10, 1)).batch_count == 1
        assert scanned(log) == [0, 1, 6, 7]
        assert scanned(log, 1, 7) == [1, 6]
        assert Follower(log).read() == [0, 1, 6, 7]

    @pytest.mark.parametrize("at", range(9))
    def test_any_start(self, log, writer, at):
        send(writer, 7)
        end(writer, 7, commits=False)
        plain(writer)
        send(writer, 7, epoch=1)
        end(writer, 7, epoch=2, commits=False)
        merge_all(writer)
        writer.snapshots.write()
        assert scanned(log, at) == [offset for offset in (3, 4) if offset >= at]

    def test_uncommitted_reads_return_all(self, log, writer):
        send(writer, 7)
        end(writer, 7, commits=False)
        send(writer, 8)
        assert [offset for offset, _ in values_of(log.scan(0))] == [0, 1, 3, 4]


class TestSnapshotsAndRewrites:
    def test_the_headers_of_a_segment_tell_what_a_snapshot_does_not_list(self, log, writer):
        send(writer, 7)
        end(writer, 7, commits=False)
        plain(writer)
        merge_all(writer)
        writer.snapshots.write()
        assert writer.transactions().aborted == ()
        assert scanned(log) == [3, 4]

    def test_the_logs_start_cuts_a_batch_of_an_aborted_transaction(self, log, writer):
        send(writer, 7, count=3)
        end(writer, 7, commits=False)
        plain(writer)
        merge_all(writer)
        move_log_start(writer, 1)
        writer.snapshots.write()
        assert scanned(log, 1) == [4, 5]
        assert scanned(log, 2) == [4, 5]

    def test_an_aborted_transaction_over_several_segments(self, log, writer):
        send(writer, 7)
        plain(writer)
        merge_all(writer)
        send(writer, 7, sequence=2)
        end(writer, 7, commits=False)
        writer.snapshots.write()
        merge_all(writer)
        assert scanned(log) == [2, 3]

    def test_a_rewrite_cuts_the_segment_of_the_snapshot(self, log, writer):
        """Mergers with older listings: the snapshot saw the wide segment, readers a short one."""
        send(writer, 7)
        plain(writer)
        end(writer, 7, commits=False)
        plain(writer)
        at_first = writer.observe()
        merge(writer.files, at_first, 0, 0)
        later = writer.observe()
        wide = merge(writer.files, at_first, 0, 3)
        writer.snapshots.write()
        assert writer.transactions().unlisted == ((0, 7),)
        short = merge(writer.files, later, 0, 1)
        assert [each.name for each in log.observe().live.segments] == [short.name, wide.name]
        assert scanned(log) == [2, 3, 5, 6]
        assert Follower(log).read() == [2, 3, 5, 6]

    def test_the_log_start_moves_into_an_aborted_transaction(self, log, writer):
        send(writer, 7, count=4)
        plain(writer)
        end(writer, 7, commits=False)
        merge_all(writer)
        move_log_start(writer, 2)
        assert scanned(log, 2) == [4, 5]
        move_log_start(writer, 5)
        assert scanned(log, 5) == [5]

    def test_an_open_transaction_before_the_logs_start_blocks_at_the_start(self, log, writer):
        send(writer, 7)
        plain(writer)
        move_log_start(writer, 3)
        assert scanned(log, 3) == []
        assert log.blocking_transaction == OpenTransaction(7, 0, 0)
        follower = Follower(log, 3)
        assert follower.read() == []
        end(writer, 7, commits=False)
        assert scanned(log, 3) == follower.read() == [3]


class TestFollower:
    def test_it_is_blocked_and_goes_on_behind_the_marker(self, log, writer):
        follower = Follower(log)
        plain(writer)
        assert follower.read() == [0, 1]
        send(writer, 7)
        assert follower.read() == []
        assert log.blocking_transaction == OpenTransaction(7, 0, 2)
        plain(writer)
        assert (follower.read(), follower.position) == ([], 2)
        end(writer, 7, commits=True)
        assert (follower.read(), follower.position) == ([2, 3, 4, 5], 7)
        assert log.blocking_transaction is None

    def test_an_aborted_transaction_is_passed(self, log, writer):
        follower = Follower(log)
        send(writer, 7)
        assert follower.read() == []
        end(writer, 7, commits=False)
        assert (follower.read(), follower.position) == ([], 3)

    def test_overlapping_transactions(self, log, writer):
        follower = Follower(log)
        send(writer, 7)
        send(writer, 8)
        assert follower.read() == []
        end(writer, 8, commits=False)
        assert follower.read() == []
        assert log.blocking_transaction == OpenTransaction(7, 0, 0)
        send(writer, 8, epoch=1)
        end(writer, 7, commits=True)
        assert (follower.read(), follower.position) == ([0, 1], 5)
        assert log.blocking_transaction == OpenTransaction(8, 1, 5)

    def test_what_was_held_back_is_not_read_again(self, store, log, writer):
        plain(writer)
        follower = Follower(log)
        follower.read()
        for sequence in range(0, 20, 2):
            send(writer, 7, sequence=sequence)
            follower.read()
        end(writer, 7, commits=True)
        store.calls.clear()
        assert len(follower.read()) == 20
        read = [path for name, path in store.calls if name != "list"]
        assert read == [
            f"{DIRECTORY}/{SegmentName(22).file_name}",
            f"{DIRECTORY}/{SegmentName(23).file_name}",
        ]

    def test_what_was_held_back_may_be_merged_and_freed(self, log, writer, inner, clock):
        follower = Follower(log)
        send(writer, 7)
        send(writer, 7, sequence=2)
        assert follower.read() == []
        view = writer.observe()
        merge_all(writer)
        free(inner, *(each.name for each in view.live.segments))
        end(writer, 7, commits=True)
        clock.advance_ms(40_000)
        assert follower.read() == [0, 1, 2, 3]

    def test_beyond_the_bound_segments_are_opened_again(self, log, writer, monkeypatch):
        monkeypatch.setattr(LOG_CACHES, "limit_bytes", 40_000)
        follower = Follower(log)
        follower.read()
        for sequence in range(0, 20, 2):
            send(writer, 7, sequence=sequence)
            follower.read()
        assert LOG_CACHES.held_bytes <= 40_000
        end(writer, 7, commits=True)
        assert follower.read() == list(range(20))
        send(writer, 7, epoch=1)
        assert follower.read() == []
        end(writer, 7, epoch=2, commits=True)
        assert follower.read() == [21, 22]

    def test_many_aborted_transactions_are_left_to_the_headers_of_their_segments(
        self, log, writer, clock, monkeypatch
    ):
        monkeypatch.setattr("spark_log.log.read.committed_tail_view._MAX_LISTED", 3)
        follower, kept = Follower(log), []
        for epoch in range(20):
            send(writer, 7, epoch=epoch)
            end(writer, 7, epoch=epoch + 1, commits=epoch % 5 == 0)
            if epoch % 5 == 0:
                kept += [3 * epoch, 3 * epoch + 1]
            follower.read()
            merge_all(writer)
            clock.advance_ms(40_000)
        follower.read()
        assert log._reader._committed.index.aborted_count <= 4  # noqa: SLF001
        assert Follower(log).read() == kept

    def test_at_the_end_it_costs_one_request(self, store, log, writer):
        plain(writer)
        send(writer, 7)
        follower = Follower(log)
        follower.read()
        store.calls.clear()
        follower.read()
        assert [path for _, path in store.calls] == [f"{DIRECTORY}/{SegmentName(4).file_name}"]

    def test_it_may_stop_at_any_batch(self, log, writer):
        for epoch in range(4):
            send(writer, 7, epoch=epoch)
            end(writer, 7, epoch=epoch + 1, commits=epoch % 2 == 0)
        found, position = [], 0
        while position < 12:
            batch, position = next(log.stream(position, **COMMITTED))
            if batch is not None and not batch.is_control:
                found += batch.offsets().tolist()
        assert found == [0, 1, 6, 7]

    def test_it_may_start_behind_the_last_stable_offset(self, log, writer):
        send(writer, 7)
        plain(writer)
        follower = Follower(log, 3)
        assert (follower.read(), follower.position) == ([], 3)
        end(writer, 7, commits=False)
        assert follower.read() == [3]

    def test_an_offset_that_is_not_in_the_log_is_refused(self, log, writer):
        send(writer, 7)
        with pytest.raises(OffsetOutOfRangeError):
            Follower(log, 3).read()
        with pytest.raises(OffsetOutOfRangeError):
            scanned(log, 3)

    def test_a_listing_that_became_invalid_is_repeated(self, log, writer, clock):
        follower = Follower(log)
        send(writer, 7)
        assert follower.read() == []
        clock.advance_ms(3_600_000)
        plain(writer)
        assert follower.read() == []
        clock.advance_ms(3_600_000)
        end(writer, 7, commits=True)
        assert follower.read() == [0, 1, 2, 3]

    def test_what_is_open_is_not_returned_when_the_log_start_moves_behind_it(self, log, writer):
        """A follower with a valid listing may still read deleted records, but no open ones."""
        plain(writer)
        follower = Follower(log)
        assert follower.read() == [0, 1]
        send(writer, 7)
        plain(writer)
        move_log_start(writer, 5)
        assert scanned(log, 5) == []  # this reader has listed the log again
        assert (follower.read(), follower.position) == ([], 2)


def write_transactions(log, count=4):
    """Transactions of two records: the first one and every second one after it are committed."""
    for epoch in range(count):
        send(log, 7, epoch=epoch)
        end(log, 7, epoch=epoch + 1, commits=epoch % 2 == 0)


class TestFromTheStart:
    """A reader of the whole log follows what lies behind the newest snapshot."""

    def test_each_segment_is_opened_once(self, store, log, writer):
        write_transactions(writer, 2)
        writer.snapshots.write()
        for epoch in (2, 3):
            send(writer, 7, epoch=epoch)
            end(writer, 7, epoch=epoch + 1, commits=epoch == 2)
        follower = Follower(log)
        assert (follower.read(), follower.position) == ([0, 1, 6, 7], 12)
        opened = Counter(path for _, path in store.calls if path.endswith(".log"))
        assert len(opened) == 9, "the probe behind the last one is one"
        assert set(opened.values()) == {1}

    def test_segments_may_be_merged_and_freed_meanwhile(self, log, writer, inner):
        write_transactions(writer)
        batches = log.stream(0, **COMMITTED)
        found = [next(batches)[0]]
        view = writer.observe()
        merge_all(writer)
        free(inner, *(each.name for each in view.live.segments))
        found += [batch for batch, _ in batches if batch is not None and not batch.is_control]
        assert [offset for offset, _ in values_of(found)] == [0, 1, 6, 7]

    def test_the_listing_may_become_invalid_meanwhile(self, log, writer, clock):
        write_transactions(writer)
        found = []
        for batch, _ in log.stream(0, **COMMITTED):
            clock.advance_ms(40_000)
            if batch is not None and not batch.is_control:
                found += batch.offsets().tolist()
        assert found == [0, 1, 6, 7]

    def test_a_missing_segment_is_an_error(self, log, writer, inner):
        write_transactions(writer)
        free(inner, SegmentName(3))
        with pytest.raises(CorruptRecordError, match="missing"):
            Follower(log).read()


class TestFetch:
    def test_fetch_passes_aborted_batches_and_stops_at_the_open_one(self, log, writer):
        plain(writer)
        send(writer, 7)
        end(writer, 7, commits=False)
        send(writer, 8)
        batches, following = log.read(0, **COMMITTED)
        assert ([offset for offset, _ in values_of(batches)], following) == ([0, 1], 5)
        assert log.read(2, **COMMITTED)[0] == []
        batches, following = log.read(0, 1, **COMMITTED)
        assert following >= 2

    def test_a_full_fetch_does_not_tell_of_a_blocking_transaction(self, log, writer):
        plain(writer)
        plain(writer)
        send(writer, 8)
        assert log.read(0, 1, **COMMITTED)[1] == 2
        assert log.blocking_transaction is None


class TestOffsetForTime:
    def test_only_stable_offsets_are_returned(self, log, writer):
        plain(writer)
        send(writer, 7, count=5)
        at_us = START_US + 4_000
        assert log.offset_for_time(at_us) == (6, at_us)
        assert log.offset_for_time(at_us, **COMMITTED) is None
        assert log.offset_for_time(START_US, **COMMITTED) == (0, START_US)
        end(writer, 7, commits=True)
        assert log.offset_for_time(at_us, **COMMITTED) == (6, at_us)


class TestEndOffset:
    def test_it_is_the_last_stable_offset_for_committed_reads(self, log, writer):
        plain(writer)
        send(writer, 7)
        assert (log.end_offset(), log.end_offset(**COMMITTED)) == (4, 2)
        end(writer, 7, commits=True)
        assert (log.end_offset(), log.end_offset(**COMMITTED)) == (5, 5)

    def test_an_older_views_end_limits_it(self, log, writer):
        plain(writer)
        view = log.observe()
        plain(writer)
        assert Follower(log).read() == [0, 1, 2, 3]
        assert log.end_offset(view, **COMMITTED) == log.end_offset(view) == 2

    def test_asking_again_replays_only_what_is_new(self, store, log, writer):
        for epoch in range(3):
            send(writer, 7, epoch=epoch)
            end(writer, 7, epoch=epoch + 1, commits=True)
        log.transactions()
        send(writer, 7, epoch=3)
        store.calls.clear()
        assert log.end_offset(**COMMITTED) == 9
        read = {path for name, path in store.calls if name in ("open_buffer", "read_tail")}
        assert read == {f"{DIRECTORY}/{SegmentName(9).file_name}"}
