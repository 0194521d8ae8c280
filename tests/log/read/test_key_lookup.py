"""The newest record of a key: what is read for it, and what a lost or damaged index costs."""

import random
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.files.file_names import SegmentName
from spark_log.log.key_index import KeyIndexWriter
from spark_log.log.read import key_lookup
from spark_log.log.rewrite import key_indexes
from spark_log.log.rewrite.file_deletion import delete_found, find_deletable
from spark_log.log.verify.finding import LogFindingKind
from spark_log.log.verify.verifier import Verifier
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, HookedStore, file_names, open_log
from tests.record.samples import START_US, record_batch, row, rows_of

KEYS = 6_000
TABLE = {"cleanup_policy": "compact", "table_format": "delta", "merge_tail_segments": 0}


@pytest.fixture
def clock():
    return ManualClock(time_us=START_US)


@pytest.fixture
def inner(request, clock):
    return MemoryStore(f"memory://{request.node.name}", clock)


def key_of(number):
    return b"key-%d" % number


def filled(
    inner,
    clock,
    *,
    value_of=lambda number: b"value-%d" % number,
    headers_of=lambda number: None,
    **config,
):
    """A log of `KEYS` keys."""
    log = open_log(inner, clock=clock, **{**TABLE, **config})
    for first in range(0, KEYS, 1_000):
        rows = [
            row(value_of(each), key=key_of(each), headers=headers_of(each))
            for each in range(first, first + 1_000)
        ]
        log.append(record_batch(rows))
    return log


def compacted(inner, clock, **options):
    """A log of `KEYS` keys that was compacted."""
    log = filled(inner, clock, **options)
    assert compact(log, now_us=clock.time_us()).is_complete
    return log


def merged(inner, clock, **options):
    """A log of `KEYS` keys in a merged Parquet segment."""
    log = filled(inner, clock, cleanup_policy="delete", **options)
    PartitionCleaner(log, fan_in=2, table_at_once=True).clean()
    (segment,) = log.observe().live.segments
    assert segment.name.is_parquet
    assert not segment.name.is_compacted
    return log


@pytest.fixture(params=[compacted, merged])
def rewritten(request):
    """A function that returns a log of `KEYS` keys in one Parquet segment."""
    return request.param


def found(log, key, **options):
    """The offset and the row of the newest record; None without one."""
    batch = log.find_key(key, **options)
    if batch is None:
        return None
    (only,) = rows_of(batch.records)
    assert only["key"] == key
    return batch.offsets().tolist()[0], only


def index_path(log):
    (segment,) = (each for each in log.observe().live.segments if each.name.is_parquet)
    return f"{DIRECTORY}/{segment.name.key_index}"


@pytest.fixture(params=[True, False], ids=["mapped", "ranged"])
def store(request, inner):
    return HookedStore(inner, is_mapped=request.param)


class TestWithAnIndex:
    def test_a_later_look_up_reads_a_block_few_pages_and_the_logs_end(
        self, inner, clock, rewritten
    ):
        rewritten(inner, clock, value_of=lambda number: random.Random(number).randbytes(500))
        store = HookedStore(inner, is_mapped=False)
        log = open_log(store, clock=clock, **TABLE)
        assert found(log, key_of(7))[0] == 7
        store.calls.clear()
        value = random.Random(4_321).randbytes(500)
        assert found(log, key_of(4_321)) == (4_321, row(value, key=key_of(4_321)))
        suffixes = [path.rpartition(".")[2] for _, path in store.calls]
        assert suffixes in (
            ["log", "keyindex", "parquet"],
            ["log", "keyindex", "parquet", "parquet"],
        )
        store.calls.clear()
        assert found(log, b"never written") is None
        assert [path.rpartition(".")[2] for _, path in store.calls] == ["log", "keyindex"]

    def test_each_kind_of_record_is_found(self, store, inner, clock, rewritten):
        values = {7: None, 8: b"", 9: b"x" * 1_000_000}
        headers = {10: [("kind", b"x"), ("none", None)], 11: []}
        log = rewritten(
            inner,
            clock,
            value_of=lambda number: values.get(number, b"small"),
            headers_of=headers.get,
        )
        log = open_log(store, clock=clock, **TABLE)
        for number in range(6, 13):
            value = values.get(number, b"small")
            assert found(log, key_of(number)) == (
                number,
                row(value, key=key_of(number), headers=headers.get(number)),
            )
        assert log.suppressed.counts() == {}

    def test_the_tail_goes_before_the_index(self, store, inner, clock):
        writer = compacted(inner, clock)
        log = open_log(store, clock=clock, **TABLE)
        assert found(log, key_of(7))[0] == 7
        for at in range(3):
            writer.append(record_batch([row(b"%d" % at, key=key_of(7)), row(None, key=key_of(8))]))
            assert found(log, key_of(7)) == (KEYS + 2 * at, row(b"%d" % at, key=key_of(7)))
            assert found(log, key_of(8))[1]["value"] is None
        assert found(log, b"never written") is None

    def test_a_record_before_the_start_is_deleted(self, store, inner, clock):
        from spark_log.log.log_start import move_log_start

        log = compacted(inner, clock)
        move_log_start(log, 100)
        log = open_log(store, clock=clock, **TABLE)
        assert found(log, key_of(99)) is None
        assert found(log, key_of(100))[0] == 100

    def test_no_index_is_written_without_a_table(self, inner, clock):
        log = compacted(inner, clock, table_format="none")
        assert not [name for name in file_names(inner) if name.endswith(".keyindex")]
        assert found(log, key_of(4_321))[0] == 4_321

    def test_it_is_deleted_with_its_segment(self, inner, clock):
        log = compacted(inner, clock)
        before = index_path(log)
        log.append(record_batch([row(b"new", key=key_of(7))]))
        clock.advance_ms(61_000)
        compact(log, now_us=clock.time_us())
        clock.advance_ms(61_000)
        delete_found(inner, find_deletable(log.files, 60_000))
        (kept,) = (name for name in file_names(inner) if name.endswith(".keyindex"))
        assert f"{DIRECTORY}/{kept}" == index_path(log) != before


