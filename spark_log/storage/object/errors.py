"""The failure of a request to an object store, and its translation into this package's errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, ParamSpec, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from spark_log import errors
from spark_log.threads import on_request

_P = ParamSpec("_P")
_R = TypeVar("_R")

REQUEST_ERRORS: Final = (BaseError, OSError, ValueError)
"""Errors of obstore when a request fails; a missing object is a ``FileNotFoundError``. With
`call_obstore`, a panic is a `ClientPanicError`, which is one of them.
"""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
"""The second form is for one object of a DeleteObjects request, whose HTTP status is 200."""
_NO_ANSWER = "HTTP error"
_NEVER_SENT = ("kind: Connect,", "kind: Builder,")
_SIGNS = {
    "kind: ConnectionRefused,": "connection refused",
    "kind: ConnectionReset,": "connection reset",
    "kind: HostUnreachable,": "host unreachable",
    "kind: NetworkUnreachable,": "network unreachable",
    '"dns error",': "its name cannot be resolved",
    "kind: Timeout,": "timed out",
}
"""Text in obstore's error → the reason why no answer arrived."""
_NO_TLS = ("InvalidCertificate(", "InvalidMessage(")
_FULL = {507}
_FULL_CODES = {"QuotaExceeded", "XMinioStorageFull", "AccountStorageQuotaExceeded"}
_MISSING_CODES = {"NoSuchKey", "BlobNotFound"}
_NO_BUCKET_CODES = {"NoSuchBucket", "ContainerNotFound"}
_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_DENIED_CODES = {"AccessDenied"}
_TRANSIENT = {408, 409, 429}
_TRANSIENT_CODES = {"RequestTimeout"}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed.

    Attributes:
        status: the HTTP status; 0 without an answer.
        code: the service's name for the error, or "".
        was_sent: False if no connection was established.
        is_missing: the object does not exist.
        is_conflict: the name is taken, or (409) another request is taking it just now.
        is_panic: obstore panicked while it made the request.
        is_unanswered: no answer arrived.
        has_no_tls: the server's certificate is not accepted, or the server does not speak TLS.
        reason: the reason why no answer arrived; empty if it is not known.
    """

    status: int
    code: str
    was_sent: bool
    is_missing: bool
    is_conflict: bool
    is_panic: bool = False
    is_unanswered: bool = False
    has_no_tls: bool = False
    reason: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that obstore's error describes.

        The text of the error contains URLs and headers: it is never shown.
        """
        text = str(error)
        status = _STATUS.search(text)
        found = _CODE.search(text)
        code = (found[1] or found[2]) if found else ""
        is_denied = code in _DENIED_CODES or isinstance(
            error, PermissionDeniedError | UnauthenticatedError
        )
        if status is None and is_denied:
            number = HTTPStatus.FORBIDDEN.value
        else:
            number = int(status.group(1)) if status else 0
        return cls(
            status=number,
            code=code,
            was_sent=not any(sign in text for sign in _NEVER_SENT),
            # "Not found" may also be about a bucket or a user.
            is_missing=isinstance(error, FileNotFoundError)
            and (not code or code in _MISSING_CODES),
            is_conflict=isinstance(error, AlreadyExistsError | PreconditionError),
            is_panic=isinstance(error, ClientPanicError),
            is_unanswered=status is None and _NO_ANSWER in text,
            has_no_tls=status is None and any(sign in text for sign in _NO_TLS),
            reason=next((reason for sign, reason in _SIGNS.items() if sign in text), "")
            if status is None
            else "",
        )

    @property
    def is_full(self) -> bool:
        """Whether no space or quota is left."""
        return self.status in _FULL or self.code in _FULL_CODES

    @property
    def may_have_succeeded(self) -> bool:
        """Whether the request may have taken effect: False only if the server has refused it.

        A 5xx status is no refusal: S3 documents this for 500, and a proxy may answer 502 to 504
        although it has forwarded the request.
        """
        if not self.was_sent or self.is_full or self.status == HTTPStatus.NOT_IMPLEMENTED:
            return False
        return self.status == 0 or self.status >= 500

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        if self.is_full or self.is_panic or self.status == HTTPStatus.NOT_IMPLEMENTED:
            return False
        if self.has_no_tls:
            return False
        is_transient = self.status in _TRANSIENT or self.code in _TRANSIENT_CODES
        return self.status == 0 or self.status >= 500 or is_transient

    def error(self, path: str, server: str = "") -> errors.StorageError:
        """Return this package's error for the failure. Its message cannot contain a credential.

        Args:
            path: the object's path.
            server: host and port of the server, for the message.
        """
        if self.is_missing:
            return errors.NotFoundError(f"{path}: no such file", path=path)
        if self.code in _NO_BUCKET_CODES:
            return errors.InvalidRootError(
                f"{path}: the bucket does not exist ({self}); create it first, or check its name",
                path=path,
            )
        if self.is_full:
            return errors.StorageFullError(
                f"{path}: no space is left ({self}); nothing was written: free space and try again",
                path=path,
            )
        if self.status == HTTPStatus.NOT_IMPLEMENTED:
            return errors.UnsupportedStoreError(
                f"{path}: the server does not implement this request ({self}); spark-log needs an "
                f"object store with conditional writes",
                path=path,
            )
        if self.is_retriable:
            return self._unavailable(path, server)
        return self._refused(path, server)

    def _unavailable(self, path: str, server: str) -> errors.StorageError:
        where = f" at {server}" if server else ""
        hint = (
            ""
            if self.status
            else "check that it runs, that the endpoint (endpoint_url) is right, and the network "
            "between; or "
        )
        return errors.StorageUnavailableError(f"{path}: {self}{where}; {hint}try again", path=path)

    def _refused(self, path: str, server: str) -> errors.StorageError:
        if self.has_no_tls:
            return errors.StorageError(
                f"{path}: no TLS connection to {server or 'the server'}: its certificate is not "
                f"accepted, or it does not speak TLS; check the endpoint (endpoint_url: https:// "
                f"or http://) and the certificate",
                path=path,
            )
        if self.is_panic:
            return errors.StorageError(
                f"{path}: the client of the object store failed to make the request; check the "
                f"storage options and environment variables that it uses (key, secret, token, "
                f"region, endpoint) for newlines and other characters that are not allowed in the "
                f"header of a request",
                path=path,
            )
        if self.status in _DENIED or "User" in self.code:
            return errors.AuthorizationError(
                f"{path}: {self}: the credentials do not permit this; check the credentials and "
                f"their permissions (docs/security.md lists those that each role needs)",
                path=path,
            )
        return errors.StorageError(f"{path}: {self}", path=path)

    def __str__(self) -> str:
        if not self.status:
            reason = f" ({self.reason})" if self.reason else ""
            return f"the object store does not answer{reason}"
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        return f"HTTP {self.status} {self.code or phrase}".rstrip()


class ClientPanicError(ValueError):
    """The Rust code of obstore panicked, usually over an option that no request can carry."""


def call_obstore(call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call obstore, and turn its panics, which no ``except Exception`` catches, into an error.

    Raises:
        ClientPanicError: obstore panicked. Its message is left out: it may quote an option.
    """
    try:
        return call(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the class cannot be imported
            raise
        raise ClientPanicError from None


@contextmanager
def request_errors(
    path: str, request: str = "", *, server: str = "", writes: bool = False
) -> Iterator[None]:
    """Turn obstore's errors inside the block into this package's, without their text.

    Args:
        path: path of the object or directory.
        request: the request, as messages name it; empty if an outer block has named it.
        server: host and port of the server, for messages.
        writes: whether the request changes something.

    Raises:
        StorageTimeoutError: the time of the current call is up; nothing was sent.
        StorageError: the request failed.
    """
    if request:
        where = f" at {server}" if server else ""
        on_request(f"{request} {path}{where}", writes=writes)
    try:
        yield
    except errors.StorageError:
        raise
    except REQUEST_ERRORS as error:
        raise Failure.of(error).error(path, server) from None
