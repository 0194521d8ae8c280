"""Checks that the brokers' roots answer, and belong to their registrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from spark_log.doctor.check import Check
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import Finding, Problem, Severity, Subject, shell_command
from spark_log.errors import BrokerIdNotRegisteredError, InvalidRootError
from spark_log.metadata import ROOT_BROKER_ID, RegisterBrokerRecord

BROKER_UNREACHABLE = Problem(
    "broker-unreachable",
    Severity.ERROR,
    "The root of a broker does not answer, is not mounted, or was emptied.",
)
BROKER_WRONG_ROOT = Problem(
    "broker-wrong-root",
    Severity.ERROR,
    "At the path of a broker is the root of another cluster, broker or registration: two brokers "
    "share a storage, or the root was emptied and registered anew.",
)
BROKER_FENCED = Problem(
    "broker-fenced", Severity.WARNING, "A broker is fenced: it leads no partition."
)
BROKER_LEAVING = Problem(
    "broker-leaving",
    Severity.WARNING,
    "A broker is being unregistered and still has replicas.",
)


class BrokersCheck(Check):
    """Reads ``meta.properties`` of each broker's root, all at the same time."""

    name: ClassVar[str] = "brokers"
    title: ClassVar[str] = "roots and registrations of the brokers"
    problems: ClassVar[tuple[Problem, ...]] = (
        BROKER_UNREACHABLE,
        BROKER_WRONG_ROOT,
        BROKER_FENCED,
        BROKER_LEAVING,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about brokers that are unusable, fenced, or being unregistered."""
        image = examination.image
        replicas = Counter(
            broker_id
            for topic in image.topics()
            for partition in topic.partitions.values()
            for broker_id in partition.replicas
        )
        for broker, error in probe_brokers(examination):
            if error is not None:
                yield _unusable(examination, broker, error, replicas[broker.broker_id])
        for broker in image.brokers():
            count = replicas[broker.broker_id]
            if broker.fenced:
                yield _fenced(broker, count)
            if broker.in_controlled_shutdown and count:
                yield BROKER_LEAVING.finding(
                    Subject.of_broker(broker.broker_id),
                    f"is being unregistered, and still has {count} replicas",
                    remedy="Move its partitions to other brokers, then unregister it again",
                    command=shell_command("brokers", "unregister", broker.broker_id),
                    evidence="the metadata",
                )


def probe_brokers(
    examination: Examination,
) -> Iterator[tuple[RegisterBrokerRecord, Exception | None]]:
    """Read ``meta.properties`` of each broker, and add failing brokers to the examination."""
    cluster = examination.cluster

    def probe(broker: RegisterBrokerRecord) -> Exception | None:
        try:
            cluster.check_broker(broker.broker_id)
        except BrokerIdNotRegisteredError:
            return None  # unregistered meanwhile
        except Exception as error:
            return error
        return None

    for broker, outcome in examination.outcomes(probe, examination.image.brokers()):
        error = outcome.error or outcome.value
        if error is not None:
            examination.failing_brokers[broker.broker_id] = str(error)
        yield broker, error if isinstance(error, Exception) else None


def _unusable(
    examination: Examination, broker: RegisterBrokerRecord, error: Exception, replicas: int
) -> Finding:
    subject = Subject.of_broker(broker.broker_id)
    evidence = f"meta.properties of {examination.store_url(broker.broker_id)}; {replicas} replicas"
    if isinstance(error, InvalidRootError):
        return BROKER_WRONG_ROOT.finding(
            subject,
            str(error),
            remedy="Mount or move the right storage there; if its data is lost, fence the broker, "
            "and register it again with an empty root",
            command=_fence_command(broker),
            evidence=evidence,
        )
    return BROKER_UNREACHABLE.finding(
        subject,
        f"its root cannot be used: {error}",
        remedy="Fence the broker until its root answers, so that other brokers lead",
        command=_fence_command(broker),
        evidence=evidence,
    )


def _fence_command(broker: RegisterBrokerRecord) -> str | None:
    return None if broker.fenced else shell_command("brokers", "fence", broker.broker_id)


def _fenced(broker: RegisterBrokerRecord, replicas: int) -> Finding:
    by = "a controller, because its root did not answer" if broker.failed else "a person"
    remedy = (
        "A controller unfences it when its root answers; or do it by hand"
        if broker.failed
        else "Unfence it when its root works again"
    )
    if broker.broker_id == ROOT_BROKER_ID:
        by += "; it is the root of the metadata log"
    return BROKER_FENCED.finding(
        Subject.of_broker(broker.broker_id),
        f"is fenced by {by}: its {replicas} replicas lead no partition",
        remedy=remedy,
        command=shell_command("brokers", "unfence", broker.broker_id),
        evidence="the metadata",
    )