class TestLostIndex:
    @pytest.fixture(params=["missing", "damaged", "cut", "of another segment"])
    def log(self, request, store, inner, clock, rewritten):
        log = rewritten(inner, clock)
        path = index_path(log)
        data = inner.open_buffer(path).to_pybytes()
        if request.param == "missing":
            inner.delete(path)
        elif request.param == "damaged":
            inner.put(path, b"damaged!" * (len(data) // 16) + data[-len(data) // 2 :])
        elif request.param == "cut":
            inner.put(path, data[:-1])
        else:
            inner.put(path, data[:-30] + bytes(30))
        return open_log(store, clock=clock, **TABLE)

    def test_answers_stay_right_and_it_is_counted(self, log):
        for number in (0, 7, KEYS - 1):
            assert found(log, key_of(number)) == (
                number,
                row(b"value-%d" % number, key=key_of(number)),
            )
        assert found(log, b"never written") is None
        assert log.suppressed.counts() == {"key index": 1}

    def test_verify_finds_it_and_repairs_it(self, log, clock):
        clock.advance_ms(61_000)
        log.append(record_batch([row(b"shows the storage's time", key=b"k")]))
        (problem,) = of_indexes(Verifier(log).findings())
        (repaired,) = of_indexes(Verifier(log, repair=True).findings())
        assert repaired == replace(problem, repaired=True)
        assert repaired.path == index_path(log)
        assert of_indexes(Verifier(log).findings()) == []
        again = open_log(log.files.store, clock=clock, **TABLE)
        assert found(again, key_of(7))[0] == 7
        assert again.suppressed.counts() == {}


def of_indexes(findings):
    kinds = {LogFindingKind.MISSING_INDEX, LogFindingKind.DAMAGED_INDEX}
    return [each for each in findings if each.kind in kinds]


def test_verify_notices_an_index_of_other_keys(inner, clock, rewritten):
    def add(writer, keys, headers):
        return original(writer, keys.take(pa.array(range(len(keys) - 1, -1, -1))), headers)

    original = KeyIndexWriter.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyIndexWriter, "add", add)
        log = rewritten(inner, clock)
    (problem,) = of_indexes(Verifier(log).findings())
    assert (problem.kind, problem.path) == (LogFindingKind.DAMAGED_INDEX, index_path(log))
    # A look-up compares keys, so the wrong index hides records, and never gives a wrong one.
    assert found(open_log(inner, clock=clock), key_of(7)) is None


def test_a_cleaning_builds_a_missing_index(inner, clock, rewritten):
    log = rewritten(inner, clock)
    path = index_path(log)
    whole = inner.open_buffer(path).to_pybytes()
    inner.delete(path)
    PartitionCleaner(open_log(inner, clock=clock, **TABLE), table_at_once=True).clean()
    assert inner.open_buffer(path).to_pybytes() == whole
    inner.put(path, b"damaged")  # a cleaning does not read indexes
    PartitionCleaner(open_log(inner, clock=clock, **TABLE), table_at_once=True).clean()
    assert inner.open_buffer(path).to_pybytes() == b"damaged"


def test_an_index_that_cannot_be_written_fails_no_compaction(inner, clock):
    def full(path, call):
        if path.endswith(".keyindex"):
            raise OSError("no space left")
        return call()

    store = HookedStore(inner)
    store.on("put_if_absent", full)
    log = compacted(store, clock)
    assert log.suppressed.counts() == {"key index": 1}
    assert found(log, key_of(7))[0] == 7


class TestWithoutAnIndex:
    def test_keys_are_read_once(self, inner, clock):
        compacted(inner, clock, table_format="none")
        store = HookedStore(inner, is_mapped=False)
        log = open_log(store, clock=clock, cleanup_policy="compact")
        found(log, key_of(7))
        store.calls.clear()
        found(log, b"never written")
        assert len(store.calls) == 1  # the next segment's name

    def test_no_more_memory_is_kept_than_allowed(self, inner, clock, monkeypatch):
        monkeypatch.setattr(key_lookup.KEY_CACHES, "limit_bytes", 1_000)
        log = compacted(inner, clock, table_format="none")
        for number in (7, 4_321):
            assert found(log, key_of(number))[0] == number
        assert key_lookup.KEY_CACHES.held_bytes <= 1_000

    def test_a_damaged_segment_is_an_error(self, inner, clock):
        log = open_log(inner, clock=clock)
        log.append(record_batch([row(b"value", key=b"k")] * 100))
        path = f"{DIRECTORY}/{SegmentName(0).file_name}"
        data = bytearray(inner.open_buffer(path).to_pybytes())
        data[data.index(b"valuevalue")] ^= 1
        inner.put(path, bytes(data))
        with pytest.raises(CorruptRecordError):
            found(open_log(inner, clock=clock), b"k")


def test_records_of_transactions_count_as_for_any_reader(inner, clock):
    """Against a scan, with open and aborted transactions of three producers."""
    log = open_log(inner, clock=clock, merge_tail_segments=0)
    rng, epochs, sequences = random.Random(1), [0, 0, 0], [0, 0, 0]
    for step in range(150):
        each = rng.randrange(3)
        if rng.random() < 0.6:
            producer = ProducerAppend(each, epochs[each], sequences[each], is_transactional=True)
            rows = [row(b"%d" % step, key=key_of(rng.randrange(5))) for _ in range(2)]
            log.append(record_batch(rows), producer=producer)
            sequences[each] += 2
        else:
            epochs[each], sequences[each] = epochs[each] + 1, 0
            marker = EndTransactionMarker(each, epochs[each], rng.random() < 0.5)
            log.append_markers([marker])
        if step % 40 == 39:
            PartitionCleaner(log).clean()
        for level in ("read_uncommitted", "read_committed"):
            newest = {
                each["key"]: (offset, each)
                for batch in open_log(inner, clock=clock).scan(0, isolation_level=level)
                for offset, each in zip(
                    batch.offsets().tolist(), rows_of(batch.records), strict=True
                )
            }
            for number in range(5):
                expected = newest.get(key_of(number))
                assert found(log, key_of(number), isolation_level=level) == expected


def test_a_cleaner_beside_it_changes_no_answer(tmp_path, monkeypatch):
    """One thread appends and looks up what it has appended; others compact and delete files."""
    from spark_log.storage import open_store

    monkeypatch.setattr(key_indexes, "MIN_INDEXED_RECORDS", 0)
    config = {**TABLE, "min_cleanable_dirty_ratio": 0.0, "file_delete_delay_ms": 0}
    store = open_store(str(tmp_path))
    log = open_log(store, **config)
    stopped, errors = threading.Event(), []

    def clean():
        try:
            while not stopped.is_set():
                PartitionCleaner(open_log(store, **config), table_at_once=True).clean()
        except BaseException as error:
            errors.append(error)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        newest, rng = {}, random.Random(2)
        for step in range(120):
            key = key_of(rng.randrange(20))
            newest[key] = log.append(record_batch([row(b"%d" % step, key=key)])).base_offset
            for each in rng.sample(sorted(newest), min(4, len(newest))):
                assert found(log, each)[0] == newest[each]
    finally:
        stopped.set()
        cleaner.join()
    assert errors == []


def test_an_index_without_its_segment_is_found_and_deleted(inner, clock):
    log = compacted(inner, clock)
    orphan = f"{DIRECTORY}/{SegmentName(0, 9, 1_000_000, is_parquet=True).key_index}"
    inner.put(orphan, b"of a segment that is gone")
    clock.advance_ms(120_000)
    (finding,) = (each for each in Verifier(log).findings() if each.path == orphan)
    assert finding.kind == LogFindingKind.ORPHANED_FILE
    delete_found(inner, find_deletable(log.files, 60_000))
    assert orphan not in {file.path for file in inner.list(DIRECTORY)}
    assert inner.head(index_path(log))
