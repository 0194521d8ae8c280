"""Runs many simulations on several cores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

from tests.simulation.batches.replicated import ReplicatedBatchesSimulation
from tests.simulation.batches.rules import BATCHES_RULES, REPLICATED_BATCHES_RULES
from tests.simulation.batches.simulation import BatchesSimulation
from tests.simulation.compaction.rules import COMPACTION_RULES
from tests.simulation.compaction.simulation import CompactionSimulation
from tests.simulation.consumer_protocol.rules import CONSUMER_PROTOCOL_RULES
from tests.simulation.consumer_protocol.simulation import ConsumerProtocolSimulation
from tests.simulation.deletion.rules import DELETION_RULES
from tests.simulation.deletion.simulation import DeletionSimulation
from tests.simulation.gateway_groups.rules import GATEWAY_GROUP_RULES
from tests.simulation.gateway_groups.simulation import GatewayGroupSimulation
from tests.simulation.gateway_transactions.rules import GATEWAY_TRANSACTIONS_RULES
from tests.simulation.gateway_transactions.simulation import GatewayTransactionsSimulation
from tests.simulation.groups.rules import GROUP_RULES
from tests.simulation.groups.simulation import GroupSimulation
from tests.simulation.log.rules import RULES
from tests.simulation.log.simulation import LogSimulation
from tests.simulation.offsets.rules import OFFSETS_RULES
from tests.simulation.offsets.simulation import OffsetsSimulation
from tests.simulation.parquet import ParquetCompactionSimulation, ParquetLogSimulation
from tests.simulation.quorum.rules import QUORUM_RULES
from tests.simulation.quorum.simulation import QuorumSimulation
from tests.simulation.replication.rules import REPLICATION_RULES
from tests.simulation.replication.simulation import ReplicationSimulation
from tests.simulation.simulation import Simulation, SimulationFailedError, SimulationResult
from tests.simulation.stripe_changes.rules import STRIPE_CHANGES_RULES
from tests.simulation.stripe_changes.simulation import StripeChangesSimulation
from tests.simulation.stripes.on_quorum import QuorumStripesSimulation
from tests.simulation.stripes.rules import STRIPES_RULES
from tests.simulation.stripes.simulation import StripesSimulation
from tests.simulation.table.rules import TABLE_RULES
from tests.simulation.table.simulation import TableSimulation
from tests.simulation.transactions.kept_identities import KeptIdentitySimulation
from tests.simulation.transactions.kept_identity_rules import KEPT_IDENTITY_RULES
from tests.simulation.transactions.rules import TRANSACTIONS_RULES
from tests.simulation.transactions.simulation import TransactionsSimulation

_CHUNK = 50
"""Number of seeds that a process runs before it reports."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A part of the package that can be simulated.

    Attributes:
        simulation: makes the simulation of a seed, of the shipped code or of a variant.
        rules: by name of a safety rule, the variant without that rule.
        records: the name of what `SimulationResult.records` counts.
    """

    simulation: Callable[..., Simulation]
    rules: Mapping[str, object]
    records: str

    def run(self, seed: int, rule: str | None) -> SimulationResult:
        """Run one simulation of the shipped code, or without one safety rule.

        Raises:
            SimulationFailedError: a guarantee did not hold; has the trace.
        """
        with _without_log_lines():
            variant = () if rule is None else (self.rules[rule],)
            return self.simulation(seed, *variant).run()


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Silence the package: the faults are injected, and the trace of a failure shows them."""
    logger = logging.getLogger("spark_log")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


SUBJECTS: Final = {
    "log": Subject(LogSimulation, RULES, "records"),
    "groups": Subject(GroupSimulation, GROUP_RULES, "generations"),
    "gateway-groups": Subject(GatewayGroupSimulation, GATEWAY_GROUP_RULES, "generations"),
    "consumer-protocol": Subject(
        ConsumerProtocolSimulation, CONSUMER_PROTOCOL_RULES, "generations"
    ),
    "gateway-transactions": Subject(
        GatewayTransactionsSimulation, GATEWAY_TRANSACTIONS_RULES, "transactions"
    ),
    "compaction": Subject(CompactionSimulation, COMPACTION_RULES, "records"),
    "offsets": Subject(OffsetsSimulation, OFFSETS_RULES, "versions"),
    "deletion": Subject(DeletionSimulation, DELETION_RULES, "topics"),
    "quorum": Subject(QuorumSimulation, QUORUM_RULES, "names"),
    "transactions": Subject(TransactionsSimulation, TRANSACTIONS_RULES, "transactions"),
    "kept-identities": Subject(KeptIdentitySimulation, KEPT_IDENTITY_RULES, "transactions"),
    "replication": Subject(ReplicationSimulation, REPLICATION_RULES, "acknowledged records"),
    "table": Subject(TableSimulation, TABLE_RULES, "versions"),
    "batches": Subject(BatchesSimulation, BATCHES_RULES, "records"),
    "replicated-batches": Subject(
        ReplicatedBatchesSimulation, REPLICATED_BATCHES_RULES, "acknowledged records"
    ),
    "stripes": Subject(StripesSimulation, STRIPES_RULES, "records"),
    "quorum-stripes": Subject(QuorumStripesSimulation, STRIPES_RULES, "records"),
    "stripe-changes": Subject(StripeChangesSimulation, STRIPE_CHANGES_RULES, "records"),
    "parquet": Subject(ParquetLogSimulation, RULES, "records"),
    "parquet-compaction": Subject(ParquetCompactionSimulation, COMPACTION_RULES, "records"),
}
"""By name: a partition's log, a consumer group, groups of Kafka's clients with the classic and with
the consumer protocol, offsets that these commit with transactions, a compacted log, the table of
committed offsets, the deletion of topics, a quorum of roots, transactions, transactions of clients
that keep their identity, a replicated partition, a topic's table, group commit in a log and in a
replicated partition, the stripes of a topic, and a log and a compacted log with Parquet
segments."""


@dataclass(frozen=True, slots=True)
class SimulationTotals:
    """The results of several seeds, added up.

    Attributes:
        seeds: number of seeds.
        steps: number of steps of the seeds that passed.
        records: number of records (or what `Subject.records` names) of the seeds that passed.
        failures: the failures of the other seeds.
    """

    seeds: int
    steps: int
    records: int
    failures: tuple[SimulationFailedError, ...]


def simulate_many(
    seeds: range, *, of: str = "log", rule: str | None = None, jobs: int = 1
) -> Iterator[SimulationTotals]:
    """Run simulations, and yield the totals of some seeds at a time.

    Args:
        seeds: the seeds.
        of: one of `SUBJECTS`.
        rule: one of its safety rules, which is left out.
        jobs: number of processes.
    """
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1 or len(chunks) == 1:  # another process would take longer to start than it saves
        yield from (_run_seeds(chunk, of, rule) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_run_seeds, chunk, of, rule) for chunk in chunks]):
            yield future.result()


def _run_seeds(seeds: range, of: str, rule: str | None) -> SimulationTotals:
    steps = records = 0
    failures = []
    for seed in seeds:
        try:
            result = SUBJECTS[of].run(seed, rule)
        except SimulationFailedError as failure:
            failures.append(failure)
        else:
            steps, records = steps + result.steps, records + result.records
    return SimulationTotals(len(seeds), steps, records, tuple(failures))
