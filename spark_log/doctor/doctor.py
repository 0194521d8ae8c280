"""`Doctor`: runs the checks of a root in turn, and checks several partitions at the same time.

Findings are yielded when they are made. Memory holds the few numbers that a check keeps of each
partition or group, and `Limits.findings` findings of each kind.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from spark_log.cluster import Cluster
from spark_log.doctor.check import Check, NotCheckedError, PartitionCheck
from spark_log.doctor.checks import CHECKS, find_checks
from spark_log.doctor.examination import THREAD_NAME, Examination
from spark_log.doctor.finding import ROOT, Finding, Problem, Severity, Subject, shell_command
from spark_log.doctor.limits import Limits
from spark_log.doctor.partition_examination import PartitionExamination, UnreachableError
from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    RootNotFoundError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
    UnsupportedStoreError,
)
from spark_log.metadata import TopicImage
from spark_log.threads import DaemonPool, LimitedCall
from spark_log.util import SYSTEM_CLOCK

_log = logging.getLogger(__name__)

ROOT_UNREADABLE: Final = Problem(
    "root-unreadable",
    Severity.ERROR,
    "The root cannot be opened, or its metadata cannot be read. Nothing else was checked.",
)
NOT_CHECKED: Final = Problem(
    "not-checked", Severity.WARNING, "A check failed or did not end, so that nothing is known."
)
PARTITION_UNREADABLE: Final = Problem(
    "partition-unreadable",
    Severity.ERROR,
    "The log of a partition is damaged, or its files are missing.",
)
OWN_PROBLEMS: Final = (ROOT_UNREADABLE, NOT_CHECKED, PARTITION_UNREADABLE)
"""Problems that the doctor itself reports, besides those of its checks."""

_LOOK_MS: Final = 1_000
"""Interval at which the doctor tests whether a check makes progress."""

OnProgress = Callable[[str, int, int], None]


class CheckStatus(StrEnum):
    """The status of a check after a run."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        name: the name of the check.
        status: whether the check was done.
        reason: the reason why the check was not done; None if it was.
    """

    name: str
    status: CheckStatus
    reason: str | None = None


class Doctor:
    """Checks one root, once.

    Attributes:
        results: the result of each check, by name. Complete after `findings`.
        counts: the number of findings of each severity, including findings that were only counted.
        partitions: the number of partitions that were checked.
        now_us: the time from which ages were computed, microseconds since the epoch; 0 before.
        now_is_of_storage: whether `now_us` is the storage's time, and not this machine's.
    """

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        *,
        checks: Sequence[str] | None = None,
        topics: Collection[str] | None = None,
        groups: Collection[str] = (),
        probe_storage: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """Return a doctor; nothing is opened yet.

        Args:
            open_cluster: opens the root.
            checks: the names of the checks to run; None for all.
            topics: the names of the topics to check; None for all.
            groups: the ids of the groups to check; empty for all.
            probe_storage: whether to test the storage and its clock in a scratch folder, which is
                removed again. Nothing else is ever written.
            limits: the limits beyond which a value is a problem; None for the defaults.

        Raises:
            InvalidConfigurationError: a check does not exist; the message names the nearest one.
        """
        self._open_cluster = open_cluster
        self._checks = [each() for each in (CHECKS if checks is None else find_checks(checks))]
        self._topics = topics
        self._groups = groups
        self._probe_storage = probe_storage
        self._limits = limits or Limits()
        self._examination: Examination | None = None
        self._kinds: Counter[Problem] = Counter()
        self.results: dict[str, CheckResult] = {}
        self.counts: Counter[Severity] = Counter()
        self.partitions = 0

    @property
    def now_us(self) -> int:
        """The time from which ages were computed, microseconds since the epoch; 0 before."""
        return 0 if self._examination is None else self._examination.now_us

    @property
    def now_is_of_storage(self) -> bool:
        """Whether `now_us` is the storage's time, and not this machine's."""
        return self._examination is not None and self._examination.now_is_of_storage

    def findings(
        self, on_progress: OnProgress = lambda title, done, total: None
    ) -> Iterator[Finding]:
        """Run the checks, and yield findings as they are made.

        Args:
            on_progress: called with the title of the present check, the number of items done, and
                their total number.

        Raises:
            RootNotFoundError: the root does not exist.
            UnknownTopicOrPartitionError: a topic does not exist.
            InvalidConfigurationError: a storage option is unknown.
            UnsupportedStoreError: the storage cannot be a root.
        """
        yield from self._counted(self._all(on_progress))
        for problem, count in self._kinds.items():
            if (more := count - self._limits.findings) > 0:
                yield problem.finding(
                    ROOT,
                    f"{more:,} more findings of the kind {problem.code!r} are not shown",
                    remedy="Check fewer topics, or raise the limit",
                    command=shell_command("doctor", "--limit", count),
                    evidence="counted",
                )

    def _counted(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            self.counts[finding.severity] += 1
            self._kinds[finding.problem] += 1
            if self._kinds[finding.problem] <= self._limits.findings:
                yield finding

    def _all(self, on_progress: OnProgress) -> Iterator[Finding]:
        on_progress("Opening the root", 0, len(self._checks))
        try:
            examination = self._examination = self._opened()
        except (
            InvalidConfigurationError,
            RootNotFoundError,
            UnknownTopicOrPartitionError,
            UnsupportedStoreError,
        ):
            raise  # a user error
        except SparkLogError as error:
            yield self._unreadable_root(error)
            return
        root_checks = [each for each in self._checks if isinstance(each, Check)]
        for number, check in enumerate(root_checks):
            on_progress(check.title, number, len(root_checks))
            yield from self._run(check, partial(check.findings, examination))
        partition_checks = []
        for each in self._checks:
            if isinstance(each, PartitionCheck):
                on_progress(each.title, 0, 1)
                yield from self._run(each, partial(each.begin, examination))
                if self.results[each.name].status is CheckStatus.DONE:
                    partition_checks.append(each)
        if partition_checks:
            yield from self._look_at_partitions(examination, partition_checks, on_progress)
        for each in partition_checks:
            yield from self._run(each, partial(each.end, examination))

    # --- the root --------------------------------------------------------------------------------

    def _opened(self) -> Examination:
        def opened() -> Examination:
            return Examination(
                self._open_cluster(),
                self._limits,
                topics=self._topics,
                groups=self._groups,
                probes_storage=self._probe_storage,
            )

        call = LimitedCall(opened)
        if not call.wait(self._limits.patience_ms / 1000):
            raise StorageError(f"the storage has not answered for {self._patience()}")
        return call.result()

    def _unreadable_root(self, error: SparkLogError) -> Finding:
        for check in self._checks:
            reason = "the root cannot be read"
            self.results[check.name] = CheckResult(check.name, CheckStatus.SKIPPED, reason)
        damaged = isinstance(error, CorruptRecordError)
        return ROOT_UNREADABLE.finding(
            ROOT,
            str(error),
            remedy="Find out what is damaged" if damaged else "Bring the storage back, then retry",
            command=shell_command("verify") if damaged else None,
            evidence=type(error).__name__,
        )

    def _run(
        self, check: Check | PartitionCheck, call: Callable[[], Iterable[Finding]]
    ) -> Iterator[Finding]:
        """Yield the findings of a check, or a finding that it failed."""
        began_ms = SYSTEM_CLOCK.monotonic_ms()
        try:
            found = self._within_patience(lambda: list(call()))
        except NotCheckedError as error:
            _log.debug("check %s was skipped: %s", check.name, error.reason)
            self.results[check.name] = CheckResult(check.name, CheckStatus.SKIPPED, error.reason)
            return
        except Exception as error:  # any error: the other checks continue
            yield self._failed(check, error)
            return
        self.results.setdefault(check.name, CheckResult(check.name, CheckStatus.DONE))
        took_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
        _log.debug("check %s: %d findings in %.0f ms", check.name, len(found), took_ms)
        yield from found

    def _within_patience(self, call: Callable[[], list[Finding]]) -> list[Finding]:
        """Return the result of a call, unless it makes no progress for ``limits.patience_ms``."""
        assert self._examination is not None
        examination, patience_ms = self._examination, self._limits.patience_ms
        examination.on_progress()
        limited = LimitedCall(call)
        while not limited.wait(min(_LOOK_MS, self._left_ms(examination)) / 1000):
            if self._left_ms(examination) <= 0:
                raise StorageError(f"it has made no progress for {patience_ms / 1000:.0f} s")
        return limited.result()

    def _left_ms(self, examination: Examination) -> float:
        waited_ms = SYSTEM_CLOCK.monotonic_ms() - examination.active_ms
        return max(0.0, self._limits.patience_ms - waited_ms)

    def _failed(
        self, check: Check | PartitionCheck, error: BaseException, subject: Subject = ROOT
    ) -> Finding:
        reason = _reason(error)
        _log.debug("check %s of %s failed: %s", check.name, subject.text, reason)
        self.results[check.name] = CheckResult(check.name, CheckStatus.FAILED, reason)
        return NOT_CHECKED.finding(
            subject,
            f"could not be checked ({check.name}): {reason}",
            remedy="Bring the storage back, then check it again",
            command=shell_command("doctor", "--checks", check.name),
            evidence=type(error).__name__,
        )

    def _patience(self) -> str:
        return f"{self._limits.patience_ms / 1000:.0f} s"

    # --- partitions ------------------------------------------------------------------------------

    def _look_at_partitions(
        self,
        examination: Examination,
        checks: Sequence[PartitionCheck],
        on_progress: OnProgress,
    ) -> Iterator[Finding]:
        partitions = ((topic, each) for topic in examination.topics for each in topic.partitions)
        total = sum(topic.num_partitions for topic in examination.topics)

        def look(place: tuple[TopicImage, int]) -> list[Finding]:
            return list(self._look_at(examination, checks, *place))

        _log.debug("checking %d partitions with %d threads", total, self._limits.threads)
        pool = DaemonPool(self._limits.threads, self._limits.patience_ms, name=THREAD_NAME)
        on_progress("Partitions", 0, total)
        for place, outcome in pool.run(look, partitions):
            self.partitions += 1
            on_progress("Partitions", self.partitions, total)
            if outcome.error is None:
                yield from outcome.result()
                continue
            subject = Subject.of_partition(PartitionExamination(examination, *place).tp)
            yield from (self._failed(check, outcome.error, subject) for check in checks[:1])

    def _look_at(
        self,
        examination: Examination,
        checks: Sequence[PartitionCheck],
        topic: TopicImage,
        number: int,
    ) -> Iterator[Finding]:
        partition = PartitionExamination(examination, topic, number)
        subject = Subject.of_partition(partition.tp)
        damage = None
        for check in checks:
            try:
                with examination.cluster.detecting_deletion(topic):
                    yield from list(check.partition_findings(partition))
            except UnknownTopicOrPartitionError:
                return  # deleted meanwhile
            except UnreachableError:
                return  # another finding reports its failing brokers
            except CorruptRecordError as error:
                damage = damage or error
            except Exception as error:  # any error: the other checks continue
                yield self._failed(check, error, subject)
        if damage is not None:
            yield PARTITION_UNREADABLE.finding(
                subject,
                str(damage),
                remedy="Find out what is damaged",
                command=shell_command("verify", topic.name, "--partition", number),
                evidence=type(damage).__name__,
            )


def _reason(error: BaseException) -> str:
    if isinstance(error, SparkLogError):
        return error.message
    return f"{type(error).__name__}: {error}"
