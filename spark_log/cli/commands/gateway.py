"""``spark-log gateway``: a server that speaks Kafka's protocol."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from spark_log import __version__
from spark_log.cli.format import Output, print_json, print_note, print_text
from spark_log.cli.options import (
    GatewayOptions,
    MetricsPort,
    Root,
    advertised_address,
    gateway_address,
    metrics_served,
    with_option_groups,
)
from spark_log.cli.terminal import ProcessExit, with_examples
from spark_log.cluster import open_cluster

if TYPE_CHECKING:
    from spark_log.gateway import GatewayServer


@with_examples(
    "spark-log gateway --listen 127.0.0.1:9092",
    "spark-log gateway --rack eu-1a --override num.partitions=4",
)
@with_option_groups
def gateway(
    root: Root,
    output: Output,
    options: GatewayOptions,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST[:PORT]",
            help="Address that clients connect to. [default: that of --listen]",
        ),
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
    metrics_port: MetricsPort = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the root if it does not exist.")
    ] = False,
) -> None:
    """Serve the root to Kafka's clients, until Ctrl-C.

    Producers, consumers and tools of Kafka connect to it; topics are those of the root, and
    spark-log's own clients and Spark use them at the same time. Any number of gateways may serve a
    root: clients spread over them, and when one ends, the others do its work. A gateway stores
    nothing.

    On SIGTERM it leaves the list of gateways, answers the requests that it has received, and ends.
    """
    config = options.config
    advertised = advertised_address(options.host, advertise)
    if workers > 1:
        from spark_log.gateway import run_workers

        print_note(f"{workers} gateways serve {root.url}")
        arguments = [_arguments_of_worker(n, options.listen, advertise) for n in range(workers)]
        raise typer.Exit(run_workers(arguments))
    cluster = open_cluster(
        root.url,
        root.storage_options,
        timeout_ms=config.default_api_timeout_ms,
        create=create,
        request_timeout_ms=config.request_timeout_ms,
        broker_options=root.broker_options,
        client_rack=config.broker_rack,
    )
    from spark_log.gateway import GatewayServer, run_event_loop

    async def serve() -> None:
        server = GatewayServer(cluster, root.admin(cluster), config, version=__version__)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        address = await server.start(options.host, options.port, advertised=advertised)
        try:
            with metrics_served(server.families, metrics_port):
                _print_start(output, server, address)
                await stopped.wait()
        finally:
            await server.stop()

    try:
        run_event_loop(serve())
    finally:
        cluster.release()
    raise ProcessExit  # everything was answered; what its threads still do, nobody waits for


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


def _arguments_of_worker(number: int, listen: str, advertise: str | None) -> list[str]:
    """Return the arguments of one worker: those of this process, with a port of its own."""
    found = [*sys.argv[1:], "--workers", "1"]
    for option, text in (("--listen", listen), ("--advertise", advertise)):
        if text is not None:
            host, port = gateway_address(option, text, default_port=0)
            shown = f"[{host}]" if ":" in host else host
            found += [option, f"{shown}:{port + number if port else 0}"]
    return found
