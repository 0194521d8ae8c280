"""The OpenAPI document of the JSON below ``/api``, generated from the views."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter

from spark_log import __version__
from spark_log.console.view import Parameters
from spark_log.console.views import VIEWS, ResetParameters, SearchParameters
from spark_log.console.views import Reset as ResetAnswer

_ERROR: Final = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
}
_SCHEMA_NAMES: Final = {
    "DecodedBytes": "Shown",
    "DecodedRecord": "Record",
    "HangingTransactionRow": "Hanging",
    "HealthNotice": "Finding",
    "MemberRow": "Member",
    "OpenTransactionRow": "OpenTransaction",
    "PartitionLagRow": "PartitionLag",
    "RecordPage": "OneRecord",
    "ReplicaRow": "Replica",
    "SearchPage": "Hits",
    "SearchProgress": "Progress",
    "TransactionRow": "Transaction",
}
"""Published names of schemas by class. They stay when a class is renamed: generated clients have
them. The schema of any other page is named as its class, without ``Page``."""
_STREAMS: Final = {
    "/api/search/stream": ("Search: hits and progress as they are found", "text/event-stream"),
    "/api/export": ("Records of a search as JSON lines or Parquet", "application/octet-stream"),
}


def openapi_document(*, allows_changes: bool = False) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1).

    Args:
        allows_changes: whether the document includes the paths that change something.
    """
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for view in VIEWS:
        answer = _schema(view.answer, schemas)
        paths["/api" + view.path.rstrip("/")] = {
            "get": _operation(view.title, view.parameters, "application/json", answer)
        }
    for path, (title, media_type) in _STREAMS.items():
        paths[path] = {"get": _operation(title, SearchParameters, media_type, {"type": "string"})}
    if allows_changes:
        operation = _operation(
            "Reset offsets of a group", None, "application/json", _schema(ResetAnswer, schemas)
        )
        operation["security"] = [{"token": []}]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(ResetParameters, schemas)}},
        }
        paths["/api/group/reset"] = {"post": operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spark-log console",
            "version": __version__,
            "description": "Each page of the console as JSON. Times are microseconds since the "
            "epoch where the name ends with _us.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    title: str, parameters: type[Parameters] | None, media_type: str, answer: object
) -> dict[str, Any]:
    return {
        "summary": title,
        "parameters": [] if parameters is None else _parameters(parameters),
        "responses": {
            "200": {"description": title, "content": {media_type: {"schema": answer}}},
            "default": {
                "description": "The error, as one sentence",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }


def _parameters(parameters: type[Parameters]) -> list[dict[str, Any]]:
    schema = parameters.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": each.pop("description", ""),
            "schema": {key: value for key, value in each.items() if key != "title"},
        }
        for name, each in schema.get("properties", {}).items()
    ]


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Add the schema of a class to ``schemas``, and return a reference to it."""
    schema = TypeAdapter(kind).json_schema(mode="serialization", ref_template="{model}")
    definitions = schema.pop("$defs", {}) | {kind.__name__: schema}
    schemas.update({_schema_name(name): _published(each) for name, each in definitions.items()})
    return {"$ref": f"#/components/schemas/{_schema_name(kind.__name__)}"}


def _schema_name(class_name: str) -> str:
    return _SCHEMA_NAMES.get(class_name, class_name.removesuffix("Page"))


def _published(schema: Any) -> Any:
    """Return a part of a schema in which classes have their published names."""
    if isinstance(schema, list):
        return [_published(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _published(each) for key, each in schema.items()}
    if isinstance(schema.get("$ref"), str):
        found["$ref"] = f"#/components/schemas/{_schema_name(schema['$ref'])}"
    if "properties" in schema:
        found["title"] = _schema_name(schema["title"])
    return found
