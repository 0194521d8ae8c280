"""Checks cleaned topics against the acknowledgements and the records that consumers saw."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from spark_log.metadata import Cluster
from tests.faults.clean_clients import COMPACTED, EXPIRING, KEPT, TABLE, TOPICS
from tests.faults.notes import read_notes
from tests.log.support import records_of


@dataclass(frozen=True)
class Found:
    """A record in a log, or in a consumer's notes."""

    offset: int
    name: str
    key: str
    is_tombstone: bool


def check_results(root, storage_options, notes):
    """Check topics that are no longer written to, and return counts.

    Args:
        root: the topics' root.
        storage_options: the root's options.
        notes: directory of the processes' notes.
    """
    cluster = Cluster(root, storage_options)
    counts: Counter[str] = Counter()
    for topic in TOPICS:
        log = cluster.partition_log(cluster.topic(topic), 0)
        start, end = log.log_start_offset(), log.log_end_offset()
        found = _found(log.scan(start))
        sent, placed = _noted(notes, topic)
        counts[f"{topic}: acknowledged"] = len(placed)
        counts[f"{topic}: start"], counts[f"{topic}: end"] = start, end
        counts[f"{topic}: there"] = len(found)
        _check_names(found, sent, placed, start)
        if topic in COMPACTED:
            _check_dictionary(found, sent, placed, keeps_tombstones=topic == TABLE)
        else:
            assert [each.offset for each in found] == list(range(start, end)), "not dense"
            assert {each.name for each in found} >= {
                name for name, offset in placed.items() if offset >= start
            }, "lost"
        for path in sorted(notes.glob("consumer-*")):
            counts[f"{topic}: read"] += _check_seen(topic, path, found, sent, placed, end)
    assert counts[f"{KEPT}: start"] == 0
    return counts


def check_commands(notes, refused=()):
    """Check the exit status of each run of the command, and return counts.

    Args:
        notes: directory of the processes' notes.
        refused: slots of cleaners whose clocks are wrong: each of their runs must do nothing, and
            report that in one line.
    """
    statuses: Counter[Any] = Counter()
    for path in notes.glob("cleaner-*"):
        slot = int(path.name.removeprefix("cleaner-").partition(".")[0])
        for status, *error in read_notes(path):
            told = " ".join(error)
            if slot in refused and "max.clock.skew.ms" in told:
                statuses["refused"] += 1
                assert (status, told.count("error:")) == ("1", 1), told
                continue
            statuses[status] += 1
            assert slot not in refused or status != "0", f"cleaner {slot} has cleaned"
            # A listing was not fast enough, or the storage failed for a moment.
            may_pass = "takes longer" in told or "try again" in told
            assert status == "0" or (status == "1" and may_pass), told
    return statuses


def _found(batches):
    return [
        Found(
            offset,
            row["headers"][0]["value"].decode(),
            row["key"].decode(),
            row["value"] is None,
        )
        for offset, row in records_of(batches)
    ]


def _noted(notes, topic):
    """Return {name: (key, is tombstone)} of the sent records, and the acknowledged offsets."""
    sent, placed = {}, {}
    for path in notes.glob("producer-*"):
        for kind, named, name, *rest in read_notes(path):
            if named == topic and kind == "sent":
                sent[name] = rest[0], rest[1] == "1"
            elif named == topic:
                placed[name] = int(rest[0])
    return sent, placed


def _check_names(found, sent, placed, start):
    """Check that each record was sent, exists once, and is at its acknowledged offset."""
    assert start >= 0
    names = Counter(each.name for each in found)
    twice = [name for name in names if names[name] > 1]
    assert not twice, f"there more than once: {twice[:9]}"
    for each in found:
        assert sent.get(each.name) == (each.key, each.is_tombstone), f"nobody sent {each}"
        at = placed.get(each.name, each.offset)
        assert at == each.offset, f"{each} was acknowledged at {at}"


def _check_dictionary(found, sent, placed, *, keeps_tombstones):
    """Check that the last record of each key is the last acknowledged one, or unacknowledged."""
    table = {each.key: each for each in found}
    last = {}
    for name, offset in sorted(placed.items(), key=lambda pair: pair[1]):
        last[sent[name][0]] = offset, name
    untold: dict[Any, list[bool]] = {}
    for name in sent.keys() - placed.keys():
        key, is_tombstone = sent[name]
        untold.setdefault(key, []).append(is_tombstone)
    for key, (offset, name) in last.items():
        have = table.get(key)
        if have is None:
            assert not keeps_tombstones, f"{name}, the last of {key}, is gone"
            assert sent[name][1] or any(untold.get(key, ())), f"{name}, no tombstone, is gone"
        elif have.name != name:
            assert have.offset > offset, f"{have} instead of {name}"
            assert have.name not in placed, f"{have} instead of {name}"


def _check_seen(topic, path, found, sent, placed, end):
    """Check the records that one consumer saw of a topic, and return their number."""
    lines = list(read_notes(path))
    has_ended = lines[-1:] == [["ended"]]
    seen = [
        Found(int(offset), name, key, is_tombstone == "True")
        for named, offset, name, key, is_tombstone in lines[: -1 if has_ended else None]
        if named == topic
    ]
    offsets = [each.offset for each in seen]
    assert offsets == sorted(set(offsets)), f"{path.name} saw {topic} out of order"
    there = {each.offset: each for each in found}
    for each in seen:
        assert sent.get(each.name) == (each.key, each.is_tombstone), f"nobody sent {each}"
        assert there.get(each.offset, each) == each, f"{path.name} saw {each}"
        assert placed.get(each.name, each.offset) == each.offset
    if topic == KEPT:
        assert offsets == list(range(len(seen))), f"{path.name} missed some of {topic}"
    if has_ended:
        missed = there.keys() - set(offsets)
        if topic == EXPIRING:
            missed = {at for at in missed if offsets and at > offsets[0]}
        elif topic in COMPACTED:
            missed = {at for at in missed if at == _last_of(found, there[at].key)}
        assert not missed, f"{path.name} did not see {sorted(missed)[:9]} of {topic}"
        if topic == TABLE:  # no reader can have missed its tombstones
            assert _table(seen) == _table(found), f"{path.name} has another dictionary"
    return len(seen)


def _last_of(found, key):
    return max(each.offset for each in found if each.key == key)


def _table(records):
    return {each.key: each.name for each in records}
