"""SASL: SCRAM and PLAIN with users in a file, and what a client may do before that."""

import base64
import hashlib
import hmac
import struct

import pytest

from spark_log import Admin
from spark_log.config import GatewayConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.security import Users, UsersFile, credential_lines
from spark_log.types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from spark_log.util.clock import ManualClock
from tests.gateway.support import frame, running_gateway

USER, PASSWORD = "alice,=", "correct horse ü"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


@pytest.fixture(scope="module")
def lines():
    return credential_lines(USER, PASSWORD, iterations=4096)


@pytest.fixture
def users_file(tmp_path, lines):
    path = tmp_path / "users"
    path.write_text("# users\n\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def gateway(tmp_path, users_file):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.users.file": str(users_file),
        "sasl.enabled.mechanisms": MECHANISMS,
        "connection.failed.authentication.delay.ms": 0,
    }
    with running_gateway(tmp_path / "root", **config) as running:
        yield running


@pytest.fixture
def send(client):
    """Send a token as a request; return the answer."""

    def sent(token):
        return client.ask("SaslAuthenticate", 2, auth_bytes=token)

    return sent


def plain(user=USER, password=PASSWORD, identity=""):
    return "\0".join((identity, user, password)).encode()


def scram(name, send, user=USER, password=PASSWORD, nonce=b"abc", change=lambda last: last):
    """Authenticate as a client does; return the last answer, and the signature it should have."""
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[name]
    escaped = user.replace("=", "=3D").replace(",", "=2C").encode()
    first_bare = b"n=" + escaped + b",r=" + nonce
    answer = send(b"n,," + first_bare)
    server_first = answer.auth_bytes
    parts = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salted = hashlib.pbkdf2_hmac(
        digest, password.encode(), base64.b64decode(parts[b"s"]), int(parts[b"i"])
    )
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored = hashlib.new(digest, client_key).digest()
    last = b"c=biws,r=" + parts[b"r"]
    signed = b",".join((first_bare, server_first, last))
    signature = hmac.digest(stored, signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, digest))
    return send(change(last + b",p=" + base64.b64encode(proof))), expected


def handshake(client, mechanism, version=1):
    return client.ask("SaslHandshake", version, mechanism=mechanism)


def test_plain_authenticates(client, send):
    answer = handshake(client, "PLAIN")
    assert (answer.error_code, answer.mechanisms) == (0, MECHANISMS.split(","))
    assert send(plain()).error_code == 0
    assert client.ask("Metadata", 12, topics=None).brokers


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_authenticates_both_sides(client, send, mechanism):
    assert handshake(client, mechanism).error_code == 0
    answer, expected = scram(mechanism, send)
    assert (answer.error_code, answer.auth_bytes) == (0, expected)
    assert client.ask("Metadata", 12, topics=None).brokers


def test_tokens_without_headers_authenticate_after_the_first_version(client):
    handshake(client, "PLAIN", version=0)
    client.send_bytes(frame(plain()))
    assert client.receive_frame() == b""
    assert client.ask("Metadata", 12, topics=None).brokers


@pytest.mark.parametrize(
    "token",
    [
        plain(password="wrong"),
        plain(user="bob"),
        plain(password=""),
        plain(user=""),
        plain(identity="root"),
        b"",
        b"\0\0",
        b"a\0b",
        b"\0\xff\0x",
        plain() + b"\0",
    ],
)
def test_a_wrong_password_and_a_malformed_token_are_refused_alike(gateway, client, send, token):
    handshake(client, "PLAIN")
    answer = send(token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "authentication failed: the user or the password is wrong"
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"password": "wrong"},
        {"user": "bob"},
        {"change": lambda last: last.replace(b"c=biws", b"c=eSws")},
        {"change": lambda last: last.replace(b"r=", b"r=x")},
        {"change": lambda last: last[:-8]},
        {"change": lambda last: last.partition(b",p=")[0] + b",p="},
        {"change": lambda last: last.partition(b",p=")[0]},
        {"change": lambda last: b""},
    ],
)
def test_a_wrong_proof_is_refused(client, send, mechanism, wrong):
    handshake(client, mechanism)
    answer, _ = scram(mechanism, send, **wrong)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


