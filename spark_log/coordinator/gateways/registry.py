"""`GatewayRegistry`: the gateways of a root after each change.

Decisions return records, and `replay` applies them.

All gateways replay the same log, so those that have read it to the same offset agree on which of
them leads a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_log.errors import DuplicateBrokerRegistrationError
from spark_log.log import StateRecord
from spark_log.util import RecordFields, record_from_json

_FIRST_ID: Final = 1_001
"""The first id that is given to a gateway. Kafka's generated broker ids begin here, too; smaller
ones are those of brokers, which are storage roots here."""


class GatewayPart(RecordFields):
    """A gateway in a record: the fields of `RegisteredGateway`."""

    gateway_id: int
    incarnation_id: str
    host: str
    port: int
    rack: str = ""
    is_active: bool = False
    version: str = ""
    session_timeout_ms: int = 9_000
    renewals: int = 0


class GatewaysRecord(StateRecord):
    """The gateways of a root after a change.

    Attributes:
        change: ``register``, ``activate``, ``renew``, ``expire`` or ``unregister``.
        changed: the ids of the gateways that the change is about.
        gateways: all gateways, by id.
    """

    change: str
    changed: tuple[int, ...]
    gateways: tuple[GatewayPart, ...] = ()

    @property
    def headline(self) -> str:
        """The change in a few words, for log lines."""
        return f"{self.change} of {', '.join(map(str, self.changed))}"

    def __str__(self) -> str:
        shown = (
            f"{each.gateway_id} at {each.host}:{each.port}{'' if each.is_active else ' (joining)'}"
            for each in self.gateways
        )
        return f"{self.headline}: {', '.join(shown) or 'no gateway'}"


@dataclass(frozen=True, slots=True)
class RegisteredGateway:
    """A gateway that clients can connect to.

    Attributes:
        gateway_id: the id that clients know it by.
        incarnation_id: the random id of its process.
        host: the host that clients connect to.
        port: the port that clients connect to.
        rack: the rack that it is in; empty without one.
        is_active: whether it gets partitions and groups.
        version: its version of spark-log; empty if it is not known.
        session_timeout_ms: its ``broker.session.timeout.ms``.
        renewals: the number of times that it was silent, and has said here that it lives.
    """

    gateway_id: int
    incarnation_id: str
    host: str
    port: int
    rack: str = ""
    is_active: bool = False
    version: str = ""
    session_timeout_ms: int = 9_000
    renewals: int = 0

    @property
    def heartbeat_name(self) -> str:
        """The name of its counter: a new one for each process."""
        return f"{self.gateway_id}-{self.incarnation_id}"


@dataclass(frozen=True, slots=True)
class GatewayRegistry:
    """The gateways of a root.

    Attributes:
        gateways: the gateways, by rising id.
    """

    gateways: tuple[RegisteredGateway, ...] = ()

    def replay(self, record: GatewaysRecord) -> GatewayRegistry:
        """Return the state after a record: it has all of it."""
        return GatewayRegistry(
            tuple(
                RegisteredGateway(**{name: getattr(part, name) for name in _FIELDS})
                for part in record.gateways
            )
        )

    def find(self, gateway_id: int) -> RegisteredGateway | None:
        """Return the gateway with an id, or None."""
        return next((each for each in self.gateways if each.gateway_id == gateway_id), None)

    def incarnation(self, incarnation_id: str) -> RegisteredGateway | None:
        """Return the gateway of a process, or None if it is not registered."""
        found = (each for each in self.gateways if each.incarnation_id == incarnation_id)
        return next(found, None)

    @property
    def active(self) -> tuple[RegisteredGateway, ...]:
        """The gateways that get partitions and groups."""
        return tuple(each for each in self.gateways if each.is_active)

    # --- decisions -------------------------------------------------------------------------------

    def register(self, wanted: RegisteredGateway) -> GatewaysRecord | None:
        """Return the record that registers a gateway; None if its process is registered already.

        A gateway takes the place of an earlier one with the same address, which is its own process
        before a restart: nothing moves then.

        Args:
            wanted: the gateway; its id is -1 to get one.

        Raises:
            DuplicateBrokerRegistrationError: the id belongs to a gateway with another address.
        """
        if self.incarnation(wanted.incarnation_id) is not None:
            return None
        address = (wanted.host, wanted.port)
        before = [each for each in self.gateways if (each.host, each.port) == address]
        gateway_id = wanted.gateway_id
        if gateway_id < 0:
            gateway_id = before[0].gateway_id if before else self._free_id()
        holder = self.find(gateway_id)
        if holder is not None and holder not in before:
            raise DuplicateBrokerRegistrationError(
                f"broker.id {gateway_id} is registered by the gateway at {holder.host}:"
                f"{holder.port}; give another id, or wait for broker.session.timeout.ms after that "
                f"gateway's end",
                broker_id=gateway_id,
            )
        others = [each for each in self.gateways if each not in before]
        took_over = holder is not None and holder.is_active
        is_first = not any(each.is_active for each in others)
        new = replace(wanted, gateway_id=gateway_id, is_active=took_over or is_first)
        return _record("register", [gateway_id], [*others, new])

    def activate(self, incarnation_id: str) -> GatewaysRecord | None:
        """Return the record after which a gateway gets partitions; None if it does already."""
        found = self.incarnation(incarnation_id)
        if found is None or found.is_active:
            return None
        others = [each for each in self.gateways if each is not found]
        return _record("activate", [found.gateway_id], [*others, replace(found, is_active=True)])

    def renew(self, incarnation_id: str) -> GatewaysRecord | None:
        """Return the record of a gateway that was silent, and lives; None if it was removed.

        The removal of a gateway that is on its way is refused then, as another record is in its
        place, and is not decided again (`expire`).
        """
        found = self.incarnation(incarnation_id)
        if found is None:
            return None
        others = [each for each in self.gateways if each is not found]
        renewed = replace(found, renewals=found.renewals + 1)
        return _record("renew", [found.gateway_id], [*others, renewed])

    def expire(self, silent: Collection[RegisteredGateway]) -> GatewaysRecord | None:
        """Return the record that removes gateways; None if all are gone, or have said they live.

        Args:
            silent: the gateways, as they were registered when they were found silent.
        """
        known = {(each.incarnation_id, each.renewals) for each in silent}
        return self._remove(
            "expire",
            [each for each in self.gateways if (each.incarnation_id, each.renewals) in known],
        )

    def unregister(self, incarnation_id: str) -> GatewaysRecord | None:
        """Return the record that removes a gateway that ends; None if it is removed."""
        return self._remove(
            "unregister", [each for each in self.gateways if each.incarnation_id == incarnation_id]
        )

    def _remove(self, change: str, removed: list[RegisteredGateway]) -> GatewaysRecord | None:
        if not removed:
            return None
        kept = [each for each in self.gateways if each not in removed]
        return _record(change, [each.gateway_id for each in removed], kept)

    def _free_id(self) -> int:
        taken = {each.gateway_id for each in self.gateways}
        return next(number for number in range(_FIRST_ID, 2**31) if number not in taken)


_FIELDS: Final = tuple(GatewayPart.model_fields)


def from_json(value: bytes) -> GatewaysRecord:
    """Return the record with a stored value.

    Raises:
        CorruptRecordError: the value is no such record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, _KINDS, "gateways record")


_KINDS: dict[str, type[GatewaysRecord]] = {GatewaysRecord.__name__: GatewaysRecord}


def _record(
    change: str, changed: Iterable[int], gateways: Iterable[RegisteredGateway]
) -> GatewaysRecord:
    parts = [
        GatewayPart(**{name: getattr(each, name) for name in _FIELDS})
        for each in sorted(gateways, key=lambda each: each.gateway_id)
    ]
    return GatewaysRecord(
        change_id="", change=change, changed=tuple(changed), gateways=tuple(parts)
    )
