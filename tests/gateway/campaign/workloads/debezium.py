"""Debezium on PostgreSQL with exactly-once support: each change of a row is one record."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.kafka_connect import DistributedWorker, RestError
from spark_log import Admin, Consumer, NewTopic, TopicPartition
from tests.faults.schedule import Schedule
from tests.gateway.campaign.client import REQUEST_TIMEOUT_MS, SETTLE_S
from tests.gateway.campaign.producers import TRANSACTION_TIMEOUT_MS
from tests.gateway.campaign.readers import text
from tests.gateway.campaign.topics import CONFIGS
from tests.gateway.campaign.workloads.workload import Blow, Workload
from tests.gateway.connect.debezium import JSON_SETTINGS, connector_config, debezium_plugins
from tests.gateway.connect.postgres import running_postgres
from tests.gateway.processes import free_port

_TOPIC, _ROWS = "shop.public.orders", 20
_FIRST_ROW = 1_000
"""The row that is there before Debezium reads the table, and does not change."""
_PAUSE_S = 0.7
"""Pause between two transactions of the database: each is a process of ``psql``."""

_CLIENTS = {
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "metadata.max.age.ms": 2000,
    "metadata.recovery.rebootstrap.trigger.ms": 5000,
    "reconnect.backoff.max.ms": 500,
}
_SETTINGS: dict[str, object] = {
    **JSON_SETTINGS,
    **_CLIENTS,
    **{f"producer.{key}": value for key, value in _CLIENTS.items()},
    **{f"consumer.{key}": value for key, value in _CLIENTS.items()},
    **{f"admin.{key}": value for key, value in _CLIENTS.items()},
    "exactly.once.source.support": "enabled",
}


class DebeziumSource(Workload):
    """A worker of Kafka Connect that is killed and paused, and a table that changes.

    Each row has a version, which each change increments: a record is lost, or there twice, if the
    versions of a row are not 0, 1, 2 and so on.
    """

    name = "debezium"

    def prepare(self, admin: Admin) -> None:
        admin.create_topics([NewTopic(_TOPIC, 2, topic_configs=CONFIGS)])
        self._stack = ExitStack()
        self._postgres = self._stack.enter_context(running_postgres())
        self._postgres.sql("create table orders (id int primary key, version int not null)")
        self._versions: dict[int, list[int]] = defaultdict(list)
        self._reader = Consumer(
            root=self.place.root,
            storage_options=self.place.storage_options,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._reader.assign([TopicPartition(_TOPIC, each) for each in range(2)])
        self._last: dict[int, int] | None = None
        self._worker: DistributedWorker | None = None
        self._is_struck = False
        self._is_paused = False
        self._restarts = 0
        self._failed_tasks: Counter[str] = Counter()
        self._ending = threading.Event()
        self._is_streaming = threading.Event()
        self._changes = threading.Thread(target=self._change, daemon=True)
        self._operator = threading.Thread(target=self._operate, daemon=True)
        self._has_ended = threading.Event()

    def start(self) -> None:
        settings = {**_SETTINGS, "plugin.path": debezium_plugins(self.folder)}
        self._worker = DistributedWorker(
            self.folder, "debezium", self.place.bootstrap, free_port(), settings
        )
        self._worker.start()
        self._postgres.sql(f"insert into orders values ({_FIRST_ROW}, 0)")
        self._operator.start()
        self._changes.start()

    def _change(self) -> None:
        """Insert rows, and give them versions; several changes may be in one transaction."""
        chance = random.Random(f"{self.place.seed} orders")
        rows: list[int] = []
        self._is_streaming.wait()
        while not self._ending.wait(_PAUSE_S):
            statements = []
            for _ in range(chance.randint(1, 5)):
                if len(rows) < _ROWS and chance.random() < 0.3:
                    rows.append(len(rows))
                    statements.append(f"insert into orders values ({rows[-1]}, 0);")
                elif rows:
                    row = chance.choice(rows)
                    statements.append(f"update orders set version = version + 1 where id = {row};")
            try:
                if statements:
                    self._postgres.sql("\n".join(statements))
            except RuntimeError as error:
                self.failures.append(f"the database: {error}")
                return

    @property
    def has_begun(self) -> bool:
        self._read()
        if _FIRST_ROW in self._versions:
            self._is_streaming.set()  # the snapshot is done: it has each change from now on
        return self._is_streaming.is_set()

    def look(self) -> None:
        worker = self._worker
        assert worker is not None
        if not worker.is_alive:
            if not self._is_struck:
                self.failures.append(f"the worker ended by itself:\n{worker.last_log_lines()}")
            self._is_struck = False
            self._restarts += 1
            worker.start()

    def blows(self) -> Mapping[str, tuple[int, Blow]]:
        return {"kill_worker": (1, self._kill), "pause_worker": (1, self._pause)}

    def _kill(self, chance: random.Random, schedule: Schedule) -> bool:
        worker = self._worker
        if worker is None or not worker.is_alive or self._is_paused:
            return False
        self.say("the worker of Kafka Connect: kill")
        self._is_struck = True
        worker.kill()
        return True

    def _pause(self, chance: random.Random, schedule: Schedule) -> bool:
        if self._worker is None or not self._worker.is_alive or self._is_paused:
            return False
        pause_s = chance.uniform(4, 20)
        self.say(f"the worker of Kafka Connect: pause for {pause_s:.1f} s")
        self._is_paused = True
        self._worker.pause()
        schedule.do_later(pause_s, self.resume)
        return True

    def resume(self) -> None:
        if self._is_paused and self._worker is not None:
            self._is_paused = False
            self._worker.resume()

    def end_input(self) -> None:
        self._ending.set()
        self._changes.join(SETTLE_S)
        lines = self._postgres.sql("select id, version from orders").splitlines()
        pairs = (each.split("|") for each in lines)
        self._last = {int(row): int(version) for row, version in pairs}

    def left(self) -> int:
        assert self._last is not None
        self._read()
        return sum(
            version + 1 - len(set(self._versions[row])) for row, version in self._last.items()
        )

    def _operate(self) -> None:
        """Restart a task that has failed, which Kafka Connect leaves to its operator.

        A task fails, as at a Kafka broker, if a transaction of it timed out.
        """
        worker = self._worker
        assert worker is not None
        is_known = False
        while not self._has_ended.wait(2):
            try:
                if self._is_paused:
                    continue
                if not is_known:
                    worker.request("PUT", "/connectors/shop/config", self._config())
                    is_known = True
                elif "FAILED" in worker.states("shop"):
                    self._note_failures(worker.failures("shop"))
                    worker.request(
                        "POST", "/connectors/shop/restart?includeTasks=true&onlyFailed=true"
                    )
            except (OSError, RestError):
                continue  # it does not listen yet, or its group has a rebalance

    def _config(self) -> dict[str, str]:
        found = connector_config(
            self._postgres,
            "public.orders",
            exactly_once_support="required",
            producer_override_transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        return {name: str(value) for name, value in found.items()}

    def _note_failures(self, traces: Sequence[str]) -> None:
        for trace in traces:
            causes = [each for each in trace.splitlines() if "Caused by" in each]
            self._failed_tasks[(causes or trace.splitlines()[:1])[-1][:200]] += 1

    def _read(self) -> None:
        for records in self._reader.poll(timeout_ms=100).values():
            for each in records:
                row = json.loads(text(each.value))["after"]
                self._versions[row["id"]].append(row["version"])

    def end(self) -> None:
        assert self._worker is not None
        self._has_ended.set()
        self._worker.close(30)
        self._read()

    def close(self) -> None:
        if not hasattr(self, "_stack"):
            return
        self._ending.set()
        self._is_streaming.set()
        self._has_ended.set()
        self.resume()
        if self._worker is not None and self._worker.is_alive:
            self._worker.kill()
        self._stack.close()

    def findings(self) -> list[str]:
        assert self._last is not None
        wrong = []
        for row, last in self._last.items():
            found = self._versions[row]
            if found != [*range(last + 1)]:
                at = next((n for n, each in enumerate(found) if each != n), len(found))
                around = found[max(0, at - 2) : at + 3]
                wrong.append(
                    f"row {row} has versions up to {last}; the topic has {len(found)}, and number "
                    f"{at} is in {around}"
                )
        return wrong

    def figures(self) -> dict[str, Any]:
        return {
            "changes": sum(map(len, self._versions.values())),
            "rows": len(self._versions),
            "restarts": self._restarts,
            "failed_tasks": dict(self._failed_tasks),
        }
