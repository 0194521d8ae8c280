"""``spark-log verify``: check logs, and repair derived files."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import typer

from spark_log.cli.format import (
    Output,
    byte_progress,
    counted,
    print_json_stream,
    print_note,
    print_text,
)
from spark_log.cli.options import PartitionsOption, Root, Topics, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.cluster import ClusterVerifier
from spark_log.errors import InvalidPartitionsError
from spark_log.log.verify import LogFinding, LogSeverity
from spark_log.transaction import TransactionVerifier
from spark_log.util import printable

_PROBLEMS = 1
"""Exit status: errors were found (with ``--strict`` also warnings) that were not repaired."""


@with_examples("spark-log verify", "spark-log verify flights --partition 0 --repair")
@with_option_groups
def verify(
    topics: Topics,
    root: Root,
    output: Output,
    partition: PartitionsOption = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rebuild indexes and snapshots; remove files that are not part of the log.",
        ),
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="Report findings that are not problems, too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 for warnings, too.")
    ] = False,
) -> None:
    """Check logs, and repair derived files.

    Checks names of files, the chain of segments, every checksum, indexes, snapshots and leftover
    files. Each replica of a partition is checked, and compared with the leader's by checksums. Of a
    topic with stripes the objects and home markers are checked, too, and that the records before a
    home marker are at home.
    Without names it checks the whole root, and compares the markers in partitions with the
    decisions in the logs of transactional ids. It may run while others write. An error means that
    records are damaged or missing. A warning means that a derived file is damaged, or that a file
    can be removed. Damaged or missing records cannot be repaired; a file with records of the log is
    never changed or removed. Exit status: 0 no errors, 1 errors; with --strict, 1 also for warnings
    that were not repaired.
    """
    if partition and min(partition) < 0:
        raise InvalidPartitionsError("partitions are numbered from 0")
    partitions = sorted(set(partition)) if partition else None
    verifier = ClusterVerifier(root.cluster(), topics.names_or_none, partitions, repair=repair)
    counts = _FindingCounts(is_strict=strict)
    done_bytes = 0
    with byte_progress("Verifying", verifier.total_bytes()) as show:

        def progress(more_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += more_bytes
            show(done_bytes)

        is_whole = topics.names_or_none is None and partitions is None
        of_transactions = TransactionVerifier(root.cluster()).findings() if is_whole else ()
        findings = (
            finding
            for finding in chain(verifier.findings(progress), of_transactions)
            if counts.add(finding) or notes
        )
        if output.is_json:
            documents = map(_document, findings)
            head = {"root": root.url}
            print_json_stream(head, "findings", documents, lambda: _totals(verifier, counts))
        else:
            for finding in findings:
                print_text(printable(_line(finding)))
    if not output.is_json:
        print_text(_summary(verifier, counts))
    if counts.repairable and not repair:
        count = counted(counts.repairable, "file")
        print_note(f"spark-log verify --repair can repair {count}.")
    if counts.failures:
        raise typer.Exit(_PROBLEMS)


class _FindingCounts:
    """Counts findings by severity.

    Attributes:
        errors, warnings, notes: number of findings of each severity that were not repaired.
        repaired: number of findings that were repaired.
        repairable: number of errors and warnings that can be repaired.
    """

    def __init__(self, *, is_strict: bool) -> None:
        """Start with no findings; with ``is_strict`` warnings are failures."""
        self._is_strict = is_strict
        self.errors = self.warnings = self.notes = self.repaired = self.repairable = 0

    @property
    def failures(self) -> int:
        """Number of findings that make the command fail."""
        return self.errors + (self.warnings if self._is_strict else 0)

    def add(self, finding: LogFinding) -> bool:
        """Count a finding, and return whether to print it without ``--notes``."""
        self.repairable += finding.is_problem and finding.remedy is not None
        if finding.repaired:
            self.repaired += 1
        elif finding.severity is LogSeverity.ERROR:
            self.errors += 1
        elif finding.severity is LogSeverity.WARNING:
            self.warnings += 1
        else:
            self.notes += 1
        return finding.repaired or finding.is_problem


def _document(finding: LogFinding) -> dict[str, object]:
    return {
        "broker": finding.broker_id,
        "path": finding.path,
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "message": finding.message,
        "repaired": finding.repaired,
    }


def _totals(verifier: ClusterVerifier, counts: _FindingCounts) -> dict[str, object]:
    return {
        "is_sound": not counts.failures,
        "errors": counts.errors,
        "warnings": counts.warnings,
        "notes": counts.notes,
        "repaired": counts.repaired,
        "partitions": verifier.partitions,
        "segments": verifier.segments,
        "objects": verifier.objects,
        "records": verifier.records,
        "size_bytes": verifier.size_bytes,
    }


def _line(finding: LogFinding) -> str:
    where = f"broker {finding.broker_id}: " if finding.broker_id else ""
    if finding.repaired:
        return f"repaired: {where}{finding.path}: {finding.message}: {finding.remedy}"
    return f"{finding.severity}: {where}{finding.path}: {finding.message}"


def _summary(verifier: ClusterVerifier, counts: _FindingCounts) -> str:
    found = [
        counted(count, noun)
        for count, noun in ((counts.errors, "error"), (counts.warnings, "warning"))
        if count
    ]
    if counts.repaired:
        found.append(f"{counts.repaired:,} repaired")
    objects = f"{counted(verifier.objects, 'object')}, " if verifier.objects else ""
    return (
        f"Verified {counted(verifier.partitions, 'partition')}: "
        f"{counted(verifier.segments, 'segment')}, {objects}{counted(verifier.records, 'record')}, "
        f"{counted(verifier.size_bytes, 'byte')}. {', '.join(found) or 'All sound'}."
    )
