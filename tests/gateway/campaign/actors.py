"""All clients of a campaign: who they are, and who takes the place of one that has ended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from tests.gateway.campaign.client import Client, Place
from tests.gateway.campaign.java_tools import JavaCopier, JavaMember, JavaProducer, JavaTool
from tests.gateway.campaign.members import (
    CLASSIC,
    CONSUMER,
    Member,
    MemberEvent,
    PythonMember,
    RdkafkaMember,
)
from tests.gateway.campaign.producers import (
    EventProducer,
    OwnProducer,
    OwnTransactions,
    PythonProducer,
    RdkafkaProducer,
    RdkafkaTransactions,
)
from tests.gateway.campaign.readers import OwnReader, PythonReader, RdkafkaReader
from tests.gateway.campaign.root import DiskRoot, S3Root
from tests.gateway.campaign.workloads import Workload

CLASSIC_GROUP, CONSUMER_GROUP, COPIERS = "classic-group", "consumer-group", "copiers"
GROUPS = (CLASSIC_GROUP, CONSUMER_GROUP, COPIERS)

_COPIER_PAUSE_S = 6.0
"""Time until a copier that has copied everything is started again: a JVM's start is dear."""

_CONFIGS = {CLASSIC_GROUP: CLASSIC, CONSUMER_GROUP: CONSUMER}
_PROTOCOLS = {CLASSIC_GROUP: "classic", CONSUMER_GROUP: "consumer"}


