"""Checks that all members of the cluster root's quorum answer, and still count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spark_log.doctor.check import Check, NotCheckedError
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import ROOT, Finding, Problem, Severity, shell_command
from spark_log.storage import QuorumStore, describe_voters

MEMBER_LOST = Problem(
    "quorum-member-lost",
    Severity.ERROR,
    "A member of the quorum has lost its files or was replaced: it does not count any more.",
)
MEMBER_UNREACHABLE = Problem(
    "quorum-member-unreachable", Severity.ERROR, "A member of the quorum does not answer."
)
MEMBER_BEHIND = Problem(
    "quorum-member-behind",
    Severity.INFO,
    "A member of the quorum has an older list of the members; it counts.",
)
EVEN_QUORUM = Problem(
    "quorum-even",
    Severity.INFO,
    "The quorum has an even number of members: a quorum with one member less survives as many "
    "losses.",
)


class QuorumCheck(Check):
    """Reads the state of each member of the quorum."""

    name: ClassVar[str] = "quorum"
    title: ClassVar[str] = "members of the cluster root's quorum"
    problems: ClassVar[tuple[Problem, ...]] = (
        MEMBER_LOST,
        MEMBER_UNREACHABLE,
        MEMBER_BEHIND,
        EVEN_QUORUM,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return a finding for each member that does not count, or has an old list."""
        store = examination.cluster.store
        if not isinstance(store, QuorumStore):
            raise NotCheckedError("the cluster root is a single root")
        voters = describe_voters(store)
        left = sum(each.state in ("current", "behind") for each in voters)
        spare = left - (len(voters) // 2 + 1)
        can_lose = f"{left} of {len(voters)} count, of which {spare} may be lost"
        for each in voters:
            seen = f"its answer: {each.state}; {can_lose}"
            if each.state == "lost":
                yield MEMBER_LOST.finding(
                    ROOT,
                    f"the member {each.root} of the quorum has lost its id: it was wiped or "
                    f"replaced, or is not mounted",
                    remedy="Mount it again; or remove it (spark-log quorum remove), and add an "
                    "empty root",
                    command=shell_command("quorum", "describe"),
                    evidence=seen,
                )
            elif each.state == "unreachable":
                yield MEMBER_UNREACHABLE.finding(
                    ROOT,
                    f"the member {each.root} of the quorum does not answer",
                    remedy="Bring it back; or remove it (spark-log quorum remove), and add an "
                    "empty root",
                    command=shell_command("quorum", "describe"),
                    evidence=seen,
                )
            elif each.state == "behind":
                yield MEMBER_BEHIND.finding(
                    ROOT,
                    f"the member {each.root} has version {each.version} of the list of the members",
                    remedy="Nothing has to be done: the next change of the members writes the new "
                    "list there",
                    evidence=seen,
                )
        if len(voters) % 2 == 0:
            yield EVEN_QUORUM.finding(
                ROOT,
                f"the quorum has {len(voters)} members",
                remedy="Add a root, or remove one",
                command=shell_command("quorum", "describe"),
                evidence="the list of the members",
            )
