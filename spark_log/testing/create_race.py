"""A race of processes for names in a store: exactly one process must win each name.

The conformance suite runs a short race. This one can run long, to test a backend or a server whose
conditional writes are in doubt::

    python -m spark_log.testing.create_race s3://bucket/race --storage-option key=…
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from spark_log.errors import AlreadyExistsError, UnknownOutcomeError
from spark_log.storage import StagedFile, Store, open_store

_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The result of a race.

    Attributes:
        rounds: the number of names.
        processes: the number of processes that tried to create each name.
        two_winners: the names that more than one process won, by the store's answers.
        no_winner: the names that no process won, by the store's answers.
        wrong_bytes: the names whose file does not have the winner's bytes.
        unknown: the number of puts whose outcome is unknown.
        least_won: the number of names that the least successful process won.
    """

    rounds: int
    processes: int
    two_winners: int
    no_winner: int
    wrong_bytes: int
    unknown: int
    least_won: int

    @property
    def is_sound(self) -> bool:
        """Whether every name has exactly one winner, and the winner's bytes."""
        return not (self.two_winners or self.no_winner or self.wrong_bytes)


def create_race(
    store: Store, *, processes: int = 8, rounds: int = 200, staged_bytes: int = 0
) -> RaceResult:
    """Let processes race for ``rounds`` names in turn; they start each round together.

    Args:
        store: the store; it is pickled into the processes.
        processes: the number of processes.
        rounds: the number of names.
        staged_bytes: the minimum size of staged files to put; 0 to put bytes instead.
    """
    directory = f"race-{uuid.uuid4().hex[:12]}"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with ProcessPoolExecutor(processes, context, _meet_at, (barrier,)) as pool:
        tasks = [
            pool.submit(_contend, store, directory, rounds, mark, staged_bytes)
            for mark in range(processes)
        ]
        ends = [task.result() for task in tasks]
    winners: dict[int, list[int]] = {name: [] for name in range(rounds)}
    for mark, (won, _) in enumerate(ends):
        for name in won:
            winners[name].append(mark)
    wrong = sum(
        store.open_buffer(f"{directory}/{name:06d}").to_pybytes()
        != _content(name, marks[0], staged_bytes)
        for name, marks in winners.items()
        if marks
    )
    store.delete_directory(directory)
    return RaceResult(
        rounds=rounds,
        processes=processes,
        two_winners=sum(len(marks) > 1 for marks in winners.values()),
        no_winner=sum(not marks for marks in winners.values()),
        wrong_bytes=wrong,
        unknown=sum(unknown for _, unknown in ends),
        least_won=min(len(won) for won, _ in ends),
    )


_barrier: Any = None


def _meet_at(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603 - the only way to hand a barrier to a pool's process
    _barrier = barrier


def _contend(
    store: Store, directory: str, rounds: int, mark: int, staged_bytes: int
) -> tuple[list[int], int]:
    won, unknown = [], 0
    for name in range(rounds):
        content = _content(name, mark, staged_bytes)
        with store.stage(directory) as staged:
            source: bytes | StagedFile = content
            if staged_bytes:
                staged.sink.write(content)
                source = staged
            _barrier.wait(_TIMEOUT_S)
            try:
                store.put_if_absent(f"{directory}/{name:06d}", source)
            except AlreadyExistsError:
                pass
            except UnknownOutcomeError:
                unknown += 1
            else:
                won.append(name)
    return won, unknown


def _content(name: int, mark: int, size_bytes: int) -> bytes:
    # The lengths differ, so that a mixture of two contents is detected.
    line = f"name {name}, contender {mark}\n".encode()
    return line * (size_bytes // len(line) + 10 + mark)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "root", help="a root's URL or path; the files of the race are removed from it"
    )
    parser.add_argument("--storage-option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--staged-bytes", type=int, default=0)
    given = parser.parse_args()
    options = dict(pair.split("=", 1) for pair in given.storage_option)
    store = open_store(os.path.expanduser(given.root), options)
    result = create_race(
        store, processes=given.processes, rounds=given.rounds, staged_bytes=given.staged_bytes
    )
    print(result)  # noqa: T201 - a script
    raise SystemExit(not result.is_sound)


if __name__ == "__main__":
    _main()
