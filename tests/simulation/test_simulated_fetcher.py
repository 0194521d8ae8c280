"""What the simulated fetcher takes for a violation of the log's guarantees, and what not."""

from dataclasses import replace
from random import Random

import pytest

from spark_log.errors import CorruptRecordError, NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log import LocalLog
from tests.simulation.log.profile import draw_profile
from tests.simulation.log.records import Record, records_of
from tests.simulation.log.simulated_fetcher import SimulatedFetcher
from tests.simulation.log.true_log import TrueLog
from tests.simulation.log.world import World
from tests.simulation.scheduler import START_US, Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

RECORDS = [Record(b"a", START_US), Record(b"b", START_US)]


@pytest.fixture
def world():
    """The world of a log with two records, without faults and without actors."""
    profile = replace(draw_profile(Random(0)).without_faults(), range_bytes=0)
    scheduler = Scheduler(0)
    clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(clock)
    true_log = TrueLog(disk, clock, profile.expiration_ms)
    store = SimulatedStore(disk, scheduler, true_log, profile)
    world = World(scheduler, WallClocks(scheduler, 0), store, true_log, profile, LocalLog)
    world.open_log().append(true_log.record_batch(RECORDS))
    return world


def fetcher_of(world, monkeypatch, stream, offset=0):
    """Return a fetcher whose log is read by another function."""
    monkeypatch.setattr(LocalLog, "stream", lambda log, offset, **_: stream(offset))
    return SimulatedFetcher(world, offset)


def failing(error):
    def stream(offset):
        raise error
        yield

    return stream


def test_a_fetcher_reads_all_records_in_order(world):
    fetcher, found = SimulatedFetcher(world, 0), []
    while (position := fetcher.position) < 2:
        found += records_of(fetcher.poll(0), position)
    assert found == RECORDS


def test_a_seek_drops_what_was_fetched(world):
    fetcher = SimulatedFetcher(world, 0)
    fetcher.poll(0)
    fetcher.seek(1)
    assert records_of(fetcher.poll(0), 1) == RECORDS[1:]


def test_an_end_before_the_logs_end_is_a_violation(world, monkeypatch):
    fetcher = fetcher_of(world, monkeypatch, lambda offset: iter(()))
    with pytest.raises(ViolationError, match="got nothing at 0, but the log ended at 2"):
        fetcher.poll(0)


def test_a_missing_file_is_a_violation_although_a_consumer_would_retry(world, monkeypatch):
    fetcher = fetcher_of(world, monkeypatch, failing(NotFoundError("gone")))
    with pytest.raises(ViolationError, match="gone"):
        fetcher.poll(0)


def test_an_offset_that_is_in_the_log_may_not_be_out_of_range(world, monkeypatch):
    fetcher = fetcher_of(world, monkeypatch, failing(OffsetOutOfRangeError("no")))
    with pytest.raises(ViolationError, match="offset 0 was called out of range, and never was"):
        fetcher.poll(0)


def test_damage_is_an_error_at_once(world, monkeypatch):
    fetcher = fetcher_of(world, monkeypatch, failing(CorruptRecordError("damaged")))
    with pytest.raises(CorruptRecordError):
        fetcher.poll(0)


def test_a_storage_that_fails_is_asked_again(world, monkeypatch):
    fetcher = fetcher_of(world, monkeypatch, failing(StorageError("fails")))
    assert fetcher.poll(0) == []
    assert fetcher.position == 0
