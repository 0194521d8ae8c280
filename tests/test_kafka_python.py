"""Every public name of kafka-python 3.0.12 exists here, is ignored, or is refused with advice."""

import inspect
import re
import warnings
from typing import Any

import pytest

from spark_log import (
    Admin,
    Consumer,
    IgnoredOptionWarning,
    InvalidConfigurationError,
    NewTopic,
    Producer,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.cluster import Cluster
from spark_log.util.foreign_methods import ADVICE
from tests.docs.blocks import PROJECT, block

METHODS = {
    Consumer: """
        assign assignment beginning_offsets bootstrap bootstrap_connected close commit commit_async
        committed end_offsets group_metadata highwater metrics offsets_for_times
        partitions_for_topic pause paused poll position resume seek seek_to_beginning seek_to_end
        subscribe subscription topics unsubscribe
    """,
    Producer: """
        abort_transaction begin_transaction bootstrap_connected close commit_transaction flush
        init_transactions max_usable_produce_magic metrics partitions_for send
        send_offsets_to_transaction
    """,
    Admin: """
        abort_transaction alter_configs alter_group_offsets alter_partition_reassignments
        alter_replica_log_dirs alter_user_scram_credentials api_versions close create_acls
        create_partitions create_topics delete_acls delete_group_offsets delete_groups
        delete_records delete_topics describe_acls describe_cluster describe_configs
        describe_features describe_groups describe_log_dirs describe_metadata_quorum
        describe_producers describe_topic_partitions describe_topics describe_transactions
        describe_user_scram_credentials elect_leaders find_hanging_transactions
        get_broker_version_data list_config_resources list_group_offsets list_groups
        list_partition_offsets list_partition_reassignments list_topics list_transactions
        remove_group_members reset_configs reset_group_offsets update_features wait_for_topics
    """,
}
SETTINGS_OF_ALL = """
    api_version bootstrap_servers bootstrap_timeout_ms client_dns_lookup client_id
    connections_max_idle_ms kafka_client max_in_flight_requests_per_connection
    metadata_max_age_ms metric_reporters metrics_num_samples metrics_sample_window_ms proxy_url
    receive_buffer_bytes receive_message_max_bytes reconnect_backoff_max_ms reconnect_backoff_ms
    request_timeout_ms retry_backoff_ms sasl_kerberos_domain_name sasl_kerberos_name
    sasl_kerberos_service_name sasl_mechanism sasl_oauth_token_provider sasl_plain_password
    sasl_plain_username security_protocol selector send_buffer_bytes socket_options socks5_proxy
    ssl_cafile ssl_certfile ssl_check_hostname ssl_context ssl_crlfile ssl_keyfile ssl_password
"""
SETTINGS = {
    Consumer: """
        allow_auto_create_topics auto_commit_interval_ms auto_offset_reset check_crcs client_rack
        consumer_timeout_ms default_offset_commit_callback enable_auto_commit
        enable_incremental_fetch_sessions exclude_internal_topics fetch_max_bytes
        fetch_max_wait_ms fetch_min_bytes group_id group_instance_id heartbeat_interval_ms
        isolation_level key_deserializer max_partition_fetch_bytes max_poll_interval_ms
        max_poll_records metric_group_prefix metrics_enabled partition_assignment_strategy
        session_timeout_ms ssl_ciphers value_deserializer
    """,
    Producer: """
        acks allow_auto_create_topics batch_size compression_type delivery_timeout_ms
        enable_idempotence key_serializer linger_ms max_block_ms max_request_size metrics_enabled
        partitioner retries ssl_ciphers transaction_timeout_ms transactional_id value_serializer
    """,
    Admin: "",
}

EACH_METHOD = [(client, name) for client, names in METHODS.items() for name in names.split()]
EACH_SETTING = [
    (client, name)
    for client, names in SETTINGS.items()
    for name in (SETTINGS_OF_ALL + names).split()
]
PAGE = (PROJECT / "docs/kafka-python.md").read_text("utf-8")


@pytest.fixture
def root(tmp_path):
    path = str(tmp_path / "root")
    Admin(path).create_topics([NewTopic("t")])
    return path


@pytest.fixture
def clients(root):
    with Producer(root) as producer, Consumer(root=root) as consumer, Admin(root) as admin:
        yield {Producer: producer, Consumer: consumer, Admin: admin}


def stored_producer_ids(root):
    """Return the producer ids in the batch headers of partition 0, in the order of the log."""
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic("t"), 0)
    readers = [log.files.open(segment.name) for segment in log.observe().live.segments]
    headers = [each for reader in readers for _, found in reader.all_headers() for each in found]
    return list(dict.fromkeys(each.producer_id for each in headers))


