"""``--metrics-port``: serves metrics while a command works."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from spark_log.cli.format import print_note
from spark_log.metrics import Family, collector_of, new_registry, scrape_text

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Port on 127.0.0.1 that serves metrics for Prometheus. [default: none]",
    ),
]


@contextmanager
def metrics_served(families: Callable[[], Iterable[Family]], port: int | None) -> Iterator[None]:
    """Serve metrics during the block, and print their address.

    Args:
        families: the function that returns the metrics, in any thread.
        port: the port on 127.0.0.1; 0 for any free port; None to serve nothing.

    Raises:
        InvalidConfigurationError: it is not possible to listen on the port.
    """
    if port is None:
        yield
        return
    from spark_log.metrics import MetricsServer  # it imports http.server

    registry = new_registry()
    collector_of(registry).add(families)
    server = MetricsServer("127.0.0.1", port, lambda: scrape_text(registry))
    try:
        print_note(f"Metrics are at http://127.0.0.1:{server.port}/metrics")
        yield
    finally:
        server.close()
