"""The choice of the gateway of a partition or a group: a rendezvous hash over live gateways.

When a gateway comes or goes, only its own partitions and groups move. The choice is a hint: the log
is as correct with two gateways that both think they lead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

from spark_log.coordinator import RegisteredGateway

_RACK = re.compile(r"(?:^|[ ,|])(?:az|rack)=([^ ,|]+)")
"""A rack in a client id, as ``orders,rack=eu-1a``. Mirror Maker appends to client ids by ``|``."""


def rack_of_client(client_id: str | None) -> str:
    """Return the rack that a client id names; empty if it names none.

    A client's ``client.rack`` is not in its requests for metadata.
    """
    found = _RACK.search(client_id or "")
    return found[1] if found else ""


def leader(
    gateways: Sequence[RegisteredGateway], topic_id: str, number: int, rack: str = ""
) -> RegisteredGateway:
    """Return the gateway that clients of a rack find some partitions of a topic at.

    Args:
        gateways: the gateways that may lead; at least one.
        topic_id: the topic's id.
        number: what these partitions have in common (`led_together`).
        rack: the clients' rack. If no gateway is in it, all gateways may lead.
    """
    near = [each for each in gateways if each.rack == rack] if rack else gateways
    return _highest(near or gateways, f"{topic_id}-{number}")


def led_together(partition: int, stripes: int, gateways: int) -> int:
    """Return a number that the partitions of a topic have in common which one gateway leads.

    A gateway leads whole stripes, so that few gateways put into each of them: as many as there are
    for one stripe, if there are more gateways than stripes.

    Args:
        partition: the partition's number.
        stripes: number of the topic's stripes; 0 without stripes, where each partition has a
            gateway of its own.
        gateways: number of gateways that may lead.
    """
    if not stripes:
        return partition
    return partition % (stripes * -(-gateways // stripes))


def coordinator(gateways: Sequence[RegisteredGateway], kind: str, name: str) -> RegisteredGateway:
    """Return the gateway that coordinates a group or a transactional id, for clients of all racks.

    Args:
        gateways: the gateways that may coordinate; at least one.
        kind: ``group`` or ``transaction``.
        name: the group's id, or the transactional id.
    """
    return _highest(gateways, f"{kind}/{name}")


def _highest(gateways: Sequence[RegisteredGateway], key: str) -> RegisteredGateway:
    if len(gateways) == 1:
        return gateways[0]
    state = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8)

    def weight(gateway: RegisteredGateway) -> tuple[bytes, int]:
        found = state.copy()
        found.update(b"/%d" % gateway.gateway_id)
        return found.digest(), gateway.gateway_id

    return max(gateways, key=weight)
