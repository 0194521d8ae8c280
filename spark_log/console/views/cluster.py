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
"""Most partitions that the page of a broker lists."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker: a storage root.

    Attributes:
        broker_id: its id.
        log_dir: its path or URL.
        rack: its rack; None without one.
        state: ``active``, ``fenced`` or ``unregistering``.
        replicas: number of partitions that it has a replica of.
        in_sync: number of those replicas that are in sync.
        leaders: number of partitions that it leads.
    """

    broker_id: int
    log_dir: str
    rack: str | None
    state: str
    replicas: int
    in_sync: int
    leaders: int


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that is out of sync, or moves.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        broker_id: of the replica.
        state: ``out of sync``, ``offline``, ``being added`` or ``being removed``.
    """

    topic: str
    partition: int
    broker_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers, and replicas that are not as they should be.

    Attributes:
        brokers: by id.
        replicas: some of the replicas that are out of sync, offline or moving.
        total_replicas: how many these are.
    """

    brokers: tuple[Broker, ...]
    replicas: tuple[Replica, ...]
    total_replicas: int


def read_brokers(console: Console, _: NoParameters, budget: Budget) -> Brokers:
    """Read the metadata."""
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
                replicas.append(Replica(topic.name, number, broker_id, what))
    return Brokers(
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
    """Whose settings."""

    type: Annotated[
        Literal["broker", "topic", "client"], Field(description="Type of the resource.")
    ] = "broker"
    name: Annotated[
        str, Field(max_length=1000, description="A topic or client id; empty for the cluster.")
    ] = ""
    all: Annotated[bool, Field(description="Settings that nobody has set are listed, too.")] = False


@dataclass(frozen=True, slots=True)
class Config:
    """A setting.

    Attributes:
        name: its key.
        value: the value in effect; None if it is sensitive or not set.
        source: where the value comes from, as in `ConfigEntry`.
        is_default: whether nobody has set it.
        documentation: what it is for.
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class Configs:
    """Settings of one resource.

    Attributes:
        type: ``broker`` (the whole cluster), ``topic`` or ``client``.
        name: of the topic or client; empty for the cluster, and for all clients.
        configs: by key.
        clients: client ids that have quotas.
    """

    type: str
    name: str
    configs: tuple[Config, ...]
    clients: tuple[str, ...]


def read_configs(console: Console, parameters: ConfigsParameters, _: Budget) -> Configs:
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
    return Configs(
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


BROKERS = View("/brokers", "Brokers", NoParameters, Brokers, read_brokers, "brokers.html")
CONFIGS = View("/configs", "Configs", ConfigsParameters, Configs, read_configs, "configs.html")
