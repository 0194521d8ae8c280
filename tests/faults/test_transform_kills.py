"""Members that consume, transform and produce in transactions are killed and stopped.

Each record of the source is once in the target, as a reader of committed records sees it.
"""

import logging
import os
import random
import signal
import time
from collections import Counter

import pytest

from spark_log import Admin, ConfigResource, NewTopic, Producer
from tests.faults.fast_clock import SPEED
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.faults.transform_process import (
    GROUP,
    SOURCE,
    TARGET,
    TransformRole,
    transform_until_told,
)
from tests.producer.support import committed
from tests.waiting import wait_until

DURATION_S = float(os.environ.get("FAULTS_SECONDS", "6"))
"""Duration of the faults. A long run, which logs its events and results:

FAULTS_SECONDS=300 pytest tests/faults/test_transform_kills.py --log-cli-level=INFO
"""

SEED = int(os.environ.get("FAULTS_SEED", random.randrange(2**32)))
MEMBERS, PARTITIONS = 4, 4
SESSION_MS = 7000
UNSYNCED = {"flush.on.append": "false"}

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.INFO)


class Transformers:
    """The processes of the group; those that end are replaced."""

    def __init__(self, root, notes):
        self.random = random.Random(SEED)
        self.done: Counter[str] = Counter()
        self.ids: set[str] = set()
        self._root, self._notes = root, notes
        self._live: list[ManagedProcess] = []
        self._started = 0

    def start(self, transactional_id=None):
        self._started += 1
        name = f"member-{self._started}"
        transactional_id = transactional_id or f"tx-{self._started}"
        self.ids.add(transactional_id)
        role = TransformRole(
            self._root,
            name,
            transactional_id,
            str(self._notes / name),
            {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1000},
            {"transaction_timeout_ms": SESSION_MS},
        )
        self._live.append(ManagedProcess.start(transform_until_told, role))

    def afflict(self):
        """Kill a process, or stop one so long that the others take it for dead."""
        victim = self.random.choice(self._live)
        assert isinstance(victim.role, TransformRole)
        if self.random.random() < 0.6:
            self.done["killed"] += 1
            victim.signal(signal.SIGKILL)
            victim.process.join()
            self._live.remove(victim)
            # The next process has its transactional id, or one of its own.
            self.start(self.random.choice([victim.role.transactional_id, None]))
        else:
            self.done["stopped"] += 1
            victim.stop()
            time.sleep(self.random.choice([0.2, 1.5 * SESSION_MS / SPEED / 1000]))
            victim.resume()

    def replace_ended(self):
        """Replace processes that were fenced by others with their transactional id."""
        for each in [each for each in self._live if not each.process.is_alive()]:
            assert each.process.exitcode == 0, f"{each.role} failed"
            self._live.remove(each)
            self.done["fenced"] += 1
            self.start()

    def end(self):
        codes = [each.end() for each in self._live]
        assert codes == [0] * len(codes)


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    with Admin(root) as admin:
        admin.create_topics(
            [NewTopic(name, PARTITIONS, topic_configs=UNSYNCED) for name in (SOURCE, TARGET)]
        )
        admin.alter_configs(
            [ConfigResource("broker", "", {"group.min.session.timeout.ms": "1000"})]
        )
    return root


def test_each_record_is_transformed_once(root, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    _LOG.info("FAULTS_SEED=%d", SEED)  # pytest shows it if the test fails
    transformers = Transformers(root, notes)
    for _ in range(MEMBERS):
        transformers.start()
    sent = 0
    with Producer(root) as producer:
        until_s = time.monotonic() + DURATION_S
        while time.monotonic() < until_s:
            for _ in range(40):
                producer.send(SOURCE, b"%d" % sent, partition=sent % PARTITIONS)
                sent += 1
            producer.flush()
            time.sleep(0.1 * transformers.random.random())
            if transformers.random.random() < 0.2:
                transformers.afflict()
            transformers.replace_ended()

    with Admin(root) as admin:
        wait_until(
            lambda: sum(each.offset for each in admin.list_group_offsets(GROUP).values()) == sent,
            "the group does not come to the end",
            meanwhile=transformers.replace_ended,
            interval_s=0.2,
        )
    transformers.end()
    for transactional_id in transformers.ids:  # what killed processes have left open
        with Producer(root, transactional_id=transactional_id) as producer:
            producer.init_transactions()
    written = [path for path in notes.iterdir() if path.suffix != ".stderr"]
    outcomes = Counter(note[0] for path in written for note in read_notes(path))
    _LOG.info("done: %s; %d records; %s", dict(transformers.done), sent, dict(outcomes))
    found = Counter(int(each) for those in committed(root, TARGET).values() for each in those)
    assert {each: times for each, times in found.items() if times > 1} == {}
    assert found.keys() == set(range(sent))
