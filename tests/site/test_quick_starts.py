"""The quick starts run as they stand, and print what they show."""

import pytest

from tests.datasource.conftest import spark
from tests.docs.blocks import block, blocks
from tests.site.following import Follower

__all__ = ["spark"]


@pytest.fixture
def follower(shell, folder, capsys, monkeypatch):
    return Follower(shell, capsys, monkeypatch)


def test_they_install_as_the_readme_does():
    """``tests/test_first_hour.py`` runs the README's lines."""
    install = block("README.md", "pip install")
    assert block("docs/quick-start.md", "pip install") == install
    with_s3 = install.replace("[spark]", "[spark,s3]")
    assert block("docs/quick-start-s3.md", "pip install") == with_s3


@pytest.mark.spark
@pytest.mark.long
def test_the_quick_start_on_a_laptop(follower, spark, folder):
    # The session of the tests was started in another folder.
    follower.replace = {'.load("log")': f'.load("{folder}/log")'}
    follower.follow(blocks("docs/quick-start.md")[1:])


@pytest.mark.spark
@pytest.mark.long
def test_the_quick_start_on_s3(follower, spark, s3_server):
    server = s3_server.storage_options
    follower.replace = {
        "AKIA1234567890EXAMPLE": server["key"],
        "the-secret-key": server["secret"],
        "eu-central-1": server["region"],
        "https://s3.example.com": server["endpoint_url"],
        "s3://my-bucket": s3_server.new_bucket(),
    }
    follower.follow(blocks("docs/quick-start-s3.md")[1:])
