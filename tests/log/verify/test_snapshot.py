"""Verification of snapshots: their segments and producers, and their correction."""

import random
from dataclasses import replace
from typing import Any

import pytest

from spark_log.log.files.file_names import SegmentName, snapshot_name
from spark_log.log.producers.producer_entry import ProducerEntry, SequenceRun
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite.merger import merge
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.log.verify.verifier import Verifier
from spark_log.record import ProducerAppend
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    Part,
    free,
    move_start,
    open_log,
    put_bytes,
    segment_bytes,
)
from tests.record.samples import numbered, rows_of

HERE: dict[str, Any] = {"topic_id": TOPIC_ID, "partition": 0}
EXPIRATION_MS = 1_000_000


@pytest.fixture
def log(memory_store, clock):
    return open_log(memory_store, clock=clock, producer_id_expiration_ms=EXPIRATION_MS)


@pytest.fixture
def verify(log):
    def run(repair=False):
        return list(Verifier(log, repair=repair).findings())

    return run


def append(log, producer_id, sequence, count=2, epoch=0):
    return log.append(numbered(0, count), producer=ProducerAppend(producer_id, epoch, sequence))


def fill(log):
    """Append as producer 7 at 0-1, 4-5 and 8-9, producer 8 at 2-3 and 6-7; return a snapshot."""
    for sequence in (0, 2):
        append(log, 7, sequence)
        append(log, 8, sequence)
    append(log, 7, 4)
    return log.snapshots.write()


def path_of(offset):
    return f"{DIRECTORY}/{snapshot_name(offset)}"


def read(log, offset=10):
    return Snapshot.from_buffer(log.files.store.open_buffer(path_of(offset)), **HERE)


def entries(log, offset=10):
    return dict(read(log, offset).producers.entries())


def change(log, offset=10, **changes):
    """Rewrite a snapshot with other fields; a producer that is None is left out."""
    said = read(log, offset)
    producers = changes.pop("producers", {})
    state = dict(said.producers.entries()) | producers
    kept = {key: entry for key, entry in state.items() if entry is not None}
    snapshot = replace(said, producers=ProducerState(offset, kept.items()), **changes)
    log.files.store.put(path_of(offset), snapshot.to_buffer(**HERE))


def with_run(entry, at, **changes):
    runs = list(entry.runs)
    runs[at] = replace(runs[at], **changes)
    return replace(entry, runs=tuple(runs))


