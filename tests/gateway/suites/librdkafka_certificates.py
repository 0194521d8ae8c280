"""The certificates that librdkafka's tests get from its own test environment, trivup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.gateway.security.certificates import write_certificate

_PASSWORD: Final = "secret"


@dataclass(frozen=True, slots=True)
class Certificates:
    """The paths of the certificates of gateways, of clients and of the test-runner.

    Attributes:
        settings: settings of the gateways.
        config: settings of the clients.
        env: environment variables of the test-runner.
    """

    settings: Mapping[str, str]
    config: Mapping[str, str]
    env: Mapping[str, str]


def write_certificates(folder: Path, client_auth: str) -> Certificates:
    """Write a CA, and keys and certificates of gateways and of a client, in all formats.

    Args:
        folder: a new folder for them.
        client_auth: ``ssl.client.auth`` of the gateways.
    """
    folder.mkdir()
    signer = write_certificate(folder / "ca.pem", "the CA")
    write_certificate(folder / "unused-ca.pem", "another CA")
    write_certificate(folder / "gateway.pem", "gateway", signer)
    key, _ = write_certificate(folder / "client.pem", "client", signer, _PASSWORD)
    ca, client = (_certificate(folder / f"{name}.crt") for name in ("ca", "client"))
    both = (folder / "unused-ca.crt").read_bytes() + (folder / "ca.crt").read_bytes()
    (folder / "all-cas.pem").write_bytes(both)
    encrypted = serialization.BestAvailableEncryption(_PASSWORD.encode())
    for name, data in (
        ("ca.der", ca.public_bytes(serialization.Encoding.DER)),
        ("client.der", client.public_bytes(serialization.Encoding.DER)),
        ("client-key.der", _private_bytes(key, "DER", serialization.NoEncryption())),
        ("client-key.pem", _private_bytes(key, "PEM", encrypted)),
        ("client.p12", pkcs12.serialize_key_and_certificates(b"c", key, client, [ca], encrypted)),
    ):
        (folder / name).write_bytes(data)
    return Certificates(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(folder / "gateway.pem"),
            "ssl.truststore.location": str(folder / "ca.crt"),
            "ssl.client.auth": client_auth,
        },
        {
            "security.protocol": "ssl",
            "ssl.ca.location": str(folder / "ca.crt"),
            "ssl.certificate.location": str(folder / "client.crt"),
            "ssl.key.location": str(folder / "client-key.pem"),
            "ssl.key.password": _PASSWORD,
        },
        {
            "SSL_client_auth": client_auth,
            "SSL_password": _PASSWORD,
            "SSL_pkcs": str(folder / "client.p12"),
            "SSL_pub_der": str(folder / "client.der"),
            "SSL_pub_pem": str(folder / "client.crt"),
            "SSL_priv_der": str(folder / "client-key.der"),
            "SSL_priv_pem": str(folder / "client-key.pem"),
            "SSL_ca_der": str(folder / "ca.der"),
            "SSL_ca_pem": str(folder / "ca.crt"),
            "SSL_all_cas_pem": str(folder / "all-cas.pem"),
        },
    )


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _private_bytes(key: Any, encoding: str, encryption: Any) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    found: bytes = key.private_bytes(getattr(serialization.Encoding, encoding), form, encryption)
    return found
