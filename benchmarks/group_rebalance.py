"""Measures how long a rebalance takes, with members in real processes on a local root.

    python -m benchmarks.group_rebalance
    python -m benchmarks.group_rebalance --joins 8,50,100

No peer. Measured from a clean leave, and from a SIGKILL, until all other members have their new
assignment, including partitions that move between them. Every member is a process that reacts as
soon as its group thread reports a change.

With ``--joins``, that many members join an empty group at once, as threads of 8 processes.
Measured: the records that this writes, and the time until the last member has its final assignment.
``--delay-ms`` is ``group.initial.rebalance.delay.ms`` of the cluster.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Annotated

import typer

from spark_log import Admin, ConfigResource, ConfigResourceType, NewTopic
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.member import GroupMember
from spark_log.errors import UnknownMemberIdError

TOPIC, GROUP = "t", "g"
_PATIENCE_S = 120
_PROCESSES = 8


def main(
    members: Annotated[int, typer.Option(help="Processes.")] = 4,
    partitions: Annotated[int, typer.Option(help="Of the topic.")] = 12,
    leaves: Annotated[int, typer.Option(help="Clean leaves to measure.")] = 40,
    kills: Annotated[int, typer.Option(help="SIGKILLs to measure.")] = 5,
    session_timeout_ms: Annotated[int, typer.Option(help="session.timeout.ms")] = 6000,
    strategy: Annotated[str, typer.Option(help="The assignor.")] = "range",
    root: Annotated[str, typer.Option(help="A directory; a temporary one by default.")] = "",
    joins: Annotated[str, typer.Option(help="Members that join at once: 8,50,100")] = "",
    delay_ms: Annotated[int, typer.Option(help="Time that the first ones wait for others.")] = 0,
) -> None:
    """Print the milliseconds."""
    if joins:
        for count in map(int, joins.split(",")):
            _joins(count, max(count, partitions), session_timeout_ms, strategy, root, delay_ms)
        return
    with tempfile.TemporaryDirectory(dir=root or None) as directory:
        url = f"{directory}/root"
        Admin(url).create_topics([NewTopic(TOPIC, num_partitions=partitions)])
        bench = _Bench(url, partitions, session_timeout_ms, strategy)
        try:
            for _ in range(members):
                bench.start()
            bench.wait_until_settled()
            left_ms = [bench.leave() for _ in range(leaves)]
            killed_ms = [bench.kill() for _ in range(kills)]
        finally:
            bench.end()
    typer.echo(
        f"{members} processes, {partitions} partitions, {strategy}, "
        f"session.timeout.ms={session_timeout_ms}, heartbeat.interval.ms="
        f"{session_timeout_ms // 3}"
    )
    _print("clean leave → all others have their new assignment", left_ms)
    _print("SIGKILL → all others have their new assignment", killed_ms)
    if killed_ms:
        typer.echo(
            f"SIGKILL, beyond session.timeout.ms: {max(killed_ms) - session_timeout_ms:.0f} ms"
        )


def _joins(
    count: int,
    partitions: int,
    session_timeout_ms: int,
    strategy: str,
    root: str,
    delay_ms: int,
) -> None:
    with tempfile.TemporaryDirectory(dir=root or None) as directory:
        url = f"{directory}/root"
        Admin(url).create_topics([NewTopic(TOPIC, num_partitions=partitions)])
        delay = {"group.initial.rebalance.delay.ms": str(delay_ms)}
        Admin(url).alter_configs([ConfigResource(ConfigResourceType.BROKER, "", delay)])
        bench = _Bench(url, partitions, session_timeout_ms, strategy)
        try:
            began_ms = bench.start_at_once(count)
            took_ms = bench.wait_until_settled() - began_ms
            joined_ms = max(each.joined_ms for each in bench.processes) - began_ms
            records = GroupCoordinator(Cluster(url), GROUP).describe().generation
        finally:
            bench.end()
    typer.echo(
        f"{count} members join at once, {partitions} partitions, {strategy}, "
        f"group.initial.rebalance.delay.ms={delay_ms}: the last is in after "
        f"{joined_ms:.0f} ms, all have their final assignment after {took_ms:.0f} ms; {records} "
        f"records"
    )


def _print(what: str, took_ms: Sequence[float]) -> None:
    if took_ms:
        ordered = sorted(took_ms)
        p50, p99 = (ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.99))
        typer.echo(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, worst {ordered[-1]:.1f} ms")


@dataclass(slots=True)
class _Process:
    process: BaseProcess
    pipe: Connection
    assigned: frozenset[int] = frozenset()
    generation: int = -1
    is_settled: bool = False
    at_ms: float = 0.0
    joined_ms: float = 0.0


class _Bench:
    def __init__(self, url: str, partitions: int, session_timeout_ms: int, strategy: str) -> None:
        self._args = url, session_timeout_ms, strategy
        self._all = frozenset(range(partitions))
        self.processes: list[_Process] = []

    def start(self) -> None:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_live, args=(there, *self._args), daemon=True)
        process.start()
        there.close()
        self.processes.append(_Process(process, here))

    def start_at_once(self, count: int) -> float:
        """Let ``count`` members join an empty group; return the time of their start in ms."""
        context = get_context("spawn")
        begin = context.Barrier(count + 1)
        pipes = [context.Pipe() for _ in range(count)]
        for number in range(min(count, _PROCESSES)):
            theirs = [there for _, there in pipes[number::_PROCESSES]]
            process = context.Process(
                target=_live_together, args=(begin, theirs, *self._args), daemon=True
            )
            process.start()
            self.processes += [_Process(process, here) for here, _ in pipes[number::_PROCESSES]]
        for _, there in pipes:
            there.close()
        begin.wait(_PATIENCE_S)
        return time.monotonic_ns() / 1e6

    def leave(self) -> float:
        """Let the oldest member leave, and return the milliseconds until the group is stable.

        Afterwards a new member joins.
        """
        leaving = self.processes.pop(0)
        leaving.pipe.send("leave")
        began_ms = self._receive(leaving)
        took_ms = self.wait_until_settled() - began_ms
        leaving.process.join(_PATIENCE_S)
        self.start()
        self.wait_until_settled()
        return took_ms

    def kill(self) -> float:
        killed = self.processes.pop(0)
        began_ms = time.monotonic_ns() / 1e6
        assert killed.process.pid is not None
        os.kill(killed.process.pid, signal.SIGKILL)
        took_ms = self.wait_until_settled() - began_ms
        killed.process.join(_PATIENCE_S)
        self.start()
        self.wait_until_settled()
        return took_ms

    def wait_until_settled(self) -> float:
        """Wait until every member has its final assignment; return the time of the last one."""
        until_s = time.monotonic() + _PATIENCE_S
        while not self._is_settled():
            ready = wait([each.pipe for each in self.processes], until_s - time.monotonic())
            if not ready:
                raise TimeoutError("the group does not settle")
            for each in self.processes:
                if each.pipe in ready:
                    each.generation, each.is_settled, each.assigned, each.at_ms = each.pipe.recv()
                    each.joined_ms = each.joined_ms or each.at_ms
        return max(each.at_ms for each in self.processes)

    def end(self) -> None:
        for each in self.processes:
            each.process.kill()
            each.process.join()

    def _is_settled(self) -> bool:
        generations = {each.generation for each in self.processes}
        numbers = [number for each in self.processes for number in each.assigned]
        return (
            len(generations) == 1
            and all(each.is_settled for each in self.processes)
            and sorted(numbers) == sorted(self._all)
        )

    @staticmethod
    def _receive(leaving: _Process) -> float:
        while True:
            message = leaving.pipe.recv()
            if isinstance(message, float):
                return message


def _live_together(
    begin: Barrier, pipes: list[Connection], url: str, session_timeout_ms: int, strategy: str
) -> None:
    """Run several members, each on a thread of its own."""
    arguments = url, session_timeout_ms, strategy, begin
    threads = [threading.Thread(target=_live, args=(pipe, *arguments)) for pipe in pipes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _live(
    pipe: Connection,
    url: str,
    session_timeout_ms: int,
    strategy: str,
    begin: Barrier | None = None,
) -> None:
    """Run a member that releases revoked partitions at once and reports its assignment."""
    changed = threading.Event()
    config = ConsumerConfig.parse(
        {
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": session_timeout_ms // 3,
            "partition.assignment.strategy": strategy,
        }
    )
    member = GroupMember(Cluster(url), GROUP, config=config, on_change=changed.set)
    is_leaving = threading.Event()

    def listen() -> None:
        with suppress(EOFError):
            pipe.recv()
            is_leaving.set()
            changed.set()

    threading.Thread(target=listen, daemon=True).start()
    if begin is not None:
        begin.wait(_PATIENCE_S)
    member.join([TOPIC])
    while True:
        if is_leaving.is_set():
            pipe.send(time.monotonic_ns() / 1e6)
            member.close()
            return
        with suppress(UnknownMemberIdError):
            status = member.poll()
            while status.revoking:  # more partitions may be revoked meanwhile
                status = member.release(status.revoking)
            numbers = frozenset(each.partition for each in status.assigned)
            now_ms = time.monotonic_ns() / 1e6
            pipe.send((status.generation, status.is_settled, numbers, now_ms))
        changed.wait()
        changed.clear()


if __name__ == "__main__":
    typer.run(main)
