"""The live log: which files are part of it, compared with the rule offset by offset."""

from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.files.live_segments import live_log, spent_segments
from spark_log.storage import FileInfo


def plain(base):
    return SegmentName(base).file_name


def rewritten(base, last, generation=1):
    return SegmentName(base, last, generation).file_name


def start(offset, base):
    return StartMarker(offset, base).name


def live(*names):
    return live_log(FileInfo(f"topic/flights-0/{name}", 1, 1) for name in sorted(names))


def chain(*names):
    """``(file name, first offset read from it, offset after its last)`` of each live segment."""
    return [
        (segment.file.name, segment.start_offset, segment.end_offset)
        for segment in live(*names).segments
    ]


class TestPlainSegments:
    def test_an_empty_directory_is_an_empty_log_from_0(self):
        assert live() == live_log([])
        assert (live().log_start_offset, live().segments) == (0, ())

    def test_each_ends_where_the_next_begins_and_only_the_last_has_to_be_opened(self):
        assert chain(plain(0), plain(10), plain(11)) == [
            (plain(0), 0, 10),
            (plain(10), 10, 11),
            (plain(11), 11, None),
        ]

    def test_the_files_are_handed_on_as_they_were_listed(self):
        files = [FileInfo(f"t/{plain(0)}", 123, 456), FileInfo(f"t/{plain(5)}", 7, 8)]
        assert [segment.file for segment in live_log(files).segments] == files

    def test_files_that_are_no_segments_are_ignored(self):
        others = [
            SegmentName(0).index,
            SegmentName(0).time_index,
            "00000000000000000005.snapshot",
            "leader-epoch-checkpoint",
            "README.txt",
        ]
        assert chain(plain(0), plain(10), *others) == chain(plain(0), plain(10))

    def test_the_order_of_the_listing_does_not_matter(self):
        names = [plain(0), plain(10), rewritten(20, 39), plain(20), plain(30), plain(40)]
        files = [FileInfo(name, 1, 1) for name in [*names, start(3, 0), start(5, 0)]]
        assert live_log(files) == live_log(files[::-1])
        assert live_log(files[::-1]).log_start_offset == 5


class TestRewrittenSegments:
    def test_one_that_covers_plain_segments_replaces_them(self):
        assert chain(plain(0), plain(10), plain(20), rewritten(0, 19)) == [
            (rewritten(0, 19), 0, 20),
            (plain(20), 20, None),
        ]

    def test_one_in_the_middle(self):
        assert chain(plain(0), plain(10), plain(20), plain(30), rewritten(10, 29)) == [
            (plain(0), 0, 10),
            (rewritten(10, 29), 10, 30),
            (plain(30), 30, None),
        ]

    def test_one_at_the_end_tells_the_logs_end_by_its_name(self):
        assert chain(plain(0), plain(10), rewritten(0, 14)) == [(rewritten(0, 14), 0, 15)]

    def test_the_segments_that_it_covers_may_be_deleted(self):
        assert chain(rewritten(0, 19), plain(20)) == [
            (rewritten(0, 19), 0, 20),
            (plain(20), 20, None),
        ]

    def test_the_widest_of_one_generation_counts(self):
        names = [rewritten(0, 9), rewritten(0, 19), rewritten(10, 19), plain(20)]
        assert chain(*names) == [(rewritten(0, 19), 0, 20), (plain(20), 20, None)]

    def test_the_highest_generation_counts_however_wide_others_are(self):
        names = [rewritten(0, 9, 10), rewritten(0, 19, 9), rewritten(10, 19, 2)]
        assert chain(*names) == [(rewritten(0, 9, 10), 0, 10), (rewritten(0, 19, 9), 10, 20)]

    def test_the_widest_goes_before_the_one_that_reaches_furthest(self):
        names = [rewritten(0, 19), rewritten(10, 24), plain(25)]
        assert chain(*names) == [
            (rewritten(0, 19), 0, 20),
            (rewritten(10, 24), 20, 25),
            (plain(25), 25, None),
        ]

    def test_one_that_overlaps_is_entered_in_its_middle(self):
        names = [plain(0), rewritten(0, 9), rewritten(5, 14), plain(15)]
        assert chain(*names)[:2] == [(rewritten(0, 9), 0, 10), (rewritten(5, 14), 10, 15)]

    def test_one_that_begins_before_the_position_counts_also_over_one_that_begins_there(self):
        names = [rewritten(0, 9), rewritten(5, 29), rewritten(10, 19), plain(30)]
        assert chain(*names) == [
            (rewritten(0, 9), 0, 10),
            (rewritten(5, 29), 10, 30),
            (plain(30), 30, None),
        ]


