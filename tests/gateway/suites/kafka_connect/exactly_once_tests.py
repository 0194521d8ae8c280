"""Workers whose sources write by transactions, through deaths of tasks, workers and gateways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka_connect import DistributedWorker
from tests.gateway.processes import SHORT, GatewayProcess
from tests.gateway.suites.kafka_connect.place import (
    EXACTLY_ONCE,
    Place,
    Topics,
    assert_once_in_order,
    file_sink,
    file_source,
    growing_file,
    names_of_workers,
    numbered,
)
from tests.gateway.suites.suite import Gateways

_CONNECTORS = 3


@dataclass
class Copies:
    """Files that grow, and connectors that copy them to topics: one file and topic each.

    Attributes:
        workers: the workers; the first one is asked.
        files: the files.
        names: the names of the connectors and topics.
        counts: functions that count the lines of the files.
        topics: the topics.
        growing: ends the growth of the files.
    """

    workers: list[DistributedWorker]
    files: list[Path]
    names: list[str]
    counts: list[Callable[[], int]]
    topics: Topics
    growing: ExitStack

    def wait_for_more(self, lines: int = 100) -> None:
        """Wait until all topics have got so many more lines, as of the files' present lengths."""
        wanted = [count() + lines for count in self.counts]
        for name, each in zip(self.names, wanted, strict=True):
            self.topics.lines(name, each)

    def finish(self) -> None:
        """End the growth of the files, and wait until all is copied."""
        self.growing.close()
        for name, count in zip(self.names, self.counts, strict=True):
            self.topics.lines(name, count())
        self.check()

    def check(self) -> None:
        """Compare the files with the topics, when nobody writes."""
        for name, count in zip(self.names, self.counts, strict=True):
            assert_once_in_order(self.topics.lines(name), numbered(count()))

    def wait_for_owners(self, *workers: DistributedWorker) -> None:
        """Wait until all tasks run, at least one at each of these workers and none elsewhere."""
        expected = {each.address for each in workers}

        def owners() -> set[str] | None:
            found = set()
            for name in self.names:
                owned = workers[0].owners(name)
                if len(owned) != 1:
                    return None
                found |= owned
            return found

        workers[0].wait_for(
            lambda: owners() == expected, lambda: f"tasks run at {owners()}, not at {expected}"
        )


@contextmanager
def _copies(
    place: Place,
    name: str,
    count: int,
    gateways: Gateways | None = None,
    settings: Mapping[str, object] = EXACTLY_ONCE,
) -> Iterator[Copies]:
    """Copy growing files in workers of a group; at the end each line is there once, in order."""
    names = [f"{name}-{number}" for number in range(_CONNECTORS)]
    files = [place.path(each) for each in names]
    topics = Topics((gateways or place.gateways).bootstrap_servers)
    more = {**names_of_workers(name), **settings}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(place.new_worker(f"{name}-worker-{number}", more, gateways))
            for number in range(count)
        ]
        growing = stack.enter_context(ExitStack())
        counts = []
        for each, file in zip(names, files, strict=True):
            counts.append(growing.enter_context(growing_file(file)))
            config = file_source(file, each, exactly_once_support="required")
            workers[0].put(each, config | {"batch.size": 500})
        copies = Copies(workers, files, names, counts, topics, growing)
        copies.wait_for_more()
        yield copies
        copies.finish()
    copies.check()


def exactly_once_source_writes_lines_and_offsets_in_one_transaction(place: Place) -> None:
    with _copies(place, "exactly", 1) as copies:
        copies.wait_for_more()
        name = copies.names[0]
        worker = copies.workers[0]
        before = worker.ask("GET", f"/connectors/{name}/offsets")["offsets"][0]["offset"]
        copies.wait_for_more()
        after = worker.ask("GET", f"/connectors/{name}/offsets")["offsets"][0]["offset"]
        assert before["position"] < after["position"]
    # A committed offset is that of the committed lines.
    size = copies.files[0].stat().st_size
    records = [
        each
        for each in place.topics.records("exactly-offsets")
        if each.key is not None and f'["{name}"'.encode() in each.key
    ]
    assert f'"position":{size}' in records[-1].text


