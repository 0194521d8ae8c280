"""Authorization of changes: a token that was printed at the start, sessions, and CSRF tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from spark_log.console.settings import ConsoleSettings

COOKIE: Final = "spark-log-console"
_MAX_SESSIONS: Final = 100
_MAX_WRONG: Final = 20


class Sessions:
    """The sessions of browsers that have sent the token. They end with the console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._token = settings.token
        self._key = secrets.token_bytes(32)
        self._open: OrderedDict[str, None] = OrderedDict()
        self._wrong = 0
        self._lock = threading.Lock()

    def sign_in(self, token: str, response: Response) -> None:
        """Begin a session, and put its cookie into a response.

        The cookie is not sent with requests of other sites, and no script can read it.

        Raises:
            HTTPException: the token is wrong, or too many wrong tokens were sent.
        """
        self._check_token(token)
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._open[session] = None
            if len(self._open) > _MAX_SESSIONS:
                self._open.popitem(last=False)
        response.set_cookie(COOKIE, session, httponly=True, samesite="strict", path="/")

    def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request."""
        with self._lock:
            self._open.pop(request.cookies.get(COOKIE, ""), None)
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")

    def csrf_token(self, request: Request) -> str | None:
        """Return the CSRF token for the forms of a session; None without a session."""
        session = request.cookies.get(COOKIE, "")
        if session not in self._open:
            return None
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def check_form(self, request: Request, given: str) -> None:
        """Check that a form's request has a session, and that the form belongs to this session.

        Raises:
            HTTPException: the request has no session, or the form belongs to another session.
        """
        self._check_allowed()
        expected = self.csrf_token(request)
        if expected is None:
            raise HTTPException(401, "sign in with the token that the console printed at its start")
        if not hmac.compare_digest(expected.encode(), given.encode(errors="replace")):
            raise HTTPException(403, "the form belongs to another session; load its page again")

    def check_bearer(self, request: Request) -> None:
        """Check the request of a program, which sends the token itself instead of a cookie.

        Raises:
            HTTPException: the token is wrong or missing.
        """
        self._check_allowed()
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HTTPException(401, "send the header Authorization: Bearer with the token")
        self._check_token(token.strip())

    def _check_allowed(self) -> None:
        if self._token is None:
            raise HTTPException(403, "this console only reads; start it with --allow-changes")

    def _check_token(self, given: str) -> None:
        self._check_allowed()
        assert self._token is not None
        if self._wrong >= _MAX_WRONG:
            raise HTTPException(403, "too many wrong tokens were given; start the console again")
        if not hmac.compare_digest(self._token.encode(), given.encode(errors="replace")):
            self._wrong += 1
            raise HTTPException(401, "this is not the token that the console printed at its start")
