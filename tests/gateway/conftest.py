import pytest

from tests.gateway.support import running_gateway


@pytest.fixture
def gateway(tmp_path):
    with running_gateway(tmp_path / "root") as running:
        yield running


@pytest.fixture
def client(gateway):
    with gateway.client() as connected:
        yield connected
