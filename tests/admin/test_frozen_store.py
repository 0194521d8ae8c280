"""An `Admin` whose object store accepts requests and does not answer."""

import time
from contextlib import contextmanager

import pytest

import spark_log.admin.groups  # noqa: F401 - its first import takes more than 200 ms
from spark_log import Admin, KafkaTimeoutError, NewTopic, TopicPartition, UnknownOutcomeError
from spark_log.errors import InvalidConfigurationError
from spark_log.storage.object.object_store import ObjectStore
from spark_log.testing.servers.s3_server import run_s3_server

T0 = TopicPartition("t", 0)
SLACK_S = 5.0


@pytest.fixture(scope="module")
def server():
    with run_s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def root(server):
    root = server.new_bucket()
    with Admin(root, storage_options=server.storage_options) as admin:
        admin.create_topics([NewTopic("t")])
    return root


@pytest.fixture
def admin(server, root):
    return Admin(root, storage_options=server.storage_options, default_api_timeout_ms=200)


@contextmanager
def takes_at_most(limit_ms):
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_ms / 1000 + SLACK_S


CALLS = {
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics(["t"]),
    "list_offsets": lambda admin: admin.list_offsets({T0: 0}),
    "describe_configs": lambda admin: admin.describe_client_quotas(),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(),
    "list_groups": lambda admin: admin.list_groups(),
    "group_members": lambda admin: admin.group_members("g"),
    "list_group_offsets": lambda admin: admin.list_group_offsets("g"),
    "delete_topics": lambda admin: admin.delete_topics(["t"]),
}


@pytest.mark.parametrize("is_open", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends_by_default_api_timeout_ms(server, admin, name, is_open):
    if is_open:
        admin.list_topics()
    limited = pytest.raises(KafkaTimeoutError, match=r"default\.api\.timeout\.ms \(200 ms\)")
    with server.frozen(), takes_at_most(200), limited as told:
        CALLS[name](admin)
    assert told.value.retriable
    assert server.endpoint_url.partition("://")[2] in str(told.value)


LIMITED = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("v")], timeout_ms=150),
    "create_partitions": lambda admin: admin.create_partitions({"t": 2}, timeout_ms=150),
    "delete_topics": lambda admin: admin.delete_topics(["t"], timeout_ms=150),
    "delete_records": lambda admin: admin.delete_records({T0: 0}, timeout_ms=150),
    "list_partition_offsets": lambda admin: admin.list_partition_offsets({T0: 0}, timeout_ms=150),
}


@pytest.mark.parametrize("name", LIMITED)
def test_a_call_ends_by_its_timeout_ms(server, root, name):
    admin = Admin(root, storage_options=server.storage_options)
    admin.list_topics()
    limited = pytest.raises(KafkaTimeoutError, match=r"within timeout_ms \(150 ms\)")
    with server.frozen(), takes_at_most(150), limited:
        LIMITED[name](admin)


def test_of_a_change_that_was_sent_the_outcome_is_unknown(server, root, monkeypatch):
    admin = Admin(root, storage_options=server.storage_options, default_api_timeout_ms=1000)
    put_if_absent, frozen = ObjectStore.put_if_absent, server.frozen()

    def freeze_first(store, path, source, **how):
        frozen.__enter__()
        return put_if_absent(store, path, source, **how)

    monkeypatch.setattr(ObjectStore, "put_if_absent", freeze_first)
    try:
        with takes_at_most(1000), pytest.raises(UnknownOutcomeError, match="check before"):
            admin.create_topics([NewTopic("u")])
    finally:
        frozen.__exit__(None, None, None)


def test_what_was_given_up_sends_nothing_more(server, root):
    """The call ends with the request that it waits for: nothing is changed after the error."""
    admin = Admin(root, storage_options=server.storage_options, default_api_timeout_ms=200)
    admin.list_topics()
    with server.frozen(), pytest.raises(KafkaTimeoutError):
        admin.create_topics([NewTopic("never")])
    patient = Admin(root, storage_options=server.storage_options)
    for _ in range(20):
        assert "never" not in patient.list_topics()


def test_config_keys_are_checked(root):
    with pytest.raises(InvalidConfigurationError, match=r"default\.api\.timeout\.ms"):
        Admin(root, default_api_timeout=1)  # type: ignore[call-arg]
