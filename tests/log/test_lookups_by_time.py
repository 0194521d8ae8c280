"""Lookups by time equal a search of all records, in whatever order their timestamps are."""

import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_log.log.clean.compactor import compact
from spark_log.log.log_start import move_log_start
from spark_log.log.max_timestamp import offset_of_max_timestamp
from spark_log.log.rewrite.merger import merge
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, HookedStore, open_log, records_of
from tests.record.samples import record_batch, row

START_US = 1_700_000_000_000_000
FAR_US = 2**61
SETTLED_MS = 61_001

times = st.one_of(
    st.integers(-3, 12),  # many are equal
    st.sampled_from([FAR_US, FAR_US + 1, START_US, -FAR_US]),
)
batches = st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=24)
"""More than 16 batches of a segment are searched by its indexes."""

steps = st.lists(
    st.one_of(
        batches,
        st.sampled_from(
            ["snapshot", "merge", "compact", "start", "lose snapshots", "lose indexes"]
        ),
    ),
    min_size=1,
    max_size=10,
)


def do(log, step, data):
    if isinstance(step, list):
        keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
        log.append(
            [
                record_batch([row(timestamp=time, key=data.draw(keys)) for time in batch])
                for batch in step
            ]
        )
        return
    view = log.observe()
    segments = view.live.segments
    if step == "snapshot":
        log.snapshots.write()
    elif step == "start":
        move_log_start(log, data.draw(st.integers(view.log_start_offset, view.log_end_offset)))
    elif step == "compact":
        log.clock.advance_ms(SETTLED_MS)
        compact(log, now_us=log.clock.time_us())
    elif step == "merge" and not any(each.name.is_compacted for each in segments):
        first = data.draw(st.integers(0, max(0, len(segments) - 1)))
        if segments:
            merge(log.files, view, first, len(segments) - 1)
    else:
        suffix = ".snapshot" if step == "lose snapshots" else "index"
        for file in list(log.files.store.list(DIRECTORY)):
            # After the start has moved, the newest snapshot has what no other file has.
            if file.name.endswith(suffix) and not (suffix != "index" and view.log_start_offset):
                log.files.store.delete(file.path)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([0, 200, 4096]), st.booleans(), st.data())
def test_a_lookup_finds_the_first_record_that_is_not_earlier(steps, interval, log_append, data):
    clock = ManualClock(START_US)
    store = MemoryStore(uuid.uuid4().hex, clock)
    config = {
        "clock": clock,
        "index_interval_bytes": interval,
        "cleanup_policy": "compact",
        "merge_tail_segments": data.draw(st.sampled_from([0, 2])),
        "message_timestamp_type": "LogAppendTime" if log_append else "CreateTime",
    }
    writer = open_log(store, **config)
    kept = {"mapped": open_log(store, **config)}
    kept["ranged"] = open_log(HookedStore(store, is_mapped=False), **config)
    for step in steps:
        do(writer, step, data)
        clock.advance_ms(data.draw(st.sampled_from([0, 1, 1000])))
    new = {
        "new mapped": open_log(store, **config),
        "new ranged": open_log(HookedStore(store, is_mapped=False), **config),
    }
    start = writer.observe().log_start_offset
    found = [(offset, row["timestamp"]) for offset, row in records_of(writer.scan(start))]
    asked = {at for _, time in found for at in (time - 1, time, time + 1)} | {0, FAR_US + 2}
    for name, log in {**kept, **new}.items():
        view = log.observe() if data.draw(st.booleans()) else None
        for time in sorted(asked, key=lambda each: hash((each, name))):
            hits = [pair for pair in found if pair[1] >= time]
            assert log.offset_for_time(time, view) == (hits[0] if hits else None), (name, time)
        largest = max(found, key=lambda pair: (pair[1], -pair[0]), default=None)
        assert offset_of_max_timestamp(log, view or log.observe()) == largest, name
    store.delete_directory(DIRECTORY)
