"""Gateways that are registered: their signs of life, addresses and versions."""

import socket

import pytest

from spark_log.config import GatewayConfig
from spark_log.doctor import CheckStatus
from spark_log.gateway.registry import RegistryMember
from tests.doctor.support import codes

CHECK = "gateways"


@pytest.fixture
def joined(cluster):
    """Registers a gateway."""

    def join(host="127.0.0.1", port=9092, version="0.3.0", **config):
        settings = GatewayConfig.parse(config)
        member = RegistryMember(cluster, settings, host=host, port=port, version=version)
        member.join()
        return member

    return join


@pytest.fixture
def names(monkeypatch):
    """The host names that this machine can resolve, with their addresses."""
    known = {"127.0.0.1": "127.0.0.1", "a.example": "10.0.0.1", "b.example": "10.0.0.2"}

    def getaddrinfo(host, port, **_):
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


def test_without_gateways_there_is_nothing_to_check(patient):
    doctor = patient.doctor(CHECK)
    assert list(doctor.findings()) == []
    result = doctor.results[CHECK]
    assert (result.status, result.reason) == (CheckStatus.SKIPPED, "no gateway is registered")


def test_gateways_that_live_and_can_be_reached_are_healthy(patient, joined, names):
    joined("a.example")
    joined("b.example")
    assert patient.findings(CHECK) == []


def test_a_gateway_that_gives_no_sign_of_life(patient, joined, names, clock):
    silent = joined("a.example")
    clock.advance_ms(59_000)
    assert patient.findings(CHECK) == []
    joined("b.example")
    clock.advance_ms(2_000)
    (found,) = patient.findings(CHECK)
    assert (found.problem.code, found.subject.text) == ("gateway-silent", "gateway 1001")
    assert "a.example:9092 is registered" in found.message
    assert "for 1 min 1 s" in found.message
    silent.leave()
    assert patient.findings(CHECK) == []


def test_a_gateway_with_a_long_session_timeout_may_be_silent_for_longer(
    patient, joined, names, clock
):
    joined("a.example", **{"broker.session.timeout.ms": 300_000})
    clock.advance_ms(299_000)
    assert patient.findings(CHECK) == []
    clock.advance_ms(2_000)
    assert patient.codes(CHECK) == ["gateway-silent"]


def test_two_gateways_with_one_address(patient, joined, names):
    names["also-a.example"] = names["a.example"]
    joined("a.example")
    joined("b.example")
    joined("also-a.example", 9093)
    assert patient.findings(CHECK) == []
    joined("also-a.example")
    (found,) = patient.findings(CHECK)
    assert (found.problem.code, found.subject.text) == ("gateway-address-shared", "gateway 1004")
    assert "10.0.0.1, port 9092, as does the address of gateway 1001" in found.message


def test_an_address_that_cannot_be_resolved(patient, joined, names):
    joined("gone.example")
    (found,) = patient.findings(CHECK)
    assert (found.problem.code, found.subject.text) == ("gateway-unresolved", "gateway 1001")
    assert "'gone.example'" in found.message


def test_a_host_that_is_no_name(patient, joined):
    joined("a" * 70 + ".example")
    assert patient.codes(CHECK) == ["gateway-unresolved"]


def test_versions_that_differ_are_a_note(patient, joined, names):
    joined("a.example", version="0.3.0")
    joined("a.example", 9093, version="0.3.0")
    joined("b.example", 9094, version="")
    assert patient.findings(CHECK) == []
    joined("b.example", version="0.4.0")
    (found,) = patient.findings(CHECK)
    assert codes([found]) == ["gateway-versions"]
    assert "0.3.0: 1001, 1002; 0.4.0: 1004" in found.message
