"""Options of the command and of the job that run gateways."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.options.properties import load_pairs, parse_pairs, warn_of_secrets
from spark_log.config import GatewayConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.util import is_any_address


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The address and the settings of a gateway, from command line options.

    Attributes:
        listen: the address to listen on, as it was given.
        host: its host.
        port: its port; 0 for any.
        config: the settings.
    """

    listen: str
    host: str
    port: int
    config: GatewayConfig

    @classmethod
    def from_options(
        cls,
        listen: Annotated[
            str,
            typer.Option(
                "--listen", metavar="HOST:PORT", help="Address to listen on; port 0: any."
            ),
        ] = "127.0.0.1:9092",
        rack: Annotated[
            str | None, typer.Option("--rack", help="Rack of the gateway: broker.rack.")
        ] = None,
        gateway_config: Annotated[
            Path | None,
            typer.Option(
                "--gateway-config",
                metavar="FILE",
                help="Properties file with settings of the gateway: docs/configuration.md.",
            ),
        ] = None,
        override: Annotated[
            list[str] | None,
            typer.Option(
                "--override",
                metavar="KEY=VALUE",
                help="Setting of the gateway, instead of that in the file. Repeatable.",
            ),
        ] = None,
        insecure: Annotated[
            bool,
            typer.Option(
                "--insecure",
                help="Listen on other addresses than those of this machine, although everybody who "
                "reaches them may read, write and delete everything.",
            ),
        ] = False,
    ) -> GatewayOptions:
        """Return the options.

        Raises:
            InvalidConfigurationError: the address or a setting is not valid, or the address is open
                to others and clients do not authenticate.
        """
        host, port = gateway_address("--listen", listen)
        given: dict[str, object] = (
            {} if gateway_config is None else dict(load_pairs(gateway_config))
        )
        overrides = parse_pairs("--override", override or [], secret=True)
        warn_of_secrets("--override", overrides, "write it into the file of --gateway-config")
        config = GatewayConfig.parse(
            given | overrides | ({} if rack is None else {"broker.rack": rack})
        )
        if not (insecure or _is_of_this_machine(host) or _authenticates(config)):
            raise InvalidConfigurationError(
                f"--listen {listen}: everybody who reaches this address could read, write and "
                f"delete everything; listen on 127.0.0.1, set security.protocol=SASL_SSL "
                f"(docs/gateway.md), or permit it by --insecure",
                key="security.protocol",
            )
        return cls(listen, host, port, config)


def gateway_address(option: str, text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, or ``[IPV6]:PORT``.

    Args:
        option: the option, for the error.
        text: its value.
        default_port: the port if the text has none; None if it needs one.

    Raises:
        InvalidConfigurationError: the text is not an address.
    """
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or text.endswith("]")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidConfigurationError(
            f"{option} {text}: expected HOST:PORT with a port up to 65535, such as 127.0.0.1:9092"
        )
    return host, int(port)


def advertised_address(listen_host: str, advertise: str | None) -> tuple[str, int] | None:
    """Return host and port that clients connect to; None if they are those to listen on.

    Args:
        listen_host: the host to listen on.
        advertise: the value of ``--advertise``; None without it.

    Raises:
        InvalidConfigurationError: no client can connect to the address, or it is not valid.
    """
    if advertise is None:
        if is_any_address(listen_host):
            raise InvalidConfigurationError(
                f"--listen {listen_host} means all addresses of this machine, and no client can "
                f"connect to that; add --advertise with the name or the address of this machine "
                f"that clients connect to"
            )
        return None
    host, port = gateway_address("--advertise", advertise, default_port=0)
    if is_any_address(host):
        raise InvalidConfigurationError(
            f"--advertise {advertise}: no client can connect to {host}; give the name or the "
            f"address of this machine that clients connect to"
        )
    return host, port


def _authenticates(config: GatewayConfig) -> bool:
    """Return whether clients show who they are: by SASL, or by a certificate."""
    protocol = config.security_protocol
    return protocol.startswith("SASL") or (
        protocol == "SSL" and config.ssl_client_auth == "required"
    )


def _is_of_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
