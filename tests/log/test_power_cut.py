"""A log after a power cut at any moment: all acknowledged records are in it."""

import itertools
import os
import shutil
import time
from dataclasses import dataclass, field
from random import Random

import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.compactor import compact
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.file_deletion import delete_found, find_deletable
from spark_log.log.rewrite.merger import merge
from spark_log.record import ProducerAppend
from spark_log.storage.local import LocalStore
from spark_log.testing.power_cut import PowerCut
from tests.log.support import DIRECTORY, open_log
from tests.record.samples import record_batch, row

PRODUCER_ID = 7
TEN_MINUTES_US = 600_000_000
"""Longer than ``file.delete.delay.ms``, and shorter than ``producer.id.expiration.ms``."""


def numbered(first, count):
    """Records with distinct keys, so that a compaction keeps all of them."""
    names = [f"{number}".encode() for number in range(first, first + count)]
    return record_batch([row(name, key=name) for name in names])


@dataclass
class Told:
    """Acknowledged appends, each with its moment, and requested ones."""

    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)
    asked_starts: list[tuple[int, int]] = field(default_factory=list)


class Life:
    """A log with random appends, start moves, rewrites and cleaning, by a seed."""

    def __init__(self, disk, store, seed, **config):
        self.disk = disk
        self.store = store
        self.random = Random(seed)
        config = {"snapshot_interval_segments": 3, "index_interval_bytes": 0} | config
        self.config = config
        self.told = Told()
        self.sequence = 0
        self.log = open_log(store, **config)

    def live(self, steps):
        steps_by_weight = {self.append: 10, self.move_start: 2, self.rewrite: 2, self.free: 2}
        for _ in range(steps):
            step = self.random.choices(
                list(steps_by_weight), weights=list(steps_by_weight.values())
            )[0]
            if self.random.random() < 0.1:
                self.log = open_log(self.store, **self.config)  # another process
            step()
        self.disk.scan()

    def append(self):
        count = self.random.randint(1, 4)
        producer = ProducerAppend(PRODUCER_ID, 0, self.sequence)
        offset = self.log.append(numbered(self.sequence, count), producer=producer).base_offset
        self.told.batches.append((self.disk.moment(), offset, count, self.sequence))
        self.sequence += count

    def move_start(self):
        view = self.log.observe()
        some = self.random.randint(view.log_start_offset, view.log_end_offset)
        offset = self.random.choice((some, view.log_end_offset))  # or all records
        self.told.asked_starts.append((self.disk.moment(), offset))
        move_log_start(self.log, offset)
        self.told.starts.append((self.disk.moment(), offset))

    def rewrite(self):
        view = self.log.observe()
        segments = view.live.segments
        if "compact" in self.log.config.cleanup_policy:
            compact(self.log, now_us=time.time_ns() // 1000 + TEN_MINUTES_US)
        elif len(segments) > 1:
            first = self.random.randrange(len(segments) - 1)
            merge(self.log.files, view, first, self.random.randrange(first + 1, len(segments)))

    def free(self):
        """Delete all files that a cleaner may delete after the delay."""
        delete_found(self.store, find_deletable(self.log.files, delete_delay_ms=-2_000))


@pytest.fixture
def lives(tmp_path):
    """Return a function that runs a log, and yields it with the state after each power cut."""
    numbers = itertools.count()

    def cuts(seed, *, steps, count, **config):
        place = tmp_path / str(next(numbers))
        with PowerCut(place / "disk", place / "kept") as disk:
            store = LocalStore(str(place / "disk/root"))
            store.create_root()
            made = disk.moment()
            life = Life(disk, store, seed, **config)
            life.live(steps)
        random = Random(seed)
        for _ in range(count):
            moment = random.randint(made, disk.moment())
            disk.restore(moment, random, place / "after")
            yield life.told, moment, LocalStore(str(place / "after/root"))
            shutil.rmtree(place / "after")
        shutil.rmtree(place)

    return cuts


def last(told, moment):
    """The last entry up to a moment."""
    return max((what for at, what in told if at <= moment), default=0)


def check_nothing_is_lost(told, moment, store, **config):
    log = open_log(store, flush_on_append=True, index_interval_bytes=0, **config)
    view = log.observe()
    start = view.log_start_offset
    assert last(told.starts, moment) <= start <= last(told.asked_starts, moment)
    known = [batch for batch in told.batches if batch[0] <= moment]
    end = max((offset + count for _, offset, count, _ in known), default=0)
    assert view.log_end_offset >= end
    expected = {
        offset + at: f"{sequence + at}".encode()
        for _, offset, count, sequence in told.batches
        for at in range(count)
    }
    read: dict[int, bytes] = {}
    for batch in log.scan(start):
        values = batch.records.column("value").to_pylist()
        read.update(zip(batch.offsets().tolist(), values, strict=True))
    assert sorted(read) == list(range(start, view.log_end_offset))
    assert all(expected.get(offset, value) == value for offset, value in read.items())
    if known:  # the last appends are recognised, wherever the log begins now
        _, offset, count, sequence = known[-1]
        again = log.append(
            numbered(sequence, count), producer=ProducerAppend(PRODUCER_ID, 0, sequence)
        )
        assert again.base_offset == offset
    base_offset = log.append(numbered(0, 1)).base_offset
    assert base_offset >= view.log_end_offset


SHORT = [(seed, 45, 15) for seed in range(4)]
LONG = [
    pytest.param(seed, 80, 60, marks=pytest.mark.long, id=f"long-{seed}")
    for seed in range(100, 100 + int(os.environ.get("POWER_CUT_SEEDS", "6")))
]


@pytest.mark.parametrize(("seed", "steps", "cuts"), [*SHORT, *LONG])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_no_acknowledged_record_is_lost(lives, policy, seed, steps, cuts):
    config = {"cleanup_policy": policy, "min_cleanable_dirty_ratio": 0}
    synced = config | {"flush_on_append": True}
    for told, moment, store in lives(seed, steps=steps, count=cuts, **synced):
        check_nothing_is_lost(told, moment, store, **config)


def check_what_is_left_is_right(told, moment, store, **config):
    """Without syncs any record may be lost, but none is wrong, and rewritten records stay."""
    log = open_log(store, index_interval_bytes=0, **config)
    expected = {
        offset + at: f"{sequence + at}".encode()
        for _, offset, count, sequence in told.batches
        for at in range(count)
    }
    names = [SegmentName.parse(file.name) for file in store.list(DIRECTORY)]
    rewritten = max((name.last_offset or -1 for name in names if name), default=-1)
    read: dict[int, bytes] = {}
    try:
        start = log.observe().log_start_offset
        for batch in log.scan(start):
            values = batch.records.column("value").to_pylist()
            read.update(zip(batch.offsets().tolist(), values, strict=True))
    except CorruptRecordError:
        return False
    assert sorted(read) == list(range(start, start + len(read)))
    assert all(expected.get(offset, value) == value for offset, value in read.items())
    assert start + len(read) > rewritten
    return True


@pytest.mark.parametrize(("seed", "steps", "cuts"), [*SHORT, *LONG])
def test_without_syncs_the_rest_is_correct_or_damage_is_reported(lives, seed, steps, cuts):
    sound = [
        check_what_is_left_is_right(told, moment, store)
        for told, moment, store in lives(seed, steps=steps, count=cuts, flush_on_append=False)
    ]
    assert any(sound)
    assert not all(sound), "nothing was lost: the test shows nothing"
