"""The ASGI application: the routes of pages, of their answers as JSON, of streams, of changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from spark_log.admin import Admin
from spark_log.cluster import Cluster
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.guard import Guard
from spark_log.console.openapi import openapi_document
from spark_log.console.responses import json_response, verdict
from spark_log.console.sessions import Sessions
from spark_log.console.settings import ConsoleSettings
from spark_log.console.streams import emit_hits, emit_json_lines, emit_parquet
from spark_log.console.templates import environment, render
from spark_log.console.view import View
from spark_log.console.views import (
    VIEWS,
    Reset,
    ResetParameters,
    SearchParameters,
    execute_reset,
    open_search,
)
from spark_log.console.work import Workers

_log = logging.getLogger(__name__)

_MAX_FORM_BYTES: Final = 2_000_000
_STATIC: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
    "uplot/uPlot.min.css": "text/css",
    "uplot/uPlot.iife.min.js": "text/javascript",
    "uplot/LICENSE": "text/plain",
}

_Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    cluster: Cluster, admin: Admin, settings: ConsoleSettings | None = None
) -> Starlette:
    """Return the console of one root as an ASGI application.

    Args:
        cluster: the opened root.
        admin: the `Admin` of the same root.
        settings: the settings of the console; None for a console that only reads.
    """
    settings = settings or ConsoleSettings()
    website = _Website(Console(cluster, admin, settings), settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            website.close()

    return Starlette(
        routes=website.routes(),
        middleware=[Middleware(Guard, settings=settings)],
        exception_handlers={Exception: website.failed, HTTPException: website.failed},
        lifespan=lifespan,
    )


class _Website:
    """The state that all routes share, and their handlers."""

    def __init__(self, console: Console, settings: ConsoleSettings) -> None:
        self._console = console
        self._settings = settings
        self._sessions = Sessions(settings)
        self._templates = environment()
        clock = console.cluster.clock
        self._pages = Workers(
            clock,
            count=settings.max_requests,
            timeout_ms=settings.request_timeout_ms,
            name="page",
        )
        self._searches = Workers(
            clock,
            count=settings.max_searches,
            timeout_ms=settings.search_timeout_ms,
            name="search",
        )
        self._openapi = openapi_document(allows_changes=settings.allows_changes)

    def close(self) -> None:
        self._pages.close()
        self._searches.close()

    def routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = []
        for view in VIEWS:
            routes.append(Route(view.path, self._handling(partial(self._page, view))))
            path = "/api" + view.path.rstrip("/")
            routes.append(Route(path, self._handling(partial(self._json, view))))
        single: list[tuple[str, _Handler, str]] = [
            ("/api/search/stream", self._search_stream, "GET"),
            ("/api/export", self._export, "GET"),
            ("/api/openapi.json", self._openapi_json, "GET"),
            ("/openapi", self._openapi_page, "GET"),
            ("/sign-in", self._sign_in_page, "GET"),
            ("/sign-in", self._sign_in, "POST"),
            ("/sign-out", self._sign_out, "POST"),
            ("/group/reset", self._reset_page, "GET"),
            ("/group/reset", self._reset, "POST"),
            ("/api/group/reset", self._reset_json, "POST"),
        ]
        routes += [
            Route(path, self._handling(handler), methods=[method])
            for path, handler, method in single
        ]
        # Only these files, by name: no path of a request reaches the file system.
        routes += [
            Route(f"/static/{name}", partial(_static, name, media_type))
            for name, media_type in _STATIC.items()
        ]
        return routes

    def _handling(self, handler: _Handler) -> _Handler:
        """Return a handler that turns every error of a handler into an answer."""

        @wraps(handler)
        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                return await self.failed(request, error)

        return handle

    async def failed(self, request: Request, error: Exception) -> Response:
        """Return an error as one sentence, as JSON below ``/api``, otherwise as a page."""
        status, sentence = verdict(error)
        if status == 500 and not isinstance(error, HTTPException):
            _log.error("%s failed", request.url.path, exc_info=error)
        if request.url.path.startswith("/api"):
            return json_response({"error": sentence}, status)
        return self._html(request, "error.html", {"status": status, "sentence": sentence}, status)

    # --- pages -----------------------------------------------------------------------------------

    async def _read(self, view: View[Any], request: Request) -> tuple[Any, Any]:
        parameters = view.parse(request)
        clock = self._console.cluster.clock
        began_ms = clock.monotonic_ms()
        answer = await self._pages.run(
            request, lambda budget: view.read(self._console, parameters, budget)
        )
        _log.debug("page %s was read in %.0f ms", view.path, clock.monotonic_ms() - began_ms)
        return parameters, answer

    async def _page(self, view: View[Any], request: Request) -> Response:
        parameters, answer = await self._read(view, request)
        values = {"it": answer, "given": parameters, "title": view.title}
        return await run_in_threadpool(self._html, request, view.template, values)

    async def _json(self, view: View[Any], request: Request) -> Response:
        _, answer = await self._read(view, request)
        return await run_in_threadpool(json_response, answer)

    def _html(
        self, request: Request, template: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        shared = {
            "path": request.url.path,
            "query": request.url.query,
            "root": self._console.cluster.root,
            "allows_changes": self._settings.allows_changes,
            "csrf": self._sessions.csrf_token(request),
        }
        body = render(self._templates, template, {**shared, **values})
        return Response(body, status, media_type="text/html")

    async def _openapi_json(self, _: Request) -> Response:
        return json_response(self._openapi)

    async def _openapi_page(self, request: Request) -> Response:
        values = {"title": "API", "api": self._openapi}
        return await run_in_threadpool(self._html, request, "openapi.html", values)

    # --- streams ---------------------------------------------------------------------------------

    async def _search_stream(self, request: Request) -> Response:
        parameters = _search_parameters(request)
        search = await self._pages.run(
            request, lambda _: open_search(self._console, parameters, limit=parameters.limit)
        )

        def work(budget: Budget, emit: Callable[[bytes], None]) -> None:
            emit_hits(self._console, parameters, search, budget, emit)

        return StreamingResponse(
            self._searches.stream(request, work), media_type="text/event-stream"
        )

    async def _export(self, request: Request) -> Response:
        parameters = _search_parameters(request)
        search = await self._pages.run(
            request, lambda _: open_search(self._console, parameters, limit=None)
        )
        emit_records = emit_parquet if parameters.format == "parquet" else emit_json_lines

        def work(budget: Budget, emit: Callable[[bytes], None]) -> None:
            emit_records(self._console, parameters.topic, search, budget, emit)

        kind = "vnd.apache.parquet" if parameters.format == "parquet" else "x-ndjson"
        return StreamingResponse(
            self._searches.stream(request, work),
            media_type=f"application/{kind}",
            # The file name has no topic name, which might contain anything.
            headers={"content-disposition": f'attachment; filename="records.{parameters.format}"'},
        )

    # --- changes ---------------------------------------------------------------------------------

    async def _sign_in_page(self, request: Request) -> Response:
        return self._html(request, "sign_in.html", {"title": "Sign in", "wrong": ""})

    async def _sign_in(self, request: Request) -> Response:
        form = await _form(request)
        response = RedirectResponse("/", 303)
        try:
            self._sessions.sign_in(form.get("token", ""), response)
        except HTTPException as error:
            values = {"title": "Sign in", "wrong": error.detail}
            return self._html(request, "sign_in.html", values, error.status_code)
        return response

    async def _sign_out(self, request: Request) -> Response:
        form = await _form(request)
        self._sessions.check_form(request, form.get("csrf", ""))
        response = RedirectResponse("/", 303)
        self._sessions.sign_out(request, response)
        return response

    async def _reset_page(self, request: Request) -> Response:
        group = request.query_params.get("group", "")
        return self._html(request, "reset.html", _reset_values(group, {}, None))

    async def _reset(self, request: Request) -> Response:
        form = await _form(request)
        self._sessions.check_form(request, form.pop("csrf", ""))
        parameters = ResetParameters.model_validate({k: v for k, v in form.items() if v})
        answer = await self._execute(request, parameters)
        return self._html(request, "reset.html", _reset_values(parameters.group, form, answer))

    async def _reset_json(self, request: Request) -> Response:
        self._sessions.check_bearer(request)
        parameters = ResetParameters.model_validate_json(await _body(request))
        return json_response(await self._execute(request, parameters))

    async def _execute(self, request: Request, parameters: ResetParameters) -> Reset:
        return await self._pages.run(
            request, lambda budget: execute_reset(self._console, parameters, budget)
        )


def _search_parameters(request: Request) -> SearchParameters:
    given = {name: value for name, value in request.query_params.items() if value}
    return SearchParameters.model_validate(given)


def _reset_values(group: str, form: dict[str, str], answer: Reset | None) -> dict[str, Any]:
    lines = answer and [
        f"{each.topic},{each.partition},{each.new_offset}" for each in answer.offsets
    ]
    return {
        "title": "Reset offsets",
        "group": group,
        "form": form,
        "it": answer,
        "planned": "\n".join(lines or ()),
    }


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; files are not accepted."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(
            415,
            f"the form has the content type {kind!r}, expected application/x-www-form-urlencoded",
        )
    body = await _body(request)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise HTTPException(
            400, "the form cannot be read: it is not UTF-8, or has more than 100 fields"
        ) from None


async def _body(request: Request) -> bytes:
    """Return the body of a request, if it is small and arrives in time."""
    body = bytearray()
    try:
        async with asyncio.timeout(10):
            async for piece in request.stream():
                body += piece
                if len(body) > _MAX_FORM_BYTES:
                    raise HTTPException(413, f"the request has more than {_MAX_FORM_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, "the request did not arrive within 10 s; send it again") from None
    return bytes(body)


async def _static(name: str, media_type: str, _: Request) -> Response:
    return Response(
        files("spark_log.console").joinpath("static", name).read_bytes(), media_type=media_type
    )
