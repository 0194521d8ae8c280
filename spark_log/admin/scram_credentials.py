"""SCRAM credentials of the users of gateways (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_log.admin.cluster_calls import commit
from spark_log.cluster import Cluster
from spark_log.errors import InvalidConfigurationError, ResourceNotFoundError
from spark_log.metadata import alter_scram_credential_records, scram_credentials
from spark_log.types import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)


def describe_user_scram_credentials(
    cluster: Cluster, users: Iterable[str] | None
) -> dict[str, tuple[ScramCredentialInfo, ...]]:
    """Return the mechanisms of users, by name; all users, sorted, if ``users`` is None."""
    image = cluster.image()
    names = sorted(image.scram_credentials) if users is None else list(users)
    for name in names:
        if name not in image.scram_credentials:
            raise ResourceNotFoundError(
                f"there is no user {name!r} in the metadata of {cluster.root}; spark-log "
                f"gateway-users list shows all"
            )
    return {
        name: tuple(
            ScramCredentialInfo(mechanism, found.iterations)
            for mechanism, found in scram_credentials(image, name).items()
        )
        for name in names
    }


def alter_user_scram_credentials(
    cluster: Cluster,
    alterations: Sequence[UserScramCredentialDeletion | UserScramCredentialUpsertion],
) -> None:
    """Change credentials, all of them or none."""
    for each in alterations:
        _check_types(each)
    commit(cluster, lambda image: alter_scram_credential_records(image, alterations))


def _check_types(alteration: object) -> None:
    kinds = UserScramCredentialDeletion, UserScramCredentialUpsertion
    if not isinstance(alteration, kinds):
        raise InvalidConfigurationError(
            f"an alteration is a UserScramCredentialUpsertion or a UserScramCredentialDeletion; "
            f"got {type(alteration).__name__}"
        )
    if not isinstance(alteration.user, str) or not isinstance(alteration.mechanism, ScramMechanism):
        raise InvalidConfigurationError(
            f"{alteration!r}: user is a string, and mechanism one of "
            f"{', '.join(map(str, ScramMechanism))}"
        )
