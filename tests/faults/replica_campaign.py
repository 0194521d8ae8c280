"""A campaign against a replicated topic: roots fail and are emptied, processes are killed."""

import logging
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import DuplicateBrokerRegistrationError, InvalidRootError, SparkLogError
from spark_log.replication import ClusterRecovery, out_of_sync_replicas
from tests.faults.broker_roots import BROKERS
from tests.faults.managed_process import ManagedProcess
from tests.faults.replica_process import (
    PARTITIONS,
    REQUEST_TIMEOUT_MS,
    TOPIC,
    ReplicaRole,
    control_until_stopped,
    read_until_stopped,
    write_until_stopped,
)
from tests.waiting import wait_until

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)

_CLUSTER_CONFIG = {
    "replica.lag.time.max.ms": 2_000,
    "leader.imbalance.check.interval.seconds": 2,
}
_TOPIC_CONFIG = {
    "flush.on.append": "false",
    "merge.tail.segments": "8",
    "min.insync.replicas": "2",
}


class Campaign:
    """Two writers, a reader and a controller of a topic on three brokers, and their faults.

    One root fails at a time. All replicas are in sync again before the next root fails.
    """

    def __init__(self, folder, roots, seed, acks=("all", "all")):
        """Create the topic, and start all processes.

        Args:
            folder: directory for the cluster's root and the notes.
            roots: the brokers' `BrokerRoots`.
            seed: determines the plan.
            acks: the ``acks`` of each writer. If a writer does not wait for all in-sync replicas,
                leaders fail while they have records that the others lack.
        """
        self.root = str(folder / "cluster")
        self.roots = roots
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._started = 0
        self._everyone = []
        with self._admin() as admin:
            admin.create_topics([NewTopic("first")])
            admin.alter_configs([ConfigResource("broker", "", _CLUSTER_CONFIG)])
            for broker_id in BROKERS:
                admin.register_broker(broker_id, roots.urls[broker_id])
            assignment = {number: self._shuffled() for number in range(PARTITIONS)}
            topic = NewTopic(
                TOPIC, PARTITIONS, replica_assignment=assignment, topic_configs=_TOPIC_CONFIG
            )
            admin.create_topics([topic])
        self._leaves_behind = set(acks) != {"all"}
        self._workers = [self._start(write_until_stopped, each) for each in acks]
        self._workers.append(self._start(control_until_stopped))
        self._start(read_until_stopped)

    def run(self, faults, *, while_they_write=False):
        """Inject one fault after the other; return when all processes have ended.

        Args:
            faults: number of faults; 0: each kind once.
            while_they_write: let only roots fail, while the writers append.
        """
        kinds = self._kinds()
        if while_they_write:
            kinds = [each for each in kinds if each[0] == "emptied" or "while" in each[0]]
        faults = faults or len(kinds)
        plan = self._plan(kinds, faults)
        try:
            self._go_on()
            for number, (name, hit) in enumerate(plan):
                _log.info("fault %d of %d: %s", number + 1, faults, name)
                hit()
                self.done[name] += 1
                self._bring_back()
                self._go_on()
            ended = {each.role.name: each.end() for each in self._everyone}
            self._bring_back()  # the controller may have moved a leader at the end
        finally:
            for each in self._everyone:
                each.signal(signal.SIGKILL)
        wrong = {name: code for name, code in ended.items() if code not in (0, -signal.SIGKILL)}
        assert not wrong, f"ended by themselves or were stuck: {wrong}"

    def writers(self, acks):
        """Return the names of all writers with these ``acks``."""
        return {each.role.name for each in self._everyone if each.role.acks == acks}

    def cluster(self):
        """Return the cluster as a new process sees it."""
        return Cluster(
            self.root, broker_options=self.roots.options, request_timeout_ms=REQUEST_TIMEOUT_MS
        )

    # --- faults ----------------------------------------------------------------------------------

    def _kinds(self):
        """Return all kinds of faults: name and function."""
        kinds = [("process killed", self._kill), ("emptied", self._empty)]
        for name in self.roots.failures:
            kinds += [
                (name, partial(self._fail, name)),
                (f"{name} briefly", partial(self._fail_briefly, name)),
                (f"{name}, then emptied", partial(self._fail_forever, name)),
                (f"{name} while they write", partial(self._fail_under_writers, name)),
            ]
            if self._leaves_behind:
                kinds.append((f"leader {name}, then emptied", partial(self._fail_leader, name)))
        return kinds

    def _plan(self, kinds, faults):
        """Return the faults in a random order that repeats a kind only after all others."""
        plan: list[tuple[str, Callable[[], None]]] = []
        while len(plan) < faults:
            plan += self._chance.sample(kinds, len(kinds))
        return plan[:faults]

    def _fail(self, name):
        """Let a root fail until it has left all in-sync replicas."""
        with self._failing(name):
            pass

    def _fail_briefly(self, name):
        """Let a root fail for a moment, which may go unnoticed."""
        with self.roots.failures[name](self._chance.choice(BROKERS)):
            pass

    def _fail_under_writers(self, name):
        """Let a root fail while its writers append."""
        broker_id = self._chance.choice(BROKERS)
        with self.roots.failures[name](broker_id):
            self._go_on()
            wait_until(lambda: not self._is_in_sync(broker_id), "the root that fails stays in sync")

    def _fail_forever(self, name, broker_id=None):
        """Let a root fail, and register it again without its data."""
        with self._failing(name, broker_id) as failed:
            self._fence(failed)
        self._register_empty(failed)

    def _fail_leader(self, name):
        """Let a leader's root fail forever while its writers append."""
        partition = self._chance.randrange(PARTITIONS)
        self._fail_forever(name, self.cluster().topic(TOPIC).partitions[partition].leader)

    def _empty(self):
        """Let a root lose its data under its writers and readers."""
        broker_id = self._chance.choice(BROKERS)
        self.roots.empty(broker_id)
        self._go_on()
        self._fence(broker_id)
        self._register_empty(broker_id)

    def _kill(self):
        """Kill a writer or the controller; another one takes its place."""
        number = self._chance.randrange(len(self._workers))
        killed, work = self._workers[number]
        killed.signal(signal.SIGKILL)
        killed.process.join()
        self._workers[number] = self._start(work, killed.role.acks)

    @contextmanager
    def _failing(self, name, broker_id=None):
        if broker_id is None:
            broker_id = self._chance.choice(BROKERS)
        with ExitStack() as failing:
            with self._workers_stopped():
                failing.enter_context(self.roots.failures[name](broker_id))
            self._go_on()
            wait_until(lambda: not self._is_in_sync(broker_id), "the root that fails stays in sync")
            yield broker_id

    @contextmanager
    def _workers_stopped(self):
        for each, _ in self._workers:
            each.stop()
        yield
        for each, _ in self._workers:
            each.resume()

    def _is_in_sync(self, broker_id):
        partitions = self.cluster().topic(TOPIC).partitions.values()
        return any(broker_id in each.isr for each in partitions)

    def _fence(self, broker_id):
        with self._admin() as admin:
            admin.fence_broker(broker_id)

    def _register_empty(self, broker_id):
        def is_registered():
            self.roots.empty(broker_id)
            try:
                with self._admin() as admin:
                    # The controller may have seen the root with its data again, and unfenced it.
                    admin.fence_broker(broker_id)
                    admin.register_broker(broker_id, self.roots.urls[broker_id])
            except InvalidRootError as error:  # a late put of a writer that is not up to date
                _log.info("%s", error)
                return False
            except DuplicateBrokerRegistrationError as error:  # a late decision of the controller
                _log.info("%s", error)
                return False
            return True

        wait_until(is_registered, "an empty root cannot be registered")

    # --- progress --------------------------------------------------------------------------------

    def _bring_back(self):
        """Replicate until all replicas are in sync. The controller does so at the same time."""

        def all_are_in_sync():
            cluster = self.cluster()
            missing = out_of_sync_replicas(cluster.image())
            for each in ClusterRecovery(cluster).run(missing):
                if each.error is not None:
                    _log.info("%s: %s", each.replica, each.error)
            return not out_of_sync_replicas(cluster.image())

        wait_until(all_are_in_sync, "a replica does not come back")

    def _go_on(self):
        """Wait until more records can be read in every partition."""
        before = self._ends()
        wait_until(
            lambda: all(end >= start + 20 for end, start in zip(self._ends(), before, strict=True)),
            "nobody appends",
            interval_s=0.05,
        )

    def _ends(self):
        cluster = self.cluster()
        topic = cluster.topic(TOPIC)
        try:
            return [
                cluster.partition_log(topic, number).observe().log_end_offset
                for number in range(PARTITIONS)
            ]
        except SparkLogError as error:
            assert error.retriable, error  # noqa: PT017 - not what is tested
            return [-1] * PARTITIONS

    # --- the cluster -----------------------------------------------------------------------------

    def _admin(self):
        return Admin(
            self.root,
            broker_storage_options=self.roots.options,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def _shuffled(self):
        return self._chance.sample(BROKERS, len(BROKERS))

    def _start(self, work, acks="all"):
        name = f"{work.__name__.partition('_')[0]}-{self._started}"
        role = ReplicaRole(self.root, self.roots.options, acks, str(self.notes / name))
        self._started += 1
        self._everyone.append(ManagedProcess.start(work, role))
        return self._everyone[-1], work
