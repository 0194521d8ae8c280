"""Checks that stripes are taken home, and that their objects follow each other.

The check lists each stripe, and reads its newest home marker. ``spark-log verify`` reads objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from spark_log.doctor.check import Check
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
    size_text,
)
from spark_log.errors import CorruptRecordError, NotFoundError
from spark_log.metadata import TopicImage

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe, StripeListing

STRIPE_NOT_HOME = Problem(
    "stripe-not-home",
    Severity.WARNING,
    "A stripe has very many objects that are not at home, or old ones: each process that opens it "
    "reads all of them, and no retention, compaction or table gets their records.",
)
STRIPE_DAMAGED = Problem(
    "stripe-damaged",
    Severity.ERROR,
    "An object of a stripe is missing, or its newest home marker cannot be read: its partitions "
    "cannot be read there, and nothing is appended to them.",
)

STRIPES_CHANGE_INCOMPLETE = Problem(
    "stripes-change-incomplete",
    Severity.WARNING,
    "The number of stripes of a topic is being changed, or the process that changed it was killed: "
    "appends to the topic wait until the change is complete.",
)


class StripesCheck(Check):
    """Lists each stripe, and reads its newest home marker."""

    name: ClassVar[str] = "stripes"
    title: ClassVar[str] = "stripes that are not taken home"
    problems: ClassVar[tuple[Problem, ...]] = (
        STRIPE_NOT_HOME,
        STRIPE_DAMAGED,
        STRIPES_CHANGE_INCOMPLETE,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about stripes; asks nothing of the storage if no topic has stripes."""

        def check(pair: tuple[TopicImage, Stripe]) -> list[Finding]:
            return list(_findings(examination, *pair))

        for _, found in examination.map(check, examination.stripes):
            yield from found
        for topic in examination.topics:
            if topic.moving_to is not None:
                yield STRIPES_CHANGE_INCOMPLETE.finding(
                    Subject(f"topic {topic.name}", topic.name),
                    f"it has {len(topic.stripes)} stripes, and is getting {topic.moving_to}",
                    remedy="Complete the change, if no process is about it",
                    command=shell_command(
                        "topics", "alter", topic.name, "--stripes", str(topic.moving_to)
                    ),
                    evidence="the metadata",
                )


def _findings(examination: Examination, topic: TopicImage, stripe: Stripe) -> Iterator[Finding]:
    directory = stripe.directory
    subject = Subject(f"stripe {directory.stripe} of topic {topic.name}", topic.name)
    listing = directory.list()
    problem = _missing(listing)
    if problem is not None:
        problem = _missing(directory.list())  # the first listing may lack an object
    problem = problem or _unreadable(stripe, listing)
    if problem is not None:
        yield STRIPE_DAMAGED.finding(
            subject,
            problem,
            remedy="Restore the file from a copy",
            command=shell_command("verify", topic.name),
            evidence=f"a listing of {directory.store.url}/{directory.path}",
        )
    behind = listing.behind_home
    limits, now_us = examination.limits, examination.now_us
    age_us = now_us - behind[0][1].modified_us if behind else 0
    if len(behind) > limits.objects_not_home or age_us > limits.overdue_ms * 1000:
        size = size_text(sum(file.size_bytes for _, file in behind))
        yield STRIPE_NOT_HOME.finding(
            subject,
            f"{len(behind):,} objects ({size}) are not at home, the oldest since "
            f"{duration_text(age_us)}",
            remedy="Let a cleaner run every hour",
            command=shell_command("clean", topic.name),
            evidence=f"a listing of {directory.store.url}/{directory.path}",
        )


def _missing(listing: StripeListing) -> str | None:
    """Return what is missing behind the newest home marker; None if nothing is."""
    behind = listing.behind_home
    for expected, (number, _) in enumerate(behind, start=listing.home_number):
        if number != expected:
            return f"object {expected} is missing, and the stripe reaches object {behind[-1][0]}"
    return None


def _unreadable(stripe: Stripe, listing: StripeListing) -> str | None:
    """Return the fault of the newest home marker; None if it can be read."""
    number = listing.home_number
    if number:
        try:
            stripe.directory.read_home(number)
        except NotFoundError:
            return None  # freed since, below a newer one
        except CorruptRecordError as error:
            return f"its newest home marker cannot be read: {error}"
    return None
