"""docs/format.md says which file counts at an offset; the code must agree."""

import re
from itertools import permutations
from pathlib import Path

import pytest

from spark_log.log.files.file_names import MAX_MERGE_GENERATION, SegmentName
from spark_log.log.files.live_segments import live_log
from spark_log.storage import FileInfo

FORMAT = (Path(__file__).parents[3] / "docs" / "format.md").read_text(encoding="utf-8")
MEASURES = {
    "the highest generation": lambda name: name.generation,
    "the widest": lambda name: name.last_offset - name.base_offset,
    "the one that begins first": lambda name: -name.base_offset,
    "Parquet": lambda name: name.is_parquet,
}


def rule():
    """The document's rule: kinds of files in order, and the choice among several."""
    table = FORMAT[FORMAT.index("| order | files |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [(files, chosen.split(", then ") if chosen else []) for _, files, chosen in rows[2:]]


def documented_choice(names, offset):
    """Return the segment that counts at an offset by the document's rule."""
    for files, measures in rule():
        if files.startswith("rewritten segments that contain the offset"):
            fitting = [
                each
                for each in names
                if each.last_offset is not None and each.base_offset <= offset <= each.last_offset
            ]
        else:
            assert files == "the plain segment with exactly this base"
            fitting = [each for each in names if each == SegmentName(offset)]
        if fitting:
            return max(fitting, key=lambda name: [MEASURES[each](name) for each in measures])
    return None


COMPACTED = MAX_MERGE_GENERATION + 1
CASES = [
    [SegmentName(0)],
    [SegmentName(0), SegmentName(0, 9, 1)],
    [SegmentName(0, 9, 2), SegmentName(0, 19, 1)],
    [SegmentName(0, 9, 1), SegmentName(0, 19, 1)],
    [SegmentName(0, 99, 7), SegmentName(0, 9, COMPACTED), SegmentName(0, 49, 8)],
    [SegmentName(0, 9, COMPACTED), SegmentName(0, 4, COMPACTED + 1), SegmentName(0)],
    [SegmentName(0, 9, 1), SegmentName(0, 9, 1, is_parquet=True), SegmentName(0)],
    [SegmentName(0, 9, 2), SegmentName(0, 9, 1, is_parquet=True), SegmentName(0)],
]


@pytest.mark.parametrize(
    "names", CASES, ids=lambda names: " ".join(each.file_name for each in names)
)
def test_the_document_and_the_log_choose_the_same_file(names):
    for order in permutations(names):
        live = live_log(FileInfo(name.file_name, 1, 0) for name in order)
        assert live.segments[0].name == documented_choice(order, 0)


def test_the_document_covers_all_measures_and_both_kinds():
    assert [measures for _, measures in rule()] == [[*MEASURES], []]
    limit = re.search(r"A merge has a\s+generation up to ([\d,]+)", FORMAT)
    assert limit is not None
    assert int(limit[1].replace(",", "")) == MAX_MERGE_GENERATION
    assert ".generation" in FORMAT
