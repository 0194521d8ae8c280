"""`Authenticator`: the SASL exchange of one connection."""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import Final

from spark_log.gateway.security.scram import ScramError, ScramExchange
from spark_log.gateway.security.users import Users
from spark_log.metadata import ScramCredential
from spark_log.types import ScramMechanism
from spark_log.util import SYSTEM_CLOCK, Clock

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(each.mechanism_name for each in ScramMechanism))

_log = logging.getLogger(__name__)


class AuthenticationError(Exception):
    """The client is not who it says; the message tells it nothing more."""


class _State(Enum):
    HANDSHAKE = auto()
    FIRST = auto()
    FINAL = auto()
    FAILED = auto()


class Authenticator:
    """Authenticates the client of one connection. For one call at a time.

    A connection is authenticated when an exchange has ended with an identity, and not before. A
    client may authenticate again on the same connection (KIP-368), as the same user. With a session
    lifetime it has to: the gateway closes the connection at the next request after it.

    Attributes:
        mechanisms: the mechanisms that the listener offers.
        principal: the authenticated user, as ``User:alice``; empty before.
        session_lifetime_ms: the time for which an authentication is valid; 0 for no limit.
    """

    def __init__(
        self,
        users: Users,
        mechanisms: tuple[str, ...],
        *,
        session_lifetime_ms: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return the authenticator of a new connection.

        Args:
            users: the users.
            mechanisms: the mechanisms that the listener offers.
            session_lifetime_ms: the time for which an authentication is valid; 0 for no limit.
            clock: measures this time.
        """
        self.session_lifetime_ms = session_lifetime_ms
        self._clock = clock
        self._authenticated_ms = 0.0
        self.mechanisms = mechanisms
        self.principal = ""
        self._users = users
        self._state = _State.HANDSHAKE
        self._mechanism = ""
        self._exchange: ScramExchange | None = None
        self._credential: ScramCredential | None = None

    @property
    def has_expired(self) -> bool:
        """Whether the client has to authenticate again before anything else is answered."""
        age_ms = self._clock.monotonic_ms() - self._authenticated_ms
        return bool(self.principal) and 0 < self.session_lifetime_ms <= age_ms

    @property
    def has_failed(self) -> bool:
        """Whether the connection has to be closed."""
        return self._state is _State.FAILED

    def begin(self, mechanism: str) -> bool:
        """Begin an exchange; return whether the listener offers the mechanism.

        Raises:
            AuthenticationError: an exchange is in progress.
        """
        if self._state is not _State.HANDSHAKE:
            raise self._failed("a handshake within an exchange")
        if mechanism not in self.mechanisms:
            self._state = _State.FAILED
            return False
        self._mechanism = mechanism
        self._state = _State.FIRST
        return True

    @property
    def expects_token(self) -> bool:
        """Whether the next message is the client's part of an exchange."""
        return self._state in (_State.FIRST, _State.FINAL)

    def step(self, token: bytes) -> bytes:
        """Take the client's next message; return the answer. It takes some milliseconds.

        Raises:
            AuthenticationError: the client is not authenticated.
            InvalidConfigurationError: the file of users is wrong.
            StorageError: the root, which has the users, cannot be read.
        """
        try:
            if self._state is _State.FIRST:
                return self._plain(token) if self._mechanism == PLAIN else self._scram_first(token)
            if self._state is _State.FINAL:
                return self._scram_final(token)
        except ScramError as error:
            raise self._failed(str(error)) from None
        raise self._failed("a message without a handshake")

    def _plain(self, token: bytes) -> bytes:
        parts = token.split(b"\x00")
        if len(parts) != 3:
            raise self._failed("the message of PLAIN is malformed")
        try:
            identity, user, password = (each.decode() for each in parts)
        except UnicodeDecodeError:
            raise self._failed("the message of PLAIN is not UTF-8") from None
        if not user or not password or identity not in ("", user):
            raise self._failed("the message of PLAIN has no user, no password, or another identity")
        if not self._users.accepts(user, password):
            raise self._failed(f"user {user!r}, or its password, is wrong")
        self._succeed(user)
        return b""

    def _scram_first(self, token: bytes) -> bytes:
        mechanism = ScramMechanism.of_name(self._mechanism)
        exchange = self._exchange = ScramExchange(mechanism)
        exchange.read_first(token)
        found = self._users.credential(mechanism, exchange.user)
        self._credential = found or self._users.invented(mechanism, exchange.user)
        self._state = _State.FINAL
        return exchange.server_first(self._credential)

    def _scram_final(self, token: bytes) -> bytes:
        assert self._exchange is not None
        assert self._credential is not None
        user, used = self._exchange.user, self._credential
        answer = self._exchange.finish(token, used)
        # The client may have waited with its proof until the user was deleted.
        if self._users.credential(used.mechanism, user) != used:
            raise self._failed(f"there is no user {user!r} with this credential")
        self._succeed(user)
        return answer

    def _succeed(self, user: str) -> None:
        principal = f"User:{user}"
        if self.principal not in ("", principal):
            raise self._failed(f"{self.principal} tried to become {principal}")
        self.principal = principal
        self._authenticated_ms = self._clock.monotonic_ms()
        self._state = _State.HANDSHAKE
        self._exchange = self._credential = None

    def _failed(self, reason: str) -> AuthenticationError:
        self._state = _State.FAILED
        self.principal = ""
        _log.info("authentication failed: %s", reason)
        return AuthenticationError("authentication failed: the user or the password is wrong")
