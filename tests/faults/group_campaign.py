"""A consumer group of real processes, which are killed, stopped, and join and leave.

About six members share the partitions of two topics, which get more partitions while two producers
write. The plan comes from a seed. The timing differs from run to run; the guarantees must hold in
every run.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.group_decisions import subscribed_topics
from spark_log.types import TopicPartition
from tests.coordinator.group_support import unowned
from tests.faults.clock_shift import ClockShift
from tests.faults.group_checks import read_member_notes, reckon_group, unbalanced
from tests.faults.group_history import GroupHistory, committed_rows
from tests.faults.group_member_process import GROUP
from tests.faults.group_processes import (
    LOOK_S,
    MAX_POLL_S,
    SESSION_S,
    SETTINGS,
    GroupProcesses,
    instance_id_of,
)
from tests.faults.machine_speed import MachineSpeed
from tests.faults.operation_notes import read_operations
from tests.faults.schedule import Schedule
from tests.log.support import values

_MEMBERS = 6
_STATIC_MEMBERS = 2
_MOST_MEMBERS = 8
_LEAST_MEMBERS = 3
_PRODUCERS = 2
_TOPICS = {"chaos-a": 8, "chaos-b": 4}
_GROWTH = 3
"""Maximum number of partitions that are added to each topic."""

_ASSIGNORS = (["range"], ["roundrobin"], ["sticky"], ["cooperative-sticky"])
_BOTH = (("^chaos-",), tuple(_TOPICS))
_SUBSCRIPTIONS = (("chaos-a",), ("chaos-b",), *_BOTH)

_STEPS_TO_SETTLE = 200
"""Maximum number of steps (`MachineSpeed`), one after another, without session timeouts, from the
last change to the handling of the last record; little more than a second on an idle machine."""


@dataclass
class GroupCampaign:
    """The plan of one campaign, and its results.

    Attributes:
        root: an empty root.
        storage_options: the root's options.
        notes: directory for the processes' notes.
        seed: determines the plan.
        without: name of a safety rule that the members leave out.
        clocks: wall clocks of members and producers, in turn; empty: the machine's clock.
        done: number of faults of each kind.
        settled_s: time that the group took to settle after the last change.
        allowed_s: the maximum for that: two session timeouts, and time for this machine's speed.
    """

    root: str
    storage_options: dict[str, str] | None
    notes: Path
    seed: int
    without: str | None = None
    clocks: tuple[ClockShift, ...] = ()
    done: Counter[str] = field(default_factory=Counter)
    settled_s: float | None = None
    allowed_s: float | None = None

    def __post_init__(self):
        self._chance = random.Random(self.seed)
        self._admin = Admin(self.root, storage_options=self.storage_options)
        topics = [NewTopic(name, num_partitions=count) for name, count in _TOPICS.items()]
        self._admin.create_topics(topics)
        self._sizes = dict(_TOPICS)
        self._cluster = Cluster(self.root, self.storage_options)
        self._table = OffsetsTable(self._cluster)
        self._history = GroupHistory(self._cluster.store, GROUP)
        self._assignors = self._chance.choice(_ASSIGNORS)
        settings = {**SETTINGS, "partition_assignment_strategy": self._assignors}
        self._processes = GroupProcesses(
            self.root,
            self.storage_options,
            self.notes,
            self._history,
            settings,
            self.without,
            self.clocks,
        )
        self._schedule = Schedule()

    def run(self, duration_s):
        """Inject faults for a duration, let the group settle, and return when all have ended."""
        try:
            for number in range(_PRODUCERS):
                self._processes.start_producer(number, tuple(_TOPICS))
            for number in range(_MEMBERS):
                self._start(f"static-{number}" if number < _STATIC_MEMBERS else None)
            self._processes.wait_for(self._is_shared, "the group does not come together")
            self._inject_faults(time.monotonic() + duration_s)
            self._settle()
            self._processes.end()
        finally:
            self._processes.kill_all()

    def check_results(self):
        """Check the notes of all processes, and return counts."""
        return {
            "members starved": self._processes.starved,
            **reckon_group(
                read_member_notes(
                    path for path in sorted(self.notes.glob("member-*")) if not path.suffix
                ),
                read_operations(self.notes),
                {tp: self._values(log) for tp, log in self._logs().items()},
                self._history.groups(),
                committed_rows(self._cluster.store, GROUP),
            ),
        }

    def report(self):
        """Yield lines about the faults and the results."""
        yield f"FAULTS_SEED={self.seed}, {self._assignors}:"
        yield from self._processes.steps
        yield f"the group is {self._history.latest}"
        for path in sorted(self.notes.glob("*.stderr")):
            lines = path.read_text(errors="replace").splitlines()
            yield f"--- {path.name}, {len(lines)} lines, the last ones:"
            yield from lines[-25:]

    # --- the plan ---------------------------------------------------------------------------------

    def _inject_faults(self, until_s):
        def strike():
            if time.monotonic() >= until_s:
                return
            blow = self._chance.choices(list(_BLOWS), list(_BLOWS.values()))[0]
            generation = self._history.latest.generation
            if getattr(self, f"_{blow}")() is not False:
                self.done[blow] += 1
            # The next fault comes during the effects of this one, or after them.
            ends = (
                lambda: True,
                lambda: self._history.latest.generation > generation,
                self._is_shared,
            )
            is_time = self._chance.choice(ends)
            least_s = self._chance.uniform(0, SESSION_S / 4)
            most_s = time.monotonic() + least_s + SESSION_S * self._chance.uniform(0.5, 1.5)
            self._schedule.do_later(least_s, lambda: strike_when(is_time, most_s))

        def strike_when(is_time, most_s):
            if is_time() or time.monotonic() > most_s:
                strike()
            else:
                self._schedule.do_later(LOOK_S, lambda: strike_when(is_time, most_s))

        self._schedule.do_later(0, strike)
        self._schedule.run(self._processes.wait_until)

    def _kill(self):
        if len(self._processes.live) < _LEAST_MEMBERS:
            return False
        victim = self._one()
        self._processes.kill(victim)
        self._replace(victim)
        return None

    def _leave(self):
        running = [each for each in self._processes.live if not each.is_stopped]
        if len(running) < _LEAST_MEMBERS:
            return False
        victim = self._chance.choice(running)
        self._processes.let_leave(victim)
        self._replace(victim)
        return None

    def _replace(self, victim):
        """Start a replacement at once or later, or none if there are many members."""
        instance_id = instance_id_of(victim)
        if instance_id is not None or len(self._processes.live) < _MEMBERS:
            wait_s = self._chance.choice([0, SESSION_S * self._chance.uniform(0, 2)])
            self._schedule.do_later(wait_s, lambda: self._start(instance_id))

    def _join(self):
        if len(self._processes.live) >= _MOST_MEMBERS:
            return False
        self._start(None)
        return None

    def _stop_for_short(self):
        self._stop(self._one(), self._chance.uniform(0.1, 0.8))

    def _stop_for_long(self):
        self._stop(self._one(), self._chance.uniform(1.2, 3))

    def _stop(self, victim, sessions):
        self._processes.stop(victim, sessions)
        self._schedule.do_later(sessions * SESSION_S, lambda: self._processes.resume(victim))

    def _stop_before_commit(self):
        """Stop a member before its commit; it continues as a zombie, and tries to commit."""
        victim, processes = self._one(), self._processes
        sessions = self._chance.uniform(1.5, 3)
        times, most_s = processes.noted(victim, "hesitates"), time.monotonic() + SESSION_S
        processes.tell(victim, "hesitate")

        def stop_when_it_hesitates():
            if processes.noted(victim, "hesitates") > times:
                processes.stop(victim, sessions)
                self._schedule.do_later(sessions * SESSION_S, go_on)
            elif time.monotonic() < most_s:
                self._schedule.do_later(LOOK_S, stop_when_it_hesitates)
            else:
                processes.tell(victim, "go_on")

        def go_on():
            processes.tell(victim, "go_on")
            processes.resume(victim)

        self._schedule.do_later(LOOK_S, stop_when_it_hesitates)

    def _take_place(self):
        """Stop a static member; it continues as a zombie after another process took its place."""
        static = [each for each in self._processes.live if instance_id_of(each) is not None]
        if not static:
            return False
        victim = self._chance.choice(static)
        self._stop(victim, self._chance.uniform(0.5, 2))
        self._processes.dismiss(victim)
        self._start(instance_id_of(victim))
        return None

    def _add_partitions(self):
        name = self._chance.choice(list(_TOPICS))
        if self._sizes[name] >= _TOPICS[name] + _GROWTH:
            return False
        self._sizes[name] += 1
        self._processes.say(f"{name} grows to {self._sizes[name]}")
        self._admin.create_partitions({name: self._sizes[name]})
        return None

    def _subscribe(self):
        self._processes.tell(self._one(), "subscribe", self._chance.choice(_SUBSCRIPTIONS))

    def _dawdle(self):
        self._processes.tell(self._one(), "dawdle", MAX_POLL_S * self._chance.uniform(0.9, 1.3))

    def _one(self):
        return self._chance.choice(self._processes.live)

    def _start(self, instance_id):
        commits = self._chance.choice(["sync", "async", "auto"])
        self._processes.start(self._chance.choice(_BOTH), commits, instance_id)

    # --- the end ----------------------------------------------------------------------------------

    def _settle(self):
        """Wait until the group is at rest, kill one member, and measure the time to settle."""
        processes = self._processes
        while len(processes.live) <= _MEMBERS:
            self._start(None)
        for each in processes.live:
            processes.tell(each, "subscribe", _BOTH[1])
        processes.wait_for(self._is_at_rest, "the group does not come together again")
        processes.kill(self._one())
        with MachineSpeed(self._cluster.store) as speed:
            processes.let_producers_end()
            processes.wait_for(self._is_at_rest, "the killed member's partitions have no owner")
            processes.say("everything is shared out again", is_change=False)
            processes.wait_for(self._is_handled, "not everything is handled")
            self.settled_s = time.monotonic() - processes.changed_s
            self.allowed_s = 2 * SESSION_S + _STEPS_TO_SETTLE * speed.step_s()
        processes.say("everything is handled", is_change=False)
        wrong = unbalanced(self._history.latest)
        assert wrong is None, f"the group has settled, but {wrong}"
        took = f"it took {self.settled_s:.1f} s to settle, allowed were {self.allowed_s:.1f} s"
        assert self.settled_s <= self.allowed_s, took

    def _is_shared(self):
        """Whether exactly the live processes are members, and own all partitions."""
        group = self._history.latest
        names = sorted(each.role.name for each in self._processes.live)
        return (
            sorted(member.client_id for member in group.members.values()) == names
            and group.state == "Stable"
            and not unowned(group)
            and {name: topic.partitions for name, topic in group.topics.items()} == self._sizes
        )

    def _is_at_rest(self):
        """Whether, in addition, all ending processes have ended, and all have both topics."""
        group = self._history.latest
        return (
            self._is_shared()
            and not self._processes.going
            and {subscribed_topics(member, group.topics) for member in group.members.values()}
            == {tuple(sorted(_TOPICS))}
            and self._processes.have_obeyed()
        )

    def _is_handled(self):
        """Whether, in addition, the committed offsets are the partitions' end offsets."""
        ends = {named: log.observe().log_end_offset for named, log in self._logs().items()}
        committed = self._table.fetch(GROUP)
        offsets = {named: committed[named].offset if named in committed else 0 for named in ends}
        return offsets == ends and self._is_at_rest()

    # --- helpers ----------------------------------------------------------------------------------

    def _logs(self):
        image = self._cluster.image()
        return {
            TopicPartition(name, number): self._cluster.partition_log(image.topic(name), number)
            for name in _TOPICS
            for number in image.topic(name).partitions
        }

    @staticmethod
    def _values(log):
        return [(offset, value.decode()) for offset, value in values(log)]


_BLOWS = {
    "kill": 5,
    "leave": 3,
    "join": 4,
    "stop_for_short": 3,
    "stop_for_long": 3,
    "stop_before_commit": 4,
    "take_place": 2,
    "add_partitions": 2,
    "subscribe": 2,
    "dawdle": 1,
}
"""The relative rates of the faults."""
