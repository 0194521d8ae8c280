"""``spark-log verify``: whether logs are sound, and setting right what can be."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.format.output import Output, counted, print_json_stream, print_note, print_text
from spark_log.cli.format.progress import byte_progress
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.root import Root
from spark_log.errors import InvalidPartitionsError
from spark_log.log.verify.finding import Finding, Severity
from spark_log.metadata.cluster_verifier import ClusterVerifier
from spark_log.printable import printable

_PROBLEMS = 1
"""Exit status: errors were found; with ``--strict``, errors or warnings, and not set right."""


@with_option_groups
def verify(
    root: Root,
    output: Output,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Which. [default: the whole root]"),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="N", help="Only this one. Repeatable. [default: all]"),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Make indexes and snapshots anew; remove files that are no part of the log.",
        ),
    ] = False,
    notes: Annotated[bool, typer.Option("--notes", help="Tell also what is no problem.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 for warnings, too.")
    ] = False,
) -> None:
    """Check logs, and repair what is derived.

    Names, the chain of segments, every checksum, indexes, snapshots, and what is left over. May
    run while others write. An error means that records are damaged or missing; a warning, that a
    derived file is damaged or that something can be cleaned up. Exit status: 0 no errors, 1
    errors; with --strict, 1 for warnings that were not repaired, too. Damaged or missing records
    cannot be repaired; nothing that holds a record of the log is ever changed or removed.
    """
    if partition and min(partition) < 0:
        raise InvalidPartitionsError("partitions are numbered from 0")
    topics = list(dict.fromkeys(topic)) if topic else None
    partitions = sorted(set(partition)) if partition else None
    verifier = ClusterVerifier(root.cluster(), topics, partitions, repair=repair)
    tally = _Tally(is_strict=strict)
    done_bytes = 0
    with byte_progress("Verifying", verifier.total_bytes()) as show:

        def progress(more_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += more_bytes
            show(done_bytes)

        findings = (
            finding for finding in verifier.findings(progress) if tally.count(finding) or notes
        )
        if output.is_json:
            documents = map(_document, findings)
            head = {"root": root.url}
            print_json_stream(head, "findings", documents, lambda: _totals(verifier, tally))
        else:
            for finding in findings:
                print_text(printable(_line(finding)))
    if not output.is_json:
        print_text(_summary(verifier, tally))
    if tally.repairable and not repair:
        count = counted(tally.repairable, "file")
        print_note(f"spark-log verify --repair sets {count} right.")
    if tally.failures:
        raise typer.Exit(_PROBLEMS)


class _Tally:
    """Counts findings.

    Args to the constructor:
        is_strict: warnings are failures.

    Attributes:
        errors, warnings, notes, repaired: how many of each; what is repaired counts only as that.
        repairable: of the errors and warnings.
    """

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self.errors = self.warnings = self.notes = self.repaired = self.repairable = 0

    @property
    def failures(self) -> int:
        """How many findings make the command fail."""
        return self.errors + (self.warnings if self._is_strict else 0)

    def count(self, finding: Finding) -> bool:
        """Count it in, and return whether it is worth telling."""
        self.repairable += finding.is_problem and finding.remedy is not None
        if finding.repaired:
            self.repaired += 1
        elif finding.severity is Severity.ERROR:
            self.errors += 1
        elif finding.severity is Severity.WARNING:
            self.warnings += 1
        else:
            self.notes += 1
        return finding.repaired or finding.is_problem


def _document(finding: Finding) -> dict[str, object]:
    return {
        "path": finding.path,
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "message": finding.message,
        "repaired": finding.repaired,
    }


def _totals(verifier: ClusterVerifier, tally: _Tally) -> dict[str, object]:
    return {
        "is_sound": not tally.failures,
        "errors": tally.errors,
        "warnings": tally.warnings,
        "notes": tally.notes,
        "repaired": tally.repaired,
        "partitions": verifier.partitions,
        "segments": verifier.segments,
        "records": verifier.records,
        "size_bytes": verifier.size_bytes,
    }


def _line(finding: Finding) -> str:
    if finding.repaired:
        return f"repaired: {finding.path}: {finding.message}: {finding.remedy}"
    return f"{finding.severity}: {finding.path}: {finding.message}"


def _summary(verifier: ClusterVerifier, tally: _Tally) -> str:
    found = [
        counted(count, noun)
        for count, noun in ((tally.errors, "error"), (tally.warnings, "warning"))
        if count
    ]
    if tally.repaired:
        found.append(f"{tally.repaired:,} repaired")
    return (
        f"Verified {counted(verifier.partitions, 'partition')}: "
        f"{counted(verifier.segments, 'segment')}, {counted(verifier.records, 'record')}, "
        f"{counted(verifier.size_bytes, 'byte')}. {', '.join(found) or 'All sound'}."
    )