class TestWhatIsNotLive:
    def test_a_plain_segment_inside_a_rewritten_one(self):
        late = [plain(5), plain(12)]
        names = [rewritten(0, 19), plain(20), plain(30)]
        assert chain(*names, *late) == chain(*names)

    def test_a_late_plain_segment_that_would_stick_out_behind_the_one_that_covers_it(self):
        """It is used only at its exact base, not for the records behind the rewritten segment."""
        assert chain(rewritten(0, 19), plain(15)) == [(rewritten(0, 19), 0, 20)]

    def test_a_late_plain_segment_does_not_cut_the_one_behind_the_cover(self):
        names = [rewritten(0, 19), plain(20), rewritten(30, 39), plain(40)]
        assert chain(*names, plain(35)) == chain(*names)

    def test_files_below_the_start(self):
        names = [start(20, 20), plain(20), plain(30)]
        below = [plain(0), plain(10), rewritten(0, 9), rewritten(0, 19, 3)]
        assert (
            chain(*names, *below)
            == chain(*names)
            == [
                (plain(20), 20, 30),
                (plain(30), 30, None),
            ]
        )


class TestStartMarker:
    def test_the_log_begins_at_it(self):
        log = live(start(20, 20), plain(20))
        assert log.log_start_offset == 20
        assert [segment.start_offset for segment in log.segments] == [20]

    def test_the_highest_counts_however_many_there_are(self):
        markers = [start(5, 0), start(20, 20), start(15, 10), start(9, 0)]
        assert live(*markers, plain(20)).log_start_offset == 20

    def test_a_plain_segment_is_entered_in_the_middle_where_the_marker_names_it(self):
        assert chain(plain(10), plain(20), start(15, 10)) == [
            (plain(10), 15, 20),
            (plain(20), 20, None),
        ]

    def test_the_last_segment_may_be_entered_in_the_middle_too(self):
        assert chain(plain(10), start(15, 10)) == [(plain(10), 15, None)]

    def test_a_plain_segment_that_the_marker_does_not_name_is_not_entered(self):
        """A late put below the start might be longer than the segment that was there."""
        assert chain(plain(5), plain(10), plain(20), start(15, 10))[0] == (plain(10), 15, 20)
        assert chain(plain(5), start(15, 10)) == []

    def test_a_rewritten_segment_is_entered_in_the_middle(self):
        assert chain(rewritten(0, 19), plain(20), start(15, 10)) == [
            (rewritten(0, 19), 15, 20),
            (plain(20), 20, None),
        ]

    def test_a_rewritten_segment_that_ends_at_the_start_is_not(self):
        assert chain(rewritten(0, 14), plain(15), start(15, 15)) == [(plain(15), 15, None)]
        assert chain(rewritten(0, 15), plain(16), start(15, 15))[0] == (rewritten(0, 15), 15, 16)

    def test_an_emptied_log_keeps_its_end(self):
        log = live(start(30, 30), plain(0), plain(10), rewritten(0, 29))
        assert (log.log_start_offset, log.segments) == (30, ())

    def test_an_emptied_log_goes_on_at_its_end(self):
        assert chain(start(30, 30), plain(10), plain(30)) == [(plain(30), 30, None)]


class TestParquetSegments:
    PARQUET = SegmentName(0, 9, 1, is_parquet=True)

    def test_of_one_range_and_generation_the_parquet_file_counts_and_the_arrow_file_is_spent(self):
        names = [rewritten(0, 9), self.PARQUET.file_name, plain(10)]
        assert chain(*names) == [(self.PARQUET.file_name, 0, 10), (plain(10), 10, None)]
        files = [FileInfo(name, 1, 1) for name in names]
        assert list(spent_segments(files)) == [SegmentName(0, 9, 1)]

    def test_a_higher_generation_a_wider_one_and_one_that_begins_first_count_before_it(self):
        for other in ((0, 9, 2), (0, 10, 1)):
            assert chain(self.PARQUET.file_name, rewritten(*other))[0][0] == rewritten(*other)
        later = SegmentName(5, 14, 1, is_parquet=True).file_name
        assert chain(rewritten(0, 9), later) == [(rewritten(0, 9), 0, 10), (later, 10, 15)]


class TestIndexOf:
    def test_is_the_segment_that_an_offset_is_read_from(self):
        log = live(start(5, 0), plain(0), plain(10), rewritten(20, 29), plain(30))
        assert [log.index_of(offset) for offset in (5, 9, 10, 19, 20, 29, 30, 10**9)] == [
            *(0, 0),
            *(1, 1),
            *(2, 2),
            *(3, 3),
        ]

    def test_before_the_first_and_of_an_empty_log_is_minus_one(self):
        assert live(start(5, 0), plain(0)).index_of(4) == -1
        assert live().index_of(0) == -1


# --- any history ---------------------------------------------------------------------------------


