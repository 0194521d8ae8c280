"""A conditional write to an object store, repeated until its outcome is known.

"The name is taken" does not mean that the write failed: the request may be a second delivery of the
one that took the name, sent again by the client, a proxy or the retries here after the first answer
was lost. So the object under the name is read and compared. A lost answer is not a failure either:
the request may have taken effect, or may still do so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from spark_log.errors import (
    AlreadyExistsError,
    StorageError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.storage.object.errors import REQUEST_ERRORS, Failure, call_obstore
from spark_log.threads import on_request

_log = logging.getLogger(__name__)

_MAX_TRIES = 6
_MAX_DURATION_S = 120


class ConditionalPut:
    """One put-if-absent with all its retries. Use it once."""

    def __init__(
        self,
        path: str,
        send: Callable[[], object],
        is_ours: Callable[[], bool | None],
        *,
        server: str = "",
    ) -> None:
        """Prepare the put; `run` sends it.

        Args:
            path: the object's path, for errors.
            send: sends the request once: creates the object, or raises obstore's error.
            is_ours: compares the object under the name: True if this put made it, False if another
                did, None if no object exists.
            server: the server that gets the request, for error messages.
        """
        self._path = path
        self._server = server
        self._send = send
        self._is_ours = is_ours
        self._may_exist = False

    def run(self) -> None:
        """Create the object.

        Raises:
            AlreadyExistsError: another put has taken the name.
            UnknownOutcomeError: an answer was lost, and the outcome cannot be determined.
            StorageFullError: no space; no object was created.
            StorageError: the store refused, or cannot be reached; no object was created.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(_Retry),
            wait=wait_random_exponential(multiplier=0.02, max=5),
            stop=stop_after_attempt(_MAX_TRIES) | stop_after_delay(_MAX_DURATION_S),
            reraise=True,
        )
        try:
            retrying(self._try)
        except _Retry as error:
            if not self._has_succeeded():
                raise self._outcome(error.failure) from None

    def _try(self) -> None:
        # After a lost answer, comparing is cheaper than sending the data again.
        if self._has_succeeded():
            return
        self._on_request()
        try:
            call_obstore(self._send)
        except REQUEST_ERRORS as error:
            failure = Failure.of(error)
        else:
            return
        # A conflict (409) may be with our own first delivery, which is still in progress.
        self._may_exist |= failure.is_conflict or failure.may_have_succeeded
        if failure.is_conflict and self._has_succeeded():
            return
        if failure.is_conflict or failure.is_retriable:
            _log.debug("PUT %s failed (%s): trying again", self._path, failure)
            raise _Retry(failure)
        raise self._outcome(failure)

    def _on_request(self) -> None:
        """Record the request; raise if no time is left.

        The error is `UnknownOutcomeError` if an earlier delivery may have created the object.
        """
        where = f" at {self._server}" if self._server else ""
        try:
            on_request(f"PUT {self._path}{where}", writes=True)
        except StorageTimeoutError as error:
            if not self._may_exist:
                raise
            raise UnknownOutcomeError(
                f"{self._path}: the answer to a put was lost, and no time is left to check for it",
                path=self._path,
            ) from error

    def _has_succeeded(self) -> bool:
        """Return whether an earlier delivery has created the object.

        False if no answer was lost, or if no object exists (yet).

        Raises:
            AlreadyExistsError: another put has taken the name.
            UnknownOutcomeError: the object cannot be read.
        """
        if not self._may_exist:
            return False
        try:
            is_ours = self._is_ours()
        except StorageError as error:
            raise UnknownOutcomeError(
                f"{self._path}: the answer to a put was lost, and it cannot be checked whether "
                f"the object exists: {error}",
                path=self._path,
            ) from None
        _log.debug(
            "PUT %s: an answer was lost; the object is %s",
            self._path,
            {True: "this put's", False: "another put's", None: "missing"}[is_ours],
        )
        if is_ours is False:
            raise AlreadyExistsError(f"{self._path} exists", path=self._path)
        return is_ours is True

    def _outcome(self, failure: Failure) -> StorageError:
        if not self._may_exist:
            return failure.error(self._path, self._server)
        return UnknownOutcomeError(
            f"{self._path}: the answer to a put was lost ({failure}); the object does not exist, "
            f"but may still appear",
            path=self._path,
        )


class _Retry(Exception):  # noqa: N818 - not an error
    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure
