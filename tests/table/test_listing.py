"""The files that a listing of the log offers to its table."""

from spark_log.log.files import MAX_MERGE_GENERATION, SegmentName, StartMarker, generation_name
from spark_log.storage import FileInfo
from spark_log.table.listing import Compaction, log_files

C1, C2 = MAX_MERGE_GENERATION + 1, MAX_MERGE_GENERATION + 2


def segment(base, end, generation, is_parquet=True):
    return SegmentName(base, end - 1, generation, is_parquet)


def listed(*names, generations=(), start=None):
    files = [name.file_name for name in names]
    files += [generation_name(each) for each in generations]
    files += [] if start is None else [StartMarker(start, start).name]
    return [FileInfo(f"t/{name}", 16, 1_000_000) for name in sorted(files)]


def offered(*names, named_end=None, **others):
    return log_files(listed(*names, **others), named_end)


class TestSegments:
    def test_what_is_spent_is_not_offered(self):
        wide = segment(0, 20, 3)
        assert offered(segment(0, 10, 2), wide, segment(20, 30, 2)).segments == (
            wide,
            segment(20, 30, 2),
        )

    def test_of_one_range_the_lower_generation_is_spent(self):
        assert offered(segment(0, 10, 2), segment(0, 10, 3)).segments == (segment(0, 10, 3),)

    def test_arrow_segments_are_not_offered(self):
        both = segment(0, 10, 2, is_parquet=False), segment(10, 20, 2)
        assert offered(*both).segments == both[1:]

    def test_what_lies_before_the_start_is_not_offered(self):
        found = offered(segment(0, 10, 2), segment(10, 20, 2), start=10)
        assert (found.log_start_offset, found.segments) == (10, (segment(10, 20, 2),))


class TestCompactions:
    files = segment(0, 10, C1), segment(10, 30, C1)

    def test_one_that_reaches_its_end_is_complete(self):
        found = offered(*self.files, SegmentName(30), named_end=30, generations=[C1])
        assert found.compaction == Compaction(C1, 30, self.files)

    def test_one_that_named_no_end_is_not(self):
        assert offered(*self.files, generations=[C1]).compaction is None

    def test_one_that_died_half_way_is_not(self):
        names = self.files[0], segment(10, 30, 2)
        assert offered(*names, named_end=30, generations=[C1]).compaction is None

    def test_one_that_an_earlier_end_binds_is_not(self):
        found = offered(*self.files, SegmentName(30), named_end=90, generations=[C1])
        assert found.compaction is None

    def test_a_later_generation_that_was_taken_hides_it(self):
        found = offered(*self.files, SegmentName(30), named_end=30, generations=[C1, C2])
        assert found.compaction is None

    def test_files_of_a_pass_belong_to_it(self):
        names = self.files[0], segment(10, 30, C2)
        files = listed(*names, SegmentName(30), generations=[C1])
        # The length says that one generation lies between it and the last that read all keys.
        files.append(FileInfo(f"t/{generation_name(C2)}", 17, 1_000_000))
        assert log_files(files, 30).compaction == Compaction(C2, 30, names)

    def test_one_with_an_arrow_segment_is_not_offered(self):
        names = self.files[0], segment(10, 30, C1, is_parquet=False)
        found = offered(*names, named_end=30, generations=[C1])
        assert found.compaction is None

    def test_it_begins_at_the_logs_start(self):
        found = offered(*self.files, named_end=30, generations=[C1], start=15)
        assert found.compaction == Compaction(C1, 30, self.files[1:])

    def test_one_whose_first_part_another_covers_is_not_offered(self):
        """A late file of an older compaction must not be added beside the one that covers it."""
        names = segment(0, 10, C2), segment(5, 30, C1)
        files = listed(*names, generations=[C1])
        files.append(FileInfo(f"t/{generation_name(C2)}", 17, 1_000_000))
        assert log_files(files, 30).compaction is None
