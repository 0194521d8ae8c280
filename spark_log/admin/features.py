"""Features of a cluster (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.admin.cluster_calls import commit
from spark_log.cluster import Cluster
from spark_log.metadata import FEATURES, feature_updates
from spark_log.types import FeatureDescription


def describe_features(cluster: Cluster) -> list[FeatureDescription]:
    """Return the features that this release knows, sorted by name."""
    finalized = cluster.image().features
    return [
        FeatureDescription(
            name=feature.name,
            finalized_level=finalized[name].feature_level if name in finalized else 0,
            max_level=feature.max_level,
            release=feature.releases[-1],
            documentation=feature.doc,
        )
        for name, feature in sorted(FEATURES.items())
    ]


def update_features(cluster: Cluster, levels: Mapping[str, int], *, validate_only: bool) -> None:
    """Finalize levels of features, all of them or none."""
    commit(
        cluster,
        lambda image: list(feature_updates(image.features, levels)),
        validate_only=validate_only,
    )
