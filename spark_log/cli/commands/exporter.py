"""``spark-log exporter``: the root's metrics for Prometheus."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_bytes, print_json, print_note
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import exit_on_sigterm, with_examples
from spark_log.errors import SparkLogError
from spark_log.exporter import RootExporter, Scrape
from spark_log.metrics import samples_of

_FAILED = 1
"""Exit status of --once: the root cannot be read."""


@with_examples("spark-log exporter --once", "spark-log exporter --once --json")
@with_option_groups
def exporter(
    root: Root,
    output: Output,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = 9308,
    cluster_name: Annotated[
        str | None,
        typer.Option(
            "--cluster-name",
            metavar="NAME",
            help="Label cluster_name of the lag in seconds. [default: the cluster's id]",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one scrape to stdout and stop.")
    ] = False,
) -> None:
    """Serve the root's metrics to Prometheus.

    The metrics are at /metrics. Topics, partitions, replicas, groups and lag have the names of
    kafka_exporter, lag in seconds that of kafka-lag-exporter; docs/metrics.md lists all metrics.
    Nothing is read between scrapes, and scrapes at the same time share one answer. If the root
    cannot be read, spark_log_exporter_up is 0.

    The exporter works until it is stopped. It has no passwords and no TLS: listen on other
    addresses than 127.0.0.1 only where everybody may see the names of topics and groups.

    Exit status of --once: 0 done, 1 the root cannot be read.
    """
    from spark_log.metrics import MetricsServer  # it imports http.server

    reader = RootExporter(root.cluster_now, cluster_name)
    if once:
        scrape = reader.scrape()
        _print(output, scrape)
        if scrape.error is not None:
            raise typer.Exit(_FAILED)
        return
    with exit_on_sigterm():
        server = MetricsServer(host, port, lambda: reader.scrape().text)
        try:
            print_note(f"Metrics of {root.url} are at http://{host}:{server.port}/metrics")
            _warn_without_root(root)
            threading.Event().wait()
        finally:
            server.close()


def _warn_without_root(root: Root) -> None:
    try:
        root.cluster_now()
    except SparkLogError as error:
        print_note(f"warning: spark_log_exporter_up is 0 until the root can be read: {error}")


def _print(output: Output, scrape: Scrape) -> None:
    if output.is_json:
        print_json({"metrics": samples_of(scrape.text), "requests": scrape.requests})
    else:
        print_bytes(scrape.text)
