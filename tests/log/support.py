"""Helpers for tests of logs: open, write by hand, merge by hand, and stores that fail."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from spark_log.config import TopicConfig
from spark_log.log import LocalLog, MergeExecutor, SegmentReader, SegmentWriter
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.stripe import Stripe, StripeDirectory, StripedLog, stripe_path
from spark_log.record.arrow_template import file_template
from spark_log.record.batch_header import METADATA_KEY, encode_headers
from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import OFFSET_DELTA_FIELD, segment_schema
from spark_log.storage import Store
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import SYSTEM_CLOCK, ManualClock
from spark_log.util.suppressed import IN_PROCESS
from tests.record.samples import header_of, record_batch, rows_of

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
DIRECTORY = f"flights.{TOPIC_ID}/flights-0"
ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1}


class JumpingBackClock(ManualClock):
    """A clock that is a day ahead when it is first read, and right from then on."""

    def __init__(self):
        super().__init__()
        self._ahead_us = 86_400_000_000

    def time_us(self):
        ahead_us, self._ahead_us = self._ahead_us, 0
        return super().time_us() + ahead_us


class ShiftedClock:
    """The clock of a machine whose date is some days wrong, and may jump."""

    def __init__(self, clock, *, days=0):
        self._clock = clock
        self.monotonic_ms, self.sleep_ms = clock.monotonic_ms, clock.sleep_ms
        self.shift(days=days)

    def shift(self, *, days):
        self._shift_us = int(days * 86_400_000_000)

    def time_us(self):
        return self._clock.time_us() + self._shift_us


class RetentionAt(PartitionCleaner):
    """A cleaner that compares timestamps of records with a given time instead of the storage's."""

    def __init__(self, log, at_us):
        super().__init__(log)
        self._at_us = at_us

    def _breach(self, segments, view):
        now_us, self._now_us = self._now_us, self._at_us
        try:
            return super()._breach(segments, view)
        finally:
            self._now_us = now_us


def open_log(store, *, clock=SYSTEM_CLOCK, suppressed=IN_PROCESS, run_merge=None, **config):
    """Open the log of a test's store; appends are not synced unless the config says so."""
    settings = TopicConfig.parse({"flush_on_append": False, **ANY_TIME, **config})
    new_log: Callable[..., LocalLog] = LocalLog
    if settings.stripes:
        new_log = partial(StripedLog, open_stripe(store, settings, clock))
    return new_log(
        store,
        DIRECTORY,
        topic_id=TOPIC_ID,
        partition=0,
        config=settings,
        clock=clock,
        suppressed=suppressed,
        merge_executor=run_merge and MergeExecutor(run_merge),
    )


def open_stripe(store, settings, clock):
    """Return the only stripe of the test's topic, as one process uses it."""
    directory = StripeDirectory(
        store,
        stripe_path(f"flights.{TOPIC_ID}", 0),
        topic_id=TOPIC_ID,
        stripe=0,
        config=settings,
        clock=clock,
    )
    return Stripe(directory, lambda partition: open_log(store, clock=clock).files)


def segment_writer(store, **settings):
    return SegmentWriter(store, DIRECTORY, topic_id=TOPIC_ID, partition=0, **settings)


def segment_reader(store, name=SegmentName(0)):  # noqa: B008 - frozen
    is_small = isinstance(store, TemplateStore) and name.last_offset is None
    template = file_template(TOPIC_ID, 0) if is_small else None
    return SegmentReader(store, DIRECTORY, name, topic_id=TOPIC_ID, partition=0, template=template)


def put_segment(store, batches, name=SegmentName(0), *, indexes=True, **settings):  # noqa: B008
    """Write record batches as a segment of this name, and return its reader."""
    writer = segment_writer(store, **settings)
    for batch in batches:
        writer.write(batch)
    segment = writer.finish()
    store.put_if_absent(f"{DIRECTORY}/{name.file_name}", segment.staged, sync=False)
    for path, data in segment.derived_files(name):
        if indexes:
            store.put(f"{DIRECTORY}/{path}", data)
    return segment_reader(store, name)