def tasks_that_are_restarted_fence_the_earlier_ones(place: Place) -> None:
    with _copies(place, "restarts", 1) as copies:
        worker = copies.workers[0]
        for _ in range(3):
            for name in copies.names:
                worker.ask("POST", f"/connectors/{name}/tasks/0/restart")
                worker.wait_for_states(name, "RUNNING", "RUNNING")
            for name in copies.names:
                path = f"/connectors/{name}/restart?includeTasks=true&onlyFailed=false"
                worker.ask("POST", path)
            copies.wait_for_more(50)


def killed_worker_is_replaced_and_comes_back(place: Place) -> None:
    with _copies(place, "killed", 2) as copies:
        first, second = copies.workers
        copies.wait_for_owners(first, second)
        second.kill()
        copies.wait_for_owners(first)
        copies.wait_for_more()
        second.start()
        second.wait_until_ready()
        copies.wait_for_owners(first, second)
        copies.wait_for_more()
        first.kill()  # the leader
        copies.wait_for_owners(second)
        copies.wait_for_more()
        first.start()
        first.wait_until_ready()
        copies.wait_for_owners(first, second)


def worker_that_stood_still_is_fenced(place: Place) -> None:
    with _copies(place, "paused", 2) as copies:
        first, second = copies.workers
        copies.wait_for_owners(first, second)
        for _ in range(2):
            second.pause()
            try:
                copies.wait_for_owners(first)
                copies.wait_for_more()
            finally:
                second.resume()
            copies.wait_for_owners(first, second)
            copies.wait_for_more()


def sinks_of_two_workers_share_partitions(place: Place) -> None:
    topic = place.topics.create("shared-by-sinks", 4)
    settings = names_of_workers("sinks")
    output = place.path("out")
    with (
        place.new_worker("sinks-1", settings) as first,
        place.new_worker("sinks-2", settings) as second,
    ):
        first.put("sinks", file_sink(output, topic, tasks_max=4))
        first.wait_for(
            lambda: first.owners("sinks") == {first.address, second.address}, "not shared"
        )
        place.topics.send(topic, numbered(2000))
        first.wait_for(
            lambda: set(numbered(2000)) <= set(output.read_text().splitlines()), "lines are missing"
        )
        first.wait_for(
            lambda: sum(place.topics.committed("connect-sinks").values()) == 2000, "not committed"
        )
        second.kill()
        first.wait_for(lambda: first.owners("sinks") == {first.address}, "the tasks do not move")
        first.wait_for_states("sinks", *["RUNNING"] * 5)
        place.topics.send(topic, numbered(2000, 2000))
        first.wait_for(
            lambda: set(numbered(4000)) <= set(output.read_text().splitlines()), "lines are missing"
        )


def gateways_are_killed_and_restarted(place: Place) -> None:
    root = place.folder / "killed-root"
    with ExitStack() as stack:
        running = []
        for _ in range(2):
            running.append(GatewayProcess(str(root), SHORT))
            stack.callback(running[-1].kill)
        gateways = Gateways(root, tuple(each.address for each in running))
        with _copies(place, "gateways", 2, gateways) as copies:
            output = place.path("out")
            copies.workers[0].put("gateways-out", file_sink(output, copies.names[0]))
            for number in (0, 1, 0):
                running[number].kill()
                copies.wait_for_more(50)
                running[number] = GatewayProcess(str(root), SHORT, gateways.addresses[number])
                stack.callback(running[number].kill)
                copies.wait_for_more(50)
            for each in running:  # both at once
                each.kill()
            for number, address in enumerate(gateways.addresses):
                running[number] = GatewayProcess(str(root), SHORT, address)
                stack.callback(running[number].kill)
            copies.wait_for_more(50)
            copies.finish()
            expected = set(numbered(copies.counts[0]()))
            copies.workers[0].wait_for(
                lambda: set(output.read_text().splitlines()) == expected, "the sink lacks lines"
            )


TESTS = (
    exactly_once_source_writes_lines_and_offsets_in_one_transaction,
    tasks_that_are_restarted_fence_the_earlier_ones,
    killed_worker_is_replaced_and_comes_back,
    worker_that_stood_still_is_fenced,
    sinks_of_two_workers_share_partitions,
    gateways_are_killed_and_restarted,
)
