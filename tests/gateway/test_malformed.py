"""Mutated requests: no crash, no allocation above the limits, no other connection disturbed."""

import random
import resource
import struct

import pytest

from spark_log import Admin, NewTopic
from spark_log.gateway.protocol import encode_request
from spark_log.gateway.protocol.schema import message_schema
from spark_log.gateway.requests import HANDLERS
from tests.gateway.protocol.test_codec import classes_of, random_message
from tests.gateway.support import running_gateway

INTERESTING = [0, 1, 127, 128, 255]
MAX_GROWTH_KIB = 300_000


def requests(chance):
    """Yield the bytes of valid requests of all APIs and versions, without end."""
    apis = sorted((each.api for each in HANDLERS.values()), key=lambda api: api.key)
    while True:
        api = chance.choice(apis)
        version = chance.randint(api.min_version, api.max_version)
        name = f"{api.name}Request"
        message = random_message(message_schema(name).struct, version, chance, classes_of(name))
        yield b"".join(encode_request(api.name, version, chance.randrange(2**31), "c", message))[4:]


def mutated(data, chance):
    """Return bytes that were changed in some way."""
    found = bytearray(data)
    for _ in range(chance.choice([0, 1, 1, 2, 5, 20])):
        if not found:
            break
        position = chance.randrange(len(found))
        kind = chance.randrange(6)
        if kind == 0:
            found[position] = chance.choice(INTERESTING)
        elif kind == 1:
            found[position] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del found[position : position + chance.choice([1, 4, 50])]
        elif kind == 3:
            found[position:position] = chance.randbytes(chance.choice([1, 4, 50]))
        elif kind == 4:
            number = chance.choice([2**31 - 1, -1, -(2**31), 2**16, 2**24])
            found[position : position + 4] = struct.pack(">i", number)
        else:
            found[position : position + 5] = b"\xff\xff\xff\xff\x0f"
    return bytes(found)


def attack(gateway, number, seed):
    """Send mutated frames; return the number of connections that were closed."""
    chance = random.Random(seed)
    source = requests(chance)
    closed = 0
    hostile = gateway.client()
    with gateway.client() as honest:
        before = honest.ask("Metadata", 12, topics=[])
        for count in range(number):
            data = mutated(next(source), chance)
            try:
                size = len(data) if chance.random() < 0.98 else chance.randrange(-5, 2**31)
                hostile.send_bytes(struct.pack(">i", min(size, 2**31 - 1)) + data)
                hostile.send("ApiVersions", 0)  # after it the gateway has seen the frame
                # Some requests wait for long, such as a Fetch or a JoinGroup.
                hostile.socket.settimeout(0.001 if size != len(data) else 0.5)
                while hostile.socket.recv(1 << 16):
                    if size == len(data):
                        break
                else:
                    raise ConnectionError
            except (OSError, TimeoutError):
                closed += 1
                hostile.socket.close()
                hostile = gateway.client()
            if count % 100 == 99:
                after = honest.ask("Metadata", 12, topics=[])
                assert after.brokers == before.brokers
    hostile.socket.close()
    return closed


@pytest.mark.parametrize(
    ("number", "seed"),
    [(3_000, 1), pytest.param(100_000, 2, marks=pytest.mark.long)],
)
def test_mutated_frames_disturb_nobody_else(tmp_path, caplog, number, seed):
    caplog.set_level("ERROR")
    root = tmp_path / "root"
    config = {"auto.create.topics.enable": False}
    with running_gateway(root, **config) as gateway:
        Admin(root).create_topics([NewTopic("kept", 2)])
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        closed = attack(gateway, number, seed)
        assert 0 < closed < number
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < MAX_GROWTH_KIB
        assert gateway.call(lambda: gateway.server.memory.used_bytes) == 0
        with gateway.client() as client:
            assert client.ask("Metadata", 12, topics=None).topics
    assert not [each for each in caplog.records if "failed" in each.message], caplog.text[:3000]
