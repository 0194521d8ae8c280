"""A topic with three replicas: brokers are fenced, and ``replicate`` brings replicas back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_log import Admin, NewTopic, SparkLogError
from spark_log.cluster import Cluster
from spark_log.replication import out_of_sync_replicas
from tests.faults.clean_process import CleanRole, replicate_until_stopped
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.faults.schedule import Schedule
from tests.gateway.campaign.client import SETTLE_S, Place
from tests.gateway.campaign.producers import EventProducer, RdkafkaProducer
from tests.gateway.campaign.topics import CONFIGS, PARTITIONS, REPLICATED
from tests.gateway.campaign.workloads.workload import Blow, Workload
from tests.replication.support import values_of

BROKERS = (1, 2, 3)
_REPLICATE_PAUSE_S = 2.0


class _ReplicatedProducer(RdkafkaProducer):
    """An idempotent producer of the replicated topic."""

    topic = REPLICATED


class Replicas(Workload):
    """Three brokers in directories, also beside a cluster's root on S3, and the job that copies.

    One broker at a time is fenced, while writers continue with the others. The cluster's root keeps
    all other topics but those that clients create, which may have their only replica on a broker
    that is fenced; so no broker is emptied here, as the campaigns of `tests.faults` do.

    ``spark-log replicate`` runs again and again: its code is that of ``jobs/replicate.py``, which
    spreads the partitions over Spark's tasks.
    """

    name = "replicas"

    def __init__(self, place: Place, folder: Path, say: Callable[[str], None]) -> None:
        super().__init__(place, folder, say)
        self._job: ManagedProcess | None = None
        self._away: threading.Thread | None = None
        self._fenced = 0

    def prepare(self, admin: Admin) -> None:
        self._admin = admin
        for broker_id in BROKERS:
            admin.register_broker(broker_id, self._path(broker_id))
        assignment = {0: (1, 2, 3), 1: (2, 3, 1)}
        assert len(assignment) == PARTITIONS[REPLICATED]
        configs = {**CONFIGS, "min.insync.replicas": "2"}
        admin.create_topics(
            [NewTopic(REPLICATED, replica_assignment=assignment, topic_configs=configs)]
        )

    def producers(self) -> list[EventProducer]:
        return [_ReplicatedProducer(self.place, "replicated-producer")]

    def start(self) -> None:
        properties = self.folder / "root.properties"
        options = (self.place.storage_options or {}).items()
        lines = [f"root={self.place.root}", *(f"storage.{key}={value}" for key, value in options)]
        properties.write_text("\n".join(lines))
        role = CleanRole(str(properties), str(self.folder / "replicate"), _REPLICATE_PAUSE_S)
        self._job = ManagedProcess.start(replicate_until_stopped, role)

    def blows(self) -> Mapping[str, tuple[int, Blow]]:
        return {"fence_broker": (2, self._fence)}

    def _fence(self, chance: random.Random, schedule: Schedule) -> bool:
        """Let a broker be away; on a thread, because the cluster's root may not answer."""
        if self._away is not None and self._away.is_alive():
            return False
        broker_id = chance.choice(BROKERS)
        pause_s = chance.uniform(1, 6)
        self._away = threading.Thread(target=self._leave, args=(broker_id, pause_s), daemon=True)
        self._away.start()
        return True

    def _leave(self, broker_id: int, pause_s: float) -> None:
        if not self._retried(lambda: not self._out_of_sync()):
            return  # a broker before it is not back yet
        self.say(f"broker {broker_id} is fenced for {pause_s:.1f} s")
        self._fenced += 1
        self._retried(lambda: self._admin.fence_broker(broker_id))
        time.sleep(pause_s)
        self._retried(lambda: self._admin.unfence_broker(broker_id))

    def _retried(self, call: Callable[[], object]) -> bool:
        """Call until it returns something true; return false after the time for it."""
        until_s = time.monotonic() + SETTLE_S
        error: Exception | None = None
        while time.monotonic() < until_s:
            try:
                if call():
                    return True
            except SparkLogError as found:
                error = found
            time.sleep(0.3)
        self.failures.append(f"a broker does not come back within {SETTLE_S} s: {error!r}")
        return False

    def _out_of_sync(self) -> int:
        cluster = self._cluster()
        try:
            return len(list(out_of_sync_replicas(cluster.image(), [REPLICATED], None)))
        finally:
            cluster.release()

    def _cluster(self) -> Cluster:
        return Cluster(self.place.root, self.place.storage_options)

    def _path(self, broker_id: int) -> Path:
        return self.folder / f"broker{broker_id}"

    def left(self) -> int:
        is_away = self._away is not None and self._away.is_alive()
        return self._out_of_sync() + is_away

    def end(self) -> None:
        assert self._job is not None
        if self._job.end() != 0:
            self.failures.append(f"replicate ended with {self._job.process.exitcode}")

    def close(self) -> None:
        if self._job is not None:
            self._job.signal(9)

    def findings(self) -> list[str]:
        """All replicas of a partition have the same records."""
        wrong = []
        cluster = self._cluster()
        topic = cluster.topic(REPLICATED)
        for number in range(PARTITIONS[REPLICATED]):
            found = [values_of(cluster.replica_log(topic, number, each)) for each in BROKERS]
            if found[0] != found[1] or found[0] != found[2]:
                counts = [len(each) for each in found]
                wrong.append(f"the replicas of partition {number} differ: {counts} records")
        cluster.release()
        return wrong

    def figures(self) -> dict[str, Any]:
        runs = sum(1 for _ in read_notes(self.folder / "replicate"))
        return {"fenced": self._fenced, "runs": runs}
