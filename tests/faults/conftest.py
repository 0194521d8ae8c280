"""The root of a fault test's processes: on a local disk, or on an object store."""

import pytest


@pytest.fixture(params=["local", "S3 server"])
def address(request, tmp_path):
    """Return the URL of a root that does not exist yet, and its storage options."""
    if request.param == "local":
        return str(tmp_path / "root"), None
    server = request.getfixturevalue("s3_server")
    return f"{server.new_bucket()}/root", server.storage_options