def is_on_the_page(name):
    """Whether the page names it, or names its beginning with a star."""
    named = re.findall(r"`([a-z0-9_]+\*?)`", PAGE)
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in named)


def test_every_method_exists_or_is_refused_with_advice(clients):
    for client, name in EACH_METHOD:
        if name not in ADVICE or hasattr(client, name):
            assert callable(getattr(clients[client], name))
            continue
        assert not hasattr(clients[client], name)
        with pytest.raises(AttributeError) as caught:
            getattr(clients[client], name)
        start = f"'{client.__name__}' object has no attribute '{name}': "
        assert str(caught.value).startswith(start)
        assert len(str(caught.value)) > len(start) + 20
        assert is_on_the_page(name), name


def test_no_advice_is_for_a_method_that_kafka_python_does_not_have_or_that_exists():
    assert set(ADVICE) <= {name for client, name in EACH_METHOD if not hasattr(client, name)}


def test_an_attribute_that_nobody_has_is_refused_without_advice(clients):
    for client, instance in clients.items():
        with pytest.raises(AttributeError) as caught:
            instance.flish  # noqa: B018 - it raises
        assert str(caught.value) == f"'{client.__name__}' object has no attribute 'flish'"
        assert caught.value.name == "flish"


def test_every_setting_exists_is_ignored_with_a_warning_or_refused_with_advice(root):
    for client, name in EACH_SETTING:
        parameters = inspect.signature(client).parameters
        if name in parameters:
            continue
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                client(root=root, **{name: object()}).close()
            except InvalidConfigurationError as error:
                refused = str(error)
            else:
                (warning,) = warned
                assert warning.category is IgnoredOptionWarning
                assert f"{client.__name__} ignores {name}" in str(warning.message)
                assert is_on_the_page(name), name
                continue
        if f"{client.__name__.lower()} config {name!r} does not exist: " in refused:
            assert is_on_the_page(name), name
        else:
            assert f"config {name.replace('_', '.')!r} is <object" in refused, name


def test_what_the_page_shows_works_and_so_does_its_reporter(tmp_path, capsys):
    scope: dict[str, Any] = {"root": str(tmp_path / "root")}
    exec(block("docs/kafka-python.md", "NewTopic"), scope)
    assert scope["metadata"].offset == 0
    assert capsys.readouterr().out == "0 one\n"

    exec(block("docs/kafka-python.md", "PrintingReporter"), scope)
    reporters = [scope["PrintingReporter"]]
    with Producer(scope["root"], client_id="p", metric_reporters=reporters) as producer:
        producer.send("orders", b"two").get(timeout=30)
        producer.metrics()
    shown = capsys.readouterr().out.splitlines()
    assert "p buffer-total-bytes 33554432" in shown
    assert len(shown) == sum(map(len, producer.metrics().values()))


class TestAdmin:
    @pytest.mark.parametrize("given", [{}, {"root": 5}, {"root": {"bootstrap.servers": "h"}}])
    def test_a_root_that_is_missing_or_no_path_is_refused_at_once(self, given):
        with pytest.raises(InvalidConfigurationError, match=r"root .*give the path or URL"):
            Admin(**given)

    def test_bootstrap_servers_are_the_cause_that_is_named_and_not_the_missing_root(self):
        with pytest.raises(InvalidConfigurationError, match="there are no brokers here"):
            Admin(bootstrap_servers="localhost:9092")  # type: ignore[call-arg]

    def test_describes_the_producers_that_a_partition_remembers(self, root):
        tp = TopicPartition("t", 0)
        with Admin(root) as admin:
            assert admin.describe_producers([tp])[tp].active_producers == ()
            for count in (3, 1):
                with Producer(root) as producer:
                    for number in range(count):
                        producer.send("t", b"%d" % number)
            found = admin.describe_producers([tp])[tp].active_producers
            # Not by their times: both may have appended within the same millisecond.
            second, first = sorted(found, key=lambda producer: producer.last_sequence)
            assert [first.producer_id, second.producer_id] == stored_producer_ids(root)
            assert (first.producer_epoch, first.last_sequence) == (0, 2)
            assert (second.producer_epoch, second.last_sequence) == (0, 0)
            assert 0 < first.last_timestamp <= second.last_timestamp
            with pytest.raises(UnknownTopicOrPartitionError):
                admin.describe_producers([TopicPartition("t", 1)])
