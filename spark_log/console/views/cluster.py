"""The cluster: brokers with their replicas, and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import NoParameters, Parameters, View
from spark_log.types import ConfigResource, ConfigResourceType

_MAX_PARTITIONS = 200
"""Maximum number of replicas that the page of brokers lists."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker: a storage root.

    Attributes:
        broker_id: the broker's id.
        log_dir: the path or URL of the broker's root.
        rack: the broker's rack; None without one.
        state: ``active``, ``fenced`` or ``unregistering``.
        replicas: the number of replicas on the broker.
        in_sync: the number of these replicas that are in sync.
        leaders: the number of partitions that the broker leads.
    """

    broker_id: int
    log_dir: str
    rack: str | None
    state: str
    replicas: int
    in_sync: int
    leaders: int


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica that is out of sync, offline or moving.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        broker_id: the id of the replica's broker.
        state: ``out of sync``, ``offline``, ``being added`` or ``being removed``.
    """

    topic: str
    partition: int
    broker_id: int
    state: str


@dataclass(frozen=True, slots=True)
class BrokersPage:
    """The brokers, and the replicas that are out of sync, offline or moving.

    Attributes:
        brokers: the brokers, sorted by id.
        replicas: the first `_MAX_PARTITIONS` of these replicas.
        total_replicas: the number of these replicas.
    """

    brokers: tuple[Broker, ...]
    replicas: tuple[ReplicaRow, ...]
    total_replicas: int


def read_brokers(console: Console, _: NoParameters, budget: Budget) -> BrokersPage:
    """Read the brokers and their replicas from the metadata."""
    brokers = console.admin.list_brokers()
    offline = {each.broker_id for each in brokers if each.fenced}
    replicas = []
    for topic in console.cluster.image().topics():
        budget.check()
        for number, state in sorted(topic.partitions.items()):
            for broker_id in state.replicas:
                if broker_id in state.adding_replicas:
                    what = "being added"
                elif broker_id in state.removing_replicas:
                    what = "being removed"
                elif broker_id in offline:
                    what = "offline"
                elif broker_id not in state.isr:
                    what = "out of sync"
                else:
                    continue
                replicas.append(ReplicaRow(topic.name, number, broker_id, what))
    return BrokersPage(
        tuple(
            Broker(
                each.broker_id,
                each.log_dir,
                each.rack,
                each.state,
                each.replica_count,
                each.in_sync_count,
                each.leader_count,
            )
            for each in brokers
        ),
        tuple(replicas[:_MAX_PARTITIONS]),
        len(replicas),
    )


class ConfigsParameters(Parameters):
    """The resource whose settings are shown."""

    type: Annotated[
        Literal["broker", "topic", "client"], Field(description="Type of the resource.")
    ] = "broker"
    name: Annotated[
        str, Field(max_length=1000, description="A topic or client id; empty for the cluster.")
    ] = ""
    all: Annotated[bool, Field(description="List settings with their default value, too.")] = False


@dataclass(frozen=True, slots=True)
class Config:
    """A setting.

    Attributes:
        name: the key of the setting.
        value: the value in effect; None if it is sensitive or not set.
        source: the source of the value, as in `ConfigEntry`.
        is_default: whether the value is the default, which no user has changed.
        documentation: the description of the setting.
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class ConfigsPage:
    """The settings of one resource.

    Attributes:
        type: the type of the resource: ``broker`` (the whole cluster), ``topic`` or ``client``.
        name: the name of the topic or client; empty for the cluster, and for all clients.
        configs: the settings, sorted by key.
        clients: the client ids that have quotas.
    """

    type: str
    name: str
    configs: tuple[Config, ...]
    clients: tuple[str, ...]


def read_configs(console: Console, parameters: ConfigsParameters, _: Budget) -> ConfigsPage:
    """Read the settings of a topic, a client or the cluster.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    kind = ConfigResourceType[parameters.type.upper()]
    described = console.admin.describe_configs(
        [ConfigResource(kind, parameters.name)],
        config_filter="all" if parameters.all else "modified",
    )
    entries = described.get(parameters.type, {}).get(parameters.name, {})
    resources = console.admin.list_config_resources([ConfigResourceType.CLIENT])
    return ConfigsPage(
        parameters.type,
        parameters.name,
        tuple(
            Config(
                each.name,
                None if each.is_sensitive else each.value,
                each.source,
                each.is_default,
                each.documentation,
            )
            for _, each in sorted(entries.items())
        ),
        tuple(resources.get("client", ())),
    )


BROKERS = View("/brokers", "Brokers", NoParameters, BrokersPage, read_brokers, "brokers.html")
CONFIGS = View("/configs", "Configs", ConfigsParameters, ConfigsPage, read_configs, "configs.html")
