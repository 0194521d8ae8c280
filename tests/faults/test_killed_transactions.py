"""Transactional producers are killed and replaced: a transaction is seen whole or not at all."""

import logging
import os
import random
import signal
import time
from collections import Counter, defaultdict

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from tests.faults.conftest import with_and_without_stripes
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.faults.transactional_process import PARTITIONS, Transactor, transact_until_stopped
from tests.waiting import wait_until

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "5"))
SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
IDS = ("a", "b")

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


@pytest.fixture
def place(address, stripes):
    """Return the address and the storage options of a root with a topic."""
    root, options = address
    with Admin(root, storage_options=options) as admin:
        config = {
            "flush.on.append": "false",
            "merge.tail.segments": "8",
            "stripes": str(stripes),
        }
        admin.create_topics([NewTopic("t", PARTITIONS, topic_configs=config)])
    return address


class Campaign:
    """One process for each transactional id, and the zombies that were replaced."""

    def __init__(self, place, notes, seed):
        self.root, self.options = place
        self.notes = notes
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._incarnations: Counter[str] = Counter()
        self._everyone = []
        self._present = {each: self._start(each) for each in IDS}

    def run(self, duration_s):
        """Strike at random moments, and return when all processes have ended."""
        until_s = time.monotonic() + duration_s
        stopped = []
        try:
            while time.monotonic() < until_s:
                time.sleep(self._chance.uniform(0.02, 0.8))
                stopped += self._strike()
                if stopped and self._chance.random() < 0.5:
                    stopped.pop(0).resume()
            for each in stopped:
                each.resume()
            wait_until(lambda: "committed" in outcomes(self.notes).values(), "nobody commits")
            ended = {each.role.mark: each.end() for each in self._everyone}
        finally:
            for each in self._everyone:
                each.signal(signal.SIGKILL)
        wrong = {name: code for name, code in ended.items() if code not in (0, -signal.SIGKILL)}
        assert not wrong, f"ended by themselves or were stuck: {wrong}"

    def _strike(self):
        """Kill a process, or stop it; let another one take over its transactional id."""
        transactional_id = self._chance.choice(IDS)
        victim = self._present[transactional_id]
        stopped = []
        if self._chance.random() < 0.7:
            self.done["killed"] += 1
            victim.signal(signal.SIGKILL)
            victim.process.join()
        else:
            self.done["stopped"] += 1
            victim.stop()
            stopped.append(victim)
        self._present[transactional_id] = self._start(transactional_id)
        return stopped

    def _start(self, transactional_id):
        number = self._incarnations[transactional_id]
        self._incarnations[transactional_id] += 1
        notes = str(self.notes / f"{transactional_id}.{number}")
        role = Transactor(self.root, self.options, transactional_id, number, notes)
        self._everyone.append(ManagedProcess.start(transact_until_stopped, role))
        return self._everyone[-1]


def outcomes(notes):
    """Return the last note on each transaction, by its mark."""
    known: dict[str, str] = {}
    for path in notes.iterdir():
        for state, *number in read_notes(path):
            if number:
                known[f"{path.name}.{number[0]}"] = state
    return known


def check(place, notes):
    """Check what readers see against the notes; return counts."""
    root, options = place
    known = outcomes(notes)
    visible: dict[str, Counter[str]] = defaultdict(Counter)
    everything = set()
    cluster = Cluster(root, options)
    topic = cluster.topic("t")
    for partition in range(PARTITIONS):
        log = cluster.partition_log(topic, partition)
        assert log.transactions().open == (), "a transaction hangs"
        newest: dict[str, tuple[int, int]] = {}
        writers: dict[str, list[str]] = {each: [""] for each in IDS}
        for value in _values(log, "read_committed"):
            transactional_id, incarnation, number, *record = value.split(".")
            visible[f"{transactional_id}.{incarnation}.{number}"][".".join(record)] += 1
            # A process that is stopped before it begins may take over from a later one.
            if writers[transactional_id][-1] != incarnation:
                assert incarnation not in writers[transactional_id], "it was fenced"
                writers[transactional_id].append(incarnation)
            writer = f"{transactional_id}.{incarnation}"
            assert newest.get(writer, (-1, -1)) < (int(number), int(record[1])), "not in order"
            newest[writer] = int(number), int(record[1])
        everything |= {value.rsplit(".", 3)[0] for value in _values(log, "read_uncommitted")}
    counts: Counter[str] = Counter()
    for transaction, records in visible.items():
        count = int(next(iter(records)).split(".")[2])
        whole = {f"{at}.{each}.{count}": 1 for at in range(PARTITIONS) for each in range(count)}
        assert records == whole, f"{transaction} is {known[transaction]}, and torn or doubled"
        assert known[transaction] in ("committing", "committed"), transaction
        counts[f"visible, {known[transaction]}"] += 1
    lost = {each for each in known if known[each] == "committed"} - visible.keys()
    assert not lost, f"committed and not visible: {sorted(lost)}"
    counts["in the log and not visible"] = len(everything - visible.keys())
    return counts


def _values(log, isolation_level):
    for batch in log.scan(log.observe().log_start_offset, isolation_level=isolation_level):
        for value in batch.records.column("value").to_pylist():
            yield value.decode()


@with_and_without_stripes(4, both_on_disk=True)
def test_transactions_are_whole_or_not_seen_although_their_producers_are_killed_and_stopped(
    place, tmp_path
):
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    campaign = Campaign(place, notes, SEED)
    campaign.run(DURATION_S)
    for each in IDS:
        with Producer(place[0], storage_options=place[1], transactional_id=each) as producer:
            producer.init_transactions(timeout=60)
    found = check(place, notes)
    _LOG.info("done: %s; found: %s", dict(campaign.done), dict(found))
    assert found["visible, committed"]
