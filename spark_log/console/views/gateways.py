"""The gateways that Kafka's clients are directed to."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import NoParameters, View
from spark_log.coordinator import GatewayLife, read_gateways


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """A registered gateway.

    Attributes:
        gateway_id: the id that clients know it by.
        host: the host that clients connect to.
        port: the port that clients connect to.
        rack: the rack that it is in; None without one.
        version: its version of spark-log; None if it is not known.
        state: ``live``, ``joining`` (it has no partitions yet) or ``silent``.
        counter: the last value of its counter, which shows that it lives.
        silent_ms: the time since it counted last; None if it has no counter.
    """

    gateway_id: int
    host: str
    port: int
    rack: str | None
    version: str | None
    state: str
    counter: int
    silent_ms: int | None


@dataclass(frozen=True, slots=True)
class GatewaysPage:
    """The gateways of a root.

    Attributes:
        gateways: the registered gateways, sorted by id.
    """

    gateways: tuple[GatewayRow, ...]


def read_gateways_page(console: Console, _: NoParameters, budget: Budget) -> GatewaysPage:
    """Read the registry of gateways, and their counters."""
    cluster = console.cluster
    lives = read_gateways(cluster.store, cluster.clock)
    budget.check()
    now_us = cluster.clock.time_us()  # wall clock: only shown
    return GatewaysPage(tuple(_row(each, now_us) for each in lives))


def _row(life: GatewayLife, now_us: int) -> GatewayRow:
    gateway = life.gateway
    state = "live" if gateway.is_active else "joining"
    if not life.is_live(now_us):
        state = "silent"
    return GatewayRow(
        gateway.gateway_id,
        gateway.host,
        gateway.port,
        gateway.rack or None,
        gateway.version or None,
        state,
        life.counter,
        life.silent_us(now_us) // 1000 if life.beat_us else None,
    )


GATEWAYS = View(
    "/gateways", "Gateways", NoParameters, GatewaysPage, read_gateways_page, "gateways.html"
)