# --- content of a log ----------------------------------------------------------------------------


def file_names(store):
    return [file.name for file in store.list(DIRECTORY)]


def records_of(batches):
    """``[(offset, row), …]`` of log batches."""
    return [
        pair
        for batch in batches
        for pair in zip(batch.offsets().tolist(), rows_of(batch.records), strict=True)
    ]


def values_of(batches):
    """``[(offset, value), …]`` of log batches."""
    return [(offset, row["value"]) for offset, row in records_of(batches)]


def values(log, start=None, end=None):
    """``[(offset, value), …]`` of a log, by default from its start."""
    return values_of(log.scan(log.observe().log_start_offset if start is None else start, end))


# --- actions of other processes ------------------------------------------------------------------


def move_start(store, log_start_offset, segment_base_offset):
    """Put a start marker, as retention and delete-records do first."""
    marker = StartMarker(log_start_offset, segment_base_offset)
    store.put_if_absent(f"{DIRECTORY}/{marker.name}", b"", sync=False)


def merge(store, base, end, generation=1):
    """Merge the records from ``base`` to before ``end`` into one rewritten segment."""
    name = SegmentName(base, end - 1, generation)
    batches = [batch.records for batch in open_log(store).scan(base, end)]
    put_segment(store, batches, name)
    return name


def free(store, *names):
    """Delete segments with their indexes, as a cleaner does long after a merge."""
    for name in names:
        for path in (name.file_name, name.index, name.time_index):
            store.delete(f"{DIRECTORY}/{path}")


def free_plain(store, before):
    """Delete all plain segments whose base lies before an offset."""
    found = [SegmentName.parse(name) for name in file_names(store)]
    free(store, *(name for name in found if name and not name.generation))
    assert all(name.base_offset < before for name in found if name and not name.generation)


# --- segments by hand ----------------------------------------------------------------------------


@dataclass
class Part:
    """Rows under one batch header.

    ``deltas`` are written as the column ``offset_delta``; ``base_delta`` and ``last_delta`` only
    into the header.
    """

    rows: list[dict[str, Any]]
    deltas: list[int] | None = None
    base_delta: int | None = None
    last_delta: int | None = None
    attributes: int = 0
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def segment_bytes(arrow_batches, *, compression=None, schema=None):
    """Return the file of a segment whose Arrow batches have several headers, or gaps.

    Args:
        arrow_batches: a list of `Part` for each Arrow batch.
        compression: Arrow's name of the compression.
        schema: a wrong schema; None: the correct one.
    """
    has_gaps = any(part.deltas is not None for parts in arrow_batches for part in parts)
    right = segment_schema(TOPIC_ID, 0)
    if has_gaps:
        right = right.append(OFFSET_DELTA_FIELD)
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    next_delta = 0
    with ipc.new_file(sink, schema or right, options=options) as writer:
        for parts in arrow_batches:
            headers, pieces = [], []
            for part in parts:
                base = next_delta if part.base_delta is None else part.base_delta
                deltas = part.deltas or list(range(base, base + len(part.rows)))
                last = deltas[-1] if part.last_delta is None else part.last_delta
                records = record_batch(part.rows)
                if has_gaps:
                    column = pa.array(deltas, pa.int32())
                    records = records.append_column(OFFSET_DELTA_FIELD, column)
                header = header_of(
                    part.rows,
                    base_offset_delta=deltas[0],
                    last_offset_delta=last,
                    attributes=part.attributes,
                    leader_epoch=part.leader_epoch,
                    producer_id=part.producer_id,
                    producer_epoch=part.producer_epoch,
                    base_sequence=part.base_sequence,
                )
                if has_gaps or not header.has_gaps:
                    header = replace(header, crc32c=batch_crc32c(header, records))
                headers.append(header)
                pieces.append(records)
                next_delta = last + 1
            whole = pa.concat_batches(pieces).replace_schema_metadata(right.metadata)
            writer.write_batch(whole, custom_metadata={METADATA_KEY: encode_headers(headers)})
    return sink.getvalue()


