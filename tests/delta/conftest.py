"""The fixtures of the tests of groups: an opened root with the topic ``t``, and its clocks."""

from tests.coordinator.conftest import clock, cluster, spark, storage_clock

__all__ = ["clock", "cluster", "spark", "storage_clock"]
