"""Verifying a partition: whatever is wrong is told, nothing else is, and repairs are sound."""

import random

import pytest

from spark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from spark_log.log.finding import FindingKind, Severity, findings_table
from spark_log.log.verifier import Verifier
from tests.log.support import DIRECTORY, file_names, merge, move_start, open_log, values
from tests.record.samples import numbered

DELAY_MS = 60_000


@pytest.fixture
def store(memory_store):
    """Six segments of five batches each, and a snapshot of them."""
    log = open_log(memory_store)
    for first in range(0, 60, 10):
        batches = [numbered(first + 2 * at, 2, value_bytes=900) for at in range(5)]
        log.append(batches)
    log.write_snapshot()
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
    assert any(finding.severity is Severity.ERROR for finding in found)


def test_a_missing_last_segment_is_told_by_the_snapshot(store, verify):
    store.delete(path_of("00000000000000000050.log"))
    assert kinds(verify()) == ["missing-segment", "orphaned-file", "orphaned-file"]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_index_is_made_anew(store, verify, suffix):
    path = path_of(f"00000000000000000020.{suffix}")
    written = store.open_buffer(path).to_pybytes()
    flip(store, path, 3)
    assert set(kinds(verify())) == {"damaged-index"}
    assert all(finding.repaired for finding in verify(repair=True))
    assert store.open_buffer(path).to_pybytes() == written
    assert verify() == []


def test_a_damaged_snapshot_is_made_anew(store, verify):
    path = path_of("00000000000000000060.snapshot")
    flip(store, path, store.open_buffer(path).to_pybytes().rindex(b"spark_log.crc32c"))
    before = kinds(verify())
    assert all(finding.repaired for finding in verify(repair=True))
    assert before == ["damaged-snapshot"]
    assert verify() == []


def test_spent_files_are_removed_only_after_the_delay(store, clock, verify):
    expected = values(open_log(store))
    merge(store, 0, 30)
    assert set(kinds(verify(repair=True))) == {"spent-segment"}
    assert "00000000000000000000.log" in file_names(store)
    clock.advance_ms(DELAY_MS + 1)
    assert all(finding.repaired for finding in verify(repair=True) if finding.severity != "note")
    assert "00000000000000000000.log" not in file_names(store)
    assert values(open_log(store)) == expected


def test_what_lies_behind_the_start_is_removed_and_nothing_else(store, clock, verify):
    move_start(store, 15, 10)
    clock.advance_ms(DELAY_MS + 1)
    expected = values(open_log(store))
    verify(repair=True)
    assert values(open_log(store)) == expected
    assert "00000000000000000000.log" not in file_names(store)
    assert "00000000000000000010.log" in file_names(store)


def test_a_strange_file_is_told_and_left_alone(store, verify):
    store.put(path_of("notes.txt"), b"x")
    assert kinds(verify(repair=True)) == ["unknown-file"]
    assert "notes.txt" in file_names(store)


def test_what_dead_writers_left_is_removed(store, clock, verify):
    store.put(path_of(".abc.tmp"), b"x")
    assert verify() == []
    clock.advance_ms(DELAY_MS + 1)
    assert [finding.repaired for finding in verify(repair=True)] == [True]
    assert list(store.list_hidden(DIRECTORY)) == []


def test_findings_are_a_table(store, verify):
    store.put(path_of("notes.txt"), b"x")
    table = findings_table(verify())
    assert table.column_names == ["path", "kind", "severity", "message", "repaired"]
    assert table.column("kind").to_pylist() == [str(FindingKind.UNKNOWN_FILE)]


def test_any_damage_is_told_or_changes_nothing_and_no_other_record_is_read(store, verify):
    """Bits flipped, files cut, files removed; what is not told (padding, fields that nobody reads
    of Arrow's tables) does not change a record."""
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
            assert any(finding.severity is Severity.ERROR for finding in found), name
            assert read is None or read == expected[: len(read)], name
        store.put(path_of(name), original)
    for finding in verify():
        assert finding.severity is Severity.NOTE
