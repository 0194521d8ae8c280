"""The operations that a client may do, as bits: all of them, because there are no ACLs."""

from __future__ import annotations

from typing import Any, Final

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = range(3, 10)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(10, 13)

NOT_REQUESTED: Final = -(2**31)
"""The value if the client did not ask for it."""


def _bits(*operations: int) -> int:
    return sum(1 << each for each in operations)


TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
CLUSTER_OPERATIONS: Final = _bits(
    *(_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION),
    *(_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE),
)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)


def with_operations(described: Any, request: Any) -> Any:
    """Return a group's description, with the operations if the request asks for them."""
    if request.include_authorized_operations and not described.error_code:
        described.authorized_operations = GROUP_OPERATIONS
    return described