@pytest.mark.parametrize("token", [b"", b"n,,", b"p=tls,,n=a,r=b", b"n,,n=a=00,r=b", b"\xff"])
def test_a_malformed_first_message_is_refused(client, send, token):
    handshake(client, "SCRAM-SHA-256")
    assert send(token).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed()


def test_a_user_that_does_not_exist_has_a_salt_that_stays(gateway):
    found = []
    for name in (USER, "bob", "bob", "carol"):
        with gateway.client() as client:
            handshake(client, "SCRAM-SHA-256")
            escaped = name.replace("=", "=3D").replace(",", "=2C")
            token = f"n,,n={escaped},r=abc".encode()
            answer = client.ask("SaslAuthenticate", 2, auth_bytes=token).auth_bytes
            found.append(dict(part.split(b"=", 1) for part in answer.split(b","))[b"s"])
    assert found[1] == found[2]
    assert len(set(found)) == 3


def test_an_unknown_mechanism_is_refused_with_those_that_are_known(client):
    answer = handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == MECHANISMS.split(",")
    assert client.is_closed()


@pytest.mark.parametrize("name", ["Metadata", "CreateTopics", "InitProducerId"])
def test_nothing_else_is_answered_before_authentication(gateway, client, name):
    assert client.ask("ApiVersions", 0).error_code == 0
    client.send(name, 6)
    assert client.is_closed()


@pytest.mark.parametrize("steps", ["token first", "half an exchange", "handshake twice"])
def test_an_exchange_that_did_not_end_authenticates_nobody(client, send, steps):
    if steps == "token first":
        assert send(plain()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    elif steps == "handshake twice":
        handshake(client, "PLAIN")
        assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    else:
        handshake(client, "SCRAM-SHA-256")
        escaped = USER.replace("=", "=3D").replace(",", "=2C")
        assert send(f"n,,n={escaped},r=abc".encode()).error_code == 0
        client.send("Metadata", 12, topics=None)
    assert client.is_closed()


def test_a_frame_before_authentication_is_small(gateway, client, send):
    with gateway.client() as hostile:
        hostile.send_bytes(struct.pack(">i", 524_289))
        assert hostile.is_closed()
    handshake(client, "PLAIN")
    send(plain())
    client.send_bytes(struct.pack(">i", 524_289) + b"\0")
    with gateway.client() as other:
        other.ask("ApiVersions", 0)
    assert len(gateway.server.connections) >= 1


def test_clients_that_are_not_authenticated_take_no_memory_of_others(tmp_path, users_file):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.users.file": str(users_file),
        "sasl.enabled.mechanisms": "PLAIN",
        "queued.max.request.bytes": 600_000,
    }
    with running_gateway(tmp_path / "root", **config) as gateway, gateway.client() as client:
        strangers = [gateway.client() for _ in range(5)]
        for each in strangers:
            each.send_bytes(struct.pack(">i", 500_000) + b"some bytes")
        handshake(client, "PLAIN")
        assert client.ask("SaslAuthenticate", 2, auth_bytes=plain()).error_code == 0
        assert client.ask("Metadata", 12, topics=None).brokers
        for each in strangers:
            each.socket.close()
        assert gateway.call(lambda: gateway.server.memory.used_bytes) == 0


