"""Sound files in a wrong place: of another segment, partition, topic or time.

The table says what a reader of the whole log gets, a reader of the offsets in question alone, and
what ``verify`` says. *told*: an error, and no record. *right*: the true records.
"""

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import CorruptRecordError, LogTruncatedError, OffsetOutOfRangeError
from spark_log.log import LocalLog
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import (
    SegmentName,
    StartMarker,
    encode_leader_epoch,
    snapshot_name,
)
from spark_log.log.log_start import move_log_start
from spark_log.log.verify.finding import LogSeverity
from spark_log.log.verify.verifier import Verifier
from spark_log.record import ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import ANY_TIME, DIRECTORY, TOPIC_ID, file_names, values_of
from tests.record.samples import numbered

OTHER_ID = "CAmGwfbUQVSsLzdzBSFxhA"
PLACES = {
    "partition": (f"flights.{TOPIC_ID}/flights-1", TOPIC_ID, 1),
    "topic": (f"boats.{OTHER_ID}/boats-0", OTHER_ID, 0),
}
SNAPSHOT = 40
END = 60


def open_at(store, clock, place=(DIRECTORY, TOPIC_ID, 0), **config):
    directory, topic_id, partition = place
    settings = TopicConfig.parse(
        {"flush_on_append": False, "merge_tail_segments": 0, **ANY_TIME, **config}
    )
    return LocalLog(
        store, directory, topic_id=topic_id, partition=partition, config=settings, clock=clock
    )


def fill(log, *, mark="record", value_bytes=900, producer_id=None):
    """Append six segments of ten records, with a snapshot of the first four."""
    for first in range(0, END, 10):
        if first == SNAPSHOT:
            log.snapshots.write()
        batches = [numbered(first + at, 5, mark=mark, value_bytes=value_bytes) for at in (0, 5)]
        producer = None if producer_id is None else ProducerAppend(producer_id, 0, first)
        log.append(batches, producer=producer)


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture
def store(clock, request):
    store = MemoryStore(f"wrong-files-{request.node.name}", clock)
    yield store
    for directory in (DIRECTORY, *(place[0] for place in PLACES.values())):
        store.delete_directory(directory)


class Files:
    """Changes the files of the log under test."""

    def __init__(self, store):
        self.store = store

    def copy(self, source, target, *, of=None):
        directory = DIRECTORY if of is None else PLACES[of][0]
        data = self.store.open_buffer(f"{directory}/{source}")
        self.store.put(f"{DIRECTORY}/{target}", data.to_pybytes())

    def exchange(self, one, other):
        read = {name: self.store.open_buffer(f"{DIRECTORY}/{name}") for name in (one, other)}
        held = {name: data.to_pybytes() for name, data in read.items()}
        self.store.put(f"{DIRECTORY}/{one}", held[other])
        self.store.put(f"{DIRECTORY}/{other}", held[one])

    def put(self, name, data=b""):
        self.store.put(f"{DIRECTORY}/{name}", data)

    def cut(self, name):
        data = self.store.open_buffer(f"{DIRECTORY}/{name}").to_pybytes()
        self.put(name, data[:-500])

    def remove(self, *names):
        for name in names:
            self.store.delete(f"{DIRECTORY}/{name}")

    def remove_all(self, base):
        self.remove(log_of(base), index_of(base), SegmentName(base).time_index)

    def replace_all(self, of):
        self.remove(*file_names(self.store))
        for file in list(self.store.list(PLACES[of][0])):
            self.copy(file.name, file.name, of=of)


def log_of(base):
    return SegmentName(base).file_name


def index_of(base):
    return SegmentName(base).index


def marker(start, base, epoch=0):
    return StartMarker(start, base).name, encode_leader_epoch(epoch)


TOLD, RIGHT = "told", "right"
FOREIGN, EARLIER = "as data", "the log's end"

