"""The root of a fault test's processes: on a local disk, or on an object store."""

import pytest


def with_and_without_stripes(stripes, *, both_on_disk=False):
    """Let a test run at each `address`, with that number of stripes and with none.

    The quick tests have each place and each kind of topic once, the long ones the rest. With
    ``both_on_disk`` the quick tests have both kinds of topic on a local disk.
    """
    places = [
        ("local", 0),
        ("S3 server", stripes),
        pytest.param("local", stripes, marks=() if both_on_disk else pytest.mark.long),
        pytest.param("S3 server", 0, marks=pytest.mark.long),
    ]
    return pytest.mark.parametrize(("address", "stripes"), places, indirect=["address"])


@pytest.fixture(params=["local", "S3 server"])
def address(request, tmp_path):
    """Return the URL of a root that does not exist yet, and its storage options."""
    if request.param == "local":
        return str(tmp_path / "root"), None
    server = request.getfixturevalue("s3_server")
    return f"{server.new_bucket()}/root", server.storage_options
