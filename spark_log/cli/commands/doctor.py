"""``spark-log doctor``: finds problems of a root, and gives a remedy for each."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from spark_log.cli.format import (
    Output,
    counted,
    print_json,
    print_json_stream,
    print_note,
    print_text,
    status_line,
)
from spark_log.cli.options import (
    ConfigFileOption,
    Root,
    RootOption,
    StorageOption,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.doctor import (
    CHECKS,
    OWN_PROBLEMS,
    CheckStatus,
    Doctor,
    Finding,
    Limits,
    Problem,
    Severity,
)
from spark_log.errors import InvalidConfigurationError
from spark_log.util import IN_PROCESS, SuppressedErrors, printable

_DEFAULTS = Limits()
_WARNINGS, _ERRORS = 1, 2
"""Exit statuses by the worst finding, like those of plugins of monitoring systems."""


@dataclass(frozen=True, slots=True)
class RootOfDoctor:
    """The root that the user gave; ``--list-checks`` needs none."""

    open: Callable[[], Root]

    @classmethod
    def from_options(
        cls,
        root: RootOption = None,
        config: ConfigFileOption = None,
        storage_option: StorageOption = None,
    ) -> RootOfDoctor:
        """Return the options of `Root`, which are not checked yet."""
        return cls(partial(Root.from_options, root, config, storage_option))


@with_examples("spark-log doctor", "spark-log doctor --checks brokers,clocks --probe-storage")
@with_option_groups
def doctor(
    given: RootOfDoctor,
    output: Output,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic. Repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="Only this group. Repeatable."),
    ] = None,
    checks: Annotated[
        list[str] | None,
        typer.Option(
            "--checks",
            metavar="NAME,…",
            help="Only these checks; --list-checks lists them. Repeatable.",
        ),
    ] = None,
    probe_storage: Annotated[
        bool,
        typer.Option(
            "--probe-storage",
            help="Test the storage and its clock with a few small files, which are removed again. "
            "Without it nothing is written.",
        ),
    ] = False,
    stuck_after_ms: Annotated[
        int,
        typer.Option(
            "--stuck-after-ms",
            metavar="MS",
            min=1,
            help="A group is stuck if it has unread records, and commits nothing for this time.",
        ),
    ] = _DEFAULTS.stuck_ms,
    overdue_after_ms: Annotated[
        int,
        typer.Option(
            "--overdue-after-ms",
            metavar="MS",
            min=1,
            help="Work of a cleaner is overdue if it has been due for this time.",
        ),
    ] = _DEFAULTS.overdue_ms,
    timeout_ms: Annotated[
        int,
        typer.Option(
            "--timeout-ms",
            metavar="MS",
            min=1,
            help="A check that makes no progress for this time is abandoned.",
        ),
    ] = _DEFAULTS.patience_ms,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="Findings of one kind to report; further ones are counted.",
        ),
    ] = _DEFAULTS.findings,
    list_checks: Annotated[
        bool, typer.Option("--list-checks", help="List the checks and their problems.")
    ] = False,
) -> None:
    """Tell what is wrong with a root and what to do.

    Checks storage, clocks, brokers, replicas, cleaning, leftover files, transactions, groups and
    committed offsets. Each finding is a line: the problem, the remedy, and the evidence. It reads
    no records: spark-log verify checks them. Exit status, as monitoring systems expect: 0 healthy,
    1 warnings, 2 errors, or a mistake in the command. A check that cannot be done is a warning.
    """
    if list_checks:
        _list_checks(output)
        return
    root = given.open()
    names = [name.strip() for each in checks or () for name in each.split(",") if name.strip()]
    if checks and not names:
        raise InvalidConfigurationError("which checks? --list-checks lists them", key="checks")
    examined = Doctor(
        root.cluster_now,
        checks=names or None,
        topics=topic or None,
        groups=group or (),
        probe_storage=probe_storage,
        limits=Limits(
            stuck_ms=stuck_after_ms,
            overdue_ms=overdue_after_ms,
            patience_ms=timeout_ms,
            findings=limit,
        ),
    )
    suffix = _root_option(root)
    with _without_suppressed_lines(), status_line("Checking the root") as show:

        def progress(title: str, done: int, total: int) -> None:
            show(f"{title} ({done:,}/{total:,})")

        findings = examined.findings(progress)
        if output.is_json:
            first = next(findings, None)  # a mistake of the user is reported before any JSON
            documents = (_document(each, suffix) for each in _chained(first, findings))
            head = {"version": 1, "root": root.url}
            print_json_stream(head, "findings", documents, lambda: _totals(examined))
        else:
            # The worst first; their number is bounded.
            order = list(Severity)
            for each in sorted(findings, key=lambda each: order.index(each.severity)):
                print_text(printable(_line(each, suffix)))
    if not output.is_json:
        _summarize(examined)
    if status := _status(examined):
        raise typer.Exit(status)


@contextmanager
def _without_suppressed_lines() -> Iterator[None]:
    """Print the number of suppressed failures at the end, in place of a line for each.

    The findings say what the failures mean. For example, each replica of an unreachable broker
    fails.
    """
    logger, before = logging.getLogger(SuppressedErrors.__module__), IN_PROCESS.counts()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for what, count in sorted(IN_PROCESS.counts().items()):
            if more := count - before.get(what, 0):
                print_note(f"suppressed: {what}: {counted(more, 'failure')}")


def _chained(first: Finding | None, others: Iterator[Finding]) -> Iterator[Finding]:
    if first is not None:
        yield first
    yield from others


def _root_option(root: Root) -> str:
    """Return `` --root URL`` for the commands in findings, if the user needs it there."""
    is_default = root.url in (os.environ.get("SPARK_LOG_ROOT"), root.settings.root)
    return "" if is_default else f" --root {shlex.quote(root.url)}"


def _command(finding: Finding, suffix: str) -> str | None:
    return None if finding.command is None else finding.command + suffix


def _line(finding: Finding, suffix: str) -> str:
    command = _command(finding, suffix)
    run = "" if command is None else f" Run: {command}"
    return (
        f"{finding.severity}: {finding.subject.text}: {finding.message}. {finding.remedy}.{run}  "
        f"[{finding.problem.code}; seen in {finding.evidence}]"
    )


def _document(finding: Finding, suffix: str) -> dict[str, object]:
    return {**finding.document(), "command": _command(finding, suffix)}


def _totals(examined: Doctor) -> dict[str, object]:
    return {
        "status": _status_name(examined),
        "exit_status": _status(examined),
        "errors": examined.counts[Severity.ERROR],
        "warnings": examined.counts[Severity.WARNING],
        "infos": examined.counts[Severity.INFO],
        "partitions": examined.partitions,
        "checks": [
            {"name": each.name, "status": str(each.status), "reason": each.reason}
            for each in examined.results.values()
        ],
        "examined_at": datetime.fromtimestamp(examined.now_us / 1e6, UTC).isoformat(),
        "examined_at_clock": "storage" if examined.now_is_of_storage else "this machine",
    }


def _status(examined: Doctor) -> int:
    if examined.counts[Severity.ERROR]:
        return _ERRORS
    return _WARNINGS if examined.counts[Severity.WARNING] else 0


def _status_name(examined: Doctor) -> str:
    return ("healthy", "warnings", "errors")[_status(examined)]


def _summarize(examined: Doctor) -> None:
    done = [each for each in examined.results.values() if each.status is CheckStatus.DONE]
    found = [
        counted(examined.counts[severity], noun)
        for severity, noun in (
            (Severity.ERROR, "error"),
            (Severity.WARNING, "warning"),
            (Severity.INFO, "note"),
        )
        if examined.counts[severity]
    ]
    print_text(
        f"{counted(len(done), 'check')} done, {counted(examined.partitions, 'partition')}: "
        f"{', '.join(found) or 'healthy'}."
    )
    for each in examined.results.values():
        if each.status is CheckStatus.SKIPPED:
            print_note(printable(f"not checked: {each.name}: {each.reason}"))


def _list_checks(output: Output) -> None:
    if output.is_json:
        print_json(
            {
                "checks": [
                    {
                        "name": each.name,
                        "title": each.title,
                        "problems": list(map(_problem_document, each.problems)),
                    }
                    for each in CHECKS
                ],
                "always": list(map(_problem_document, OWN_PROBLEMS)),
            }
        )
        return
    for each in CHECKS:
        print_text(f"{each.name}: {each.title}")
        for problem in each.problems:
            print_text(_problem_line(problem))
    print_text("always:")
    for problem in OWN_PROBLEMS:
        print_text(_problem_line(problem))


def _problem_line(problem: Problem) -> str:
    return f"  {problem.code} ({problem.severity}): {problem.meaning}"


def _problem_document(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "severity": str(problem.severity),
        "meaning": problem.meaning,
    }
