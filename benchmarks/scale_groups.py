"""Measures a consumer group with thousands of members: its record, and what one change takes.

    python -m benchmarks.scale_groups --members 10000 --partitions 20000

No peer: shown is what grows with the number of members. The group lives in one process, on a local
store: the coordinator's own functions decide each change, its log appends and reads it. Times are
CPU times of the process. *Bytes* are those of the segment, which each member reads after a change.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from spark_log.config import ClusterConfig
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.records import GroupRecord, from_json
from spark_log.storage.local import LocalStore
from spark_log.util import random_id
from spark_log.util.clock import SYSTEM_CLOCK

_GROUP = "group"
_TOPIC = "topic"


def measure(options: argparse.Namespace) -> Report:
    """Measure a group of each size with each assignor."""
    figures: list[Figure] = []
    for members in options.members:
        for assignor in options.assignors:
            figures += _figures(members, options.partitions, assignor)
    return Report("scale_groups", figures, {"partitions": options.partitions})


def _figures(count: int, partitions: int, assignor: str) -> Iterator[Figure]:
    what = f"{count:,} members, {assignor}"
    topics = {_TOPIC: GroupTopic("id", partitions)}
    config = ClusterConfig()
    members = [_member(number, assignor) for number in range(count + 1)]
    first, last = members[0], members[-1]
    with tempfile.TemporaryDirectory() as root:
        store = LocalStore(root)
        log = GroupLog(store, _GROUP, SYSTEM_CLOCK)

        def change(decide: Callable[[Group], GroupRecord | None]) -> float:
            with _cpu_s() as took:
                log.commit(decide)
            return took[0]

        yield _seconds(
            f"{what}: all join in one record",
            change(lambda group: group_decisions.join(group, first, topics, config, members[1:-1])),
        )
        assert len(log.state.members) == count
        yield _seconds(
            f"{what}: one more joins",
            change(lambda group: group_decisions.join(group, last, topics, config)),
        )
        segments = [
            file for file in store.list(GroupLog.directory_of(_GROUP)) if ".log" in file.name
        ]
        yield Figure(f"{what}: bytes of the record", segments[-1].size_bytes / 1e6, "MB")
        # Each of them releases its revoked partitions by a record of its own.
        moving = [each for each in log.state.members.values() if each.revoking]
        yield Figure(f"{what}: records until it is stable", len(moving))
        if moving:
            one = moving[0]
            yield _seconds(
                f"{what}: one of them releases",
                change(lambda group: group_decisions.release(group, one.member_id, one.revoking)),
            )
        gone = [first.member_id]
        yield _seconds(
            f"{what}: one leaves",
            change(lambda group: group_decisions.remove(group, gone, topics, "leave")),
        )
        reader = GroupLog(store, _GROUP, SYSTEM_CLOCK)
        with _cpu_s() as took:
            reader.replay()
        yield _seconds(f"{what}: a member reads a change", took[0])
        yield from _codec(what, reader.state)


def _codec(what: str, group: Group) -> Iterator[Figure]:
    record = group.to_record("leave", (), "id")
    with _cpu_s() as took:
        value = record.to_json()
    yield _seconds(f"{what}: of a change, encoding", took[0])
    with _cpu_s() as took:
        from_json(value)
    yield _seconds(f"{what}: of a read, decoding", took[0])
    yield Figure(f"{what}: bytes of the JSON", len(value) / 1e6, "MB")


@contextmanager
def _cpu_s() -> Iterator[list[float]]:
    took: list[float] = []
    began_s = time.process_time()
    yield took
    took.append(time.process_time() - began_s)


def _seconds(name: str, seconds: float) -> Figure:
    return Figure(name, round(seconds, 4), "s")


def _member(number: int, assignor: str) -> Member:
    return Member(
        f"client-{random_id()}",
        None,
        "client",
        f"host-{number % 100:03}",
        None,
        (_TOPIC,),
        None,
        (assignor,),
        45_000,
        300_000,
    )


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("scale_groups", __doc__)
    options.add_argument(
        "--members", type=positive, nargs="+", default=[100, 1_000, 10_000], help="of the group"
    )
    options.add_argument("--partitions", type=positive, default=20_000, help="(20000)")
    options.add_argument(
        "--assignors", nargs="+", default=["range", "cooperative-sticky"], help="range, …"
    )
    run(options, measure)


if __name__ == "__main__":
    main()
