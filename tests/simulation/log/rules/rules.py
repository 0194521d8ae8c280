"""All safety rules of the log."""

from __future__ import annotations

from tests.simulation.log.rules.appending import APPENDING_RULES
from tests.simulation.log.rules.cleaning import CLEANING_RULES
from tests.simulation.log.rules.reading import READING_RULES
from tests.simulation.log.rules.variant import Variant

RULES: dict[str, Variant] = {**APPENDING_RULES, **READING_RULES, **CLEANING_RULES}
"""The name of each safety rule, and the variant without it."""
