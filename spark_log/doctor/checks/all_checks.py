"""The checks in the order in which they run, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_log.doctor.check import Check, PartitionCheck
from spark_log.doctor.checks.brokers import BrokersCheck
from spark_log.doctor.checks.cleaning import CleaningCheck
from spark_log.doctor.checks.clocks import ClocksCheck
from spark_log.doctor.checks.directories import DirectoriesCheck
from spark_log.doctor.checks.files import FilesCheck
from spark_log.doctor.checks.formats import FormatsCheck
from spark_log.doctor.checks.gateways import GatewaysCheck
from spark_log.doctor.checks.groups import GroupsCheck
from spark_log.doctor.checks.metadata_log import MetadataLogCheck
from spark_log.doctor.checks.offsets_table import OffsetsTableCheck
from spark_log.doctor.checks.quorum import QuorumCheck
from spark_log.doctor.checks.replicas import ReplicasCheck
from spark_log.doctor.checks.snapshots import SnapshotsCheck
from spark_log.doctor.checks.storage import StorageCheck
from spark_log.doctor.checks.stripes import StripesCheck
from spark_log.doctor.checks.tables import TablesCheck
from spark_log.doctor.checks.transactions import TransactionsCheck
from spark_log.errors import InvalidConfigurationError, nearest

CHECKS: Final[tuple[type[Check | PartitionCheck], ...]] = (
    QuorumCheck,
    BrokersCheck,
    StorageCheck,
    ClocksCheck,
    MetadataLogCheck,
    ReplicasCheck,
    GatewaysCheck,
    OffsetsTableCheck,
    TablesCheck,
    StripesCheck,
    DirectoriesCheck,
    CleaningCheck,
    SnapshotsCheck,
    FilesCheck,
    FormatsCheck,
    TransactionsCheck,
    GroupsCheck,
)
"""All checks. Those of the whole root run in this order, then those of each partition together.

Brokers come first: the other checks skip brokers that cannot be reached."""


def find_checks(names: Sequence[str]) -> tuple[type[Check | PartitionCheck], ...]:
    """Return the checks with these names, in the order in which they run.

    Raises:
        InvalidConfigurationError: a check does not exist; the message names the nearest one.
    """
    by_name = {each.name: each for each in CHECKS}
    for name in names:
        if name not in by_name:
            near = nearest(name, by_name)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(by_name)}"
            raise InvalidConfigurationError(f"there is no check {name!r}; {hint}", key="checks")
    return tuple(each for each in CHECKS if each.name in names)
