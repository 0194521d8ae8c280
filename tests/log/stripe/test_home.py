"""Taking home, home markers and freeing."""

import pytest

from spark_log.errors import CorruptRecordError, StorageError, UnknownOutcomeError
from spark_log.log.stripe import find_freeable, free, home, tail
from tests.log.stripe.support import STRIPE, TOPIC, Process, batch, expected, marker
from tests.log.support import done_but, failing

DELAY_MS = 60_000


def names(store, directory=STRIPE):
    return [file.name for file in store.list(directory)]


class TestTakingHome:
    def test_puts_a_segment_for_each_partition_and_a_marker(self, process, memory_store):
        process.append(batch(0, count=3), batch(1, producer_id=7))
        process.append(batch(0, 3, 2))
        taken = process.take_home()
        assert (taken.number, taken.objects, taken.partitions, taken.has_more) == (2, 2, 2, False)
        assert f"{2:020d}.home" in names(memory_store)
        assert [name for name in names(memory_store, f"{TOPIC}/flights-0") if "log" in name] == [
            f"{0:020d}-{4:020d}.1.log"
        ]

    def test_gives_a_log_that_is_read_as_any_other(self, process):
        process.append(batch(0, count=3), batch(1), batch(0, 3, producer_id=7))
        process.take_home()
        log = process.home(0)
        found = [
            value.decode()
            for each in log.scan(0)
            for value in each.records.column("value").to_pylist()
        ]
        assert found == ["0.None.0:0", "0.None.0:1", "0.None.0:2", "0.7.0:3"]
        assert [pid for pid, _ in log.producers().entries()] == [7]

    def test_ends_where_nothing_is_new(self, process):
        assert process.take_home() is None
        process.append(batch(0))
        assert process.take_home() is not None
        assert process.take_home() is None

    def test_takes_rounds_that_fit_into_memory(self, process):
        for number in range(3):
            process.append(batch(0, number), batch(1, number))
        rounds = [process.take_home(max_bytes=1) for _ in range(4)]
        assert [each and (each.number, each.has_more) for each in rounds] == [
            (1, True),
            (2, True),
            (3, True),
            None,
        ]
        assert process.values(0) == expected(0, 0, 3)

    def test_stops_after_many_objects(self, process, monkeypatch):
        """So a process that is killed soon has done a part of it."""
        monkeypatch.setattr(home, "MAX_HOME_OBJECTS", 2)
        for number in range(3):
            process.append(batch(0, number))
        rounds = [process.take_home() for _ in range(3)]
        assert [each and (each.number, each.has_more) for each in rounds] == [
            (2, True),
            (3, False),
            None,
        ]
        assert process.values(0) == expected(0, 0, 3)

    def test_of_two_processes_overlaps_without_a_difference(self, process, other, store):
        process.append(batch(0))

        def first_the_other(path, call):
            other.append(batch(0, 1))
            other.take_home()
            call()

        store.once("put_if_absent", first_the_other)
        process.take_home()
        assert process.values(0) == expected(0, 0, 2)
        assert process.values(0, 1) == expected(0, 1, 1)

    def test_begins_again_when_a_newer_marker_comes_while_it_reads(
        self, process, other, store, clock, monkeypatch
    ):
        monkeypatch.setattr(tail, "OBJECTS_AHEAD", 1)
        for number in range(3):
            process.append(batch(0, number))

        def stand_still(path, call):
            found = call()
            if path.endswith(f"{1:020d}.stripe"):
                store.hooks.clear()
                other.take_home()
                clock.advance_ms(2 * DELAY_MS)
                other.append(batch(0, 3))
            return found

        store.on("open_buffer", stand_still)
        assert process.take_home(max_bytes=10**6).number == 4
        assert process.values(0) == expected(0, 0, 4)

    @pytest.mark.parametrize("error", [StorageError("down"), UnknownOutcomeError("no answer")])
    def test_puts_no_marker_without_the_segments(self, process, store, memory_store, error):
        process.append(batch(0), batch(1))
        store.once("put_if_absent", failing(error))
        with pytest.raises(type(error)):
            process.take_home()
        assert names(memory_store) == [f"{0:020d}.stripe"]
        process.take_home()
        assert process.values(1) == expected(1, 0, 1)

    def test_is_repeated_after_a_lost_answer(self, process, store):
        process.append(batch(0), batch(1))
        store.once("put_if_absent", done_but(UnknownOutcomeError("no answer")))
        with pytest.raises(UnknownOutcomeError):
            process.take_home()
        assert process.take_home().number == 1