def test_requests_behind_a_failed_authentication_are_not_answered(gateway):
    with gateway.client() as client:
        handshake(client, "PLAIN")
        client.send("SaslAuthenticate", 2, auth_bytes=plain(password="wrong"))
        client.send("Metadata", 12, topics=None)
        assert client.receive()[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_client_authenticates_again_as_itself_and_as_nobody_else(gateway, users_file):
    with users_file.open("a") as file:
        file.write("\n".join(credential_lines("bob", "b", iterations=4096)) + "\n")
    with gateway.client() as client:
        for _ in range(2):
            handshake(client, "PLAIN")
            assert client.ask("SaslAuthenticate", 2, auth_bytes=plain()).error_code == 0
        handshake(client, "PLAIN")
        answer = client.ask("SaslAuthenticate", 2, auth_bytes=plain("bob", "b"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_listener_without_sasl_says_so(tmp_path):
    with running_gateway(tmp_path / "other") as other, other.client() as client:
        assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = client.ask("SaslAuthenticate", 2, auth_bytes=plain())
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


# --- users in the metadata -----------------------------------------------------------------------


def upsertions(user=USER, password=PASSWORD):
    return [
        UserScramCredentialUpsertion.of_password(user, mechanism, password, iterations=4096)
        for mechanism in ScramMechanism
    ]


def deletions(user=USER):
    return [UserScramCredentialDeletion(user, mechanism) for mechanism in ScramMechanism]


@pytest.fixture
def by_metadata(tmp_path):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISMS,
        "connection.failed.authentication.delay.ms": 0,
        "connections.max.reauth.ms": 60_000,
        "metadata.max.age.ms": 0,
    }
    with running_gateway(tmp_path / "root", clock=ManualClock(), **config) as running:
        yield running


def authenticates(gateway, mechanism, user=USER, password=PASSWORD):
    with gateway.client() as client:

        def send(token):
            return client.ask("SaslAuthenticate", 2, auth_bytes=token)

        handshake(client, mechanism)
        if mechanism == "PLAIN":
            answer = send(plain(user, password))
        else:
            answer, _ = scram(mechanism, send, user, password)
        assert answer.error_code in (0, ErrorCode.SASL_AUTHENTICATION_FAILED)
        return answer.error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
def test_a_running_gateway_sees_users_that_others_add_change_and_delete(
    tmp_path, by_metadata, mechanism
):
    other = Admin(tmp_path / "root")
    assert not authenticates(by_metadata, mechanism)
    other.alter_user_scram_credentials(upsertions())
    assert authenticates(by_metadata, mechanism)
    other.alter_user_scram_credentials(upsertions(password="another"))
    assert not authenticates(by_metadata, mechanism)
    assert authenticates(by_metadata, mechanism, password="another")
    other.alter_user_scram_credentials(deletions())
    assert not authenticates(by_metadata, mechanism, password="another")


def test_a_user_of_the_file_cannot_be_changed_in_the_metadata(tmp_path, gateway):
    admin = Admin(tmp_path / "root")
    admin.alter_user_scram_credentials(upsertions(password="taken") + upsertions("bob", "b"))
    for mechanism in MECHANISMS.split(","):
        assert authenticates(gateway, mechanism)
        assert not authenticates(gateway, mechanism, password="taken")
    by_age = gateway.server.gateway.cluster.image  # read again, whatever metadata.max.age.ms is
    assert "bob" in by_age().scram_credentials
    assert authenticates(gateway, "SCRAM-SHA-256", "bob", "b")


def test_a_user_that_is_deleted_within_an_exchange_is_out(tmp_path, by_metadata):
    admin = Admin(tmp_path / "root")
    admin.alter_user_scram_credentials(upsertions())
    with by_metadata.client() as client:
        tokens: list[bytes] = []

        def send(token):
            if tokens:
                admin.alter_user_scram_credentials(deletions())
            tokens.append(token)
            return client.ask("SaslAuthenticate", 2, auth_bytes=token)

        handshake(client, "SCRAM-SHA-256")
        answer, _ = scram("SCRAM-SHA-256", send)
        assert len(tokens) == 2
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_session_ends_and_a_deleted_user_with_it(tmp_path, by_metadata, is_deleted):
    admin = Admin(tmp_path / "root")
    admin.alter_user_scram_credentials(upsertions())
    clock = by_metadata.clock
    with by_metadata.client() as client:
        handshake(client, "PLAIN")
        answer = client.ask("SaslAuthenticate", 2, auth_bytes=plain())
        assert answer.session_lifetime_ms == 60_000
        clock.advance_ms(59_999)
        assert client.ask("Metadata", 12, topics=None).brokers
        if is_deleted:
            admin.alter_user_scram_credentials(deletions())
        clock.advance_ms(1)
        handshake(client, "PLAIN")
        answer = client.ask("SaslAuthenticate", 2, auth_bytes=plain())
        if is_deleted:
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.session_lifetime_ms == 0
            assert client.is_closed()
            return
        assert client.ask("Metadata", 12, topics=None).brokers
        clock.advance_ms(60_000)
        client.send("Metadata", 12, topics=None)
        assert client.is_closed()


def test_without_a_session_lifetime_a_client_authenticates_once(tmp_path, users_file):
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.users.file": str(users_file),
        "sasl.enabled.mechanisms": "PLAIN",
    }
    clock = ManualClock()
    with (
        running_gateway(tmp_path / "root", clock=clock, **config) as gateway,
        gateway.client() as client,
    ):
        handshake(client, "PLAIN")
        answer = client.ask("SaslAuthenticate", 2, auth_bytes=plain())
        assert answer.session_lifetime_ms == 0
        clock.advance_ms(10**9)
        assert client.ask("Metadata", 12, topics=None).brokers


def test_a_listener_without_users_says_so(tmp_path, caplog):
    with running_gateway(tmp_path / "other", **{"security.protocol": "SASL_PLAINTEXT"}) as gateway:
        assert not authenticates(gateway, "SCRAM-SHA-256")
    assert "no client can authenticate, because there are no users" in caplog.text


def test_a_principal_without_its_kind_is_refused():
    with pytest.raises(InvalidConfigurationError, match="expected list User:alice;User:bob"):
        GatewayConfig.parse({"super.users": "User:CN=a,O=b;alice"})
    config = GatewayConfig.parse({"super.users": " User:CN=a,O=b ; User:alice;"})
    assert config.super_users == ("User:CN=a,O=b", "User:alice")


# --- clients that others wrote -------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
def test_confluent_kafka_authenticates(gateway, mechanism):
    from confluent_kafka.admin import AdminClient

    settings = {
        "bootstrap.servers": gateway.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    assert AdminClient(settings).list_topics(timeout=20).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_authenticates(gateway, users_file, mechanism):
    from kafka import KafkaAdminClient

    users_file.write_text("\n".join(credential_lines("bob", "b", iterations=4096)))

    admin = KafkaAdminClient(
        bootstrap_servers=gateway.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="bob",  # it does not escape commas
        sasl_plain_password="b",
    )
    assert admin.describe_cluster()["brokers"]
    admin.close()


# --- the file ------------------------------------------------------------------------------------


def test_a_user_that_is_added_or_removed_counts_at_once(users_file):
    users = Users(UsersFile(users_file))
    assert users.accepts(USER, PASSWORD)
    assert not users.accepts("bob", "b")
    users_file.write_text("\n".join(credential_lines("bob", "b", iterations=4096)))
    assert users.accepts("bob", "b")
    assert not users.accepts(USER, PASSWORD)


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "alice:SCRAM-SHA-256:4096:c2FsdA==:a:b",
        "alice:SCRAM-SHA-1:4096:c2FsdA==:c2FsdA==:c2FsdA==",
        "alice:SCRAM-SHA-256:4096:c2FsdA==:c2FsdA==:c2FsdA==",
        ":SCRAM-SHA-256:4096:c2FsdA==:c2FsdA==:c2FsdA==",
    ],
)
def test_a_wrong_line_is_named(users_file, text):
    users_file.write_text(f"# head\n{text}\n")
    with pytest.raises(InvalidConfigurationError, match="line 2: expected name:mechanism"):
        UsersFile(users_file)


def test_too_few_iterations_are_refused(users_file):
    users_file.write_text(credential_lines(USER, PASSWORD, iterations=1000)[0])
    with pytest.raises(InvalidConfigurationError, match="at least 4096 iterations"):
        UsersFile(users_file)


def test_a_file_that_others_may_read_is_refused(users_file):
    users_file.chmod(0o640)
    with pytest.raises(InvalidConfigurationError, match="chmod 600"):
        UsersFile(users_file)


def test_a_file_that_is_missing_is_one_error(tmp_path):
    with pytest.raises(InvalidConfigurationError, match="cannot be read from"):
        UsersFile(tmp_path / "none")


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("a:b", "x"), ("a b", "x"), ("a", "")])
def test_a_user_without_a_name_or_a_password_is_refused(name, password):
    with pytest.raises(InvalidConfigurationError):
        credential_lines(name, password)
