"""A conditional write to an object store, tried until it is known how it ended.

"The name is taken" is not an answer: the request that finds it taken may be a second delivery of
the one that took it, re-sent by a client, a proxy or by the retries here, after the first answer
was lost. So whatever stands under the name is looked at. And a lost answer is not a failure: the
request may have taken effect, or may yet.
"""

from __future__ import annotations

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
from spark_log.storage.deadline import on_request
from spark_log.storage.object.errors import REQUEST_ERRORS, Failure, call_obstore

_MAX_TRIES = 6
_MAX_DURATION_S = 120


class ConditionalPut:
    """One put-if-absent with all its tries; used once.

    Args to the constructor:
        path: for errors.
        send: makes the request, once: creates the object or raises obstore's error.
        is_ours: looks at what stands under the name: True, False, or None where nothing does.
        server: where the request goes, for errors.
    """

    def __init__(
        self,
        path: str,
        send: Callable[[], object],
        is_ours: Callable[[], bool | None],
        *,
        server: str = "",
    ) -> None:
        self._path = path
        self._server = server
        self._send = send
        self._is_ours = is_ours
        self._may_be_there = False

    def run(self) -> None:
        """Make the object.

        Raises:
            AlreadyExistsError: another's stands under the name.
            UnknownOutcomeError: an answer was lost, and what became of it cannot be seen.
            StorageFullError: no space; nothing was made.
            StorageError: the store refused, or cannot be reached; nothing was made.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(_TryAgain),
            wait=wait_random_exponential(multiplier=0.02, max=5),
            stop=stop_after_attempt(_MAX_TRIES) | stop_after_delay(_MAX_DURATION_S),
            reraise=True,
        )
        try:
            retrying(self._try)
        except _TryAgain as error:
            if not self._settled_by_looking():
                raise self._outcome(error.failure) from None

    def _try(self) -> None:
        # After a lost answer a look is cheaper than sending everything again.
        if self._settled_by_looking():
            return
        self._on_request()
        try:
            call_obstore(self._send)
        except REQUEST_ERRORS as error:
            failure = Failure.of(error)
        else:
            return
        # A conflict (409) may be our own first delivery, still being carried out.
        self._may_be_there |= failure.is_conflict or failure.may_have_succeeded
        if failure.is_conflict and self._settled_by_looking():
            return
        if failure.is_conflict or failure.is_retriable:
            raise _TryAgain(failure)
        raise self._outcome(failure)

    def _on_request(self) -> None:
        """Raise before a request for which there is no time, by what became of those before it."""
        where = f" at {self._server}" if self._server else ""
        try:
            on_request(f"PUT {self._path}{where}", writes=True)
        except StorageTimeoutError as error:
            if not self._may_be_there:
                raise
            raise UnknownOutcomeError(
                f"{self._path}: the answer to a put was lost, and the time to look for it is over",
                path=self._path,
            ) from error

    def _settled_by_looking(self) -> bool:
        """Whether ours is there; False where nothing was lost, or nothing stands there (yet).

        Raises:
            AlreadyExistsError: another's is there.
            UnknownOutcomeError: it cannot be seen.
        """
        if not self._may_be_there:
            return False
        try:
            is_ours = self._is_ours()
        except StorageError as error:
            raise UnknownOutcomeError(
                f"{self._path}: the answer to a put was lost, and what stands there cannot be "
                f"seen: {error}",
                path=self._path,
            ) from None
        if is_ours is False:
            raise AlreadyExistsError(f"{self._path} exists", path=self._path)
        return is_ours is True

    def _outcome(self, failure: Failure) -> StorageError:
        if not self._may_be_there:
            return failure.error(self._path, self._server)
        return UnknownOutcomeError(
            f"{self._path}: the answer to a put was lost ({failure}); it is not there, but may "
            f"appear",
            path=self._path,
        )


class _TryAgain(Exception):  # noqa: N818 - not an error
    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure
