"""The content of a Delta log: transactions, versions, and the table's state after a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.delta.files import DataFile
from spark_log.record import text_scalar


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """The ``txn`` action: the transaction identifier of an application, here a group's generation.

    Attributes:
        app_id: the id of the application.
        version: the application's version, which never decreases.
        last_updated_ms: the timestamp of the newest row of the same commit, rounded up.
    """

    app_id: str
    version: int
    last_updated_ms: int = 0

    def to_action(self) -> dict[str, object]:
        """Return the transaction identifier as an action of a version."""
        return {
            "txn": {
                "appId": self.app_id,
                "version": self.version,
                "lastUpdated": self.last_updated_ms,
            }
        }


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The ``metaData`` action of a table.

    Attributes:
        table_id: the random id of the table.
        configuration: the table properties.
        action: the whole action, for checkpoints.
    """

    table_id: str
    configuration: dict[str, str]
    action: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TableProtocol:
    """The demands of a table on the programs that write it.

    Attributes:
        writer_version: the version of Delta's protocol for writers, or the highest one.
        writer_features: the features that a table of version 7 names.
        partition_columns: the columns by which the files are partitioned.
    """

    writer_version: int = 2
    writer_features: frozenset[str] = frozenset()
    partition_columns: tuple[str, ...] = ()

    def to_action(self) -> dict[str, object]:
        """Return the ``protocol`` action."""
        features = {"writerFeatures": sorted(self.writer_features)} if self.writer_features else {}
        version = self.writer_version
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": version, **features}}


PLAIN_TABLE: Final = TableProtocol()
"""A table that is not partitioned, and that any program may change."""


@dataclass(frozen=True, slots=True)
class Version:
    """The changes that one version made.

    Attributes:
        number: the version's number.
        added: the files that were added.
        removed: the paths of files that were removed.
        transactions: the transaction identifiers that were set.
        is_rewrite: whether the version only rewrote rows into other files, or dropped obsolete
            rows.
        metadata: the table's new metadata; None if it did not change.
    """

    number: int
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    transactions: tuple[SetTransaction, ...]
    is_rewrite: bool
    metadata: TableMetadata | None = None


@dataclass(slots=True)
class TableState:
    """The state of a table after a version. Only `apply` changes it.

    Attributes:
        version: the version's number; -1 without a table.
        metadata: the id and properties of the table; None if no version has set them yet.
        files: the data files by path.
        recent_transactions: the transaction identifiers that were set since the checkpoint, by
            application.
        checkpoint_transactions: the transaction identifiers in the checkpoint, with the columns
            ``appId``, ``version`` and ``lastUpdated``: one row for every group that ever committed.
    """

    version: int = -1
    metadata: TableMetadata | None = None
    files: dict[str, DataFile] = field(default_factory=dict)
    recent_transactions: dict[str, SetTransaction] = field(default_factory=dict)
    checkpoint_transactions: pa.Table | None = None

    @property
    def configuration(self) -> dict[str, str]:
        """Table properties; empty without a table."""
        return {} if self.metadata is None else self.metadata.configuration

    def copy(self) -> TableState:
        """Return the same state, which `apply` does not change."""
        return replace(
            self, files=dict(self.files), recent_transactions=dict(self.recent_transactions)
        )

    def apply(self, version: Version) -> None:
        """Change this state to the state after the next version."""
        for path in version.removed:
            self.files.pop(path, None)
        self.files.update((file.path, file) for file in version.added)
        self.recent_transactions.update((each.app_id, each) for each in version.transactions)
        self.metadata = version.metadata or self.metadata
        self.version = version.number

    def transaction(self, app_id: str) -> SetTransaction | None:
        """Return the transaction identifier of an application; None without one."""
        found = self.recent_transactions.get(app_id)
        table = self.checkpoint_transactions
        if found is None and table is not None:
            index = pc.index(table.column("appId"), text_scalar(app_id)).as_py()
            if index >= 0:
                row = table.slice(index, 1).to_pylist()[0]
                found = SetTransaction(app_id, row["version"], row["lastUpdated"] or 0)
        return found

    def transactions(self) -> dict[str, SetTransaction]:
        """Return the transaction identifiers of all applications."""
        table = self.checkpoint_transactions
        found = {
            row["appId"]: SetTransaction(row["appId"], row["version"], row["lastUpdated"] or 0)
            for row in ([] if table is None else table.to_pylist())
        }
        return found | self.recent_transactions


@dataclass(slots=True)
class LogListing:
    """A listing of a Delta log.

    Attributes:
        versions: version → last-modified time of its file on the storage, in microseconds since the
            epoch.
        checkpoints: version of a checkpoint → last-modified time of its file, in the same unit.
    """

    versions: dict[int, int] = field(default_factory=dict)
    checkpoints: dict[int, int] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The newest version of a version file or a checkpoint; -1 without one."""
        return max(*self.versions, *self.checkpoints, -1, -1)
