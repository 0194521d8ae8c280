"""SCRAM, the server's part: it proves that a client knows a password which the server lacks."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanisms → names of their hash functions."""

DEFAULT_ITERATIONS: Final = 16_384
MIN_ITERATIONS: Final = 4_096
"""The minimum of RFC 7677, and of Kafka."""

_FIRST: Final = re.compile(r"([ny],(?:a=[^,]*)?,)(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)")
_FINAL: Final = re.compile(r"(c=([^,]*),r=([^,]*)(?:,[^,]*)*),p=([^,]*)")


class ScramError(Exception):
    """The client's message is no message of SCRAM, or proves nothing."""


@dataclass(frozen=True, slots=True)
class Credential:
    """The part of a password that a server keeps.

    Attributes:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        iterations: the number of iterations of the salted hash.
        salt: the salt.
        stored_key: the hash of the client's key.
        server_key: the key by which the server proves that it has the credential.
    """

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_password(
        cls,
        mechanism: str,
        password: str,
        *,
        salt: bytes | None = None,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> Credential:
        """Return the credential of a password; takes some milliseconds.

        Args:
            mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
            password: the password.
            salt: the salt; None for a new one.
            iterations: the number of iterations.
        """
        name = HASHES[mechanism]
        salt = os.urandom(24) if salt is None else salt
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(
            mechanism,
            iterations,
            salt,
            hashlib.new(name, client_key).digest(),
            hmac.digest(salted, b"Server Key", name),
        )

    def accepts(self, password: str) -> bool:
        """Return whether a password is the right one; takes some milliseconds."""
        found = Credential.of_password(
            self.mechanism, password, salt=self.salt, iterations=self.iterations
        )
        return hmac.compare_digest(found.stored_key, self.stored_key)


class ScramExchange:
    """One exchange: two messages of the client, each with an answer.

    Attributes:
        user: the user's name; empty before the first message.
    """

    def __init__(self, mechanism: str) -> None:
        self.user = ""
        self._mechanism = mechanism
        self._gs2_header = ""
        self._first_bare = ""
        self._server_first = ""
        self._nonce = ""

    def read_first(self, message: bytes) -> None:
        """Take the client's first message, which has the user's name.

        Raises:
            ScramError: it is no such message.
        """
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramError("the first message of SCRAM is malformed")
        self._gs2_header, self._first_bare, name, nonce = found.groups()
        if re.search("=(?!2C|3D)", name):
            raise ScramError("the user's name is malformed")
        self.user = name.replace("=2C", ",").replace("=3D", "=")
        self._nonce = nonce + b64encode(os.urandom(24)).decode()

    def server_first(self, credential: Credential) -> bytes:
        """Return the answer to the first message."""
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes, credential: Credential) -> bytes:
        """Check the client's proof; return the server's.

        Raises:
            ScramError: the client does not know the password, or the message is malformed.
        """
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise ScramError("the last message of SCRAM is malformed")
        without_proof, channel, nonce, proof_text = found.groups()
        if channel != b64encode(self._gs2_header.encode()).decode() or not hmac.compare_digest(
            nonce.encode(), self._nonce.encode()
        ):
            raise ScramError("the last message does not belong to the first")
        name = HASHES[self._mechanism]
        signed = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, name)
        try:
            proof = b64decode(proof_text, validate=True)
        except ValueError:
            raise ScramError("the proof is malformed") from None
        if len(proof) != len(signature):
            raise ScramError("the proof is malformed")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise ScramError("the password is wrong")
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, name))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message of SCRAM is not UTF-8") from None
