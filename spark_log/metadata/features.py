"""Features: what a release adds to the bytes at rest, each with a level for the whole cluster.

As Kafka's features (KIP-584), such as ``transaction.version``, and Delta's reader and writer
features. A level is *finalized* by a `FeatureLevelRecord` in the metadata log, when somebody first
uses the feature, and never by an upgrade alone. A client reads the metadata log before anything
else of a cluster. If a feature is finalized at a level that the client does not know, the client
refuses with an error that names the release that knows it. Releases before 0.4 do not know the
record, and refuse for that reason.

A level cannot be lowered: the record stays in the log, and older releases refuse for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.errors import InvalidUpdateVersionError, UnsupportedVersionError, nearest
from spark_log.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    StripesRecord,
    UserScramCredentialRecord,
)

FinalizedFeatures = Mapping[str, FeatureLevelRecord]
"""The features of a cluster: name → the record of the finalized level."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that this release knows.

    Attributes:
        name: the feature's name, such as ``table.version``.
        releases: the first release that knows each level, from level 1 on.
        setting: the topic's setting that needs the feature; None without one. A program finalizes
            a feature that neither a setting nor a record needs.
        setting_off: the value of the setting that does not need it.
        doc: what the feature adds, in one line.
        records: the records that need the feature.
    """

    name: str
    releases: tuple[str, ...]
    doc: str
    setting: str | None = None
    setting_off: str | None = None
    records: tuple[type[MetadataRecord], ...] = ()

    @property
    def max_level(self) -> int:
        """The highest level that this release knows."""
        return len(self.releases)

    def record(self, level: int) -> FeatureLevelRecord:
        """Return the record that finalizes a level."""
        return FeatureLevelRecord(
            name=self.name, feature_level=level, release=self.releases[level - 1]
        )

    def is_needed_by(self, record: MetadataRecord) -> bool:
        """Return whether a change of the metadata is the use of this feature."""
        return isinstance(record, self.records) or (
            isinstance(record, ConfigRecord)
            and self.setting is not None
            and record.resource_type == TOPIC_RESOURCE
            and record.name == self.setting
            and record.value not in (None, self.setting_off)
        )


TABLE_VERSION: Final = Feature(
    name="table.version",
    releases=("0.4.0",),
    setting="table.format",
    setting_off="none",
    doc="Segments as Parquet files, which are a Delta table, too (the setting table.format)",
)

GROUP_VERSION: Final = Feature(
    name="group.version",
    releases=("0.4.0",),
    doc="Groups of Kafka's clients, which a gateway coordinates",
)

SCRAM_VERSION: Final = Feature(
    name="scram.version",
    releases=("0.4.0",),
    records=(UserScramCredentialRecord,),
    doc="Users of gateways, with their SCRAM credentials",
)

STRIPE_VERSION: Final = Feature(
    name="stripe.version",
    releases=("0.4.0",),
    setting="stripes",
    setting_off="0",
    records=(StripesRecord,),
    doc="Topics whose partitions share their puts (the setting stripes)",
)

FEATURES: Final[Mapping[str, Feature]] = {
    each.name: each for each in (GROUP_VERSION, SCRAM_VERSION, STRIPE_VERSION, TABLE_VERSION)
}
"""The features that this release knows, by name."""


def check_feature_level(record: FeatureLevelRecord) -> None:
    """Check that this release knows a finalized level.

    Raises:
        UnsupportedVersionError: it does not; the message names the release that does.
    """
    feature = FEATURES.get(record.name)
    known = 0 if feature is None else feature.max_level
    if record.feature_level > known:
        raise UnsupportedVersionError(
            f"this cluster uses the feature {record.name} at level {record.feature_level}, which "
            f"spark-log {record.release} and later know; this release knows "
            f"{f'level {known}' if known else 'no such feature'}. Upgrade this client",
            feature=record.name,
            level=record.feature_level,
            release=record.release,
        )


def with_features(
    finalized: FinalizedFeatures, records: Sequence[MetadataRecord]
) -> Sequence[MetadataRecord]:
    """Return the records of a change, after records that finalize the features that it needs.

    A feature that is not finalized is finalized at the highest level that this release knows.

    Args:
        finalized: the features of the cluster before the change.
        records: the records of the change.
    """
    needed = [
        feature.record(feature.max_level)
        for feature in FEATURES.values()
        if feature.name not in finalized and any(feature.is_needed_by(record) for record in records)
    ]
    return [*needed, *records] if needed else records


def feature_updates(
    finalized: FinalizedFeatures, levels: Mapping[str, int]
) -> Iterator[FeatureLevelRecord]:
    """Yield the records that finalize these levels; none for a level that is finalized already.

    Args:
        finalized: the features of the cluster.
        levels: the feature's name → the level.

    Raises:
        InvalidUpdateVersionError: there is no such feature or level, or the level is lower than the
            finalized one.
    """
    for name, level in levels.items():
        feature = FEATURES.get(name)
        if feature is None:
            near = nearest(name, FEATURES, limit=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FEATURES)}"
            raise InvalidUpdateVersionError(f"there is no feature {name!r}; {hint}", feature=name)
        if type(level) is not int or not 1 <= level <= feature.max_level:
            raise InvalidUpdateVersionError(
                f"feature {name}: level {level!r}; this release knows 1 to {feature.max_level}",
                feature=name,
            )
        present = finalized[name].feature_level if name in finalized else 0
        if level < present:
            raise InvalidUpdateVersionError(
                f"feature {name}: level {level} is below the finalized level {present}. A level "
                f"cannot be lowered; mirror the topics to a new root instead",
                feature=name,
            )
        if level > present:
            yield feature.record(level)
