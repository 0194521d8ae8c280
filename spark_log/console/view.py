"""`View`: one page, also served as JSON: its parameters, its answer and its template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request

from spark_log.config import parse_time_us
from spark_log.console.budget import Budget
from spark_log.console.console import Console


class Parameters(BaseModel):
    """Parameters of a view, from the query of its URL. An empty parameter counts as missing."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoParameters(Parameters):
    """Parameters of a view without parameters."""


def _offset(text: object) -> object:
    return int(text) if isinstance(text, str) and text.lstrip("-").isdigit() else text


TopicName = Annotated[str, Field(max_length=1000, description="Name of the topic.")]
GroupId = Annotated[str, Field(max_length=4000, description="Id of the consumer group.")]
PartitionNumber = Annotated[
    int | None,
    Field(ge=0, lt=2**31, description="Number of the partition; without it all partitions."),
]
Offset = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_offset)]
Isolation = Annotated[
    Literal["read_uncommitted", "read_committed"],
    Field(description="read_committed leaves out records of open and aborted transactions."),
]
Time = Annotated[
    str,
    Field(
        max_length=64,
        description="ISO 8601, in UTC if it names no offset, or milliseconds since the epoch.",
    ),
]

P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, slots=True)
class View(Generic[P]):
    """A page.

    Attributes:
        path: the path of the page; the JSON is at the same path below ``/api``.
        title: the title of the page, and its summary in the OpenAPI document.
        parameters: the class of the parameters.
        answer: the dataclass of the answer.
        read: returns the answer. It blocks, so it is called in a thread, and it checks the budget.
        template: the name of the template, which gets the answer as ``it``.
    """

    path: str
    title: str
    parameters: type[P]
    answer: type
    read: Callable[[Console, P, Budget], Any]
    template: str

    def parse(self, request: Request) -> P:
        """Return the parameters of a request.

        Raises:
            ValidationError: a parameter is unknown, missing, or not allowed.
        """
        given = {name: value for name, value in request.query_params.items() if value}
        return self.parameters.model_validate(given)


def time_us(name: str, text: str | None) -> int | None:
    """Return a time in microseconds since the epoch.

    Raises:
        InvalidConfigurationError: the text is not a time.
    """
    # A browser's field for date and time sends no Z.
    return None if text is None else parse_time_us(name, text.strip().replace(" ", "T"))
