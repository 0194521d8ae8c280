"""Segments of one marker that are copied from an earlier one: the bytes of `SegmentWriter`."""

import pytest

from spark_log.errors import StorageError
from spark_log.log.append import segment_stager
from spark_log.log.segment.marker_template import MarkerTemplate, MarkerTemplates
from spark_log.log.segment.writer import SegmentWriter
from spark_log.record import EndTransactionMarker, batch_crc32c, marker_records
from tests.log.support import DIRECTORY, open_log

TOPICS = "lXgmjpYOQnKMxBJY3c7Y1Q", "AAAAAAAAAAAAAAAAAAAAAw"
NOW_US = 1_764_000_000_123_456


def marker(producer_id=7, epoch=1, *, is_committed=True):
    return EndTransactionMarker(producer_id, epoch, is_committed)


def written(store, marker, topic_id=TOPICS[0], partition=0, *, leader_epoch=0, now_us=NOW_US):
    """A staged segment that the general writer made."""
    writer = SegmentWriter(
        store, DIRECTORY, topic_id=topic_id, partition=partition, leader_epoch=leader_epoch
    )
    writer.write_markers([marker], now_us)
    return writer.finish()


class TestBytes:
    @pytest.mark.parametrize("is_committed", [True, False])
    @pytest.mark.parametrize("partitions", [(0, 9), (10, 73), (100, 999), (2**31 - 2, 2**31 - 1)])
    def test_are_those_of_the_writer(self, memory_store, partitions, is_committed):
        first, second = partitions
        staged = written(memory_store, marker(is_committed=is_committed), partition=first)
        template = MarkerTemplate.of(staged, TOPICS[0], first)
        assert template is not None
        other = marker(2**63 - 1, 32_767, is_committed=is_committed)
        expected = written(
            memory_store, other, TOPICS[1], second, leader_epoch=300, now_us=NOW_US + 10**12
        )
        found = template.fill(TOPICS[1], second, expected.append_id, expected.headers[0])
        assert bytes(found) == expected.load().to_pybytes()

    def test_are_not_copied_if_a_value_has_no_place_of_its_own(self, memory_store):
        staged = written(memory_store, marker(), now_us=0)  # eight zero bytes lie everywhere
        assert MarkerTemplate.of(staged, TOPICS[0], 0) is None

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_of_a_header_have_the_checksum_of_the_record(self, is_committed):
        one = marker(2**40, 3, is_committed=is_committed)
        header = one.header(0, 5, NOW_US)
        assert header.crc32c == batch_crc32c(header, marker_records([one], NOW_US))


class TestTemplates:
    def stage(self, templates, store, of, topic_id=TOPICS[0], partition=0):
        return templates.stage(
            store,
            DIRECTORY,
            of,
            topic_id=topic_id,
            partition=partition,
            leader_epoch=4,
            timestamp_us=NOW_US,
        )

    def test_stage_a_segment_as_the_writer_does(self, memory_store):
        templates = MarkerTemplates()
        templates.learn(written(memory_store, marker()), TOPICS[0], 0)
        staged = self.stage(templates, memory_store, marker(8, 2), TOPICS[1], 6)
        expected = written(memory_store, marker(8, 2), TOPICS[1], 6, leader_epoch=4)
        names = set(vars(expected)) - {"staged", "append_id", "copies", "_data"}
        assert {name: vars(staged)[name] for name in names} == {
            name: vars(expected)[name] for name in names
        }
        assert staged.append_id != expected.append_id
        assert staged.load().size == expected.load().size

    def test_do_not_fit_other_lengths_and_other_outcomes(self, memory_store):
        templates = MarkerTemplates()
        templates.learn(written(memory_store, marker()), TOPICS[0], 0)
        assert self.stage(templates, memory_store, marker(), partition=10) is None
        assert self.stage(templates, memory_store, marker(), "short") is None
        assert self.stage(templates, memory_store, marker(is_committed=False)) is None

    def test_leave_no_file_if_it_cannot_be_staged(self, local_store, monkeypatch):
        templates = MarkerTemplates()
        templates.learn(written(local_store, marker()), TOPICS[0], 0)
        before = [file.name for file in local_store.list_hidden(DIRECTORY)]

        def fail(self):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("spark_log.storage.local_staged_file.LocalStagedFile._close", fail)
        with pytest.raises(StorageError):
            self.stage(templates, local_store, marker())
        assert [file.name for file in local_store.list_hidden(DIRECTORY)] == before


def test_the_second_marker_of_a_process_is_copied(memory_store, monkeypatch):
    monkeypatch.setattr(segment_stager, "_MARKER_TEMPLATES", MarkerTemplates())
    log = open_log(memory_store)
    log.append_markers([marker(1)])

    def refuse(*args):
        raise AssertionError("Arrow's writer was called")

    monkeypatch.setattr(SegmentWriter, "write_markers", refuse)
    log.append_markers([marker(2)])
    with pytest.raises(AssertionError):
        log.append_markers([marker(3), marker(4)])
    last = log.observe().live.segments[-1]
    ((_, (header,)),) = log.files.open(last.name).all_headers()
    assert EndTransactionMarker.of_header(header) == marker(2)
