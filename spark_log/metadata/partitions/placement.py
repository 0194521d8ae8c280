"""Chooses the brokers (storage roots) that hold the replicas of new partitions.

The rule is that of Kafka's ``StripedReplicaPlacer``. Its goals are, the most important one first:
replicas of a partition are spread over the racks, partitions are spread over the brokers, and
fenced brokers are avoided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from random import Random

from spark_log.errors import InvalidReplicationFactorError


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that can get replicas.

    Attributes:
        broker_id: the broker's id.
        rack: the broker's rack; None without one. Brokers without a rack count as one rack.
        fenced: whether the broker may not lead a partition.
    """

    broker_id: int
    rack: str | None = None
    fenced: bool = False


def place_replicas(
    brokers: Iterable[UsableBroker],
    *,
    num_partitions: int,
    replication_factor: int,
    random: Random,
    existing: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """Choose the replicas of new partitions of one topic.

    - A partition has at most one replica on a broker.
    - A rack gets its second replica of a partition only when every other rack has its first one or
      has no brokers left. A rack in which all brokers are fenced gets its replica, too.
    - The preferred leader is never fenced. In each rack, fenced brokers come after all others.
    - Each partition begins one rack further than the one before it, and one broker further in each
      rack. After as many partitions as there are brokers that are not fenced, the orders of racks
      and brokers are shuffled: the same brokers shall not always hold the same partitions.

    Args:
        brokers: the registered brokers, in any order.
        num_partitions: the number of new partitions.
        replication_factor: the number of replicas of each partition.
        random: the source of all random choices. Equal arguments and an equal state of ``random``
            give equal results.
        existing: the replicas of the topic's existing partitions, in the order of partitions. The
            new partitions continue after the last of them; without any, the beginning is random.

    Returns:
        The replicas of each new partition, the preferred leader first.

    Raises:
        InvalidReplicationFactorError: the factor is not positive, is above the number of brokers,
            or all brokers are fenced.
    """
    usable = sorted(brokers, key=lambda broker: broker.broker_id)
    _check(usable, replication_factor)
    placer = _Placer(usable, existing, random)
    return [placer.place(replication_factor) for _ in range(num_partitions)]


def _check(brokers: Sequence[UsableBroker], replication_factor: int) -> None:
    registered = f"{len(brokers)} broker{'s are' if len(brokers) != 1 else ' is'} registered"
    if replication_factor < 1:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor}; give at least 1 ({registered})"
        )
    if all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor}: {registered}, and none can lead a "
            f"partition; {'unfence or ' if brokers else ''}register a broker"
        )
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor}, but {registered}; give at most "
            f"{len(brokers)}, or register more brokers"
        )


class _Placer:
    """Places one partition after the other; remembers the next broker of each rack."""

    def __init__(
        self, brokers: Sequence[UsableBroker], existing: Sequence[Sequence[int]], random: Random
    ) -> None:
        rack_of = {broker.broker_id: broker.rack for broker in brokers}
        names = sorted(set(rack_of.values()), key=lambda rack: (rack is not None, rack or ""))
        self._random = random
        self._racks = []
        for name in names:
            here = [broker for broker in brokers if broker.rack == name]
            unfenced = [broker.broker_id for broker in here if not broker.fenced]
            fenced = [broker.broker_id for broker in here if broker.fenced]
            last = _last_in_rack(name, rack_of, existing)
            self._racks.append(_Rack(_ring(unfenced, random, last), _ring(fenced, random)))
        last_leader = existing[-1][0] if existing else None
        if last_leader in rack_of:
            self._first = names.index(rack_of[last_leader]) + 1
        else:
            self._first = random.randrange(len(names))
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        self._placed = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition, the preferred leader first."""
        if self._placed == self._unfenced_count > 1:  # one alone leads all partitions in any order
            self._placed = 0
            self._random.shuffle(self._racks)
            for rack in self._racks:
                rack.shuffle(self._random)
        self._placed += 1
        at = self._first % len(self._racks)
        self._first += 1
        racks = self._racks[at:] + self._racks[:at]
        return tuple(islice(_in_turn(racks), replication_factor))


def _in_turn(racks: Sequence[_Rack]) -> Iterator[int]:
    """Yield a leader, then one broker of each rack in turn, without end."""
    brokers = [rack.brokers() for rack in racks]
    leading = next(number for number, rack in enumerate(racks) if rack.can_lead)
    yield next(brokers[leading])
    in_this_round = [each for number, each in enumerate(brokers) if number != leading]
    while True:
        for rack in in_this_round:
            yield from islice(rack, 1)  # nothing if the rack has no more
        in_this_round = brokers


class _Rack:
    """The brokers of a rack: first those that are not fenced, then the fenced ones."""

    def __init__(self, unfenced: _Ring, fenced: _Ring) -> None:
        self._unfenced = unfenced
        self._fenced = fenced

    @property
    def can_lead(self) -> bool:
        return bool(self._unfenced.brokers)

    def brokers(self) -> Iterator[int]:
        """Return the brokers for one partition."""
        return chain(self._unfenced.turn(), self._fenced.turn())

    def shuffle(self, random: Random) -> None:
        random.shuffle(self._unfenced.brokers)
        random.shuffle(self._fenced.brokers)


class _Ring:
    """Brokers in a ring. Each turn begins with the next broker.

    Attributes:
        brokers: the ids of the brokers, in the order of the ring.
        first: the index of the broker that the next turn begins with, modulo their number.
    """

    def __init__(self, brokers: list[int], first: int) -> None:
        self.brokers = brokers
        self.first = first

    def turn(self) -> Iterator[int]:
        """Yield each broker once. The ring advances by one if at least one broker is taken."""
        first = self.first
        self.first += 1
        for index in range(first, first + len(self.brokers)):
            yield self.brokers[index % len(self.brokers)]


def _ring(brokers: list[int], random: Random, after: int | None = None) -> _Ring:
    """Return a ring that begins after a broker; at random if the broker is not in the ring."""
    if after in brokers:
        return _Ring(brokers, brokers.index(after) + 1)
    return _Ring(brokers, random.randrange(len(brokers)) if brokers else 0)


def _last_in_rack(
    rack: str | None, rack_of: Mapping[int, str | None], existing: Sequence[Sequence[int]]
) -> int | None:
    """Return the first broker of a rack in the last partition with a replica in that rack."""
    placed = (broker for replicas in reversed(existing) for broker in replicas)
    return next((each for each in placed if each in rack_of and rack_of[each] == rack), None)
