"""Configuration: models whose fields are the configuration keys, and which check their values.

Each key has a Kafka name, a type, a default, allowed values and a description. These are written
once, in the models; ``docs/configuration.md`` is generated from them.
"""

from spark_log.config.admin import AdminConfig
from spark_log.config.cluster import DEFAULT_MAX_CLOCK_SKEW_MS, ClientQuotaConfig, ClusterConfig
from spark_log.config.consumer import ConsumerConfig, offset_reset
from spark_log.config.documentation import MODELS, markdown
from spark_log.config.model import ConfigKey, ConfigModel, split_list, to_text, unknown_key_error
from spark_log.config.producer import ProducerConfig
from spark_log.config.times import parse_duration, parse_time_ms, parse_time_us
from spark_log.config.tool import ToolConfig, load_properties
from spark_log.config.topic import TopicConfig

__all__ = [
    "DEFAULT_MAX_CLOCK_SKEW_MS",
    "MODELS",
    "AdminConfig",
    "ClientQuotaConfig",
    "ClusterConfig",
    "ConfigKey",
    "ConfigModel",
    "ConsumerConfig",
    "ProducerConfig",
    "ToolConfig",
    "TopicConfig",
    "load_properties",
    "markdown",
    "offset_reset",
    "parse_duration",
    "parse_time_ms",
    "parse_time_us",
    "split_list",
    "to_text",
    "unknown_key_error",
]
