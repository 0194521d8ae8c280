"""Debezium's connector for PostgreSQL, in a distributed worker of Kafka Connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.kafka_broker import fetch_jars
from benchmarks.kafka_connect import DistributedWorker
from tests.gateway.connect.postgres import Postgres
from tests.gateway.processes import free_port

ARTIFACTS = ("io.debezium:debezium-connector-postgres:3.6.1.Final",)

_JSON = "org.apache.kafka.connect.json.JsonConverter"
JSON_SETTINGS: Mapping[str, object] = {
    "key.converter": _JSON,
    "value.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
"""Settings of a worker whose records are JSON without schemas."""


@cache
def debezium_jars() -> Path:
    """Return the folder with the jars of the connector."""
    return fetch_jars("debezium", ARTIFACTS)


def debezium_plugins(folder: Path) -> Path:
    """Return a folder for a worker's ``plugin.path``, which is made in an existing one."""
    plugins = folder / "plugins"
    plugins.mkdir(exist_ok=True)
    debezium = plugins / "debezium"
    if not debezium.exists():
        debezium.symlink_to(debezium_jars())
    return plugins


def connector_config(
    postgres: Postgres, tables: str, *, prefix: str = "shop", **settings: object
) -> dict[str, object]:
    """Return the config of a connector that sends the changes of tables.

    The topic of ``public.orders`` is ``shop.public.orders``.

    Args:
        postgres: the database.
        tables: the tables with their schemas, with commas between them.
        prefix: the first part of the names of topics.
        settings: more settings, with ``_`` for ``.``.
    """
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": postgres.port,
        "database.user": "postgres",
        "database.password": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "slot.name": prefix,
        "publication.name": prefix,
        "table.include.list": tables,
        # The server lets go of the slot of a worker that was killed only when it notices.
        "slot.max.retries": 60,
        "slot.retry.delay.ms": 1000,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }


@contextmanager
def debezium_worker(
    folder: Path,
    bootstrap_servers: str,
    settings: Mapping[str, object] | None = None,
    *,
    name: str = "debezium",
) -> Iterator[DistributedWorker]:
    """Run a distributed worker that has Debezium for the block.

    Its three topics are ``connect-configs``, ``connect-offsets`` and ``connect-status``, its group
    is ``workers``: workers with the same settings share their work.

    Args:
        folder: an existing folder for its files.
        bootstrap_servers: the gateways.
        settings: more settings of the worker.
        name: its name, which another worker in the folder does not have.
    """
    more = {"plugin.path": debezium_plugins(folder), **JSON_SETTINGS, **(settings or {})}
    with DistributedWorker(folder, name, bootstrap_servers, free_port(), more) as worker:
        yield worker
