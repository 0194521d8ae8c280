"""Turns answers of the console into JSON, and errors into a status and one sentence."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from http import HTTPStatus

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from spark_log.console.budget import RequestCancelledError
from spark_log.errors import (
    CorruptRecordError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    InvalidConfigurationError,
    InvalidTimestampError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NotFoundError,
    OffsetOutOfRangeError,
    SparkLogError,
    StorageError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from spark_log.util import printable

_STATUSES: dict[type[SparkLogError], int] = {
    UnknownTopicOrPartitionError: 404,
    GroupIdNotFoundError: 404,
    TransactionalIdNotFoundError: 404,
    OffsetOutOfRangeError: 400,
    InvalidConfigurationError: 400,
    InvalidTimestampError: 400,
    NoOffsetForPartitionError: 400,
    GroupNotEmptyError: 409,
    CorruptRecordError: 500,
    KafkaTimeoutError: 504,
    NotFoundError: 500,
    StorageError: 503,
}
"""The status of an error class, and of its subclasses without a status of their own."""


def document(answer: object) -> object:
    """Return an answer in a form that JSON can express."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return asdict(answer)
    return answer


def json_text(answer: object) -> str:
    """Return an answer as JSON in ASCII; other characters of names and values are escaped."""
    return json.dumps(document(answer), ensure_ascii=True, separators=(",", ":"))


def json_response(answer: object, status: int = 200) -> Response:
    """Return an answer as a response."""
    return Response(json_text(answer), status, media_type="application/json")


def refusal(status: int, sentence: str) -> Response:
    """Return an error as plain text, for a request that is refused before it is read."""
    return Response(printable(sentence) + "\n", status, media_type="text/plain")


def verdict(error: Exception) -> tuple[int, str]:
    """Return the status and the sentence of an error. No error shows a traceback or a setting."""
    match error:
        case HTTPException():
            return error.status_code, error.detail or HTTPStatus(error.status_code).phrase
        case ValidationError():
            first = error.errors(include_url=False, include_context=False)[0]
            name = ".".join(map(str, first["loc"])) or "the request"
            return 400, f"{name}: {first['msg']}"
        case SparkLogError():
            kinds = (_STATUSES[each] for each in type(error).__mro__ if each in _STATUSES)
            return next(kinds, 500), " ".join(error.message.split())
        case RequestCancelledError():
            return 499, "the client has disconnected"
        case _:
            return 500, "the console failed; its log shows the error"
