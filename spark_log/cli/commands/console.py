"""``spark-log console``: serves a website that shows one root."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from spark_log.cli.format import Output, avro_deserializer, print_json, print_note, print_text
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError

_MIB = 1_048_576


@with_examples(
    "spark-log console",
    "spark-log console --port 8080 --allow-changes",
    "spark-log console --openapi",
)
@with_option_groups
def console(
    root: Root,
    output: Output,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port to listen on. 0: any free one.")
    ] = 8470,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Another host name of this machine in URLs. Repeatable.",
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Allow users who have the token that is printed at the start to reset offsets of "
            "groups.",
        ),
    ] = False,
    avro_schema: Annotated[
        list[str] | None,
        typer.Option(
            "--avro-schema",
            metavar="TOPIC=FILE",
            help="Avro schema of the values of a topic. Repeatable.",
        ),
    ] = None,
    search_memory_mib: Annotated[
        int,
        typer.Option("--search-memory-mib", min=64, help="Memory of a search's SQL, in MiB."),
    ] = 512,
    openapi: Annotated[
        bool, typer.Option("--openapi", help="Print the OpenAPI document of the JSON, and end.")
    ] = False,
) -> None:
    """Serve a website that shows the root, until Ctrl-C.

    The website shows topics, records, groups, transactions, brokers and settings, and searches
    records by key, header or a SQL expression. Everything is also JSON under /api. The website
    changes nothing, unless --allow-changes is given.

    By default it listens on this machine alone. It has no users and no encryption: to show it to
    others, put a proxy with both in front of it, and give the proxy's name with --allowed-host.

    It needs pip install 'spark-log[console]'.
    """
    try:
        import uvicorn

        from spark_log.console import ConsoleSettings, create_app, openapi_document
    except ImportError as error:
        raise InvalidConfigurationError(
            f"the console needs {error.name}: pip install 'spark-log[console]'"
        ) from None
    if openapi:
        print_json(openapi_document(allows_changes=allow_changes))
        return
    settings = ConsoleSettings(
        token=secrets.token_urlsafe(24) if allow_changes else None,
        hosts=(f"[{host}]" if ":" in host else host, *(allowed_host or ())),
        avro=_decoders(avro_schema or []),
        search_memory_bytes=search_memory_mib * _MIB,
    )
    cluster = root.cluster()
    app = create_app(cluster, root.admin(cluster), settings)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=200,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
        lifespan="on",
    )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidConfigurationError(
            f"cannot listen on {host}, port {port} ({error.strerror}); give another --host or "
            f"--port"
        ) from None
    with listener:
        url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        if output.is_json:
            print_json({"url": url, "token": settings.token})
        else:
            print_text(f"The console is at {url}")
        if settings.token is not None:
            print_note(f"Token for changes: {settings.token}")
        sys.stdout.flush()
        uvicorn.Server(config).run(sockets=[listener])


def _decoders(given: list[str]) -> dict[str, Any]:
    decoders = {}
    for each in given:
        topic, equals, path = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"{each!r} is not TOPIC=FILE", param_hint="'--avro-schema'")
        decoders[topic] = avro_deserializer(Path(path)).document
    return decoders
