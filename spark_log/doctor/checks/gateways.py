"""A check of the gateways in the registry: their signs of life, addresses and versions.

Clients are directed to every registered gateway. The addresses are looked up on this machine, whose
names may differ from those of the clients. Nothing is connected to.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import ClassVar

from spark_log.coordinator import GatewayLife, RegisteredGateway, read_gateways
from spark_log.doctor.check import Check, NotCheckedError
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import ROOT, Finding, Problem, Severity, Subject, duration_text

GATEWAY_SILENT = Problem(
    "gateway-silent",
    Severity.WARNING,
    "A gateway is registered and gives no sign of life, and no other gateway removes it: clients "
    "cannot connect.",
)
GATEWAY_ADDRESS_SHARED = Problem(
    "gateway-address-shared",
    Severity.WARNING,
    "Two gateways have advertised addresses that lead to the same port of the same machine: unless "
    "a proxy tells them apart by name, clients of one of them reach the other.",
)
GATEWAY_UNRESOLVED = Problem(
    "gateway-unresolved",
    Severity.WARNING,
    "The host name that a gateway advertises cannot be resolved on this machine: clients like it "
    "cannot connect.",
)
GATEWAY_VERSIONS = Problem(
    "gateway-versions",
    Severity.INFO,
    "Gateways have different versions of spark-log, as during an upgrade: clients get the answers "
    "of either.",
)

_Endpoint = tuple[str, int]


class GatewaysCheck(Check):
    """Reads the registry of gateways, and looks up their addresses."""

    name: ClassVar[str] = "gateways"
    title: ClassVar[str] = "gateways that clients cannot reach"
    problems: ClassVar[tuple[Problem, ...]] = (
        GATEWAY_SILENT,
        GATEWAY_ADDRESS_SHARED,
        GATEWAY_UNRESOLVED,
        GATEWAY_VERSIONS,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about each gateway, and about all of them together."""
        cluster = examination.cluster
        lives = read_gateways(cluster.store, cluster.clock)
        if not lives:
            raise NotCheckedError("no gateway is registered")
        yield from _silent(examination, lives)
        gateways = [each.gateway for each in lives]
        endpoints: dict[_Endpoint, RegisteredGateway] = {}
        resolved = dict(examination.map(_resolve, gateways))
        for gateway in gateways:
            found = resolved[gateway]
            if isinstance(found, OSError):
                yield _unresolved(gateway, found)
                continue
            shared = {endpoints[each].gateway_id: each for each in found if each in endpoints}
            for other_id, (host, port) in shared.items():
                yield _shared(gateway, other_id, f"{host}, port {port}")
            endpoints |= {each: gateway for each in found if each not in endpoints}
        yield from _versions(gateways)


def _subject(gateway: RegisteredGateway) -> Subject:
    return Subject(f"gateway {gateway.gateway_id}")


def _address(gateway: RegisteredGateway) -> str:
    return f"{gateway.host}:{gateway.port}"


def _silent(examination: Examination, lives: Sequence[GatewayLife]) -> Iterator[Finding]:
    for each in lives:
        if each.is_live(examination.now_us):
            continue
        gateway, silent_us = each.gateway, each.silent_us(examination.now_us)
        since = f"for {duration_text(silent_us)}" if each.beat_us else "since it registered"
        yield GATEWAY_SILENT.finding(
            _subject(gateway),
            f"{_address(gateway)} is registered, and has given no sign of life {since}",
            remedy="Start it again with the same address, or another gateway, which removes it "
            "after its broker.session.timeout.ms",
            evidence=f"counter {each.counter} in the registry's heartbeats",
        )


def _resolve(gateway: RegisteredGateway) -> frozenset[_Endpoint] | OSError:
    """Return the addresses that clients connect to; an error if the name has none."""
    try:
        found = socket.getaddrinfo(gateway.host, gateway.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))
    return frozenset((str(each[4][0]), gateway.port) for each in found)


def _unresolved(gateway: RegisteredGateway, error: OSError) -> Finding:
    return GATEWAY_UNRESOLVED.finding(
        _subject(gateway),
        f"the advertised host {gateway.host!r} has no address on this machine: {error}",
        remedy="Start the gateway with --advertise and a name that its clients can resolve",
        evidence="a lookup of the name by this machine",
    )


def _shared(gateway: RegisteredGateway, other_id: int, endpoint: str) -> Finding:
    return GATEWAY_ADDRESS_SHARED.finding(
        _subject(gateway),
        f"{_address(gateway)} leads to {endpoint}, as does the address of gateway {other_id}",
        remedy="Start each gateway with an address of its own (--advertise)",
        evidence="a lookup of both names by this machine",
    )


def _versions(gateways: Sequence[RegisteredGateway]) -> Iterator[Finding]:
    by_version: dict[str, list[int]] = {}
    for each in gateways:
        if each.version:
            by_version.setdefault(each.version, []).append(each.gateway_id)
    if len(by_version) > 1:
        shown = "; ".join(
            f"{version}: {', '.join(map(str, ids))}" for version, ids in sorted(by_version.items())
        )
        yield GATEWAY_VERSIONS.finding(
            ROOT,
            f"the gateways have different versions ({shown})",
            remedy="Finish the upgrade of the gateways",
            evidence="the versions in the registry",
        )
