"""Verification of a partition: all problems are found, nothing else, and repairs are sound."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from spark_log.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge as merge_segments
from spark_log.log.verify.finding import LogFindingKind, LogSeverity
from spark_log.log.verify.verifier import Verifier
from spark_log.record import ProducerAppend
from spark_log.storage import open_store
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    file_names,
    merge,
    move_start,
    open_log,
    put_segment,
    values,
)
from tests.record.samples import numbered

DELAY_MS = 61_000
"""``file.delete.delay.ms``, and a second for storages with coarse times."""


@pytest.fixture
def store(memory_store):
    """A log of six segments of five batches each, with a snapshot."""
    log = open_log(memory_store)
    for first in range(0, 60, 10):
        batches = [numbered(first + 2 * at, 2, value_bytes=900) for at in range(5)]
        log.append(batches)
    log.snapshots.write()
    return memory_store


@pytest.fixture
def verify(store, clock):
    def run(repair=False):
        return list(Verifier(open_log(store, clock=clock), repair=repair).findings())

    return run


def kinds(findings):
    return sorted(str(finding.kind) for finding in findings)


def flip(store, path, position, bit=0):
    data = bytearray(store.open_buffer(path).to_pybytes())
    data[position] ^= 1 << bit
    store.put(path, bytes(data))


def path_of(name):
    return f"{DIRECTORY}/{name}"


def test_a_sound_log_has_no_findings(verify):
    assert verify() == []


def test_a_missing_segment_in_the_middle_is_an_error(store, verify):
    store.delete(path_of("00000000000000000020.log"))
    found = verify()
    assert "missing-segment" in kinds(found)
    assert any(finding.severity is LogSeverity.ERROR for finding in found)


def test_a_segment_that_a_listing_lacks_is_not_missing(store, clock):
    hooked = HookedStore(store)
    left_out = "00000000000000000020.log"
    hooked.once("list", lambda _, look: [file for file in look() if file.name != left_out])
    assert list(Verifier(open_log(hooked, clock=clock)).findings()) == []


def test_overlapping_segments_are_an_error(store, verify):
    put_segment(store, [numbered(25, 5)], SegmentName(25), indexes=False)
    (found,) = verify()
    assert (found.kind, found.severity) == (LogFindingKind.OVERLAPPING_SEGMENT, LogSeverity.ERROR)
    assert "ends at offset 30, but the log continues at 25" in found.message


def test_a_start_beyond_the_segment_that_it_names_is_an_error(store, verify):
    move_start(store, 70, 50)
    assert "wrong-start" in kinds(verify())


def test_a_superseded_start_marker_is_removed_only_after_the_delay(store, clock, verify):
    markers = ["00000000000000000015-00000000000000000010.start"]
    move_start(store, 15, 10)
    clock.advance_ms(DELAY_MS)
    move_start(store, 25, 20)
    verify(repair=True)
    assert set(markers) <= set(file_names(store))
    clock.advance_ms(DELAY_MS)
    verify(repair=True)
    assert not set(markers) & set(file_names(store))


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_orphaned_index_is_removed_when_it_is_old(store, clock, verify, suffix):
    path = path_of(f"00000000000000000005.{suffix}")
    store.put(path, b"")
    (young,) = verify(repair=True)
    assert (young.kind, young.repaired) == (LogFindingKind.ORPHANED_FILE, False)
    clock.advance_ms(DELAY_MS)
    (old,) = verify(repair=True)
    assert (old.path, old.repaired) == (path, True)
    assert verify() == []


def test_without_repair_nothing_is_changed(store, clock, verify):
    merge(store, 0, 30)
    clock.advance_ms(2 * DELAY_MS)
    flip(store, path_of("00000000000000000030.index"), 3)
    store.put(path_of("00000000000000000060.snapshot"), b"damaged")
    before = {file.name: store.open_buffer(file.path) for file in store.list(DIRECTORY)}
    assert len(verify()) > 3
    assert {file.name: store.open_buffer(file.path) for file in store.list(DIRECTORY)} == before


def test_a_missing_last_segment_is_found_by_the_snapshot(store, verify):
    store.delete(path_of("00000000000000000050.log"))
    assert kinds(verify()) == ["missing-segment", "orphaned-file", "orphaned-file"]


def test_a_repair_does_not_claim_to_bring_back_the_segments_that_a_snapshot_misses(store, verify):
    store.delete(path_of("00000000000000000050.log"))
    snapshot = store.open_buffer(path_of("00000000000000000060.snapshot"))
    (missing,) = (each for each in verify(repair=True) if str(each.kind) == "missing-segment")
    assert not missing.repaired
    assert store.open_buffer(path_of("00000000000000000060.snapshot")) == snapshot


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_index_is_rebuilt(store, verify, suffix):
    path = path_of(f"00000000000000000020.{suffix}")
    written = store.open_buffer(path).to_pybytes()
    flip(store, path, 3)
    assert set(kinds(verify())) == {"damaged-index"}
    assert all(finding.repaired for finding in verify(repair=True))
    assert store.open_buffer(path).to_pybytes() == written
    assert verify() == []


def test_a_damaged_snapshot_is_rebuilt(store, verify):
    path = path_of("00000000000000000060.snapshot")
    flip(store, path, store.open_buffer(path).to_pybytes().rindex(b"spark_log.crc32c"))
    before = kinds(verify())
    assert all(finding.repaired for finding in verify(repair=True))
    assert before == ["damaged-snapshot"]
    assert verify() == []


def test_a_damaged_snapshot_after_a_moved_start_says_what_is_lost_with_it(store, verify):
    path = path_of("00000000000000000060.snapshot")
    store.put(path, b"damaged")
    (before,) = verify()
    move_start(store, 20, 20)
    (after,) = (found for found in verify() if found.kind == "damaged-snapshot")
    assert "are forgotten" not in before.message
    assert "records are before the log start 20 are forgotten" in after.message


def test_spent_files_are_removed_only_after_the_delay(store, clock, verify):
    expected = values(open_log(store))
    merge(store, 0, 30)
    assert set(kinds(verify(repair=True))) == {"spent-segment"}
    assert "00000000000000000000.log" in file_names(store)
    clock.advance_ms(DELAY_MS - 1)  # with times in whole seconds it may be less
    verify(repair=True)
    assert "00000000000000000000.log" in file_names(store)
    clock.advance_ms(2)
    assert all(finding.repaired for finding in verify(repair=True) if finding.severity != "note")
    left = [name for name in file_names(store) if name.startswith("00000000000000000000.")]
    assert left == [], "its indexes go with it"
    assert values(open_log(store)) == expected


def test_only_segments_before_the_start_are_removed(store, clock, verify):
    move_start(store, 15, 10)
    clock.advance_ms(DELAY_MS + 1)
    expected = values(open_log(store))
    verify(repair=True)
    assert values(open_log(store)) == expected
    assert "00000000000000000000.log" not in file_names(store)
    assert "00000000000000000010.log" in file_names(store)


def test_an_unknown_file_is_reported_and_kept(store, verify):
    store.put(path_of("notes.txt"), b"x")
    assert kinds(verify(repair=True)) == ["unknown-file"]
    assert "notes.txt" in file_names(store)


def test_temporary_files_of_crashed_writers_are_removed(store, clock, verify):
    store.put(path_of(".abc.tmp"), b"x")
    clock.advance_ms(DELAY_MS + 1)
    assert verify(repair=True) == [], "its writer may be at work"
    clock.advance_ms(3_600_000)
    assert [finding.repaired for finding in verify(repair=True)] == [True]
    assert list(store.list_hidden(DIRECTORY)) == []


def test_damage_is_reported_or_changes_no_record(store, verify):
    """Bits are flipped, files are cut or removed. Damage that is not reported (in padding, or in
    unused fields of Arrow's tables) does not change a record."""
    expected = values(open_log(store))
    chance = random.Random(7)
    names = [name for name in file_names(store) if name.endswith((".log", "index", "snapshot"))]
    for _ in range(120):
        name = chance.choice(names)
        original = store.open_buffer(path_of(name))
        match chance.randrange(8):
            case 0:
                store.delete(path_of(name))
            case 1:
                store.put(path_of(name), original.slice(0, chance.randrange(original.size)))
            case _:
                flip(store, path_of(name), chance.randrange(original.size), chance.randrange(8))
        found = verify()
        try:
            read = values(open_log(store))
        except (CorruptRecordError, OffsetOutOfRangeError):
            read = None
        if read != expected:
            assert any(finding.severity is LogSeverity.ERROR for finding in found), name
            assert read is None or read == expected[: len(read)], name
        store.put(path_of(name), original)
    for finding in verify():
        assert finding.severity is LogSeverity.NOTE


# --- beside others -------------------------------------------------------------------------------

LIVE = {
    "merge_tail_segments": 0,  # one merger runs already; two of them may overlap
    "file_delete_delay_ms": 2_000,
    "index_interval_bytes": 1,
    "snapshot_interval_segments": 4,
}


@pytest.fixture
def s3_store(s3_server):
    store = open_store(s3_server.new_bucket(), s3_server.storage_options)
    store.create_root()
    return store


def append_until(done, store, producer_id):
    """Append as an idempotent producer; return how many records it appended."""
    log = open_log(store, **LIVE)
    sequence, is_unknown = 0, False
    while is_unknown or not done.is_set():
        producer = ProducerAppend(producer_id, 0, sequence)
        try:
            log.append(numbered(sequence, 2, mark=f"{producer_id}"), producer=producer)
        except StorageTimeoutError:
            pass  # on a busy machine a listing may take longer than half the delay
        except UnknownOutcomeError:
            is_unknown = True
        else:
            sequence, is_unknown = sequence + 2, False
    return sequence


@pytest.mark.parametrize("name", ["local_store", pytest.param("s3_store", marks=pytest.mark.long)])
def test_a_log_in_use_has_no_findings(name, request):
    store = request.getfixturevalue(name)
    done = threading.Event()
    freed = []
    problems = []

    def note(findings):
        for finding in findings:
            if finding.repaired:
                freed.append(finding.path)
            # A file that the cleaner has not deleted yet is not a false finding.
            elif finding.is_problem and finding.kind is not LogFindingKind.SPENT_SEGMENT:
                problems.append(finding)

    def rewrite():
        log = open_log(store, **LIVE)
        while not done.is_set():
            with suppress(StorageTimeoutError):
                view = log.observe()
                if len(view.live.segments) > 8:
                    merge_segments(log.files, view, 0, 7, sync=False)
                note(Verifier(log, repair=True).findings())

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(append_until, done, store, producer_id) for producer_id in (7, 8)]
        others.append(pool.submit(rewrite))
        try:
            verified = 0
            while verified < 5 or not freed:
                with suppress(StorageTimeoutError):
                    note(Verifier(open_log(store, **LIVE)).findings())
                    verified += 1
                for other in others:
                    if other.done():
                        pytest.fail(f"ended by itself: {other.exception()!r}")
        finally:
            done.set()
        written = sum(other.result() for other in others[:2])
        others[2].result()

    assert problems == []
    assert {path.rpartition(".")[2] for path in freed} == {"log"}
    verifier = Verifier(open_log(store, **LIVE))
    note(verifier.findings())
    assert problems == []
    assert verifier.records == written


def test_on_an_object_store_damage_is_found_and_repaired(s3_store):
    log = open_log(s3_store, index_interval_bytes=1)
    for first in (0, 4):
        batches = [numbered(first, 2), numbered(first + 2, 2)]
        log.append(batches, producer=ProducerAppend(7, 0, first))
    log.snapshots.write()
    assert list(Verifier(log).findings()) == []

    index = path_of("00000000000000000004.index")
    written = s3_store.open_buffer(index).to_pybytes()
    flip(s3_store, index, 0)
    s3_store.put(path_of("00000000000000000008.snapshot"), b"damaged")
    repaired = list(Verifier(log, repair=True).findings())
    assert set(kinds(repaired)) == {"damaged-index", "damaged-snapshot"}
    assert all(finding.repaired for finding in repaired)
    assert s3_store.open_buffer(index).to_pybytes() == written

    flip(s3_store, path_of("00000000000000000000.log"), 700)
    s3_store.delete(path_of("00000000000000000004.log"))
    assert "missing-segment" in kinds(Verifier(log).findings())
    assert list(s3_store.list_hidden(DIRECTORY)) == []
