"""The table of all requests that a gateway answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spark_log.gateway.gateway import Gateway
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    user_scram_credentials,
    write_txn_markers,
)

Handle = Callable[[Gateway, RequestContext, Any], Awaitable[Any]]
"""A handler: it returns the response, or None if the client expects none."""


class _RequestFile(Protocol):
    @property
    def API(self) -> Api: ...  # noqa: N802 - a constant of the file

    @property
    def handle(self) -> Handle: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """An API and its handler."""

    api: Api
    handle: Handle


_FILES: tuple[_RequestFile, ...] = (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)

_HANDLERS = (
    *(Handler(each.API, each.handle) for each in _FILES),
    Handler(acls.DESCRIBE, acls.describe),
    Handler(acls.CREATE, acls.create),
    Handler(acls.DELETE, acls.delete),
    Handler(user_scram_credentials.DESCRIBE, user_scram_credentials.describe),
    Handler(user_scram_credentials.ALTER, user_scram_credentials.alter),
)

HANDLERS: Mapping[int, Handler] = {each.api.key: each for each in _HANDLERS}
"""The handlers by the keys of their APIs."""