class Actors:
    """The clients.

    Attributes:
        root: the root that they use.
        producers, transactions, readers, members: the clients on threads.
        java: the processes of Java, also those that have ended.
        workloads: the other clients.
        ended: those workloads whose processes were ended.
        failures: what must not happen, and did.
    """

    def __init__(
        self,
        root: DiskRoot | S3Root,
        place: Place,
        say: Callable[[str], None],
        *,
        with_java: bool = True,
        with_rdkafka_transactions: bool = True,
        workloads: Sequence[Workload] = (),
    ) -> None:
        self.root = root
        self.place = place
        self.failures: list[str] = []
        self._say = say
        self._numbers = count()
        self._copier_numbers = count()
        self.producers: list[EventProducer] = [
            RdkafkaProducer(place, "rdkafka-producer-1"),
            RdkafkaProducer(place, "rdkafka-producer-2"),
            PythonProducer(place, "python-producer"),
            OwnProducer(place, "own-producer"),
        ]
        self.workloads = workloads
        self.ended: list[Workload] = []
        for workload in workloads:
            self.producers += workload.producers()
        self.transactions: list[OwnTransactions | RdkafkaTransactions] = [
            OwnTransactions(place, "own-deals")
        ]
        if with_rdkafka_transactions:
            self.transactions.append(RdkafkaTransactions(place, "rdkafka-deals"))
        self.readers = [
            RdkafkaReader(place, "rdkafka-reader"),
            PythonReader(place, "python-reader"),
            OwnReader(place, "own-reader"),
        ]
        self.members: list[Member] = [
            self._new_member(group) for group in _CONFIGS for _ in range(2)
        ]
        self.members.append(PythonMember(place, "python-member", CLASSIC_GROUP))
        self._running: list[JavaTool] = []
        self._due: dict[str, float] = {}  # when a copier of a transactional id is started again
        self.java: list[JavaTool] = []
        if with_java:
            self._add(JavaProducer(place, "java-producer-9"))
            for group in _PROTOCOLS:
                self._add(self._new_java_member(group))
            for each in range(2):
                self._add(self._new_copier(f"copier-{each}"))

    def start(self) -> None:
        """Start all."""
        for each in self.clients():
            each.start()
        for tool in self._running:
            tool.start()
        for workload in self.workloads:
            workload.start()

    @property
    def have_begun(self) -> bool:
        """Whether all producers have begun."""
        producers: list[EventProducer | JavaProducer] = [*self.producers, *self.java_producers]
        begun = all(each.has_begun for each in producers)
        return begun and all(each.has_begun for each in self.workloads)

    def clients(self) -> Iterator[Client]:
        """Yield the clients on threads."""
        yield from (*self.producers, *self.transactions, *self.readers, *self.members)

    def tools(self, kind: str) -> list[JavaTool]:
        """Return the running processes of a kind: members or copiers."""
        wanted = JavaMember if kind == "members" else JavaCopier
        return [each for each in self._running if isinstance(each, wanted)]

    @property
    def java_producers(self) -> list[JavaProducer]:
        """The producers of Java."""
        return [each for each in self.java if isinstance(each, JavaProducer)]

    def look(self) -> None:
        """Start a process in the place of each that has ended."""
        for workload in self.workloads:
            if workload not in self.ended:
                workload.look()
        for tool in list(self._running):
            if tool.is_alive:
                continue
            # A copier ends when it has copied what was there when it began.
            is_done = isinstance(tool, JavaCopier) and tool.status == 0
            if not (tool.was_struck or is_done):
                self._say(f"{tool.name} ended by itself with status {tool.status}")
                self.failures.append(
                    f"{tool.name} ended by itself with {tool.status}:\n{tool.last_log_lines()}"
                )
            self._running.remove(tool)
            if isinstance(tool, JavaMember):
                self._add(self._new_java_member(tool.group)).start()
            elif isinstance(tool, JavaCopier):
                self._due[tool.transactional_id] = time.monotonic() + _COPIER_PAUSE_S * is_done
        for transactional_id, at_s in list(self._due.items()):
            if time.monotonic() >= at_s:
                del self._due[transactional_id]
                self._add(self._new_copier(transactional_id)).start()

    def replace_member(self, chance: random.Random) -> bool:
        """Let a member of librdkafka leave its group, and start another one."""
        running = [
            each for each in self.members if isinstance(each, RdkafkaMember) and each.is_alive
        ]
        leaving = chance.choice(running)
        if leaving.is_ending.is_set():
            return False
        leaving.end()
        member = self._new_member(leaving.group)
        self._say(f"{leaving.name} leaves {leaving.group}, {member.name} joins")
        self.members.append(member)
        member.start()
        return True

    def events(self) -> list[MemberEvent]:
        """Return what happened to the members of groups, also of those that have ended."""
        return [
            *(event for each in self.members for event in each.events),
            *(event for each in self.java for event in each.events()),
        ]

    def resume(self) -> None:
        """Continue all processes."""
        for each in self._running:
            while each.stops:
                each.resume()
        for workload in self.workloads:
            workload.resume()

    def kill(self) -> None:
        """End what still runs, after a failure of the campaign itself."""
        for client in self.clients():
            client.end()
        for each in self._running:
            if each.is_alive:
                each.kill()
        for workload in self.workloads:
            workload.close()

    def end_tools(self, kind: type[JavaTool]) -> None:
        """End the processes of one kind, and wait for them."""
        ending = [each for each in self._running if isinstance(each, kind)]
        for each in ending:
            each.end()
        for each in ending:
            each.join()
            self._running.remove(each)

    def all_failures(self) -> list[str]:
        """Return what must not happen, and did."""
        everyone: list[Client | JavaTool | Workload] = [
            *self.clients(),
            *self.java,
            *self.workloads,
        ]
        named = [f"{each.name}: {failure}" for each in everyone for failure in each.failures]
        return [*self.failures, *named]

    def _new_member(self, group: str) -> RdkafkaMember:
        return RdkafkaMember(
            self.place, f"rdkafka-member-{next(self._numbers)}", group, _CONFIGS[group]
        )

    def _new_java_member(self, group: str) -> JavaMember:
        name = f"java-member-{next(self._numbers)}"
        return JavaMember(self.place, name, group, _PROTOCOLS[group])

    def _new_copier(self, transactional_id: str) -> JavaCopier:
        name = f"java-{transactional_id}.{next(self._copier_numbers)}"
        return JavaCopier(self.place, name, COPIERS, transactional_id)

    def _add(self, tool: JavaTool) -> JavaTool:
        self._running.append(tool)
        self.java.append(tool)
        return tool
