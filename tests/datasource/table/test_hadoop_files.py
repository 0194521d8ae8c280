"""Paths and options of files for Spark's own readers."""

import pytest

from spark_log.datasource.table.hadoop_files import hadoop_directory, hadoop_options
from spark_log.errors import UnsupportedStoreError
from spark_log.storage import open_store
from spark_log.storage.memory import MemoryStore


def test_a_local_path(tmp_path):
    store = open_store(str(tmp_path))
    assert hadoop_directory(store, "t/t-0") == f"file://{tmp_path}/t/t-0"
    assert hadoop_options(store) == {}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3(scheme):
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://127.0.0.1:9000",
        "region": "eu-west-1",
    }
    store = open_store(f"{scheme}://bucket/root", options)
    assert hadoop_directory(store, "t/t-0") == "s3a://bucket/root/t/t-0"
    assert hadoop_options(store) == {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }


def test_s3_with_a_session_token():
    store = open_store("s3://bucket", {"key": "k", "secret": "s", "token": "t"})
    options = hadoop_options(store)
    assert options["fs.s3a.session.token"] == "t"
    assert options["fs.s3a.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")


def test_s3_with_sparks_own_credentials():
    assert hadoop_options(open_store("s3://bucket", {"region": "eu-west-1"})) == {
        "fs.s3a.endpoint.region": "eu-west-1"
    }


def test_google():
    store = open_store("gs://bucket/root", {"token": "/etc/key.json"})
    assert hadoop_directory(store, "t") == "gs://bucket/root/t"
    assert hadoop_options(store) == {
        "google.cloud.auth.service.account.json.keyfile": "/etc/key.json"
    }


def test_azure():
    store = open_store("abfs://box/root", {"account_name": "a", "account_key": "aw=="})
    assert hadoop_directory(store, "t") == "abfss://box@a.dfs.core.windows.net/root/t"
    assert hadoop_options(store) == {"fs.azure.account.key.a.dfs.core.windows.net": "aw=="}


def test_memory_is_read_by_this_process_alone():
    with pytest.raises(UnsupportedStoreError):
        hadoop_directory(MemoryStore("m"), "t")
