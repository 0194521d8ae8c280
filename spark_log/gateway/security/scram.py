"""SCRAM, the server's part: it proves that a client knows a password which the server lacks."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from typing import Final

from spark_log.metadata import ScramCredential
from spark_log.types import ScramMechanism

_FIRST: Final = re.compile(r"([ny],(?:a=[^,]*)?,)(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)")
_FINAL: Final = re.compile(r"(c=([^,]*),r=([^,]*)(?:,[^,]*)*),p=([^,]*)")


class ScramError(Exception):
    """The client's message is no message of SCRAM, or proves nothing."""


class ScramExchange:
    """One exchange: two messages of the client, each with an answer.

    Attributes:
        user: the user's name; empty before the first message.
    """

    def __init__(self, mechanism: ScramMechanism) -> None:
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

    def server_first(self, credential: ScramCredential) -> bytes:
        """Return the answer to the first message."""
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes, credential: ScramCredential) -> bytes:
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
        name = self._mechanism.hash_name
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
