"""A gateway in a Spark task, without Spark: the address that its clients are told."""

import asyncio
from typing import Any, cast

import pytest

from spark_log.config import GatewayConfig
from spark_log.jobs.task import GatewayTask


class Server:
    """The start of a gateway's server, without a socket."""

    async def start(self, host, port, *, advertised):
        self.advertised = advertised


def advertised(host):
    task = GatewayTask("memory://", {}, {}, GatewayConfig(), host, 9092, 0, ("h", 1), "a secret")
    server = Server()
    asyncio.run(task._start(cast(Any, server)))  # noqa: SLF001
    return server.advertised


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])
def test_clients_are_told_the_name_of_an_executor_that_listens_on_all_addresses(host, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "executor.example")
    assert advertised(host) == ("executor.example", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "kafka.example"])
def test_clients_are_told_an_address_that_they_can_connect_to(host):
    assert advertised(host) is None
