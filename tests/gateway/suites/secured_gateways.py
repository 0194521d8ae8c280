"""Gateways that ask for a password or speak TLS, each with a root of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_log.gateway.security import credential_lines
from tests.gateway.security.certificates import write_certificate
from tests.gateway.suites.suite import running_gateways


@contextmanager
def gateway_with_users(
    beside: Path, passwords: Mapping[str, str], address: str | None = None
) -> Iterator[str]:
    """Run a gateway that asks for a password, by PLAIN or SCRAM, for the block; yield its address.

    Args:
        beside: the root of other gateways; that of this one lies beside it.
        passwords: the password of each user.
        address: the gateway's host and port; by default 127.0.0.1 and a free port.
    """
    users = beside.with_name(f"{beside.name}-users")
    users.touch(0o600)
    lines = (credential_lines(name, password) for name, password in passwords.items())
    users.write_text("\n".join(line for of_user in lines for line in of_user))
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.users.file": str(users),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    root = beside.with_name(f"{beside.name}-sasl")
    with running_gateways(root, settings=settings, address=address) as running:
        yield running.bootstrap_servers


@contextmanager
def gateway_with_tls(beside: Path) -> Iterator[tuple[str, Path]]:
    """Run a gateway with TLS for the block; yield its address and its certificate.

    Args:
        beside: the root of other gateways; that of this one lies beside it.
    """
    key = beside.with_name(f"{beside.name}-server.pem")
    write_certificate(key, "localhost")
    settings = {"security.protocol": "SSL", "ssl.keystore.location": str(key)}
    with running_gateways(beside.with_name(f"{beside.name}-tls"), settings=settings) as running:
        yield running.bootstrap_servers, key.with_suffix(".crt")
