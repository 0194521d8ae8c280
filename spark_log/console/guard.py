"""`Guard`: checks and headers that apply to every request."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spark_log.console.responses import refusal
from spark_log.console.settings import LOCAL_HOSTS, ConsoleSettings

SECURITY_HEADERS: Final = {
    # Pages contain no inline script or style: a value that got through as HTML would not run.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """Middleware around the whole application.

    - A request with another ``Host`` than the console's own is refused: a foreign site
      whose name points to this address (DNS rebinding) gets no record.
    - A request that a browser sends for another site is refused, except for a link that a user
      follows: another site cannot start a search or an export.
    - Every answer has the headers in `SECURITY_HEADERS`.
    """

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._hosts = {each.lower() for each in (*LOCAL_HOSTS, *settings.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        reason = self._refusal(scope)
        app = self._app if reason is None else refusal(403, reason)
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = _without_port(headers.get("host", "")).lower()
        if len(headers.getlist("host")) != 1 or host not in self._hosts:
            return (
                f"the console does not answer for the host {host!r}; start it with "
                f"--allowed-host to add one"
            )
        is_own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in ("GET", "HEAD")
        if not is_own and not (is_link and headers.get("sec-fetch-dest") == "document"):
            return "the console does not answer requests that another site sends; open its own page"
        return None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