WRONG = {
    "sequence number": lambda entry: with_run(entry, 1, base_sequence=3),
    "offset": lambda entry: with_run(entry, 0, base_offset=1, record_count=1),
    "an older epoch": lambda entry: replace(entry, epoch=-1),
    "a newer epoch": lambda entry: replace(entry, epoch=1),
    "a newer epoch without records": lambda entry: replace(entry, epoch=1, runs=()),
    "no entry": lambda entry: None,
    "a run too few": lambda entry: replace(entry, runs=entry.runs[:-1]),
    "a run that is too short": lambda entry: with_run(entry, 2, record_count=1),
    "a run too many": lambda entry: replace(entry, runs=(SequenceRun(9, 2, 1), *entry.runs)),
    "records behind its end": lambda entry: with_run(entry, 2, record_count=3),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_producer_is_reported_by_its_id_and_corrected(log, verify, name):
    fill(log)
    true = entries(log)
    change(log, producers={7: WRONG[name](true[7])})
    (found,) = verify()
    assert (str(found.kind), str(found.severity)) == ("wrong-snapshot", "warning")
    assert found.path == path_of(10)
    assert "its producer 7: " in found.message
    assert [finding.repaired for finding in verify(repair=True)] == [True]
    assert entries(log) == true
    assert verify() == []


def test_a_producer_that_never_wrote_is_removed(log, verify):
    fill(log)
    true = entries(log)
    change(log, producers={9: ProducerEntry(0, (SequenceRun(0, 4, 1),), 0)})
    assert "producer" in verify(repair=True)[0].message
    assert entries(log) == true


@pytest.mark.parametrize(
    "wrong",
    [
        {"end_offset": 3},
        {"record_count": 1},
        {"size_bytes": 1},
        {"min_timestamp_us": 0},
        {"max_timestamp_us": 0},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_segment_is_reported_by_its_name_and_corrected(log, verify, wrong):
    said = fill(log)
    change(log, segments=(replace(said.segments[0], **wrong), *said.segments[1:]))
    (found,) = verify()
    assert "00000000000000000000.log" in found.message
    verify(repair=True)
    assert read(log).segments == said.segments
    assert verify() == []


class TestOfDeletedRecords:
    """The log starts at 4; earlier producers are only in the snapshot."""

    @pytest.fixture
    def true(self, log, clock):
        append(log, 5, 0)
        append(log, 7, 0)
        append(log, 7, 2)
        append(log, 8, 0)
        append(log, 7, 4)
        log.snapshots.write()
        move_start(log.files.store, 4, 4)
        free(log.files.store, SegmentName(0), SegmentName(2))
        return entries(log)

    def test_state_that_headers_cannot_confirm_is_not_a_finding(self, true, verify):
        assert true[5].runs == (SequenceRun(0, 0, 2),)
        assert true[7].runs == (SequenceRun(0, 2, 4), SequenceRun(4, 8, 2))
        assert verify() == []

    def test_producers_of_deleted_records_survive_a_correction(self, log, true, verify):
        change(log, producers={8: None})
        assert [finding.repaired for finding in verify(repair=True)] == [True]
        assert entries(log) == true

    def test_a_corrected_producer_keeps_its_older_runs(self, log, true, verify):
        change(log, producers={7: with_run(true[7], 1, base_sequence=17)})
        assert [finding.repaired for finding in verify(repair=True)] == [True]
        assert entries(log) == true

    def test_an_epoch_whose_records_are_deleted_is_kept(self, log, true, verify):
        runs = (SequenceRun(0, 0, 1), SequenceRun(0, 6, 2))
        change(log, producers={5: ProducerEntry(3, runs, true[5].appended_us)})
        (found,) = verify(repair=True)
        assert found.repaired
        assert (entries(log)[5].epoch, entries(log)[5].runs) == (3, runs[:1])

    def test_correcting_a_segment_keeps_producers_of_deleted_records(self, log, true, verify):
        said = read(log)
        change(log, segments=(replace(said.segments[-1], record_count=7),))
        assert [finding.repaired for finding in verify(repair=True)] == [True]
        assert entries(log) == true

    def test_producers_are_taken_from_an_older_snapshot_if_one_is_damaged(self, log, true, verify):
        append(log, 8, 2)
        log.snapshots.write()
        log.files.store.put(path_of(12), b"damaged")
        (found,) = verify(repair=True)
        assert found.repaired
        assert found.message.endswith("; a new snapshot of offset 12 replaces it")
        assert entries(log, 12)[5] == true[5]

    def test_producers_that_no_snapshot_has_any_more_are_said_to_be_forgotten(
        self, memory_store, clock, true, verify
    ):
        memory_store.put(path_of(10), b"damaged")
        assert verify()[0].message.endswith("restore it from a copy before a repair")
        log = open_log(memory_store, clock=clock, producer_id_expiration_ms=EXPIRATION_MS)
        (found,) = Verifier(log, repair=True).findings()
        assert found.repaired
        assert found.message.endswith(
            "; a new snapshot of offset 10 replaces it, without the producers whose records are "
            "before the log start 4: they are forgotten"
        )
        assert set(entries(log)) == set(true) - {5}
        assert verify() == []


def test_each_of_several_damaged_snapshots_is_a_row_that_says_what_replaces_it(log, verify):
    """The repair of the first one writes the last one anew, and deletes the oldest."""
    append(log, 8, 0)
    log.snapshots.write()
    append(log, 8, 2)
    log.snapshots.write()
    append(log, 8, 4)
    log.snapshots.write()
    for offset in (2, 4, 6):
        log.files.store.put(path_of(offset), b"damaged")
    found = verify(repair=True)
    assert [(each.path, each.repaired) for each in found] == [
        (path_of(offset), True) for offset in (2, 4, 6)
    ]
    for each in found:
        assert each.message.endswith("; a new snapshot of offset 6 replaces it")
    assert [file.name for file in log.files.store.list(DIRECTORY) if "snap" in file.name] == [
        snapshot_name(6)
    ]
    assert verify() == []


def test_a_wrong_last_snapshot_is_corrected_though_one_before_it_is_damaged(log, verify):
    fill(log)
    append(log, 8, 4)
    log.snapshots.write()
    true = entries(log, 12)
    change(log, 12, producers={7: None})
    log.files.store.put(path_of(10), b"damaged")
    assert [(each.path, each.repaired) for each in verify(repair=True)] == [
        (path_of(10), True),
        (path_of(12), True),
    ]
    assert entries(log, 12) == true
    assert verify() == []


def test_a_damaged_snapshot_before_the_end_is_replaced_by_a_new_one(log, verify):
    fill(log)
    append(log, 8, 4)
    log.files.store.put(path_of(10), b"damaged")
    assert [finding.repaired for finding in verify(repair=True)] == [True]
    assert [file.name for file in log.files.store.list(DIRECTORY) if "snap" in file.name] == [
        snapshot_name(12)
    ]
    assert verify() == []


def test_no_snapshot_is_rewritten_while_a_segment_is_damaged(log, verify):
    fill(log)
    change(log, producers={7: None})
    before = log.files.store.open_buffer(path_of(10)).to_pybytes()
    free(log.files.store, SegmentName(4))
    found = {str(finding.kind): finding.repaired for finding in verify(repair=True)}
    assert found.pop("missing-segment") is False
    assert not any(found.values())
    assert log.files.store.open_buffer(path_of(10)).to_pybytes() == before


@pytest.mark.parametrize("base_offset", [12, 20])
def test_producers_of_missing_headers_are_not_expected(log, verify, base_offset):
    for sequence in range(0, 12, 2):  # six runs: the first is forgotten
        append(log, 7, sequence)
        append(log, 8, sequence)
    log.snapshots.write()
    lost = [SegmentName(base_offset)] + ([SegmentName(22)] if base_offset == 20 else [])
    free(log.files.store, *lost)
    assert {str(finding.kind) for finding in verify()} == {"missing-segment"}


def test_a_snapshot_deleted_meanwhile_is_not_a_finding(log, clock):
    fill(log)
    change(log, producers={7: None})
    store = HookedStore(log.files.store)
    verifier = Verifier(open_log(store, clock=clock))

    def remove_and_look(_, look):
        store.inner.delete(path_of(10))
        return look()

    store.once("list_hidden", remove_and_look)
    assert list(verifier.findings()) == []


class TestExpiry:
    def test_a_producer_expired_before_the_snapshot_is_not_expected(self, log, clock, verify):
        append(log, 7, 0)
        clock.advance_ms(EXPIRATION_MS)
        append(log, 8, 0)
        log.snapshots.write()
        assert set(entries(log, 4)) == {8}
        assert verify() == []

    def test_a_producer_that_returns_with_an_older_epoch_is_accepted(self, log, clock, verify):
        append(log, 7, 0, epoch=5)
        clock.advance_ms(EXPIRATION_MS)
        log.snapshots.write()
        other = open_log(log.files.store, clock=clock, producer_id_expiration_ms=EXPIRATION_MS)
        append(other, 7, 4, epoch=2)
        other.snapshots.write()
        assert entries(log, 4)[7].epoch == 2
        assert verify() == []

    def test_a_producer_expired_before_a_merge_is_not_expected(self, log, clock, verify):
        append(log, 7, 0)
        append(log, 8, 0)
        clock.advance_ms(EXPIRATION_MS)
        for _ in range(2):  # the first one gives the storage's time
            log.snapshots.write()
        merge(log.files, log.observe(), 0, 1, sync=False)
        assert entries(log, 4) == {}
        assert [str(finding.severity) for finding in verify()] == ["note", "note"]

    @pytest.mark.parametrize("silent_ms", [0, EXPIRATION_MS])
    def test_a_rewrite_may_drop_headers_of_expired_producers_only(
        self, log, clock, verify, silent_ms
    ):
        append(log, 7, 0)
        log.snapshots.write()
        clock.advance_ms(silent_ms)
        joined = segment_bytes([[Part(rows_of(numbered(0, 2)))]])
        put_bytes(log.files.store, joined, SegmentName(0, 1, 1))
        free(log.files.store, SegmentName(0))
        found = [finding.kind for finding in verify() if finding.is_problem]
        assert found == ([] if silent_ms else ["wrong-snapshot"])


@pytest.mark.parametrize("seed", range(20))
def test_no_history_of_a_log_gives_a_finding(memory_store, clock, seed):
    """Producers start, pause, expire and are fenced; segments are merged, deleted and freed."""
    chance = random.Random(seed)
    producers = dict.fromkeys(range(4), (0, 0))

    def handle():
        return open_log(memory_store, clock=clock, producer_id_expiration_ms=EXPIRATION_MS)

    log = handle()
    for _ in range(60):
        view = log.observe()
        match chance.randrange(12):
            case 0:
                clock.advance_ms(EXPIRATION_MS * chance.choice([0.1, 0.6, 1.2]))
            case 1:
                log.snapshots.write()
            case 2 if len(view.live.segments) > 2:
                first = chance.randrange(len(view.live.segments) - 1)
                last = chance.randrange(first + 1, len(view.live.segments))
                merge(log.files, view, first, last, sync=False)
            case 3 if len(view.live.segments) > 4:
                log.snapshots.write()
                segment = view.live.segments[chance.randrange(3)]
                end = segment.end_offset
                start = chance.randrange(segment.start_offset, end)
                if start > view.log_start_offset:
                    move_start(memory_store, start, segment.name.base_offset)
            case 4:
                clock.advance_ms(log.config.file_delete_delay_ms)
                list(Verifier(log, repair=True).findings())
            case 5:
                log = handle()
            case _:
                producer_id = chance.choice(list(producers))
                epoch, sequence = producers[producer_id]
                if chance.random() < 0.2:
                    epoch, sequence = epoch + 1, 0
                count = chance.randint(1, 3)
                append(log, producer_id, sequence, count, epoch)
                producers[producer_id] = epoch, sequence + count
        if log.observe().live.snapshots:
            found = Verifier(handle()).findings()
            assert [each for each in found if each.is_problem and "spent" not in each.kind] == []
