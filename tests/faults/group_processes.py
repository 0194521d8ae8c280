"""The processes of a group: starts and signals them, and watches them and the group's log.

The test fails at once if a process ends by itself or with an error.
"""

import signal
import time
from contextlib import suppress
from multiprocessing.connection import wait

from tests.faults.fast_clock import SPEED
from tests.faults.group_member_process import MemberRole, consume_until_stopped
from tests.faults.group_producer_process import ProducerRole, produce_until_stopped
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes

SESSION_S = 14 / SPEED
MAX_POLL_S = 42 / SPEED
SETTINGS = {
    "session_timeout_ms": 14_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 42_000,
    "auto_commit_interval_ms": 3_000,
}
LOOK_S = 0.1
PATIENCE_S = 120
"""Maximum time to wait for any state of the group."""


class GroupProcesses:
    """The members and producers of one group.

    Attributes:
        live: processes that should be members; they may be stopped.
        going: processes that have to end, or were replaced; they end by themselves.
        steps: lines of the events, with their times in seconds.
        starved: number of members that the group expired although they ran.
        changed_s: monotonic time of the last event that changes the group.
    """

    def __init__(self, root, storage_options, notes, history, settings, without, clocks=()):
        """Begin without processes.

        Args:
            root: the cluster's root.
            storage_options: the root's options.
            notes: directory for the processes' notes.
            history: the group's log.
            settings: the configs of all consumers.
            without: name of a safety rule that members leave out.
            clocks: wall clocks of members and producers, in turn; empty: the machine's clock.
        """
        self._clocks = clocks
        self.live, self.going = [], []
        self.steps = []
        self.starved = 0
        self.changed_s = self._began_s = self._looked_s = time.monotonic()
        self._root, self._storage_options = root, storage_options
        self._notes = notes
        self._history = history
        self._settings = settings
        self._without = without
        self._producers = []
        self._numbers = 0

    # --- members ----------------------------------------------------------------------------------

    def start(self, topics, commits, instance_id=None):
        """Start a member with these topics and kind of commits; static if it has an id."""
        self._numbers += 1
        name = f"member-{self._numbers}"
        static = {} if instance_id is None else {"group_instance_id": instance_id}
        role = MemberRole(
            self._root,
            self._storage_options,
            name,
            str(self._notes / name),
            topics,
            commits,
            {**self._settings, **static},
            self._without,
        )
        running = ManagedProcess.start(consume_until_stopped, role, self._clock(self._numbers))
        self.live.append(running)
        self.say(f"started{'' if instance_id is None else ' as ' + instance_id}", running)

    def kill(self, victim):
        """Send SIGKILL to a member."""
        self.say("killed", victim)
        victim.signal(signal.SIGKILL)
        victim.process.join()
        self.live.remove(victim)

    def let_leave(self, victim):
        """Let a member close its consumer, and end."""
        self.say("has to leave", victim)
        victim.let_end()
        self.dismiss(victim)

    def dismiss(self, victim):
        """Expect a member to end by itself."""
        self.live.remove(victim)
        self.going.append(victim)

    def stop(self, victim, sessions):
        """Send SIGSTOP to a member, which is to be stopped for this number of session timeouts."""
        self.say(f"stopped for {sessions:.1f} session timeouts", victim)
        victim.stop()

    def resume(self, victim):
        """Send SIGCONT to a member, unless another stop of it has not ended."""
        victim.resume()
        if not victim.is_stopped:
            self.say("continued", victim)

    def tell(self, victim, order, *arguments):
        """Send an order to a member; the methods of `GroupProcess` are the orders."""
        self.say(f"order: {order} {' '.join(map(str, arguments))}", victim)
        with suppress(BrokenPipeError):  # it was killed
            if not victim.pipe.closed:
                victim.tell(order, *arguments)

    def have_obeyed(self):
        """Return whether all members have carried out their orders."""
        return all(self.noted(each, "obeyed") >= each.orders for each in self.live)

    @staticmethod
    def noted(running, kind):
        """Return the number of lines of a kind in a member's notes."""
        with suppress(FileNotFoundError):  # it has just been started
            return sum(fields[0] == kind for fields in read_notes(running.role.notes))
        return 0

    # --- producers --------------------------------------------------------------------------------

    def start_producer(self, number, topics):
        """Start a producer."""
        name = f"producer-{number}"
        notes = str(self._notes / name)
        role = ProducerRole(self._root, self._storage_options, name, notes, topics)
        clock = self._clock(number)
        self._producers.append(ManagedProcess.start(produce_until_stopped, role, clock))

    def _clock(self, number):
        return self._clocks[number % len(self._clocks)] if self._clocks else None

    def let_producers_end(self):
        """Let the producers wait for their acknowledgements, and end."""
        for each in self._producers:
            each.let_end()
        self.going += self._producers
        self._producers = []

    # --- the end ----------------------------------------------------------------------------------

    def end(self):
        """Let all members leave, in turn."""
        for each in [*self.live, *self.going]:
            code = each.end()
            assert code == 0, f"{each.role.name} ended with {code}"
        self._look()
        for path in self._notes.glob("*.stderr"):  # an error in a thread or a callback
            assert "Traceback" not in path.read_text(errors="replace"), f"exceptions in {path.name}"

    def kill_all(self):
        """Kill all processes."""
        for each in self._everyone():
            each.signal(signal.SIGKILL)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_for(self, condition, complaint):
        """Wait until a condition holds, by checking it repeatedly."""
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < until_s, f"{complaint}: {self._history.latest}"
            self.wait_until(time.monotonic() + LOOK_S)

    def wait_until(self, at_s):
        """Wait until a monotonic time, and watch the processes meanwhile."""
        while True:
            now_s = time.monotonic()
            if now_s >= self._looked_s + LOOK_S:
                self._look()
                self._looked_s = now_s
            watched = {each.process.sentinel: each for each in self._everyone()}
            for sentinel in wait(list(watched), max(0, min(at_s - now_s, LOOK_S))):
                self._take_end(watched[sentinel])
            if time.monotonic() >= at_s:
                return

    def say(self, what, who=None, *, is_change=True):
        """Add a line to the steps."""
        now_s = time.monotonic()
        if is_change:
            self.changed_s = now_s
        whom = "" if who is None else f"{who.role.name} "
        self.steps.append(f"{now_s - self._began_s:7.2f}  {whom}{what}")

    def _take_end(self, ended):
        code = ended.process.exitcode
        instance_id = instance_id_of(ended)
        heirs = [each for each in self.going if instance_id_of(each) == instance_id]
        if ended in self.live and instance_id is not None and heirs:
            # It was expired when the member that it had replaced continued and joined again.
            self.say("has lost its place again", ended)
            self.dismiss(ended)
            self.going.remove(heirs[0])
            self.live.append(heirs[0])
        assert ended in self.going, f"{ended.role.name} ended by itself: {code}"
        assert code == 0, f"{ended.role.name} ended with {code}"
        self.going.remove(ended)

    def _look(self):
        """Read the group's log; an expired member that runs was starved, which is a change."""
        running = {each.role.name for each in self.live if not each.is_stopped}
        before = self._history.latest.members
        for record in self._history.look():
            if record.change == "expire":
                gone = {before[each].client_id for each in record.changed_members if each in before}
                is_starved = not running.isdisjoint(gone)
                self.starved += is_starved
                what = f"generation {record.generation} expires {', '.join(sorted(gone))}"
                self.say(what, is_change=is_starved)
            before = {member.member_id: member for member in record.members}

    def _everyone(self):
        return [*self.live, *self.going, *self._producers]


def instance_id_of(running):
    """Return the ``group.instance.id`` of a static member; None for others."""
    return getattr(running.role, "settings", {}).get("group_instance_id")