@st.composite
def histories(draw):
    """Files that appends, merges, retention, a cleaner and late puts may leave.

    Returns the true ends of plain segments by base, the file names, and the log start offset.
    """
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=10))
    ends, position = {}, 0
    for length in lengths:
        ends[position] = position + length
        position += length
    bases = sorted(ends)
    log_end, log_start, marked = position, 0, []
    there, covers = {plain(base) for base in bases}, []
    for _ in range(draw(st.integers(0, 6))):
        match draw(st.sampled_from(["merge", "merge", "start", "free", "late"])):
            case "merge":
                cuts = sorted({log_start, *(b for b in bases if b > log_start), log_end})
                if len(cuts) < 2:
                    continue
                first = draw(st.integers(0, len(cuts) - 2))
                last = draw(st.integers(first + 1, len(cuts) - 1))
                generation, is_parquet = draw(st.integers(1, 3)), draw(st.booleans())
                name = SegmentName(cuts[first], cuts[last] - 1, generation, is_parquet)
                covers.append(name)
                there.add(name.file_name)
            case "start":
                log_start = draw(st.integers(log_start, log_end))
                base = max((b for b in bases if b <= log_start < ends[b]), default=log_start)
                marked.append(start(log_start, base))
                there.add(marked[-1])
            case "free":
                wide = [(name.base_offset, _last(name)) for name in covers]
                for base in bases:
                    covered = any(b <= base and ends[base] - 1 <= last for b, last in wide)
                    if (covered or ends[base] <= log_start) and draw(st.booleans()):
                        there.discard(plain(base))
                for name in covers:
                    wider = any(
                        other.base_offset <= name.base_offset
                        and _last(name) <= _last(other)
                        and (*_rank(other), other.is_parquet) > (*_rank(name), name.is_parquet)
                        for other in covers
                        if other.file_name in there
                    )
                    if (wider or _last(name) < log_start) and draw(st.booleans()):
                        there.discard(name.file_name)
            case "late":
                spent = [
                    base
                    for base in range(log_end)
                    if base not in ends and any(n.base_offset <= base <= _last(n) for n in covers)
                ]
                if spent:
                    there.add(plain(draw(st.sampled_from(spent))))
    return ends, there, log_start, log_end


def _last(name):
    assert name.last_offset is not None, f"{name} is a plain segment"
    return name.last_offset


def _rank(name):
    return name.generation, _last(name) - name.base_offset


def counting_file(offset, names, ends, log_start):
    """Return the file to read an offset from, by its rules (protocol L3, L4)."""
    parsed = [name for name in map(SegmentName.parse, names) if name]
    covering = [
        name
        for name in parsed
        if name.last_offset is not None and name.base_offset <= offset <= name.last_offset
    ]
    if covering:
        return max(covering, key=lambda name: (*_rank(name), -name.base_offset, name.is_parquet))
    markers = [marker for marker in map(StartMarker.parse, names) if marker]
    named = max(markers, key=lambda marker: marker.log_start_offset, default=StartMarker(0, 0))
    base = named.segment_base_offset if offset == log_start else offset
    return SegmentName(base) if SegmentName(base) in parsed else None


class TestAnyHistory:
    @given(histories())
    def test_the_chain_is_the_rule_applied_from_the_start_to_the_end(self, history):
        ends, names, log_start, log_end = history
        log = live(*names)
        assert log.log_start_offset == log_start
        position = log_start
        for segment in log.segments:
            assert segment.start_offset == position
            assert segment.name == counting_file(position, names, ends, log_start)
            if segment.name.last_offset is None:
                position = ends[segment.name.base_offset]
            else:
                position = segment.name.last_offset + 1
            assert segment.end_offset in (position, None)
        assert position == log_end
        assert all(segment.end_offset is not None for segment in log.segments[:-1])

    @given(histories(), st.data())
    def test_every_offset_is_found_in_the_segment_that_it_is_read_from(self, history, data):
        _, names, log_start, log_end = history
        log = live(*names)
        if log_start == log_end:
            assert log.segments == ()
            return
        offset = data.draw(st.integers(log_start, log_end - 1))
        segment = log.segments[log.index_of(offset)]
        assert segment.start_offset <= offset
        assert segment.end_offset is None or offset < segment.end_offset


def test_ten_thousand_segments_are_no_trouble():
    """A chain that compared each file with all others would take minutes."""
    count = 10_000
    names = [plain(base) for base in range(0, 10 * count, 10)]
    assert len(live(*names, rewritten(0, 10 * count - 11)).segments) == 2
    assert len(live(*names).segments) == count
    levels = [rewritten(base, base + 99) for base in range(0, 10 * count, 100)]
    assert len(live(*names, *levels).segments) == count // 10
