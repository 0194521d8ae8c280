"""The TLS of a listener, from PEM files."""

from __future__ import annotations

import ssl
from typing import Any, Final

from spark_log.config import GatewayConfig
from spark_log.errors import InvalidConfigurationError

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def tls_context(config: GatewayConfig) -> ssl.SSLContext:
    """Return the context of a listener; TLS 1.2 and 1.3.

    Raises:
        InvalidConfigurationError: a file is missing, or is not what it should be.
    """
    if not config.ssl_keystore_location:
        raise InvalidConfigurationError(
            f"security.protocol is {config.security_protocol}, and ssl.keystore.location is "
            f"missing; give a PEM file with the private key and the certificates",
            key="ssl.keystore.location",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    password = config.ssl_key_password or None
    # Without a password, OpenSSL would ask on the terminal for that of an encrypted key.
    _load(
        "ssl.keystore.location",
        config.ssl_keystore_location,
        lambda: context.load_cert_chain(
            config.ssl_keystore_location, password=password or (lambda: "")
        ),
    )
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    if config.ssl_truststore_location:
        _load(
            "ssl.truststore.location",
            config.ssl_truststore_location,
            lambda: context.load_verify_locations(config.ssl_truststore_location),
        )
    elif context.verify_mode is not ssl.CERT_NONE:
        raise InvalidConfigurationError(
            f"ssl.client.auth is {config.ssl_client_auth}, and ssl.truststore.location is missing; "
            f"give a PEM file with the certificates that clients' certificates are signed by",
            key="ssl.truststore.location",
        )
    return context


def _load(key: str, path: str, load: Any) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidConfigurationError(
            f"{key} is {path}, which cannot be used: {error}; give a PEM file", key=key
        ) from None


def principal_of_certificate(certificate: Any) -> str:
    """Return the principal of a client's certificate: its subject, as Kafka writes it.

    Args:
        certificate: what ``SSLObject.getpeercert`` returns; None without a certificate.
    """
    if not certificate:
        return ""
    names = [pair for part in reversed(certificate.get("subject", ())) for pair in part]
    return "User:" + ",".join(f"{_SHORT.get(key, key)}={value}" for key, value in names)


_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
}
