"""Courses of events that few seeds of a simulated table have, step by step.

Each test does the same steps twice: with all rules nothing is wrong, and without one of them the
model of the table finds a violation.
"""

import math
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, islice

import pytest

from spark_log.errors import StorageError
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.expired_tombstones import remove_expired_tombstones
from spark_log.log.files import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite import DeletableFiles, delete_found, find_deletable
from spark_log.log.rewrite.merger import merge
from spark_log.table.partition_table import CleanupPolicy, TableSetting
from tests.simulation.compaction.compacted_log import is_tombstone, key_of
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import Record
from tests.simulation.patches import patched
from tests.simulation.scheduler import START_US
from tests.simulation.table import actors
from tests.simulation.table.rules import TABLE_RULES
from tests.simulation.table.simulation import TableSimulation
from tests.simulation.table.world import TableProcess, open_table
from tests.simulation.violation import ViolationError

OFF, ON = TableSetting(CleanupPolicy.NONE, 0), TableSetting(CleanupPolicy.DELETE, 1)
COMPACTED = TableSetting(CleanupPolicy.COMPACT, 1)


DELETE_RETENTION_MS = DELETE_DELAY_MS


def records(key, *, tombstones=False):
    """Yield records of a key: values or tombstones."""
    found = (Record(b"r%d" % number, START_US) for number in count())
    return (each for each in found if key_of(each) == key and is_tombstone(each) == tombstones)


class OnlyDeletes(actors.CleanerOfTable):
    """A cleaner that rewrites nothing."""

    def _rewrite(self, listing):
        return listing


class Scene:
    """One process that does what several do, in the order that a test gives. Nothing fails."""

    def __init__(self):
        simulation = TableSimulation(0)
        self.world = simulation.world
        self.patches = simulation.patches
        self.world.store.faults = self.world.profile.without_faults()
        self.world.profile = replace(self.world.profile, latency_ms=1e-9)
        self.world.conditions = replace(self.world.conditions, still=0.0, stale=0.0)
        self.world.topic_settings[:] = [OFF]
        settings = {"delete_retention_ms": DELETE_RETENTION_MS, "segment_bytes": 1}
        self.world.config = self.world.config.model_copy(update=settings)
        self.world.table.delete_retention_ms = DELETE_RETENTION_MS
        self.log = self.world.open_log()
        self.process = TableProcess(self.world)
        self.count = 0

    @property
    def committer(self):
        """The committer of a process that knows the present settings."""
        return self.process.read_metadata()

    def rewritten_log(self):
        """Return the log, as a process has it that writes Parquet files."""
        log = self.world.open_log()
        log.config = log.config.model_copy(update={"table_format": "delta"})
        return log

    def append(self, record=None):
        """Append a record."""
        self.count += 1
        record = record or Record(b"a%d" % self.count, START_US)
        self.log.append([self.world.truth.record_batch([record])])

    def compact(self, rewrite=compact, *, end=math.inf, dies_after=math.inf):
        """Compact up to an offset, each segment by itself; die after some of them."""
        left = [dies_after]

        def put_if_absent(path, source, **others):
            name = SegmentName.parse(path.rpartition("/")[2])
            if name is not None and name.is_compacted:
                left[0] -= 1
                if left[0] < 0:
                    raise StorageError("it dies")
            type(store).put_if_absent(store, path, source, **others)

        store = self.world.store
        with patched((store, "put_if_absent", put_if_absent)), suppress(StorageError):
            log = self.rewritten_log()
            self.process.read_metadata()
            rewrite(
                log,
                now_us=self.world.storage_time_us(),
                limit_offset=end,
                table=self.process.table_of(log),
            )

    def merge(self):
        """Merge all live segments; return the new one's name.

        The first merge writes an Arrow file, and so does each fourth.
        """
        view = self.world.directory().observe()
        segments = view.live.segments
        generation = 1 + max(each.name.generation for each in segments)
        to_parquet = actors.never_aborted if generation > 1 and generation % 4 else None
        last = len(segments) - 1
        return merge(self.world.directory(), view, 0, last, to_parquet=to_parquet).name

    def merge_to(self, generation):
        """Append records and merge them until the segment has a generation."""
        self.append()
        self.append()
        while (name := self.merge()).generation < generation:
            pass
        return name

    def turn_on(self, setting=ON):
        """Turn the table on; the next commit begins it."""
        self.world.topic_settings.append(setting)

    def wait(self):
        """Let pass what a cleaner waits for, and let the storage show it."""
        self.world.scheduler.now_ms += 3 * DELETE_DELAY_MS

    def cleaner(self):
        """Return a cleaner that only deletes."""
        self.process.read_metadata()
        cleaner = OnlyDeletes(
            self.log, max_clock_skew_ms=2**62, table=self.process.table_of(self.log)
        )
        cleaner.world = self.world
        return cleaner

    def found_deletable(self):
        """Return what a cleaner is going to delete."""
        log, now_us = self.log, self.world.storage_time_us()
        self.process.read_metadata()
        table = self.process.table_of(log)
        return find_deletable(
            log.files,
            log.config.file_delete_delay_ms,
            now_us=now_us,
            table_allows=lambda name: table.allows(name, now_us),
        )

    def decide(self):
        """Return the newest version and what follows it, for a commit that comes later."""
        committer = self.committer
        version = committer.table.refresh()
        after = committer.decide(version, self.world.topic_settings[-1], None)
        files = committer.data_files(version, 0, version.partitions[0], after[0])
        return committer, version, after, files

    def commit(self, decided=None):
        """Commit what was decided; without it, one version."""
        committer, version, after, files = decided or self.decide()
        if after != dict(version.partitions):
            with patched((committer, "data_files", lambda *_: files)):
                committer.append(version, after, "WRITE")


