"""TLS: encrypted listeners, certificates of clients, and wrong files."""

import socket
import ssl

import pytest

from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api
from spark_log.gateway.requests import HANDLERS, Handler
from spark_log.gateway.security import credential_lines
from tests.gateway.security.certificates import write_certificate
from tests.gateway.support import TIMEOUT_S, RawClient, running_gateway


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    authority = write_certificate(folder / "ca.pem", "ca")
    write_certificate(folder / "server.pem", "localhost", authority)
    write_certificate(folder / "encrypted.pem", "localhost", authority, "secret")
    write_certificate(folder / "client.pem", "alice", authority)
    write_certificate(folder / "stranger.pem", "mallory")
    return folder


def config_of(files, **others):
    return {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(files / "server.pem"),
        **{key.replace("_", "."): value for key, value in others.items()},
    }


class TlsClient(RawClient):
    def __init__(self, gateway, files, certificate=None):
        super().__init__(gateway.host, gateway.port)
        context = ssl.create_default_context(cafile=str(files / "ca.crt"))
        if certificate is not None:
            context.load_cert_chain(files / certificate)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def test_a_listener_is_encrypted_and_its_certificate_is_checked(tmp_path, files):
    with running_gateway(tmp_path / "root", **config_of(files)) as gateway:
        with TlsClient(gateway, files) as client:
            assert client.ask("Metadata", 12, topics=None).brokers
            client.send("Metadata", 12, topics=None)
            client.send("ApiVersions", 0)
            assert client.receive()[1].brokers
            assert client.receive()[1].api_keys
        with gateway.client() as plain:
            plain.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            assert plain.socket.recv(1000) is not None
        with TlsClient(gateway, files) as client:
            assert client.ask("ApiVersions", 0).api_keys


def test_an_encrypted_key_needs_its_password(tmp_path, files):
    config = config_of(files, ssl_keystore_location=str(files / "encrypted.pem"))
    with pytest.raises(InvalidConfigurationError, match="cannot be used"):
        running_gateway(tmp_path / "root", **config).__enter__()
    config["ssl.key.password"] = "secret"
    with (
        running_gateway(tmp_path / "root", **config) as gateway,
        TlsClient(gateway, files) as client,
    ):
        assert client.ask("ApiVersions", 0).api_keys


@pytest.mark.parametrize(
    "others",
    [
        {"ssl_keystore_location": ""},
        {"ssl_keystore_location": "/no/such/file.pem"},
        {"ssl_keystore_location": __file__},
        {"ssl_client_auth": "required"},
        {"ssl_client_auth": "required", "ssl_truststore_location": "/no/such/file.pem"},
    ],
)
def test_a_file_that_is_missing_or_wrong_is_one_error(tmp_path, files, others):
    with pytest.raises(InvalidConfigurationError, match=r"ssl\.(key|trust)store\.location"):
        running_gateway(tmp_path / "root", **config_of(files, **others)).__enter__()


def test_the_password_is_in_no_error_and_no_description(tmp_path, files):
    config = config_of(files, ssl_key_password="top-secret")
    with (
        running_gateway(tmp_path / "root", **config) as gateway,
        TlsClient(gateway, files) as client,
    ):
        assert "top-secret" not in repr(gateway.server.gateway.config)
        resource = message_class("DescribeConfigsRequest").DescribeConfigsResource(
            resource_type=4, resource_name="1001", configuration_keys=None
        )
        (found,) = client.ask("DescribeConfigs", 4, resources=[resource]).results
        entries = {each.name: each for each in found.configs}
        assert entries["ssl.key.password"].is_sensitive
        assert entries["ssl.key.password"].value is None
        assert "top-secret" not in repr(found)


def test_a_certificate_of_the_client_is_its_principal(tmp_path, files):
    principals = []

    async def handle(gateway, context, request):
        principals.append(context.principal)
        return message_class("HeartbeatResponse")()

    handlers = {**HANDLERS, 12: Handler(Api(12, "Heartbeat", 0, 4), handle)}
    config = config_of(
        files, ssl_client_auth="required", ssl_truststore_location=str(files / "ca.crt")
    )
    with running_gateway(tmp_path / "root", handlers=handlers, **config) as gateway:
        with TlsClient(gateway, files, "client.pem") as client:
            client.ask("Heartbeat", 4)
        for certificate in (None, "stranger.pem"):
            with pytest.raises((OSError, ConnectionError)):  # noqa: SIM117 - the same
                with TlsClient(gateway, files, certificate) as client:
                    client.ask("Heartbeat", 4)
    assert principals == ["User:CN=alice,O=spark-log"]


def test_sasl_over_tls_with_confluent_kafka(tmp_path, files):
    from confluent_kafka.admin import AdminClient

    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("\n".join(credential_lines("alice", "pw", iterations=4096)))
    config = config_of(
        files,
        security_protocol="SASL_SSL",
        sasl_enabled_mechanisms="PLAIN",
        sasl_users_file=str(users),
    )
    with running_gateway(tmp_path / "root", **config) as gateway:
        settings = {
            "bootstrap.servers": gateway.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "pw",
            "ssl.ca.location": str(files / "ca.crt"),
            "ssl.endpoint.identification.algorithm": "none",
        }
        assert AdminClient(settings).list_topics(timeout=20).brokers


def test_a_client_that_never_ends_its_handshake_holds_nobody(tmp_path, files):
    with (
        running_gateway(tmp_path / "root", **config_of(files)) as gateway,
        socket.create_connection((gateway.host, gateway.port), timeout=TIMEOUT_S) as silent,
    ):
        silent.sendall(b"\x16\x03\x01")
        with TlsClient(gateway, files) as client:
            assert client.ask("ApiVersions", 0).api_keys
