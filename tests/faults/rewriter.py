"""Merges a live log and deletes unused files, as early as the rules allow; takes a stripe home.

A file name is free soon after ``file.delete.delay.ms``, so that a process that was stopped for
longer may find the name free.
"""

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spark_log.config import TopicConfig
from spark_log.errors import (
    NotFoundError,
    StorageTimeoutError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from spark_log.log.stripe import free as free_numbers
from spark_log.storage import Store
from spark_log.util import SYSTEM_CLOCK
from tests.faults.notes import Notes
from tests.log.support import DIRECTORY, free, open_log, open_stripe

_PAUSE_S = 0.03

_RETRIED = StorageTimeoutError, StorageUnavailableError, UnknownOutcomeError, NotFoundError
"""Errors of a step while it was stopped, or while roots of a quorum are away."""


@dataclass(frozen=True)
class Rewriting:
    """The role of one rewriter: its log, and the path of its notes."""

    store: Store
    notes: str
    delete_delay_ms: int
    seed: int
    stripes: int = 0


def rewrite_until_stopped(role: Rewriting, stop: Connection):
    """Merge and delete until the pipe is closed."""
    rewriter = Rewriter(
        role.store, role.delete_delay_ms, random.Random(role.seed), stripes=role.stripes
    )
    while not stop.poll(_PAUSE_S):
        rewriter.step()
    with Notes(role.notes) as notes:
        notes.write("merged", rewriter.merged)
        notes.write("freed", rewriter.freed)
        notes.write("taken home", rewriter.taken_home)


class Rewriter:
    """Each step merges a run of segments at the log's end, and deletes files that may be deleted.

    Attributes:
        merged: number of merged segments.
        freed: number of deleted files.
        taken_home: number of objects that were taken home.
    """

    def __init__(self, store, delete_delay_ms, chance, *, stripes=0):
        self.merged = self.freed = self.taken_home = 0
        self._stripe = None
        if stripes:
            settings = {"file_delete_delay_ms": delete_delay_ms, "stripes": stripes}
            self._stripe = open_stripe(store, TopicConfig.parse(settings), SYSTEM_CLOCK)
        self._store = store
        self._log = open_log(store, file_delete_delay_ms=delete_delay_ms)
        self._delay_s = delete_delay_ms / 1000
        self._chance = chance
        self._spent_since_s = {}

    def step(self):
        with suppress(*_RETRIED):
            if self._stripe is not None and self._chance.random() < 0.3:
                taken = self._stripe.take_home()
                self.taken_home += 0 if taken is None else taken.objects
                self.freed += free_numbers(self._stripe.directory)
            self._merge()
            self._free()

    def _merge(self):
        view = self._log.observe()
        segments = view.live.segments
        plain = [index for index, each in enumerate(segments) if not each.name.generation]
        if self._stripe is not None:  # all are rewritten ones
            plain = [max(0, len(segments) - self._chance.randint(2, 4))]
        if not plain or len(segments) - plain[0] < 2:
            return
        # Usually the segments since the last merge, at times also the merged ones before.
        first = 0 if self._chance.random() < 0.05 else plain[0]
        merge(self._log.files, view, first, len(segments) - 1, sync=False)
        self.merged += len(segments) - first

    def _free(self):
        now_s = time.monotonic()
        parsed = [SegmentName.parse(file.name) for file in self._store.list(DIRECTORY)]
        names = [name for name in parsed if name is not None]
        rewritten = [name for name in names if name.generation]
        spent = {name for name in names if any(_covers(wide, name) for wide in rewritten)}
        since_s = {name: self._spent_since_s.get(name, now_s) for name in spent}
        due = [name for name in spent if now_s - since_s[name] >= self._delay_s]
        free(self._store, *due)
        self.freed += len(due)
        self._spent_since_s = {name: at for name, at in since_s.items() if name not in due}


def _covers(wide, name):
    """Whether the merged segment ``wide`` covers ``name``, so that readers do not open it."""
    if not name.generation:
        return wide.base_offset <= name.base_offset <= wide.last_offset
    if (wide.base_offset, wide.last_offset) == (name.base_offset, name.last_offset):
        return wide.generation > name.generation
    return wide.base_offset <= name.base_offset and name.last_offset <= wide.last_offset