def put_bytes(store, data, name=SegmentName(0)):  # noqa: B008
    """Put a file made by hand under a segment's name, and return its reader."""
    store.put(f"{DIRECTORY}/{name.file_name}", data)
    return segment_reader(store, name)


# --- stores that fail ----------------------------------------------------------------------------


class TemplateStore(MemoryStore):
    """A store in memory whose small segments `segment_reader` reads by a template."""


class HookedStore(Store):
    """A store whose calls a test may hook: to act before or after them, or to replace them.

    A hook is called with the path and a function that makes the call; its result is the answer.

    Attributes:
        hooks: the hooks by the name of the operation.
        calls: operation and path of each call so far.
        source: the source of the latest put.
    """

    def __init__(self, inner, *, is_mapped=None):
        """Wrap a store; ``is_mapped=False`` makes one that has to be read in ranges."""
        self.inner = inner
        self.url = inner.url
        if is_mapped is None:
            is_mapped = inner.is_mapped
        self.is_mapped = is_mapped  # type: ignore[misc] # backends have one answer for all stores
        self.shows_gone = inner.shows_gone and is_mapped  # type: ignore[misc]
        self.hooks = {}
        self.calls = []
        self.source = None

    def on(self, operation, hook):
        self.hooks[operation] = hook

    def once(self, operation, hook):
        """Hook the next call only."""

        def first(path, call):
            del self.hooks[operation]
            return hook(path, call)

        self.hooks[operation] = first

    def called(self, operation):
        """The paths that an operation was called with."""
        return [path for name, path in self.calls if name == operation]

    def _do(self, operation, path, call):
        self.calls.append((operation, path))
        hook = self.hooks.get(operation)
        return call() if hook is None else hook(path, call)

    def create_root(self):
        self.inner.create_root()

    def stage(self, directory):
        return self._do("stage", directory, lambda: self.inner.stage(directory))

    def put_if_absent(self, path, source, *, sync=True):
        self.source = source
        self._do("put_if_absent", path, lambda: self.inner.put_if_absent(path, source, sync=sync))

    def put(self, path, data, *, sync=True):
        self._do("put", path, lambda: self.inner.put(path, data, sync=sync))

    def sync(self, path):
        self._do("sync", path, lambda: self.inner.sync(path))

    def is_gone(self, path):
        return self.inner.is_gone(path)  # no request: it is not hooked

    def read(self, path, start, length):
        return self._do("read", path, lambda: self.inner.read(path, start, length))

    def read_tail(self, path, length):
        return self._do("read_tail", path, lambda: self.inner.read_tail(path, length))

    def read_tail_and_size(self, path, length):
        return self._do("read_tail", path, lambda: self.inner.read_tail_and_size(path, length))

    def open_buffer(self, path):
        return self._do("open_buffer", path, lambda: self.inner.open_buffer(path))

    def list(self, directory, start_after=None):
        return iter(self._do("list", directory, lambda: [*self.inner.list(directory, start_after)]))

    def list_hidden(self, directory):
        return self._do("list_hidden", directory, lambda: self.inner.list_hidden(directory))

    def list_directories(self, directory):
        return self._do(
            "list_directories", directory, lambda: self.inner.list_directories(directory)
        )

    def head(self, path):
        return self._do("head", path, lambda: self.inner.head(path))

    def delete(self, path):
        self._do("delete", path, lambda: self.inner.delete(path))

    def delete_directory(self, directory):
        self._do("delete_directory", directory, lambda: self.inner.delete_directory(directory))

    def directory_url(self, directory):
        return self.inner.directory_url(directory)


def failing(error):
    """A hook that raises without making the call."""

    def fail(path, call):
        raise error

    return fail


def done_but(error):
    """A hook that makes the call and then raises: the answer is lost."""

    def do_and_fail(path, call):
        with suppress(Exception):
            call()
        raise error

    return do_and_fail
