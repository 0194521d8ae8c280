"""Checks what a group's members and producers noted against the group's log, offsets and topics."""

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from spark_log.types import TopicPartition
from tests.coordinator.group_support import unowned
from tests.faults.notes import read_notes
from tests.faults.operation_notes import check_operations, read_of_log, sends


@dataclass(frozen=True)
class PolledRange:
    """The records of one partition that a poll returned to a member.

    Attributes:
        process: the process that noted it.
        generation: the generation that the member knew.
        member_id: the member's id.
        partition: the records' partition.
        first: offset of the first record.
        last: offset of the last record.
        is_handled: whether the process noted that it has handled them.
    """

    process: str
    generation: int
    member_id: str
    partition: TopicPartition
    first: int
    last: int
    is_handled: bool


@dataclass
class MemberNotes:
    """The notes of all members.

    Attributes:
        taken: the results of their polls.
        outcomes: the outcomes of their commits, by commit id.
    """

    taken: list[PolledRange]
    outcomes: dict[str, str]


def read_member_notes(paths):
    """Read the notes of the members."""
    taken: dict[Any, PolledRange] = {}
    outcomes: dict[Any, Any] = {}
    for path in paths:
        for kind, *fields in read_notes(path):
            if kind in ("took", "handled"):
                generation, member_id, topic, partition, first, last = fields
                key = path.name, *fields
                taken[key] = PolledRange(
                    path.name,
                    int(generation),
                    member_id,
                    TopicPartition(topic, int(partition)),
                    int(first),
                    int(last),
                    kind == "handled" or (key in taken and taken[key].is_handled),
                )
            elif kind in ("committed", "refused", "unknown"):
                outcomes[fields[0]] = kind
    return MemberNotes(list(taken.values()), outcomes)


def reckon_group(notes, operations, topics, groups, rows):
    """Check all guarantees, and return counts.

    Args:
        notes: the members' notes.
        operations: the history of producers and members.
        topics: the offsets and values of each partition.
        groups: the `Group` of each generation.
        rows: the `Row` of each committed offset, in the order of the commits.
    """
    check_operations([*operations, *(read_of_log(*each) for each in topics.items())])
    check_one_owner(notes.taken, groups)
    check_positions(rows)
    check_commits(notes, rows, groups)
    check_nothing_again(notes.taken, rows)
    check_all_handled(notes.taken, operations)
    return {
        "records": sum(map(len, topics.values())),
        "handled": sum(each.last - each.first + 1 for each in notes.taken if each.is_handled),
        "generations": len(groups),
        "positions": len(rows),
        **Counter(f"commits {outcome}" for outcome in notes.outcomes.values()),
    }


def check_one_owner(taken, groups):
    """No two members got records of one partition in the same generation."""
    owners: dict[Any, PolledRange] = {}
    for each in taken:
        key = each.generation, each.partition
        other = owners.setdefault(key, each)
        assert other.member_id == each.member_id, f"two members in one generation: {other}, {each}"
    for each in taken:
        member = groups[each.generation].members.get(each.member_id)
        assert member is not None, f"no member of that generation: {each}"
        assert each.partition in member.owned, f"not its partition in that generation: {each}"


def check_positions(rows):
    """Committed offsets (by generation, then commit) and the fence never go back."""
    latest: dict[Any, Any] = {}
    for row in rows:
        assert row.fence_before <= row.fence, f"the fence went back: {row}"
        is_fenced = row.fence_before <= row.generation <= row.fence
        assert is_fenced, f"of another generation than the fence: {row}"
        before = latest.get(row.partition)
        if before is None or (before.generation, before.stamp) < (row.generation, row.stamp):
            assert before is None or before.offset <= row.offset, f"went back: {before}, {row}"
            latest[row.partition] = row


def check_commits(notes, rows, groups):
    """A committing member owns the partition and has handled it; a refused commit has no effect.

    An automatic commit may be of the offset at which the member began.
    """
    positions: dict[Any, int] = {}
    ends = {
        (each.member_id, each.partition, each.last + 1) for each in notes.taken if each.is_handled
    }
    for row in rows:
        member = groups[row.generation].members.get(row.member_id)
        assert member is not None, f"no member of that generation: {row}"
        assert row.partition in member.held, f"not its partition: {row}"
        key = row.member_id, row.partition, row.offset
        is_beginning = row.offset == positions.get(row.partition, 0)
        assert is_beginning or key in ends, f"committed and not handled: {row}"
        positions[row.partition] = row.offset
    there = {row.name for row in rows}
    for name, outcome in notes.outcomes.items():
        if outcome == "committed":
            assert name in there, f"commit {name} was acknowledged, and is not there"
        elif outcome == "refused":
            assert name not in there, f"commit {name} was refused, and is there all the same"


def check_nothing_again(taken, rows):
    """Records that were committed in a generation are not handled again in a later one."""
    committed = defaultdict(list)
    for row in sorted(rows, key=lambda each: each.generation):
        committed[row.partition].append((row.generation, row.offset))
    generations = {named: [each[0] for each in those] for named, those in committed.items()}
    highest = {
        named: [0, *accumulate((offset for _, offset in those), max)]
        for named, those in committed.items()
    }
    for each in taken:
        if each.partition in committed:
            earlier = bisect_left(generations[each.partition], each.generation)
            position = highest[each.partition][earlier]
            assert each.first >= position, f"committed up to {position} before, and again: {each}"


def check_all_handled(taken, operations):
    """Every acknowledged record was handled."""
    handled: dict[Any, set[int]] = defaultdict(set)
    for each in taken:
        if each.is_handled:
            handled[each.partition].update(range(each.first, each.last + 1))
    acknowledged: dict[Any, set[int]] = defaultdict(set)
    for send in sends(operations):
        if send.offset is not None:
            acknowledged[send.topic_partition].add(send.offset)
    for named, offsets in acknowledged.items():
        missing = sorted(offsets - handled[named])
        assert not missing, f"{named}: acknowledged and never handled: {missing[:20]}"


def unbalanced(group):
    """Return what is wrong with a group whose members subscribe to the same topics, or None."""
    if group.state != "Stable":
        return f"it is {group.state}"
    if missing := unowned(group):
        return f"nobody has {missing}"
    # The range assignor balances each topic, the others balance all topics together.
    parts = [{name} for name in group.topics] if group.protocol == "range" else [set(group.topics)]
    for topics in parts:
        counts = [
            sum(named.topic in topics for named in member.owned)
            for member in group.members.values()
        ]
        if max(counts) - min(counts) > 1:
            return f"{group.protocol} shares {sorted(topics)} as {counts}"
    return None
