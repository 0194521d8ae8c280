"""Transactions of franz-go over several topics: two programs in Go, and their histories."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.kafka_broker import CACHE
from spark_log import TopicPartition
from spark_log.testing.history import Operation, Outcome, Send
from tests.faults.schedule import Schedule
from tests.gateway.campaign.client import SETTLE_S
from tests.gateway.campaign.producers import TRANSACTION_TIMEOUT_MS
from tests.gateway.campaign.topics import DEALS, PARTITIONS, TRADES
from tests.gateway.campaign.workloads.workload import Blow, Workload
from tests.gateway.suites.go_tests import go

_SOURCE = Path(__file__).with_name("go_program")
_NUMBERS_OF_A_LIFE = 1_000_000


@cache
def _program() -> Path:
    """Return the path of the program, which is built if its source is newer."""
    program = CACHE / "go-transactions" / "program"
    newest_s = max(each.stat().st_mtime for each in _SOURCE.iterdir())
    if not program.exists() or program.stat().st_mtime < newest_s:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([go(), "build", "-o", program, "."], cwd=_SOURCE, check=True)
    return program


class _Producer:
    """The processes of one transactional id, which follow each other.

    Attributes:
        transactional_id: the id.
        lives: the number of processes so far.
        stops: how often it was stopped, and has not been continued.
        was_killed: whether the process was killed by a fault.
    """

    def __init__(self, workload: GoTransactions, number: int) -> None:
        self.transactional_id = f"go-deals-{number}"
        self.lives = 0
        self.stops = 0
        self.was_killed = False
        self._workload = workload
        self._seed = random.Random(f"{workload.place.seed} {number}").randrange(2**31)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        topics = ",".join(f"{each}:{PARTITIONS[each]}" for each in (DEALS, TRADES))
        command = [
            *(str(_program()), f"-bootstrap-servers={self._workload.place.bootstrap}"),
            *(f"-name={self.transactional_id}", f"-topics={topics}"),
            *(f"-seed={self._seed + self.lives}", f"-timeout={TRANSACTION_TIMEOUT_MS}ms"),
            f"-first={self.lives * _NUMBERS_OF_A_LIFE}",
        ]
        path = self.output(self.lives)
        with path.open("wb") as output, path.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=log
            )
        self.lives += 1
        self.was_killed = False

    def output(self, life: int) -> Path:
        return self._workload.folder / f"{self.transactional_id}.{life}.json"

    def lines(self, life: int) -> Iterator[dict[str, Any]]:
        with self.output(life).open(errors="replace") as lines:
            for text in lines:
                if text.endswith("\n"):  # otherwise it was killed while it printed this
                    yield json.loads(text)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.process is not None and self.is_alive:
            self.process.send_signal(number)

    def resume(self) -> None:
        self.stops -= 1
        if not self.stops:
            self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.stops = 0


class GoTransactions(Workload):
    """Producers that are killed, and stopped for longer than their transactions may take."""

    name = "go"
    _has_ended = False

    def start(self) -> None:
        self._producers = [_Producer(self, number) for number in range(2)]
        for each in self._producers:
            each.start()

    @property
    def has_begun(self) -> bool:
        return all(
            any(line["state"] == "committed" for line in each.lines(0)) for each in self._producers
        )

    def look(self) -> None:
        if self._has_ended:
            return
        for each in self._producers:
            if each.is_alive:
                continue
            if not each.was_killed:
                assert each.process is not None
                log = each.output(each.lives - 1).with_suffix(".log").read_text(errors="replace")
                self.failures.append(
                    f"{each.transactional_id} ended with {each.process.returncode}: {log[-2000:]}"
                )
            each.start()

    def blows(self) -> Mapping[str, tuple[int, Blow]]:
        return {"kill_go": (2, self._kill), "pause_go": (2, self._pause)}

    def _kill(self, chance: random.Random, schedule: Schedule) -> bool:
        each = chance.choice(self._producers)
        if not each.is_alive:
            return False
        self.say(f"{each.transactional_id}: kill")
        each.was_killed = True
        each.kill()
        return True

    def _pause(self, chance: random.Random, schedule: Schedule) -> bool:
        each = chance.choice(self._producers)
        if not each.is_alive or each.stops:
            return False
        pause_s, life = chance.uniform(4, 20), each.lives
        self.say(f"{each.transactional_id}: pause for {pause_s:.1f} s")
        each.stops += 1
        each.signal(signal.SIGSTOP)

        def resume() -> None:
            if each.lives == life and each.stops:
                each.resume()

        schedule.do_later(pause_s, resume)
        return True

    def resume(self) -> None:
        for each in self._producers:
            while each.stops:
                each.resume()

    def end_input(self) -> None:
        self._has_ended = True
        for each in self._producers:
            each.signal(signal.SIGTERM)
        for each in self._producers:
            assert each.process is not None
            try:
                each.process.wait(SETTLE_S)
            except subprocess.TimeoutExpired:
                self.failures.append(f"{each.transactional_id} did not end within {SETTLE_S} s")
                each.kill()

    def close(self) -> None:
        for each in getattr(self, "_producers", ()):
            each.kill()

    def operations(self) -> Iterator[Operation]:
        for each in self._producers:
            for life in range(each.lives):
                yield from _operations(f"{each.transactional_id}.{life}", each.lines(life))

    def figures(self) -> dict[str, Any]:
        return dict(Counter(str(each.outcome) for each in self.operations()))


def _operations(process: str, lines: Iterator[dict[str, Any]]) -> Iterator[Operation]:
    """Yield the transactions that a process printed; one without an end may have been committed."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for line in lines:
        found.setdefault(line["number"], {})[line["state"]] = line
    for number, states in found.items():
        outcome = next((each for each in ("committed", "aborted") if each in states), "unknown")
        end = states.get(outcome)
        sends = [
            Send(
                TopicPartition(each["topic"], each["partition"]), each["value"], each.get("offset")
            )
            for each in (end if outcome == "committed" and end else states["begun"])["sends"]
        ]
        # A process that was killed before it began to commit has an outcome, which is not known
        # from its lines: the transaction is aborted, at the latest by its timeout.
        is_given_up = outcome == "unknown" and "committing" not in states
        yield Operation(
            process,
            number,
            sends,
            Outcome.ABORTED if is_given_up else Outcome(outcome),
            is_transaction=True,
            invoked=states["begun"]["at_ns"],
            end_invoked=states["committing"]["at_ns"] if "committing" in states else None,
            completed=end["at_ns"] if end else None,
        )