@contextmanager
def scene(rule):
    """Yield a scene without a rule; None: with all."""
    found = Scene()
    with patched(*found.patches, *(TABLE_RULES[rule].patches if rule else ())):
        yield found


def a_name_that_a_committer_has_listed_is_not_freed(scene):
    scene.turn_on()
    scene.commit()
    name = scene.merge_to(2)
    decided = scene.decide()
    assert name in decided[2][0].files
    scene.merge()
    scene.wait()
    scene.cleaner().clean()
    scene.commit(decided)


def a_table_that_begins_lists_the_log_first(scene):
    """A cleaner has seen that there is no table, and deletes after a committer has begun one."""
    scene.merge_to(2)
    scene.turn_on()
    committer = TableProcess(scene.world).read_metadata()
    refresh, data_files = committer.table.refresh, committer.data_files
    doomed: list[DeletableFiles] = []

    def read_later():
        """Read the version when a segment is spent, and the table has begun."""
        if not doomed:
            scene.merge()
            scene.wait()
            doomed.append(scene.found_deletable())
            assert doomed[0].segments
            scene.commit()
        return refresh()

    def read_files(*version):
        """Read the files to add; then the cleaner deletes."""
        found = data_files(*version)
        delete_found(scene.world.store, doomed[0])
        return found

    with patched((committer.table, "refresh", read_later), (committer, "data_files", read_files)):
        committer.commit()


def what_a_cleaner_is_about_to_delete_is_not_added(scene):
    scene.merge_to(3)
    assert scene.merge().generation == 4  # Arrow
    scene.wait()
    doomed = scene.found_deletable()
    assert doomed.segments
    scene.turn_on()
    scene.commit()
    scene.commit()
    delete_found(scene.world.store, doomed)


def a_table_that_begins_adds_nothing_yet(scene):
    scene.merge_to(2)
    scene.turn_on()
    decided = scene.decide()
    scene.merge()
    scene.wait()
    scene.cleaner().clean()
    scene.commit(decided)


def an_end_that_was_not_named_binds_all_the_same(scene):
    """The first compaction left out the key's first record, and died before it wrote the last."""
    first, second = islice(records(b"k1"), 2)
    for record in (first, None, second, None):
        scene.append(record)
    scene.compact(end=3, dies_after=1)
    scene.turn_on(COMPACTED)
    scene.commit()
    scene.wait()
    scene.compact(end=2)
    scene.commit()


def an_end_that_was_named_binds_those_that_follow(scene):
    """As above, and the first compaction has named its end."""
    first, second = islice(records(b"k1"), 2)
    for record in (first, None, second, None):
        scene.append(record)
    scene.turn_on(COMPACTED)
    scene.commit()
    scene.compact(end=3, dies_after=1)
    scene.wait()
    scene.compact(end=2)
    scene.commit()


