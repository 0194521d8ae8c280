"""A consumer group of real processes, while some are killed, stopped, and others come and go.

Six members or so share the partitions of two topics that grow while two producers write. The plan
comes from a seed; what the machine makes of it differs from run to run, what has to hold does not.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from spark_log import Admin, NewTopic
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.changes import subscribed_topics
from spark_log.metadata import Cluster
from spark_log.types import TopicPartition
from tests.faults.agenda import Agenda
from tests.faults.clock_shift import ClockShift
from tests.faults.group_cast import (
    LOOK_S,
    MAX_POLL_S,
    SESSION_S,
    SETTINGS,
    GroupCast,
    instance_id_of,
)
from tests.faults.group_history import GroupHistory, committed_rows
from tests.faults.group_member_process import GROUP
from tests.faults.group_reckoning import read_acknowledged, read_told, reckon_group, unbalanced
from tests.faults.pace import Pace

_MEMBERS = 6
_STATIC_MEMBERS = 2
_MOST_MEMBERS = 8
_LEAST_MEMBERS = 3
_PRODUCERS = 2
_TOPICS = {"chaos-a": 8, "chaos-b": 4}
_GROWTH = 3
"""Of each topic, at most."""

_ASSIGNORS = (["range"], ["roundrobin"], ["sticky"], ["cooperative-sticky"])
_BOTH = (("^chaos-",), tuple(_TOPICS))
_SUBSCRIPTIONS = (("chaos-a",), ("chaos-b",), *_BOTH)

_STEPS_TO_SETTLE = 200
"""So many steps (`Pace`) may lie between the last change and the handling of the last record, one
after the other, session timeouts aside; on a machine that is not busy that is little more than a
second."""


@dataclass
class GroupCampaign:
    """What is done to a group, and where its members leave their notes.

    Attributes:
        root: of a cluster with nothing in it yet.
        storage_options: of it.
        notes: a directory for the processes' files.
        seed: of the plan.
        without: name of a rule that the members do without.
        clocks: wall clocks that members and producers have in turn; none: the machine's.
        done: how often what was done.
        settled_s: how long the group took to settle after the last change.
        allowed_s: how long it might have: two session timeouts, and what the machine needs.
    """

    root: str
    storage_options: dict | None
    notes: Path
    seed: int
    without: str | None = None
    clocks: tuple[ClockShift, ...] = ()
    done: Counter = field(default_factory=Counter)
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
        self._cast = GroupCast(
            self.root,
            self.storage_options,
            self.notes,
            self._history,
            settings,
            self.without,
            self.clocks,
        )
        self._agenda = Agenda()

    def run(self, duration_s):
        """Afflict the group for so long, let it settle, and return when all have ended."""
        try:
            for number in range(_PRODUCERS):
                self._cast.start_producer(number, tuple(_TOPICS))
            for number in range(_MEMBERS):
                self._start(f"static-{number}" if number < _STATIC_MEMBERS else None)
            self._cast.wait_for(self._is_shared, "the group does not come together")
            self._afflict(time.monotonic() + duration_s)
            self._settle()
            self._cast.end()
        finally:
            self._cast.kill_all()

    def reckon(self):
        """Check what everybody noted, and return what there was, counted."""
        return {
            "members starved": self._cast.starved,
            **reckon_group(
                read_told(self._notes("member-")),
                read_acknowledged(self._notes("producer-")),
                {named: self._values(log) for named, log in self._logs().items()},
                self._history.groups(),
                committed_rows(self._cluster.store, GROUP),
            ),
        }

    def report(self):
        """Yield lines about what was done, and what came of it."""
        yield f"FAULTS_SEED={self.seed}, {self._assignors}:"
        yield from self._cast.steps
        yield f"the group is {self._history.latest}"
        for path in sorted(self.notes.glob("*.stderr")):
            lines = path.read_text(errors="replace").splitlines()
            yield f"--- {path.name}, {len(lines)} lines, the last ones:"
            yield from lines[-25:]

    # --- the plan ---------------------------------------------------------------------------------

    def _afflict(self, until_s):
        def strike():
            if time.monotonic() >= until_s:
                return
            blow = self._chance.choices(list(_BLOWS), list(_BLOWS.values()))[0]
            generation = self._history.latest.generation
            if getattr(self, f"_{blow}")() is not False:
                self.done[blow] += 1
            # The next one comes in the midst of what this one has caused, or after it.
            ends = (
                lambda: True,
                lambda: self._history.latest.generation > generation,
                self._is_shared,
            )
            is_time = self._chance.choice(ends)
            least_s = self._chance.uniform(0, SESSION_S / 4)
            most_s = time.monotonic() + least_s + SESSION_S * self._chance.uniform(0.5, 1.5)
            self._agenda.do_later(least_s, lambda: strike_when(is_time, most_s))

        def strike_when(is_time, most_s):
            if is_time() or time.monotonic() > most_s:
                strike()
            else:
                self._agenda.do_later(LOOK_S, lambda: strike_when(is_time, most_s))

        self._agenda.do_later(0, strike)
        self._agenda.run(self._cast.wait_until)

    def _kill(self):
        if len(self._cast.live) < _LEAST_MEMBERS:
            return False
        victim = self._one()
        self._cast.kill(victim)
        self._replace(victim)
        return None

    def _leave(self):
        running = [each for each in self._cast.live if not each.is_stopped]
        if len(running) < _LEAST_MEMBERS:
            return False
        victim = self._chance.choice(running)
        self._cast.let_leave(victim)
        self._replace(victim)
        return None

    def _replace(self, victim):
        """Start another one at once or later, or, where there are many, none."""
        instance_id = instance_id_of(victim)
        if instance_id is not None or len(self._cast.live) < _MEMBERS:
            wait_s = self._chance.choice([0, SESSION_S * self._chance.uniform(0, 2)])
            self._agenda.do_later(wait_s, lambda: self._start(instance_id))

    def _join(self):
        if len(self._cast.live) >= _MOST_MEMBERS:
            return False
        self._start(None)
        return None

    def _stop_for_short(self):
        self._stop(self._one(), self._chance.uniform(0.1, 0.8))

    def _stop_for_long(self):
        self._stop(self._one(), self._chance.uniform(1.2, 3))

    def _stop(self, victim, sessions):
        self._cast.stop(victim, sessions)
        self._agenda.do_later(sessions * SESSION_S, lambda: self._cast.resume(victim))

    def _stop_before_commit(self):
        """One stops with records in hand, and as a zombie goes on to commit them."""
        victim, cast = self._one(), self._cast
        sessions = self._chance.uniform(1.5, 3)
        times, most_s = cast.noted(victim, "hesitates"), time.monotonic() + SESSION_S
        cast.tell(victim, "hesitate")

        def stop_when_it_hesitates():
            if cast.noted(victim, "hesitates") > times:
                cast.stop(victim, sessions)
                self._agenda.do_later(sessions * SESSION_S, go_on)
            elif time.monotonic() < most_s:
                self._agenda.do_later(LOOK_S, stop_when_it_hesitates)
            else:
                cast.tell(victim, "go_on")

        def go_on():
            cast.tell(victim, "go_on")
            cast.resume(victim)

        self._agenda.do_later(LOOK_S, stop_when_it_hesitates)

    def _take_place(self):
        """A static member stops, and goes on as a zombie after another process took its place."""
        static = [each for each in self._cast.live if instance_id_of(each) is not None]
        if not static:
            return False
        victim = self._chance.choice(static)
        self._stop(victim, self._chance.uniform(0.5, 2))
        self._cast.dismiss(victim)
        self._start(instance_id_of(victim))
        return None

    def _add_partitions(self):
        name = self._chance.choice(list(_TOPICS))
        if self._sizes[name] >= _TOPICS[name] + _GROWTH:
            return False
        self._sizes[name] += 1
        self._cast.say(f"{name} grows to {self._sizes[name]}")
        self._admin.create_partitions({name: self._sizes[name]})
        return None

    def _subscribe(self):
        self._cast.tell(self._one(), "subscribe", self._chance.choice(_SUBSCRIPTIONS))

    def _dawdle(self):
        self._cast.tell(self._one(), "dawdle", MAX_POLL_S * self._chance.uniform(0.9, 1.3))

    def _one(self):
        return self._chance.choice(self._cast.live)

    def _start(self, instance_id):
        commits = self._chance.choice(["sync", "async", "auto"])
        self._cast.start(self._chance.choice(_BOTH), commits, instance_id)

    # --- the end ----------------------------------------------------------------------------------

    def _settle(self):
        """Let all come to rest, kill one more, and see how long the group needs."""
        cast = self._cast
        while len(cast.live) <= _MEMBERS:
            self._start(None)
        for each in cast.live:
            cast.tell(each, "subscribe", _BOTH[1])
        cast.wait_for(self._is_at_rest, "the group does not come together again")
        cast.kill(self._one())
        with Pace(self._cluster.store) as pace:
            cast.let_producers_end()
            cast.wait_for(self._is_at_rest, "what the last one had is not shared out")
            cast.say("everything is shared out again", is_change=False)
            cast.wait_for(self._is_handled, "not everything is handled")
            self.settled_s = time.monotonic() - cast.changed_s
            self.allowed_s = 2 * SESSION_S + _STEPS_TO_SETTLE * pace.step_s()
        cast.say("everything is handled", is_change=False)
        wrong = unbalanced(self._history.latest)
        assert wrong is None, f"the group has settled, but {wrong}"
        took = f"it took {self.settled_s:.1f} s to settle, allowed were {self.allowed_s:.1f} s"
        assert self.settled_s <= self.allowed_s, took

    def _is_shared(self):
        """Whether those who live are members, and nobody else, and have everything."""
        group = self._history.latest
        names = sorted(each.role.name for each in self._cast.live)
        return (
            sorted(member.client_id for member in group.members.values()) == names
            and group.state == "Stable"
            and not any(group.unowned())
            and {name: topic.partitions for name, topic in group.topics.items()} == self._sizes
        )

    def _is_at_rest(self):
        """Whether, besides, who was to end has ended, and all subscribe to both topics."""
        group = self._history.latest
        return (
            self._is_shared()
            and not self._cast.going
            and {subscribed_topics(member, group.topics) for member in group.members.values()}
            == {tuple(sorted(_TOPICS))}
            and self._cast.have_obeyed()
        )

    def _is_handled(self):
        """Whether, besides, the group's positions are the ends of the partitions."""
        ends = {named: log.log_end_offset() for named, log in self._logs().items()}
        committed = self._table.fetch(GROUP)
        stands = {named: committed[named].offset if named in committed else 0 for named in ends}
        return stands == ends and self._is_at_rest()

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
        columns = [batch.records.column("value") for batch in log.scan(0)]
        return [value for column in columns for value in column.to_pylist()]

    def _notes(self, prefix):
        return sorted(path for path in self.notes.glob(f"{prefix}*") if not path.suffix)


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
"""How often what is done, in proportion."""
