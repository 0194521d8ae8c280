"""kcat 1.7, which has the librdkafka of 2023: an old client."""

import shutil
import subprocess

import pytest

from spark_log import Admin, NewTopic
from tests.gateway.support import running_gateway

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(gateway, *options, given=None):
    command = ["kcat", "-b", gateway.address, "-t", "flights", *options]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_reads_what_it_has_produced(tmp_path):
    root = str(tmp_path / "root")
    with running_gateway(root) as gateway:
        Admin(root).create_topics([NewTopic("flights")])
        kcat(gateway, "-P", "-K", ":", "-z", "snappy", given="a:first\nb:second\n")
        read = kcat(gateway, "-C", "-o", "beginning", "-e", "-q", "-f", "%o %k=%s\n")
        assert read.splitlines() == ["0 a=first", "1 b=second"]