def a_process_that_knows_no_table_asks_for_it(scene):
    late = TableProcess(scene.world)
    scene.turn_on()
    scene.commit()
    scene.merge_to(2)
    scene.commit()
    assert scene.world.table.newest.files
    move_log_start(scene.log, 1)
    late.table_of(scene.log).move_start(1)
    scene.world.table.check_deleted(1)


def a_cleaner_whose_clock_is_ahead_frees_nothing_early(scene):
    retention_ms = 100 * DELETE_DELAY_MS
    scene.world.conditions = replace(scene.world.conditions, file_retention_ms=retention_ms)
    scene.world.table.file_retention_us = 1000 * retention_ms
    scene.turn_on()
    scene.commit()
    scene.merge_to(2)
    scene.commit()
    scene.merge()
    scene.commit()
    scene.wait()
    ahead_us = START_US + 10**15
    with patched((scene.world.clock, "time_us", lambda: ahead_us)):
        scene.cleaner().clean()


def a_cleaner_reads_the_table_each_time(scene):
    scene.merge_to(3)
    scene.wait()
    scene.cleaner().clean()
    scene.turn_on()
    scene.commit()
    name = scene.merge_to(5)
    scene.commit()
    assert name in scene.world.table.newest.files
    scene.merge()
    scene.wait()
    scene.cleaner().clean()


def make_a_tombstone_behind_the_table(scene):
    """Let a version have a key that the log deletes behind its end, and a compaction meet this."""
    (value,), (tombstone,) = islice(records(b"k1"), 1), islice(records(b"k1", tombstones=True), 1)
    scene.turn_on(COMPACTED)
    scene.commit()
    for record in (value, None):
        scene.append(record)
    scene.compact()
    scene.commit()
    assert scene.world.table.newest.end == 1
    for record in (tombstone, None):
        scene.append(record)
    scene.wait()
    scene.compact()
    scene.wait()


def a_deleted_key_stays_deleted(scene):
    make_a_tombstone_behind_the_table(scene)
    scene.compact(remove_expired_tombstones)
    actors.ReaderOfBoth(scene.world).read(scene.log, open_table(scene.world))


def a_deleted_key_stays_deleted_for_readers_of_the_version_before(scene):
    make_a_tombstone_behind_the_table(scene)

    def version_and_view(world, log, table):
        version = table.refresh().partitions[0]
        scene.commit()
        scene.compact(remove_expired_tombstones)
        view = log.observe()
        return version, view.log_start_offset, view.log_end_offset

    with patched((actors, "version_and_view", version_and_view)):
        actors.ReaderOfBoth(scene.world).read(scene.log, open_table(scene.world))


SCENES = {
    "a name is freed only if no next version could add it": (
        a_name_that_a_committer_has_listed_is_not_freed
    ),
    "the log is listed after the version was read": a_table_that_begins_lists_the_log_first,
    "nothing spent is added": what_a_cleaner_is_about_to_delete_is_not_added,
    "after a compaction that named no end the log's end is named": (
        an_end_that_was_not_named_binds_all_the_same
    ),
    "no compaction names an end below an earlier one": (
        an_end_that_was_named_binds_those_that_follow
    ),
    "a log with Parquet files is asked for its table": a_process_that_knows_no_table_asks_for_it,
    "replaced files go by the storage's time": a_cleaner_whose_clock_is_ahead_frees_nothing_early,
    "the version is read after the name was spent": a_cleaner_reads_the_table_each_time,
    "tombstones behind the table's end stay": a_deleted_key_stays_deleted,
    "tombstones stay for their time behind the table's end": (
        a_deleted_key_stays_deleted_for_readers_of_the_version_before
    ),
    "a version that changes the setting adds no file": a_table_that_begins_adds_nothing_yet,
}


@pytest.mark.parametrize("rule", SCENES)
def test_with_the_rule_nothing_is_wrong(rule):
    with scene(None) as found:
        SCENES[rule](found)


@pytest.mark.parametrize("rule", SCENES)
def test_it_fails_without_the_rule_that(rule):
    with scene(rule) as found, pytest.raises(ViolationError):
        SCENES[rule](found)