# What was done; the offsets in question; what readers of all, and of these alone, get; errors.
TABLE = {
    "a segment's file under the name of one that a snapshot lists": (
        lambda files: files.copy(log_of(0), log_of(20)),
        20,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "a newer segment's file under the name of one that a snapshot lists": (
        lambda files: files.copy(log_of(50), log_of(0)),
        0,
        TOLD,
        TOLD,
        ["damaged-segment", "damaged-segment"],
    ),
    "the file of a listed segment under the name of one that is not": (
        lambda files: files.copy(log_of(0), log_of(50)),
        50,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "the same, neither of them listed": (
        lambda files: files.copy(log_of(40), log_of(50)),
        50,
        TOLD,
        FOREIGN,
        ["damaged-segment"],
    ),
    "a listed segment again behind the end": (
        lambda files: files.copy(log_of(0), log_of(60)),
        60,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "the last segment again behind the end": (
        lambda files: files.copy(log_of(50), log_of(60)),
        60,
        TOLD,
        FOREIGN,
        ["damaged-segment"],
    ),
    "two listed segments exchanged": (
        lambda files: files.exchange(log_of(10), log_of(20)),
        20,
        TOLD,
        TOLD,
        ["damaged-segment", "damaged-segment"],
    ),
    "two segments exchanged that no snapshot lists": (
        lambda files: files.exchange(log_of(40), log_of(50)),
        50,
        FOREIGN,
        FOREIGN,
        ["damaged-segment", "damaged-segment"],
    ),
    "a segment of another partition": (
        lambda files: files.copy(log_of(20), log_of(20), of="partition"),
        20,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "a segment of another topic": (
        lambda files: files.copy(log_of(20), log_of(20), of="topic"),
        20,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "a segment of another partition behind the end": (
        lambda files: files.copy(log_of(50), log_of(60), of="partition"),
        50,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "a segment that was cut": (
        lambda files: files.cut(log_of(20)),
        20,
        TOLD,
        TOLD,
        ["damaged-segment"],
    ),
    "an empty file": (lambda files: files.put(log_of(20)), 20, TOLD, TOLD, ["damaged-segment"]),
    "a segment in the middle is missing": (
        lambda files: files.remove_all(20),
        10,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "the last segment is missing, and its indexes are there": (
        lambda files: files.remove(log_of(50)),
        40,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "the last segment is missing with its indexes": (
        lambda files: files.remove_all(50),
        40,
        EARLIER,
        RIGHT,
        [],
    ),
    "a listed segment at the end is missing with all behind it": (
        lambda files: [files.remove_all(base) for base in (30, 40, 50)],
        10,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "all files of another partition": (
        lambda files: files.replace_all("partition"),
        10,
        TOLD,
        TOLD,
        6 * ["damaged-segment"],
    ),
    "all files of another topic": (
        lambda files: files.replace_all("topic"),
        10,
        TOLD,
        TOLD,
        6 * ["damaged-segment"],
    ),
    "an index of another segment": (
        lambda files: files.copy(index_of(0), index_of(20)),
        20,
        RIGHT,
        RIGHT,
        [],
    ),
    "a segment's index under the name of one behind the end": (
        lambda files: files.copy(index_of(0), index_of(70)),
        20,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "a snapshot of another partition": (
        lambda files: files.copy(snapshot_name(40), snapshot_name(40), of="partition"),
        20,
        RIGHT,
        RIGHT,
        [],
    ),
    "a snapshot of another partition behind the end": (
        lambda files: files.copy(snapshot_name(40), snapshot_name(70), of="partition"),
        20,
        TOLD,
        TOLD,
        ["damaged-snapshot"],
    ),
    "a start marker of another log behind the end": (
        lambda files: files.put(*marker(90, 90)),
        20,
        TOLD,
        TOLD,
        ["wrong-start"],
    ),
    "a start marker of another log, in a segment behind the end": (
        lambda files: files.put(*marker(95, 90)),
        20,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "a start marker of another log, inside a segment that it does not name": (
        lambda files: files.put(*marker(25, 25)),
        20,
        TOLD,
        TOLD,
        ["missing-segment"],
    ),
    "a start marker of another log that fits": (
        lambda files: files.put(*marker(30, 30)),
        20,
        "the log's start",
        TOLD,
        [],
    ),
}


def read(store, clock, truth, start=None):
    """Say what a new reader gets: of ten offsets, or of the whole log."""
    log = open_at(store, clock)
    try:
        begin = log.observe().log_start_offset if start is None else start
        found = dict(values_of(log.scan(begin, None if start is None else start + 10)))
    except (CorruptRecordError, LogTruncatedError, OffsetOutOfRangeError):
        return TOLD
    if any(truth.get(offset) != value for offset, value in found.items()):
        return FOREIGN
    expected = [at for at in truth if start is None or start <= at < start + 10]
    if list(found) == expected:
        return RIGHT
    return EARLIER if 0 in found else "the log's start"


@pytest.mark.parametrize("name", TABLE)
def test_a_wrong_file_is_told_or_harmless(store, clock, name):
    for place, mark in zip(PLACES, ("one", "boat"), strict=True):
        fill(open_at(store, clock, PLACES[place]), mark=mark)
    log = open_at(store, clock)
    fill(log)
    truth = dict(values_of(log.scan(0)))
    act, start, of_all, of_part, errors = TABLE[name]
    act(Files(store))
    assert read(store, clock, truth) == of_all
    assert read(store, clock, truth, start) == of_part
    for repair in (False, True, False):
        found = list(Verifier(open_at(store, clock), repair=repair).findings())
        said = sorted(str(each.kind) for each in found if each.severity is LogSeverity.ERROR)
        assert said == errors
    assert read(store, clock, truth) == of_all, "a repair changes nothing"


def test_exchanged_segments_without_indexes_are_told_by_their_sequences(store, clock):
    fill(open_at(store, clock), value_bytes=0, producer_id=7)
    assert not [name for name in file_names(store) if name.endswith(".index")]
    assert list(Verifier(open_at(store, clock)).findings()) == []
    Files(store).exchange(log_of(40), log_of(50))
    (found,) = Verifier(open_at(store, clock)).findings()
    assert (str(found.kind), found.severity) == ("repeated-sequence", LogSeverity.WARNING)
    assert "the batch at offset 50 has sequence 40 of producer 7" in found.message


def test_a_producer_that_was_forgotten_may_repeat_its_sequences(store, clock):
    log = open_at(store, clock, producer_id_expiration_ms=1000)
    log.append(numbered(0, 5), producer=ProducerAppend(7, 0, 0))
    clock.advance_ms(2000)
    log.append(numbered(5, 5))
    log.snapshots.write()
    again = open_at(store, clock, producer_id_expiration_ms=1000)
    again.append(numbered(10, 5), producer=ProducerAppend(7, 0, 0))
    assert again.observe().log_end_offset == 15
    assert list(Verifier(again).findings()) == []


class TestAStartBehindTheEnd:
    def test_its_segments_are_not_deleted(self, store, clock):
        fill(open_at(store, clock))
        Files(store).put(*marker(90, 90))
        clock.advance_ms(10 * 61_000)
        with pytest.raises(CorruptRecordError, match="never reached it"):
            PartitionCleaner(open_at(store, clock)).clean()
        list(Verifier(open_at(store, clock), repair=True).findings())
        Files(store).remove(StartMarker(90, 90).name)
        log = open_at(store, clock)
        assert len(values_of(log.scan(0))) == END

    def test_an_append_is_refused(self, store, clock):
        fill(open_at(store, clock))
        Files(store).put(*marker(90, 90))
        with pytest.raises(CorruptRecordError, match="another log's marker"):
            open_at(store, clock).append(numbered(0, 1))

    def test_an_emptied_log_that_lost_its_snapshots_goes_on(self, store, clock):
        log = open_at(store, clock)
        fill(log)
        move_log_start(log, END)
        Files(store).remove(*(name for name in file_names(store) if name.endswith(".snapshot")))
        again = open_at(store, clock)
        assert (again.observe().log_start_offset, again.observe().log_end_offset) == (END, END)
        assert again.append(numbered(0, 1)).base_offset == END


class TestAnOlderCopyOfTheDirectory:
    @pytest.fixture
    def restore(self, store, clock):
        """Append, copy the directory, append more; return a function that puts the copy back."""
        fill(open_at(store, clock))
        copied = [
            (file.path, store.open_buffer(file.path).to_pybytes()) for file in store.list(DIRECTORY)
        ]
        open_at(store, clock).append(numbered(END, 10))

        def restore():
            store.delete_directory(DIRECTORY)
            for path, data in copied:
                store.put(path, data)

        return restore

    def test_a_process_that_has_seen_a_later_end_is_told(self, store, clock, restore):
        log = open_at(store, clock)
        assert log.observe().log_end_offset == END + 10
        restore()
        with pytest.raises(LogTruncatedError, match="had reached 70"):
            log.observe()
        with pytest.raises(LogTruncatedError):
            log.append(numbered(0, 1))

    def test_a_position_behind_its_end_is_out_of_range(self, store, clock, restore):
        restore()
        with pytest.raises(OffsetOutOfRangeError) as caught:
            open_at(store, clock).read(END + 5)
        assert caught.value.log_end_offset == END

    def test_nothing_in_it_shows_that_it_is_old(self, store, clock, restore):
        restore()
        log = open_at(store, clock)
        assert log.observe().log_end_offset == END
        assert list(Verifier(log).findings()) == []
