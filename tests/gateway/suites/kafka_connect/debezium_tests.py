"""Debezium's connector for PostgreSQL in distributed workers, through deaths of workers."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from tests.gateway.connect.debezium import connector_config, debezium_worker
from tests.gateway.connect.postgres import Postgres, running_postgres
from tests.gateway.suites.kafka_connect.place import EXACTLY_ONCE, Place, names_of_workers

_ROWS = 500


class Orders:
    """A table whose rows have a version, which each change increments."""

    def __init__(self, postgres: Postgres, name: str) -> None:
        self.postgres = postgres
        self.name = name
        self._ending = threading.Event()
        postgres.sql(
            f"create table {name} (id int primary key, version int not null);"
            f"insert into {name} select n, 0 from generate_series(1, {_ROWS}) n"
        )

    @property
    def changes(self) -> int:
        """The number of changes that are committed."""
        return sum(self.rows().values())

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change rows for the block, about ten transactions a second of ten changes each."""
        thread = threading.Thread(target=self._change)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _change(self) -> None:
        first = 1
        while not self._ending.wait(0.1):
            with suppress(RuntimeError):  # while the database is down
                self.postgres.sql(
                    f"update {self.name} set version = version + 1"
                    f" where id between {first} and {first + 9}"
                )
            first = (first + 9) % _ROWS + 1

    def rows(self) -> dict[int, int]:
        """Return the version of each row."""
        lines = self.postgres.sql(f"select id, version from {self.name}").splitlines()
        return {
            int(row): int(version) for row, _, version in (each.partition("|") for each in lines)
        }


def debezium_sends_a_snapshot_and_all_changes(place: Place) -> None:
    with running_postgres() as postgres:
        orders = Orders(postgres, "orders")
        settings = names_of_workers("debezium")
        servers = place.gateways.bootstrap_servers
        with debezium_worker(place.folder, servers, settings) as worker:
            worker.put("plain", connector_config(postgres, "public.orders", prefix="plain"))
            topic = "plain.public.orders"
            found = [_change(each) for each in place.topics.lines(topic, _ROWS)]
            assert [each["op"] for each in found] == ["r"] * _ROWS
            with orders.changing():
                worker.wait_for(lambda: orders.changes >= 300, "the table does not change")
            count = _ROWS + orders.changes + 3  # with a tombstone
            postgres.sql("insert into orders values (0, 7); delete from orders where id = 2")
            records = place.topics.records(topic, count)
            assert len(records) == count
            assert [each.key for each in records[-3:]] == [b'{"id":0}', b'{"id":2}', b'{"id":2}']
            assert records[-1].value is None
            latest = {each.key: each.value for each in records}
            rows = {
                json.loads(key)["id"]: _change(value.decode())["after"]["version"]
                for key, value in latest.items()
                if key is not None and value is not None
            }
            assert rows == orders.rows()


def debezium_is_exactly_once_while_workers_are_killed(place: Place) -> None:
    with running_postgres() as postgres, ExitStack() as stack:
        orders = Orders(postgres, "orders")
        settings = {**names_of_workers("debezium-once"), **EXACTLY_ONCE}
        servers = place.gateways.bootstrap_servers
        first, second = (
            stack.enter_context(
                debezium_worker(place.folder, servers, settings, name=f"debezium-once-{number}")
            )
            for number in range(2)
        )
        config = connector_config(
            postgres, "public.orders", prefix="once", exactly_once_support="required"
        )
        topic = "once.public.orders"
        first.put("once", config)
        place.topics.lines(topic, _ROWS)
        with orders.changing():
            for number in range(4):
                workers = {first.address: first, second.address: second}
                (owner,) = first.wait_for(lambda: first.owners("once"), "no task runs")
                if number == 3:  # the database is restarted as well
                    postgres.stop()
                    postgres.start()
                    first.ask("POST", "/connectors/once/restart?includeTasks=true")
                else:
                    workers[owner].kill()
                    workers[owner].start()
                    workers[owner].wait_until_ready()
                place.topics.lines(topic, _ROWS + orders.changes + 100)
        place.topics.lines(topic, _ROWS + orders.changes)
        versions: dict[int, list[int]] = defaultdict(list)
        for each in place.topics.lines(topic):
            row = _change(each)["after"]
            versions[row["id"]].append(row["version"])
        expected = {row: list(range(last + 1)) for row, last in orders.rows().items()}
        wrong = {row: versions[row] for row in expected if versions[row] != expected[row]}
        assert wrong == {}
        assert versions.keys() == expected.keys()


def _change(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


TESTS = (
    debezium_sends_a_snapshot_and_all_changes,
    debezium_is_exactly_once_while_workers_are_killed,
)
