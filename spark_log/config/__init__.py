"""Configuration: models whose fields are the configuration keys, and which check their values.

Each key has a Kafka name, a type, a default, allowed values and a description. These are written
once, in the models; ``docs/configuration.md`` is generated from them.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
