"""The conditions of a simulated table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from spark_log.table.partition_table import CleanupPolicy
from tests.simulation.compaction.simulation import CompactionProfile, draw_compaction_profile
from tests.simulation.faults import DELETE_DELAY_MS

CHANGING = "changing"


@dataclass(frozen=True, slots=True)
class TableProfile:
    """The conditions of one simulation.

    Attributes:
        log: the conditions of the log.
        policy: the topic's ``cleanup.policy``, or ``changing``.
        toggles: whether ``table.format`` changes.
        committers, version_readers, both_readers, table_cleaners: numbers of actors.
        commits_after: probability that a compactor or cleaner commits afterwards.
        deletes_versions: probability that a committer deletes old versions afterwards.
        commit_ms: mean time between two commits of a committer.
        still: probability that a committer stands still, before or after it decides.
        stale: probability that an actor knows only an older setting of the topic.
        file_retention_ms: ``table.deleted.file.retention.ms``.
        operator_ms: mean time between two changes of the settings.
    """

    log: CompactionProfile
    policy: str
    toggles: bool
    committers: int
    commits_after: float
    deletes_versions: float
    version_readers: int
    both_readers: int
    table_cleaners: int
    commit_ms: float
    still: float
    stale: float
    file_retention_ms: float
    operator_ms: float

    def __str__(self) -> str:
        return (
            f"policy={self.policy} toggles={self.toggles} committers={self.committers} "
            f"commits_after={self.commits_after:g} deletes_versions={self.deletes_versions:g} "
            f"version_readers={self.version_readers} both_readers={self.both_readers} "
            f"table_cleaners={self.table_cleaners} commit_ms={self.commit_ms:g} "
            f"still={self.still:g} stale={self.stale:g} "
            f"file_retention_ms={self.file_retention_ms:g} operator_ms={self.operator_ms:g} "
            f"{self.log}"
        )


def draw_table_profile(random: Random) -> TableProfile:
    """Draw the conditions of a simulation."""
    log = draw_compaction_profile(random)
    delete, compact = CleanupPolicy.DELETE, CleanupPolicy.COMPACT
    policy = random.choice((delete, delete, compact, compact, CHANGING))
    faults = replace(
        log.faults,
        latency_ms=DELETE_DELAY_MS / random.choice((100, 200)),
        writers=random.choice((1, 1, 2)),
        idempotent_writers=random.choice((0, 1)),
        twins=0,
        followers=random.choice((0, 1)),
        mergers=random.choice((0, 1, 1)) if policy == compact else random.choice((1, 2, 3)),
        retentions=random.choice((0, 0, 1)),
        cleaners=0,
        vandals=0,
        retention_ms=-1,
        retention_bytes=random.choice((-1, -1, 40_000)),
        think_ms=DELETE_DELAY_MS * random.choice((0.3, 1)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.1, 0.3, 1)),
        tail_segments=0,
        merges_beside=False,
        range_bytes=0,
        steps=random.choice((1000, 2000, 3000)),
        crash=random.choice((0.0, 0.002, 0.01)),
    )
    log = replace(
        log,
        faults=faults,
        stale_cleaners=0,
        compactors=0 if policy == delete else random.choice((1, 2, 2, 3)),
        compactor_rest_ms=DELETE_DELAY_MS * random.choice((0.05, 0.2)),
        tables=random.choice((0, 0, 1)),
        min_compaction_lag_ms=0,
        segment_bytes=random.choice((2000, 4000, 2**30)),
    )
    profile = TableProfile(
        log=log,
        policy=policy,
        toggles=random.choice((False, True)),
        committers=random.choice((0, 1, 2) if policy == compact else (1, 1, 2, 3)),
        commits_after=random.choice((0.1, 0.4, 0.9)),
        deletes_versions=random.choice((0.0, 0.3)),
        version_readers=random.choice((0, 1)),
        both_readers=random.choice((0, 1, 2)),
        table_cleaners=random.choice((1, 2)),
        commit_ms=DELETE_DELAY_MS * random.choice((0.1, 0.3, 1, 4)),
        still=random.choice((0.0, 0.2, 0.5)),
        stale=random.choice((0.0, 0.2)),
        file_retention_ms=DELETE_DELAY_MS * random.choice((1, 3)),
        operator_ms=3.0 * DELETE_DELAY_MS,
    )
    # What few seeds of all would show: a committer that stands still while files come and go, a
    # table that nobody brings up to date while the log loses tombstones, and one that is turned on
    # and off by the minute.
    match random.choice(("", "", "late", "idle", "toggled")):
        case "late":
            return replace(
                profile,
                log=replace(log, faults=replace(faults, rest_ms=DELETE_DELAY_MS * 0.2)),
                committers=1,
                commits_after=0.1,
                commit_ms=float(DELETE_DELAY_MS),
                still=0.5,
                table_cleaners=2,
            )
        case "toggled":
            return replace(
                profile,
                log=replace(log, faults=replace(faults, rest_ms=DELETE_DELAY_MS * 0.2, mergers=2)),
                toggles=True,
                committers=2,
                commit_ms=DELETE_DELAY_MS * 0.3,
                still=0.4,
                table_cleaners=2,
                file_retention_ms=float(DELETE_DELAY_MS),
                operator_ms=float(DELETE_DELAY_MS),
            )
        case "idle" if policy == compact:
            return replace(
                profile,
                log=replace(
                    log,
                    faults=replace(faults, followers=0),
                    tables=0,
                    compactors=2,
                    delete_retention_ms=random.choice((0, DELETE_DELAY_MS)),
                ),
                committers=0,
                commits_after=random.choice((0.1, 0.3)),
                both_readers=2,
            )
    return profile
