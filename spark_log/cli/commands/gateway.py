"""``spark-log gateway``: a server that speaks Kafka's protocol."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_log import __version__
from spark_log.cli.format import Output, print_json, print_note, print_text
from spark_log.cli.options import (
    MetricsPort,
    Root,
    load_pairs,
    metrics_served,
    parse_pairs,
    warn_of_secrets,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.cluster import open_cluster
from spark_log.config import GatewayConfig
from spark_log.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from spark_log.gateway import GatewayServer


_GARBAGE_THRESHOLDS = (5_000, 20, 20)
"""Thresholds of Python's cyclic garbage collector (``gc.set_threshold``). Fetches that wait look
like a leak to it. With its defaults it took a third of the CPU time of 1,000 idle consumers."""


@with_examples(
    "spark-log gateway --listen 127.0.0.1:9092",
    "spark-log gateway --rack eu-1a --override num.partitions=4",
)
@with_option_groups
def gateway(
    root: Root,
    output: Output,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0: any."),
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST[:PORT]",
            help="Address that clients connect to. [default: that of --listen]",
        ),
    ] = None,
    rack: Annotated[
        str | None, typer.Option("--rack", help="Rack of the gateway: broker.rack.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            max=256,
            help="Number of processes. Each is a gateway of its own, on a port of its own: that of "
            "--listen, and those after it.",
        ),
    ] = 1,
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
    metrics_port: MetricsPort = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the root if it does not exist.")
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen on other addresses than those of this machine, although everybody who "
            "reaches them may read, write and delete everything.",
        ),
    ] = False,
) -> None:
    """Serve the root to Kafka's clients, until Ctrl-C.

    Producers, consumers and tools of Kafka connect to it; topics are those of the root, and
    spark-log's own clients and Spark use them at the same time. Any number of gateways may serve a
    root: clients spread over them, and when one ends, the others do its work. A gateway stores
    nothing.

    On SIGTERM it leaves the list of gateways, answers the requests that it has received, and ends.
    """
    host, port = _address("--listen", listen)
    given: dict[str, object] = {} if gateway_config is None else dict(load_pairs(gateway_config))
    overrides = parse_pairs("--override", override or [], secret=True)
    warn_of_secrets("--override", overrides, "write it into the file of --gateway-config")
    config = GatewayConfig.parse(
        given | overrides | ({} if rack is None else {"broker.rack": rack})
    )
    if not (insecure or _is_of_this_machine(host) or _authenticates(config)):
        raise InvalidConfigurationError(
            f"--listen {listen}: everybody who reaches this address could read, write and delete "
            f"everything; listen on 127.0.0.1, set security.protocol=SASL_SSL (docs/gateway.md), "
            f"or permit it by --insecure",
            key="security.protocol",
        )
    if workers > 1:
        from spark_log.gateway import run_workers

        print_note(f"{workers} gateways serve {root.url}")
        raise typer.Exit(
            run_workers([_arguments_of_worker(n, listen, advertise) for n in range(workers)])
        )
    advertised = None if advertise is None else _address("--advertise", advertise, default_port=0)
    cluster = open_cluster(
        root.url,
        root.storage_options,
        timeout_ms=config.default_api_timeout_ms,
        create=create,
        request_timeout_ms=config.request_timeout_ms,
        broker_options=root.broker_options,
        client_rack=config.broker_rack,
    )
    from spark_log.gateway import GatewayServer, new_event_loop

    async def serve() -> None:
        server = GatewayServer(cluster, root.admin(cluster), config, version=__version__)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        address = await server.start(host, port, advertised=advertised)
        with metrics_served(server.families, metrics_port):
            _print_start(output, server, address)
            await stopped.wait()
        await server.stop()

    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve())
    finally:
        cluster.release()


def _print_start(output: Output, server: GatewayServer, address: tuple[str, int]) -> None:
    found = server.gateway.registered
    if output.is_json:
        print_json({"id": found.gateway_id, "host": found.host, "port": found.port})
    else:
        print_text(
            f"Gateway {found.gateway_id} listens on {address[0]}:{address[1]}; clients connect to "
            f"{found.host}:{found.port}"
        )
    sys.stdout.flush()


def _address(option: str, text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, or ``[IPV6]:PORT``."""
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or text.endswith("]")):
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidConfigurationError(
            f"{option} {text}: expected HOST:PORT with a port up to 65535, such as 127.0.0.1:9092"
        )
    return host, int(port)


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


def _arguments_of_worker(number: int, listen: str, advertise: str | None) -> list[str]:
    """Return the arguments of one worker: those of this process, with a port of its own."""
    found = [*sys.argv[1:], "--workers", "1"]
    for option, text in (("--listen", listen), ("--advertise", advertise)):
        if text is not None:
            host, port = _address(option, text, default_port=0)
            shown = f"[{host}]" if ":" in host else host
            found += [option, f"{shown}:{port + number if port else 0}"]
    return found
