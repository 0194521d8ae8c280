import pytest

from spark_log.gateway import Gateway
from tests.gateway.support import running_gateway


@pytest.fixture
def gateway(tmp_path):
    with running_gateway(tmp_path / "root") as running:
        yield running


@pytest.fixture
def two_coordinators(monkeypatch):
    """Let all gateways think that they coordinate all groups."""
    monkeypatch.setattr(Gateway, "is_coordinator", lambda *_: True)


@pytest.fixture
def client(gateway):
    with gateway.client() as connected:
        yield connected
