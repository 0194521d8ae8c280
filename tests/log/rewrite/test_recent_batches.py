"""A merge from memory makes the segment that a merge of the segments' files makes."""

from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError
from spark_log.log import LocalLog
from spark_log.log.rewrite import RecentBatch, RecentBatches, merge, merge_recent
from spark_log.record import RECORD_SCHEMA, ProducerAppend
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from spark_log.util import SYSTEM_CLOCK

NOW_US = 1_700_000_000_000_000

column = st.sampled_from([st.none(), st.binary(max_size=9)])
appends = st.lists(
    st.tuples(
        column.flatmap(
            lambda keys: column.flatmap(
                lambda values: st.lists(st.tuples(keys, values), min_size=1, max_size=4)
            )
        ),
        st.none() | st.integers(0, 1),
        st.sampled_from(["none", "zstd"]),
    ),
    min_size=1,
    max_size=8,
)


numbers = count()


def open_log(store):
    config = TopicConfig(merge_tail_segments=0, flush_on_append=False)
    return LocalLog(
        store, "t.id/t-0", config=config, topic_id="id", partition=0, clock=SYSTEM_CLOCK
    )


def append_all(log, made):
    """Append the batches, and return them as a merge takes them."""
    recent: list[RecentBatch] = []
    sequences: dict[int, int] = {}
    for number, (rows, producer_id, compression) in enumerate(made):
        records = pa.RecordBatch.from_pylist(
            [
                {"key": key, "value": value, "timestamp": NOW_US + 7 * number - row}
                for row, (key, value) in enumerate(rows)
            ],
            schema=RECORD_SCHEMA,
        )
        producer = None
        if producer_id is not None:
            sequence = sequences.get(producer_id, 0)
            producer = ProducerAppend(producer_id, 0, sequence)
            sequences[producer_id] = sequence + len(rows)
        writer = log.stager.segment_writer(compression, producer)
        writer.write(records)
        segment = writer.finish()
        info = log.appender.append_segment(segment)
        recent.append(
            RecentBatch(
                info.last_offset + 1,
                segment.size_bytes,
                segment.compression,
                segment.packed_headers,
                segment.content,
            )
        )
        segment.discard()
    return recent


@settings(deadline=None, max_examples=50)
@given(appends)
def test_it_has_the_same_records_and_headers(made):
    log, other = (open_log(MemoryStore(f"recent-{next(numbers)}")) for _ in range(2))
    append_all(log, made)
    view = log.observe()
    read = merge(log.files, view, 0, len(made) - 1)
    merged = merge_recent(other.files, 0, append_all(other, made))
    # Arrow writes the buffers of columns without a value in several lengths.
    assert replace(merged, size_bytes=read.size_bytes) == read
    one, two = (each.files.open(read.name) for each in (log, other))
    assert one.batch_count == two.batch_count
    for ordinal in range(one.batch_count):
        assert one.read_batch(ordinal) == two.read_batch(ordinal)  # checks the checksums, too
        assert one.compression(ordinal) == two.compression(ordinal)


def test_a_segment_whose_file_is_missing_is_not_merged(tmp_path):
    log = open_log(LocalStore(str(tmp_path)))
    recent = append_all(log, [([(b"k", b"v")], None, "none")] * 3)
    log.files.store.delete(log.files.file_path(f"{1:020d}.log"))
    with pytest.raises(NotFoundError):
        merge_recent(log.files, 0, recent)


class TestTake:
    def batches(self):
        batches = RecentBatches()
        for base in range(4):
            batches.add(base, RecentBatch(base + 1, 100, "none", b"h", b"c"))
        return batches

    def test_consecutive_segments_are_found_once(self):
        batches = self.batches()
        assert len(batches.take([(0, 1, 100), (1, 2, 100)])) == 2
        assert batches.take([(0, 1, 100)]) is None
        assert len(batches.take([(2, 3, 100), (3, 4, 100)])) == 2

    @pytest.mark.parametrize("other", [(1, 3, 100), (1, 2, 101), (7, 8, 100)])
    def test_none_is_found_if_one_is_another_segment(self, other):
        assert self.batches().take([(0, 1, 100), other]) is None
