"""Pruning by time: the segments that a lookup opens, and the offsets that a read can skip."""

import pytest

from spark_log.errors import NotFoundError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.read.pruning import SegmentTimes, parts_within_times, prune_segments
from spark_log.log.snapshot.snapshots import Snapshots
from tests.log.support import HookedStore, free, merge, move_start, open_log, put_segment
from tests.record.samples import START_US, numbered

COUNT, IN_SNAPSHOT = 40, 30


@pytest.fixture
def store(inner):
    """A log of forty segments of one record each, thirty of which are in a snapshot."""
    log = open_log(inner)
    for second in range(COUNT):
        log.append(numbered(second, 1))
        if second + 1 == IN_SNAPSHOT:
            log.snapshots.write()
    return HookedStore(inner)


def second(at):
    return START_US + at * 1_000_000 // 1_000


def time_of(inner, offset):
    (batch,) = open_log(inner).read(offset, 1)[0]
    return batch.records.column("timestamp")[0].value


def opened(store):
    return [path.rpartition("/")[2] for path in store.called("open_buffer")]


class TestWhatIsOpened:
    @pytest.mark.parametrize("offset", [0, 7, IN_SNAPSHOT - 1])
    def test_is_the_snapshot_and_one_segment_for_a_time_that_the_snapshot_knows(
        self, store, inner, log, offset
    ):
        view, asked = log.observe(), time_of(inner, offset)
        store.calls.clear()
        assert log.offset_for_time(asked, view) == (offset, asked)
        assert opened(store) == [f"{IN_SNAPSHOT:020d}.snapshot", SegmentName(offset).file_name]
        store.calls.clear()
        assert log.offset_for_time(asked, view) == (offset, asked)
        assert opened(store) == [SegmentName(offset).file_name]

    def test_is_each_segment_behind_the_snapshot_once_up_to_the_one_that_has_it(
        self, store, inner, log
    ):
        view, asked = log.observe(), time_of(inner, 33)
        store.calls.clear()
        assert log.offset_for_time(asked, view) == (33, asked)
        behind = [SegmentName(at).file_name for at in range(IN_SNAPSHOT, 34)]
        assert opened(store)[1:] == [*behind, SegmentName(33).file_name]
        store.calls.clear()
        earlier = time_of(inner, 31)
        assert log.offset_for_time(earlier, view) == (31, earlier)
        assert opened(store) == [SegmentName(31).file_name], "what it holds is known by now"

    def test_is_nothing_for_a_time_that_nothing_reaches_a_second_time(self, store, inner, log):
        view, asked = log.observe(), time_of(inner, COUNT - 1) + 1
        assert log.offset_for_time(asked, view) is None
        store.calls.clear()
        assert log.offset_for_time(asked, view) is None
        assert store.calls == []


class TestViews:
    def test_that_leave_out_a_segment_are_taken_anew(self, store, inner, log):
        for left_out in (12, IN_SNAPSHOT + 3):
            hidden = SegmentName(left_out).file_name
            store.once(
                "list",
                lambda _, call, hidden=hidden: [file for file in call() if file.name != hidden],
            )
            view = log.observe()
            assert view.live.segments[left_out - 1].end_offset == left_out + 1
            asked = time_of(inner, left_out)
            assert log.offset_for_time(asked, view) == (left_out, asked)
            with pytest.raises(NotFoundError, match="leaves out"):
                list(
                    SegmentTimes(Snapshots(log.files, log.config), view).segments_reaching(
                        time_of(inner, COUNT - 1)
                    )
                )

    def test_that_show_what_was_merged_and_freed_since_are_taken_anew(self, store, inner, log):
        view, asked = log.observe(), time_of(inner, 12)
        merge(inner, 10, 20)
        free(inner, *map(SegmentName, range(10, 20)))
        assert log.offset_for_time(asked, view) == (12, asked)

    def test_that_are_older_than_a_name_may_be_free_are_not_believed(
        self, store, inner, clock, log
    ):
        """A late put may have taken a name that was freed."""
        view, asked = log.observe(), time_of(inner, 12)
        merge(inner, 10, 20)
        free(inner, *map(SegmentName, range(10, 20)))
        put_segment(inner, [numbered(12, 5)], SegmentName(11))  # not part of the log
        clock.advance_ms(log.files.valid_ms)
        assert log.offset_for_time(asked, view) == (12, asked)

    def test_begin_at_the_logs_start(self, store, inner, log):
        move_start(inner, 20, 20)
        asked = time_of(inner, 20)
        assert log.offset_for_time(0) == (20, asked)


class TestPruning:
    """The earliest timestamp of a segment is known from the snapshot alone."""

    @pytest.fixture
    def times_us(self, inner):
        return [time_of(inner, offset) for offset in range(COUNT)]

    @pytest.mark.parametrize(
        ("offsets", "times", "parts"),
        [
            ((0, COUNT), (0, COUNT), [(0, COUNT)]),
            ((5, 9), (0, COUNT), [(5, 9)]),
            ((0, COUNT), (5, 9), [(5, 9), (IN_SNAPSHOT, COUNT)]),
            ((7, IN_SNAPSHOT), (5, 9), [(7, 9)]),
            ((0, 5), (5, 9), []),
        ],
    )
    def test_leaves_the_segments_that_can_hold_a_record(self, log, times_us, offsets, times, parts):
        summaries, view = log.segments(log.observe())
        bounds = times_us[times[0]], times_us[times[1] - 1] + 1
        assert prune_segments(view, summaries, offsets, bounds) == parts

    @pytest.mark.parametrize("reads_times_first", [True, False])
    def test_leaves_the_batches_that_can_hold_a_record(
        self, inner, log, times_us, reads_times_first
    ):
        merge(inner, 10, 20)
        reader = log.files.open(SegmentName(10, 19, 1))

        def parts(offsets, first, last):
            return list(
                parts_within_times(
                    reader,
                    offsets,
                    (times_us[first], times_us[last] + 1),
                    reads_times_first=reads_times_first,
                )
            )

        assert parts((10, 20), 13, 15) == [(13, 16 if reads_times_first else 20)]
        assert parts((14, 18), 13, 15) == [(14, 16 if reads_times_first else 18)]
        assert parts((10, 20), 20, 25) == []
        assert parts((10, 13), 13, 15) == []
