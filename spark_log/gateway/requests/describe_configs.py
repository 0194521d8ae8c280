"""DescribeConfigs: of topics, of groups, of the cluster, and of the gateway."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from spark_log.config import GatewayConfig, TopicConfig, to_text
from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.config_codes import config_source, config_type
from spark_log.metadata import INTERNAL_TOPICS, validate_topic_name
from spark_log.types import ConfigEntry, ConfigResource, ConfigResourceType, ConfigSynonym

API = Api(32, "DescribeConfigs", 1, 4)

_Response = message_class("DescribeConfigsResponse")

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_WITHOUT_CONFIGS: Final = frozenset({8, 16})
"""Loggers of brokers and subscriptions to client metrics: none has configs here."""

_BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
}
"""The names that defaults of topics' configs have as configs of Kafka's brokers (KIP-226)."""


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the configs of each resource, or its error."""
    return _Response(results=await gateway.run_blocking(_describe_all, gateway, request))


def _describe_all(gateway: Gateway, request: Any) -> list[Any]:
    return [_describe(gateway, request, resource) for resource in request.resources]


def _describe(gateway: Gateway, request: Any, resource: Any) -> Any:
    result = _Response.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    keys = resource.configuration_keys
    try:
        if resource.resource_type == _TOPIC:
            entries = _topic_entries(gateway, resource.resource_name)
        elif resource.resource_type == _BROKER:
            own = str(gateway.registered.gateway_id)
            if resource.resource_name not in ("", own):
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = (
                    f"the configs of broker {resource.resource_name!r} were asked of broker {own}; "
                    f"ask each broker for its own, or for those of the cluster by an empty name"
                )
                return result
            entries = list(_broker_entries(gateway, resource.resource_name))
        elif resource.resource_type == _GROUP:
            if not resource.resource_name:
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "Group name must not be empty"
                return result
            entries = _group_entries(gateway, resource.resource_name)
        elif resource.resource_type in _WITHOUT_CONFIGS:
            entries = []
        else:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"there is no resource type {resource.resource_type}"
            return result
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
        return result
    result.configs = [
        _entry(each, request) for each in entries if keys is None or each.name in keys
    ]
    return result


def _topic_entries(gateway: Gateway, name: str) -> Collection[ConfigEntry]:
    if name not in INTERNAL_TOPICS:
        validate_topic_name(name)  # as in Kafka, an illegal name is no unknown topic
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    found: Mapping[str, ConfigEntry] = gateway.admin.describe_configs([resource])["topic"][name]
    return found.values()


def _broker_entries(gateway: Gateway, name: str) -> Iterator[ConfigEntry]:
    """Yield the configs of the cluster, and those of the gateway if it is asked for by its id."""
    yield from _cluster_entries(gateway).values()
    if not name:
        return
    values = gateway.config.dotted()
    own = gateway.registered
    values["broker.id"] = own.gateway_id
    listener = f"{gateway.config.security_protocol}://{own.host}:{own.port}"
    doc = "The address that clients connect to."
    yield _static_entry("advertised.listeners", listener, None, "list", doc)
    defaults = GatewayConfig().dotted()
    for key in GatewayConfig.keys().values():
        value, default = to_text(values[key.name]), to_text(defaults[key.name])
        yield _static_entry(key.name, value, default, key.type, key.doc)
    defaults = TopicConfig.parse({}).dotted()
    for topic_name, broker_name in _BROKER_NAMES.items():
        key = TopicConfig.keys()[topic_name]
        default = to_text(defaults[topic_name])
        yield _static_entry(broker_name, default, default, key.type, key.doc)


def _group_entries(gateway: Gateway, name: str) -> list[ConfigEntry]:
    """Return the configs of a group, as Kafka shows them.

    A config of the cluster is the default of all groups. One of the group has no other synonym.
    """
    group = ConfigResource(ConfigResourceType.GROUP, name)
    found: Mapping[str, ConfigEntry] = gateway.admin.describe_configs([group])["group"][name]
    return [
        replace(entry, default=None, synonyms=entry.synonyms[:1])
        if entry.source == "DYNAMIC_GROUP_CONFIG"
        else replace(entry, source="DEFAULT_CONFIG", default=entry.value, synonyms=())
        for entry in found.values()
    ]


def _cluster_entries(gateway: Gateway) -> Mapping[str, ConfigEntry]:
    cluster = ConfigResource(ConfigResourceType.BROKER, "")
    found: Mapping[str, ConfigEntry] = gateway.admin.describe_configs([cluster])["broker"][""]
    return found


def _static_entry(
    name: str, value: str, default: str | None, type_name: str, doc: str
) -> ConfigEntry:
    """Return a config that is given when the gateway starts; an empty text is none, as in Kafka."""
    is_sensitive = name.endswith(".password")
    values = {"STATIC_BROKER_CONFIG": value if value != default else None}
    values["DEFAULT_CONFIG"] = default
    synonyms = tuple(
        ConfigSynonym(name, None if is_sensitive else text, source)
        for source, text in values.items()
        if text
    )
    return ConfigEntry(
        name=name,
        value=synonyms[0].value if synonyms else None,
        source=synonyms[0].source if synonyms else "DEFAULT_CONFIG",
        default=None if is_sensitive else default or None,
        is_default=value == default,
        is_sensitive=is_sensitive,
        is_read_only=True,
        synonyms=synonyms,
        type=type_name.upper(),
        documentation=doc,
    )


def _entry(entry: ConfigEntry, request: Any) -> Any:
    synonyms = list(entry.synonyms)
    if not any(each.source == "DEFAULT_CONFIG" for each in synonyms) and entry.default is not None:
        synonyms.append(ConfigSynonym(entry.name, entry.default, "DEFAULT_CONFIG"))
    return _Response.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=config_source(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            _Response.DescribeConfigsSynonym(
                name=(
                    each.name
                    if each.source == "DYNAMIC_TOPIC_CONFIG"
                    else _BROKER_NAMES.get(each.name, each.name)
                ),
                value=each.value,
                source=config_source(each.source),
            )
            for each in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=config_type(entry.type),
        documentation=entry.documentation if request.include_documentation else None,
    )
