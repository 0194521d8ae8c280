"""Configuration: models whose fields are the configuration keys, and which check their values.

Each key has a Kafka name, a type, a default, allowed values and a description. These are written
once, in the models; ``docs/configuration.md`` is generated from them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
