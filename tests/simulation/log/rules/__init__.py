"""Variants of the log without one of the safety rules of docs/protocol.

A variant consists of subclasses in which one rule is missing, as a developer who does not know the
rule might write them. The tests check that the simulator finds a violation of each variant: so
every rule is needed, and the simulator is able to find violations. The package itself has no switch
for its rules.
"""

from tests.simulation.log.rules.rules import RULES
from tests.simulation.log.rules.variant import SOUND, Variant

__all__ = ["RULES", "SOUND", "Variant"]