class TestAMarker:
    def test_keeps_producers_transactions_and_earlier_runs(self, process, memory_store, clock):
        process.append(
            batch(0, count=2, producer_id=7),
            batch(1, producer_id=8, epoch=3, transactional=True),
        )
        process.append(marker(1, 8, 4), batch(2, producer_id=8, epoch=3, transactional=True))
        process.take_home()
        clock.advance_ms(2 * DELAY_MS)
        free(process.directory)
        fresh = Process(memory_store, clock)
        assert fresh.append(
            batch(0, count=2, producer_id=7), batch(0, 2, producer_id=7), marker(1, 8, 4)
        ) == [(0, 1), (2, 2), None]
        assert fresh.values(2, committed=True) == []
        assert fresh.append(marker(2, 8, 4)) == [(1, 1)]
        assert fresh.values(2, committed=True) == expected(2, 0, 1, producer_id=8, epoch=3)

    def test_leaves_expired_producers_out(self, memory_store, clock):
        process = Process(memory_store, clock, producer_id_expiration_ms=1000)
        for number in range(3):  # the second round lists what the first has read
            process.append(batch(0, number, producer_id=7 + number))
            taken = process.take_home()
            clock.advance_ms(2000)
        ((_, producers),) = process.directory.read_home(taken.number).partitions()
        assert [pid for pid, _ in producers.entries()] == [8, 9]

    def test_that_is_damaged_is_noticed(self, process, memory_store):
        process.append(batch(0, producer_id=7))
        process.take_home()
        path = f"{STRIPE}/{1:020d}.home"
        data = bytearray(memory_store.open_buffer(path).to_pybytes())
        noticed = 0
        for at in range(0, len(data), 7):
            data[at] ^= 4
            memory_store.put(path, bytes(data))
            data[at] ^= 4
            try:
                state = process.directory.read_home(1)
            except CorruptRecordError:
                noticed += 1
            else:  # padding, or a part that Arrow does not use
                assert state.ends() == {0: 1}
        assert noticed > 40

    def test_of_another_number_is_refused(self, process, memory_store):
        process.append(batch(0))
        process.take_home()
        content = memory_store.open_buffer(f"{STRIPE}/{1:020d}.home")
        memory_store.put(f"{STRIPE}/{9:020d}.home", content)
        with pytest.raises(CorruptRecordError, match="is expected"):
            process.directory.read_home(9)


class TestFreeing:
    def test_waits_for_the_delay_by_the_storages_time(self, process, memory_store, clock):
        process.append(batch(0))
        process.take_home()
        process.append(batch(0, 1))
        clock.advance_ms(DELAY_MS - 1000)
        assert find_freeable(process.directory) == []
        clock.advance_ms(3000)
        assert free(process.directory) == 1
        assert names(memory_store) == [f"{1:020d}.home", f"{1:020d}.stripe"]

    def test_keeps_an_old_marker_until_a_newer_one_is_old(self, process, memory_store, clock):
        process.append(batch(0))
        process.take_home()
        clock.advance_ms(2 * DELAY_MS)
        process.append(batch(0, 1))
        process.take_home()
        free(process.directory)
        assert names(memory_store) == [f"{1:020d}.home", f"{1:020d}.stripe", f"{2:020d}.home"]
        clock.advance_ms(2 * DELAY_MS)
        free(process.directory)
        assert names(memory_store) == [f"{2:020d}.home"]

    def test_deletes_what_crashed_processes_have_left(self, process, memory_store, clock):
        memory_store.put(f"{STRIPE}/.left.tmp", b"")
        clock.advance_ms(3_000_000)
        assert free(process.directory) == 0
        clock.advance_ms(700_000)
        assert free(process.directory) == 1

    def test_leaves_what_is_read_from_home(self, process, other, clock):
        for number in range(4):
            process.append(batch(0, number, producer_id=7), batch(1, number))
        process.take_home()
        clock.advance_ms(2 * DELAY_MS)
        free(process.directory)
        process.append(batch(0, 4, producer_id=7))
        assert other.values(0) == process.values(0) == expected(0, 0, 5, producer_id=7)


def test_an_object_that_is_lost_is_damage_and_not_the_end(process, other, memory_store):
    for number in range(3):
        process.append(batch(0, number))
    memory_store.delete(f"{STRIPE}/{1:020d}.stripe")
    with pytest.raises(CorruptRecordError, match="is missing"):
        other.reader.poll()
    assert other.append(batch(0, 9)) == [CorruptRecordError]
