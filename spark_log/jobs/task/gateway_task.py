"""A gateway in a Spark task, which serves until the driver ends it."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from spark_log import __version__
from spark_log.admin import Admin, share_cluster
from spark_log.cluster import Cluster, open_cluster
from spark_log.config import BrokerOptions, GatewayConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.gateway import GatewayServer, run_event_loop
from spark_log.storage import StorageOptions
from spark_log.util import is_any_address

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 30
_REPORT_INTERVAL_S = 1.0
_LOAD_INTERVALS = 5
"""Number of these intervals over which the load is measured: a merge makes one of them busy."""

_SIGNALS_OF_THE_EXECUTOR = (signal.SIGHUP, signal.SIGTERM)
"""Signals that Spark sends to a task's Python when the executor, or the application, ends."""


@dataclass(frozen=True, slots=True)
class GatewayTask:
    """The arguments of a Spark task that is a gateway; pickled to the tasks.

    The task is connected with the driver, and tells it lines of JSON: first its number and the
    secret, later the gateway's id and address, then its load each second. It ends when the
    connection does, because the driver has closed it or is gone, or when the executor ends. In each
    case the gateway answers the requests that it has received.

    Attributes:
        root: the root's URL.
        storage_options: the options of the file system; never shown.
        broker_options: broker id → the options of the file system of its root; never shown.
        config: the settings of the gateway; never shown.
        host: the address to listen on. For any address clients are told the executor's.
        port: the port to listen on, or one of those after it; 0 for any.
        port_retries: the number of ports after it that are tried (``spark.port.maxRetries``).
        driver: host and port at which the driver waits for connections.
        secret: the secret of these connections; never shown.
    """

    root: str
    storage_options: StorageOptions = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    config: GatewayConfig = field(repr=False)
    host: str
    port: int
    port_retries: int
    driver: tuple[str, int]
    secret: str = field(repr=False)

    def serve(self, number: int) -> None:
        """Be a gateway until the connection with the driver ends.

        Args:
            number: the number of the gateway among those of the job.
        """
        with socket.create_connection(self.driver, timeout=_CONNECT_TIMEOUT_S) as driver:
            _tell(driver, {"number": number, "secret": self.secret})
            cluster = open_cluster(
                self.root,
                self.storage_options,
                timeout_ms=self.config.default_api_timeout_ms,
                request_timeout_ms=self.config.request_timeout_ms,
                broker_options=self.broker_options,
                client_rack=self.config.broker_rack,
            )
            try:
                run_event_loop(self._serve(cluster, driver))
            finally:
                cluster.release()

    async def _serve(self, cluster: Cluster, driver: socket.socket) -> None:
        admin = Admin(
            self.root,
            storage_options=self.storage_options,
            broker_storage_options=self.broker_options,
        )
        share_cluster(admin, cluster)
        server = GatewayServer(cluster, admin, self.config, version=__version__)
        await self._start(server)
        registered = server.gateway.registered
        _tell(
            driver,
            {"id": registered.gateway_id, "host": registered.host, "port": registered.port},
        )
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The driver sends nothing: the socket can be read when it is closed.
        loop.add_reader(driver, stopped.set)
        for number in _SIGNALS_OF_THE_EXECUTOR:
            loop.add_signal_handler(number, stopped.set)
        reports = asyncio.create_task(_report_load(server, driver))
        await stopped.wait()
        reports.cancel()
        loop.remove_reader(driver)
        await server.stop()

    async def _start(self, server: GatewayServer) -> None:
        for retry in range(self.port_retries + 1):
            try:
                port = self.port + retry if self.port else 0
                await server.start(self.host, port, advertised=self._advertised())
            except InvalidConfigurationError as error:
                cause = error.__context__
                is_used = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
                if not is_used or retry == self.port_retries:
                    raise
            else:
                return

    def _advertised(self) -> tuple[str, int] | None:
        """Return the name of this executor, if others than its own machine may connect."""
        if not is_any_address(self.host):
            return None
        given = os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_PUBLIC_DNS")
        return given or socket.getfqdn(), 0


def _tell(driver: socket.socket, document: dict[str, object]) -> None:
    driver.sendall(_line(document))


def _line(document: dict[str, object]) -> bytes:
    return json.dumps(document).encode() + b"\n"


async def _report_load(server: GatewayServer, driver: socket.socket) -> None:
    """Tell the driver, again and again, how much the gateway does.

    The load is the CPU time of this process, all threads included, per time that has passed.
    """
    loop = asyncio.get_running_loop()
    driver.setblocking(False)  # a driver that stands still must not stop the gateway
    times = deque([(loop.time(), time.process_time())], maxlen=_LOAD_INTERVALS + 1)
    while True:
        await asyncio.sleep(_REPORT_INTERVAL_S)
        times.append((loop.time(), time.process_time()))
        (began_s, cpu_began_s), (now_s, cpu_s) = times[0], times[-1]
        report: dict[str, object] = {
            "load": round((cpu_s - cpu_began_s) / (now_s - began_s), 4),
            "connections": len(server.connections),
            "bytes": server.received_bytes + server.sent_bytes,
        }
        try:
            await loop.sock_sendall(driver, _line(report))
        except OSError:
            _log.debug("the driver is gone; the gateway ends")
            return
