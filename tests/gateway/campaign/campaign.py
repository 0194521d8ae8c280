"""`GatewayCampaign`: runs gateways, clients and faults, lets all come to rest, and checks."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_log import Admin, ConfigResource, Consumer, TopicPartition
from spark_log.cluster import Cluster
from tests.faults.clean_process import CleanRole, clean_until_stopped
from tests.faults.clock_shift import ClockShift, library
from tests.faults.group_history import committed_rows_of
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.gateway.campaign import checks
from tests.gateway.campaign.actors import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    GROUPS,
    Actors,
)
from tests.gateway.campaign.client import SETTLE_S, Place
from tests.gateway.campaign.fault_plan import FaultPlan
from tests.gateway.campaign.gateways import Gateways
from tests.gateway.campaign.java_tools import JavaCopier, JavaMember, JavaProducer
from tests.gateway.campaign.members import PythonMember
from tests.gateway.campaign.readers import RdkafkaReader, text
from tests.gateway.campaign.root import DiskRoot, S3Root
from tests.gateway.campaign.topics import CLUSTER, EVENTS, PARTITIONS, new_topics, partitions_of
from tests.gateway.campaign.workloads import WORKLOADS
from tests.waiting import wait_until

_CLEAN_PAUSE_S = 2.0
_BEGIN_S = 600
"""Maximum time until all clients have begun: programs in Java start slowly on a busy machine."""


@dataclass
class GatewayCampaign:
    """One campaign.

    Attributes:
        folder: an empty directory for everything.
        store: ``disk`` or ``s3``.
        gateways: number of gateways.
        seed: determines the plan of faults.
        seconds: duration of the faults.
        rate: records per second of each producer.
        with_java: whether the programs of Java take part.
        with_rdkafka_transactions: whether transactions of librdkafka take part.
        workloads: the names of the `WORKLOADS` that take part.
        progress: called with a line for each event.
    """

    folder: Path
    store: str
    gateways: int
    seed: int
    seconds: float
    rate: float = 20.0
    with_java: bool = True
    with_rdkafka_transactions: bool = True
    workloads: Sequence[str] = ()
    progress: Callable[[str], None] = lambda line: None
    findings: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Run the campaign, and return its report."""
        self._began_s = time.monotonic()
        self._notes = self.folder / "notes"
        self._notes.mkdir()
        root = DiskRoot(self.folder) if self.store == "disk" else S3Root(self.folder)
        with contextlib.ExitStack() as stack:
            stack.callback(root.close)
            return self._run(root, stack)

    def _run(self, root: DiskRoot | S3Root, stack: contextlib.ExitStack) -> dict[str, Any]:
        clocks: list[ClockShift] = []
        if "clock" in root.faults and library() is not None:
            paths = (self.folder / f"clock-{each}" for each in range(self.gateways))
            clocks = [ClockShift(path) for path in paths]
        gateways = Gateways(root, self.gateways, self._notes, self.seed, clocks)
        stack.callback(gateways.close)
        self._storage_options = root.storage_options
        self._cluster = Cluster(root.url, root.storage_options, create=True)
        stack.callback(self._cluster.release)
        self._admin = Admin(root.url, storage_options=root.storage_options)
        place_of_clients = Place(
            root.url,
            root.storage_options,
            gateways.addresses,
            self._notes,
            self.seed,
            self.rate,
        )
        workloads = []
        for name in self.workloads:
            folder = self.folder / name
            folder.mkdir()
            workload = WORKLOADS[name](place_of_clients, folder, self._say)
            stack.callback(workload.close)
            workload.prepare(self._admin)
            workloads.append(workload)
        self._admin.create_topics(new_topics(exist=self._admin.list_topics()))
        self._admin.alter_configs([ConfigResource("broker", "", CLUSTER)])
        for place in gateways.places:
            gateways.start(place)
            assert place.process is not None
            assert place.process.wait_for_line(), gateways.look() or gateways.failures
        actors = Actors(
            root,
            place_of_clients,
            self._say,
            with_java=self.with_java,
            with_rdkafka_transactions=self.with_rdkafka_transactions,
            workloads=workloads,
        )
        stack.callback(actors.kill)
        actors.start()
        cleaner = self._start_cleaner(root)
        stack.callback(cleaner.signal, 9)
        wait_until(
            lambda: actors.have_begun,
            "the producers do not begin",
            timeout_s=_BEGIN_S,
            interval_s=0.5,
        )
        plan = FaultPlan(gateways, actors, self.seed, self._say)
        plan.run(self.seconds)
        self._say("the faults are over")
        actors.resume()
        logs = self._settle(gateways, actors)
        if cleaner.end() != 0:
            self._find("cleaner", [f"it ended with {cleaner.process.exitcode}"])
        self._check(gateways, actors, logs)
        return self._report(plan, actors, logs)

    # --- the end ---------------------------------------------------------------------------------

    def _settle(self, gateways: Gateways, actors: Actors) -> checks.Logs:
        """Let everything come to rest; return the logs."""

        def look() -> None:
            for place in gateways.look():
                gateways.start(place)
            for place in gateways.places:
                if place.process is None:
                    gateways.start(place)
            actors.look()

        look()
        for each in (*actors.producers, *actors.transactions):
            each.end()
        actors.end_tools(JavaProducer)
        for each in (*actors.producers, *actors.transactions):
            each.join()
        for workload in actors.workloads:
            workload.end_input()
        self._say("the producers have ended")
        self._settle_workloads(actors, look)
        ends = self._ends()
        events = {each: end for each, end in ends.items() if each.topic == EVENTS}
        for group in self._groups:

            def left(group: str = group) -> int:
                found = self._committed(group)
                return sum(abs(end - found.get(each, 0)) for each, end in events.items())

            if self._wait(left, look):
                self._say(f"{group} has read everything")
            else:
                self._find("stuck", [f"{group} committed {self._committed(group)} of {events}"])
        actors.end_tools(JavaCopier)
        actors.end_tools(JavaMember)
        for member in actors.members:
            member.end()
        for member in actors.members:
            member.join()
            if member.failures:
                self._say(f"{member.name}: {member.failures[-1]}")
        self._say("the groups are empty")
        logs = self._read_logs(actors.place)
        lasts = {each: log[-1][0] + 1 for each, log in logs.items() if log}
        fresh: list[Any] = [
            RdkafkaReader(actors.place, f"last-reader-{number}")
            for number in range(len(gateways.places))
        ]
        for each in fresh:
            actors.readers.append(each)
            each.start()
        self._settle_readers(actors, lasts, look)
        return logs

    def _settle_readers(
        self, actors: Actors, lasts: Mapping[TopicPartition, int], look: Callable[[], None]
    ) -> None:
        """Wait until the readers have read all records, and end them."""
        for reader in actors.readers:

            def unread(reader: Any = reader) -> int:
                if not reader.is_alive:
                    return 0  # it has said why
                return sum(max(0, end - reader.positions[each]) for each, end in lasts.items())

            if not self._wait(unread, look):
                behind = {
                    str(each): (reader.positions[each], end)
                    for each, end in lasts.items()
                    if reader.positions[each] < end
                }
                self._find("stuck", [f"{reader.name} is behind, position and end: {behind}"])
            reader.end()
        for reader in actors.readers:
            reader.join()

    def _settle_workloads(self, actors: Actors, look: Callable[[], None]) -> None:
        """Wait until the workloads have all results, and end them."""
        for workload in actors.workloads:
            if self._wait(workload.left, look):
                self._say(f"{workload.name}: all results are there")
            else:
                self._find("stuck", [f"{workload.name}: {workload.left()} results are missing"])
            actors.ended.append(workload)
            workload.end()

    def _wait(self, left: Callable[[], int], meanwhile: Callable[[], None]) -> bool:
        """Wait until nothing is left; return false if nothing changes for long."""
        least = None
        while found := left():
            if least is None or found < least:
                least, until_s = found, time.monotonic() + SETTLE_S
            elif time.monotonic() > until_s:
                return False
            meanwhile()
            time.sleep(0.3)
        return True

    @property
    def _groups(self) -> tuple[str, ...]:
        """The groups that have members."""
        return GROUPS if self.with_java else (CLASSIC_GROUP, CONSUMER_GROUP)

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        found = self._admin.list_group_offsets(group)
        return {each: position.offset for each, position in found.items()}

    def _ends(self) -> dict[TopicPartition, int]:
        with self._consumer() as consumer:
            found: dict[TopicPartition, int] = consumer.end_offsets(partitions_of(*PARTITIONS))
            return found

    def _read_logs(self, place: Place) -> checks.Logs:
        """Read all topics by our own consumer, which needs no gateway."""
        found: dict[TopicPartition, list[tuple[int, str]]] = {
            each: [] for each in partitions_of(*PARTITIONS)
        }
        with self._consumer() as consumer:
            consumer.assign(list(found))
            ends = consumer.end_offsets(list(found))
            until_s = time.monotonic() + SETTLE_S
            while any(consumer.position(each) < end for each, end in ends.items()):
                if time.monotonic() > until_s:
                    positions = {str(each): (consumer.position(each), ends[each]) for each in found}
                    self._find("stuck", [f"our consumer does not reach the end: {positions}"])
                    break
                for each, records in consumer.poll(timeout_ms=300).items():
                    found[each] += [(record.offset, text(record.value)) for record in records]
        return found

    def _consumer(self) -> Consumer:
        return Consumer(
            root=self._cluster.root,
            storage_options=self._storage_options,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )

    # --- the results -----------------------------------------------------------------------------

    def _check(self, gateways: Gateways, actors: Actors, logs: checks.Logs) -> None:
        self._say("checking")
        operations = checks.all_operations(self._notes, actors.java, actors.java_producers, logs)
        for workload in actors.workloads:
            operations += workload.operations()
        self._operations = operations
        events = actors.events()
        with (self._notes / "events").open("w") as lines:
            lines.writelines(f"{each}\n" for each in sorted(events, key=lambda each: each.at_s))
        python_members = {each.name for each in actors.members if isinstance(each, PythonMember)}
        groups = (CLASSIC_GROUP, CONSUMER_GROUP)
        committed = {group: self._committed(group) for group in groups}
        self._find("history", checks.check_operations(operations))
        for workload in actors.workloads:
            self._find(workload.name, workload.findings())
        if self.with_java:
            self._find("copies", checks.check_copies(logs))
        for group, rows in committed_rows_of(self._cluster.store, self._groups).items():
            wrong = checks.check_positions(rows)
            self._find("positions", [f"{group}: {each}" for each in wrong])
        self._find("commits", checks.check_commits(events, committed, python_members))
        self._find("owners", checks.check_owners(events))
        self._find("unread", checks.check_all_read(events, logs, groups))
        self._find("clients", actors.all_failures())
        self._find("gateways", [*gateways.failures, *gateways.error_lines()])

    def _report(self, plan: FaultPlan, actors: Actors, logs: checks.Logs) -> dict[str, Any]:
        outcomes: Counter[str] = Counter()
        for each in actors.transactions:
            outcomes.update({f"{key}": count for key, count in each.outcomes.items()})
        copiers = [each for each in actors.java if isinstance(each, JavaCopier)]
        described = self._admin.describe_groups(self._groups)
        sends = checks.acknowledged_sends(self._operations)
        cleaned = Counter(next(iter(fields)) for fields in read_notes(self._notes / "cleaner"))
        return {
            "seed": self.seed,
            "store": self.store,
            "gateways": self.gateways,
            "fault_seconds": self.seconds,
            "seconds": round(time.monotonic() - self._began_s),
            "records": {
                name: sum(len(log) for each, log in logs.items() if each.topic == name)
                for name in PARTITIONS
            },
            "acknowledged": dict(sends),
            "transactions": dict(outcomes),
            "copier_transactions": sum(sum(each.stages().values()) for each in copiers),
            "generations": {name: group.generation for name, group in described.items()},
            "faults": dict(plan.done),
            "cleanings": dict(cleaned),
            "workloads": {each.name: each.figures() for each in actors.workloads},
            "findings": self.findings,
        }

    def _find(self, what: str, lines: list[str]) -> None:
        if lines:
            self.findings.setdefault(what, []).extend(lines)
            self._say(f"{what}: " + "\n    ".join(lines[:5]))

    def _say(self, text: str) -> None:
        self.progress(f"{time.monotonic() - self._began_s:7.1f} {text}")

    def _start_cleaner(self, root: DiskRoot | S3Root) -> ManagedProcess:
        """Run ``spark-log clean`` again and again, on all topics."""
        properties = self.folder / "root.properties"
        options = (root.storage_options or {}).items()
        lines = [f"root={root.url}", *(f"storage.{key}={value}" for key, value in options)]
        properties.write_text("\n".join(lines))
        role = CleanRole(str(properties), str(self._notes / "cleaner"), _CLEAN_PAUSE_S)
        started: ManagedProcess = ManagedProcess.start(clean_until_stopped, role)
        return started
