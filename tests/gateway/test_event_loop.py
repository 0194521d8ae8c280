import sys

import pytest

from tests.gateway.support import running_gateway


@pytest.mark.parametrize("library", ["uvloop", "asyncio"])
def test_a_gateway_serves_on_uvloops_event_loop_and_without_it_on_asyncios(
    tmp_path, monkeypatch, library
):
    if library == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with running_gateway(str(tmp_path)) as gateway:
        assert type(gateway.loop).__module__.split(".")[0] == library
        with gateway.client() as client:
            assert client.ask("ApiVersions", 2).error_code == 0
