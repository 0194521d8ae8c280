"""Connections: frames, the order of answers, back pressure, and what ends a connection."""

import asyncio
import struct
import threading
from dataclasses import replace

import pytest

from spark_log.gateway.protocol import encode_request, message_class, new_message
from spark_log.gateway.request import Api
from spark_log.gateway.requests import HANDLERS, Handler
from tests.gateway.support import TIMEOUT_S, RawClient, frame, running_gateway
from tests.waiting import wait_until

_Response = message_class("HeartbeatResponse")
_Large = message_class("SyncGroupResponse")


class Held:
    """A handler of Heartbeat requests that are answered when the test says so."""

    def __init__(self):
        self.started = []
        self.events = {}
        self.changed = threading.Condition()

    async def handle(self, gateway, context, request):
        number = request.generation_id
        event = asyncio.Event()
        with self.changed:
            self.started.append(number)
            self.events[number] = event
            self.changed.notify_all()
        if number < 0:
            raise ZeroDivisionError("a fault of the handler")
        if request.member_id != "at once":
            await event.wait()
        return None if request.member_id == "no answer" else _Response(throttle_time_ms=number)

    async def handle_sync(self, gateway, context, request):
        await self.handle(gateway, context, request)
        return _Large()

    def wait_for(self, numbers):
        with self.changed:
            assert self.changed.wait_for(lambda: self.started == numbers, TIMEOUT_S), self.started


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def handlers(held):
    overlapping = Api(12, "Heartbeat", 0, 4, overlaps=True)
    return {
        **HANDLERS,
        12: Handler(overlapping, held.handle),
        14: Handler(Api(14, "SyncGroup", 0, 5), held.handle_sync),
    }


@pytest.fixture
def gateway(tmp_path, handlers):
    with running_gateway(tmp_path / "root", handlers=handlers) as running:
        yield running


def answer(gateway, held, *numbers):
    for number in numbers:
        gateway.call(held.events[number].set)


def test_requests_that_overlap_are_started_in_order_and_answers_keep_the_order(
    gateway, client, held
):
    sent = [client.send("Heartbeat", 4, generation_id=number) for number in range(5)]
    held.wait_for([0, 1, 2, 3, 4])
    answer(gateway, held, 4, 2, 1, 3, 0)
    received = [client.receive() for _ in range(5)]
    assert [found for found, _ in received] == sent
    assert [response.throttle_time_ms for _, response in received] == [0, 1, 2, 3, 4]


def test_a_request_that_does_not_overlap_begins_when_those_before_it_have_ended(
    gateway, client, held
):
    apis = ("Heartbeat", "Heartbeat", "SyncGroup", "SyncGroup", "Heartbeat")
    for number, api in enumerate(apis):
        client.send(api, 4, generation_id=number)
    held.wait_for([0, 1, 4])
    answer(gateway, held, 1)
    held.wait_for([0, 1, 4])
    answer(gateway, held, 0)
    held.wait_for([0, 1, 4, 2])
    answer(gateway, held, 2)
    held.wait_for([0, 1, 4, 2, 3])
    answer(gateway, held, 3, 4)
    for _ in apis:
        client.receive()


def test_a_request_without_answer_does_not_hold_the_next(gateway, client, held):
    client.send("Heartbeat", 4, generation_id=0, member_id="no answer")
    last = client.send("Heartbeat", 4, generation_id=1)
    held.wait_for([0, 1])
    answer(gateway, held, 0, 1)
    assert client.receive()[0] == last


def test_one_client_does_not_hold_another(gateway, client, held):
    client.send("Heartbeat", 4, generation_id=0)
    held.wait_for([0])
    with gateway.client() as other:
        assert other.ask("Heartbeat", 4, generation_id=1, member_id="at once").throttle_time_ms == 1
    answer(gateway, held, 0)
    client.receive()


def test_a_frame_may_come_in_pieces(client, held):
    data = b"".join(encode_request("ApiVersions", 0, 1, None, new_message("ApiVersionsRequest")))
    for position in range(len(data)):
        client.send_bytes(data[position : position + 1])
    assert client.receive_frame()


def test_no_more_is_read_than_a_connection_may_have_in_flight(tmp_path, handlers, held):
    config = {"max.in.flight.requests.per.connection": 2}
    root = tmp_path / "root"
    with running_gateway(root, handlers=handlers, **config) as gateway, gateway.client() as client:
        for number in range(4):
            client.send("Heartbeat", 4, generation_id=number)
        held.wait_for([0, 1])
        with gateway.client() as other:  # the event loop has seen all that was sent
            other.ask("ApiVersions", 0)
        held.wait_for([0, 1])
        answer(gateway, held, 0)
        held.wait_for([0, 1, 2])
        answer(gateway, held, 1)
        held.wait_for([0, 1, 2, 3])
        answer(gateway, held, 2, 3)
        assert [client.receive()[1].throttle_time_ms for _ in range(4)] == [0, 1, 2, 3]


def test_requests_wait_for_memory_and_go_on(tmp_path, handlers, held):
    config = {"queued.max.request.bytes": 100}
    with (
        running_gateway(tmp_path / "root", handlers=handlers, **config) as gateway,
        gateway.client() as first,
        gateway.client() as second,
    ):
        first.send("Heartbeat", 4, generation_id=0, group_id="g" * 60)
        held.wait_for([0])
        second.send("Heartbeat", 4, generation_id=1, group_id="g" * 60)
        wait_until(lambda: gateway.call(lambda: gateway.server.memory.has_waiting))
        first.send("Heartbeat", 4, generation_id=2, group_id="g" * 60)
        with gateway.client() as other:
            other.send("ApiVersions", 0)
            held.wait_for([0])
            answer(gateway, held, 0)
            held.wait_for([0, 1])
            answer(gateway, held, 1)
            held.wait_for([0, 1, 2])
            answer(gateway, held, 2)
            other.receive()
        assert first.receive()[1].throttle_time_ms == 0
        assert first.receive()[1].throttle_time_ms == 2
        assert second.receive()[1].throttle_time_ms == 1
        assert gateway.call(lambda: gateway.server.memory.used_bytes) == 0


def test_clients_that_announce_much_and_send_little_hold_up_nobody(gateway, held):
    slow = [gateway.client() for _ in range(20)]
    for each in slow:
        each.send_bytes(struct.pack(">i", 100_000_000) + b"some bytes")
    with gateway.client() as other:
        assert other.ask("Heartbeat", 4, generation_id=3, member_id="at once").throttle_time_ms == 3
    assert gateway.call(lambda: gateway.server.memory.used_bytes) < 1000
    for each in slow:
        each.socket.close()


def test_an_answer_keeps_its_memory_until_its_client_reads_it(tmp_path):
    size_bytes = 20_000_000  # more than all buffers of sockets

    async def handle(gateway, context, request):
        assert await context.memory.reserve(size_bytes, 0)
        return _Large(assignment=bytes(size_bytes))

    handlers = {**HANDLERS, 14: Handler(Api(14, "SyncGroup", 0, 5), handle)}
    config = {"queued.max.request.bytes": size_bytes + 1000}
    root = tmp_path / "root"
    with running_gateway(root, handlers=handlers, **config) as gateway, gateway.client() as slow:
        memory = gateway.server.memory
        slow.send("SyncGroup", 5)
        wait_until(lambda: gateway.call(lambda: memory.used_bytes) >= size_bytes)
        with gateway.client() as other:
            other.send("Heartbeat", 4, group_id="g" * 2000)
            wait_until(lambda: gateway.call(lambda: memory.has_waiting))
            slow.receive_frame()
            other.receive()
        wait_until(lambda: not gateway.call(lambda: memory.used_bytes))


def test_a_client_that_does_not_read_is_closed_if_others_wait_for_its_memory(tmp_path):
    size_bytes = 20_000_000

    async def handle(gateway, context, request):
        assert await context.memory.reserve(size_bytes, 0)
        return _Large(assignment=bytes(size_bytes))

    handlers = {**HANDLERS, 14: Handler(Api(14, "SyncGroup", 0, 5), handle)}
    config = {"queued.max.request.bytes": size_bytes + 1000}
    root = tmp_path / "root"
    with running_gateway(root, handlers=handlers, **config) as gateway, gateway.client() as slow:
        memory = gateway.server.memory
        slow.send("SyncGroup", 5)
        wait_until(lambda: gateway.call(lambda: memory.used_bytes) >= size_bytes)
        late_s = gateway.loop.time() + 31
        gateway.call(lambda: gateway.server.check_connections(late_s))
        assert gateway.call(lambda: len(gateway.server.connections)) == 1, "nobody waits"
        with gateway.client() as other:
            other.send("Heartbeat", 4, group_id="g" * 2000)
            wait_until(lambda: gateway.call(lambda: memory.has_waiting))
            # Twice: the client's system takes more into its buffer before the first time, perhaps.
            for later_s in (late_s, late_s + 31):
                gateway.call(lambda later_s=later_s: gateway.server.check_connections(later_s))
            other.receive()


def test_memory_of_a_client_that_left_in_mid_frame_is_given_back(gateway, client):
    client.send_bytes(struct.pack(">i", 90_000_000) + b"some bytes")
    with gateway.client() as other:
        other.ask("ApiVersions", 0)
    client.socket.close()
    wait_until(lambda: not gateway.call(lambda: gateway.server.connections))
    assert gateway.server.memory.used_bytes == 0


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        frame(b"\x00"),
        frame(struct.pack(">hhih", 18, 0, 1, 30_000)),  # a client id longer than the frame
        frame(struct.pack(">hhih", 999, 0, 1, -1)),  # no such API
        frame(struct.pack(">hhih", 12, 99, 1, -1)),  # no such version
        frame(struct.pack(">hhih", 12, 4, 1, -1) + b"\x00\xff\xff\xff\xff\x0f"),
        b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n",
    ],
)
def test_what_cannot_be_read_ends_its_connection_and_no_other(gateway, client, data):
    with gateway.client() as hostile:
        hostile.send_bytes(data)
        assert hostile.is_closed()
    assert client.ask("ApiVersions", 0).error_code == 0


def test_a_fault_of_a_handler_ends_its_connection_after_the_answers_before_it(
    gateway, client, held
):
    with gateway.client() as unlucky:
        unlucky.send("Heartbeat", 4, generation_id=5, member_id="at once")
        unlucky.send("Heartbeat", 4, generation_id=-1)
        assert unlucky.receive()[1].throttle_time_ms == 5
        assert unlucky.is_closed()
    assert client.ask("ApiVersions", 0).error_code == 0


def test_a_request_that_only_waits_ends_with_its_connection_and_others_do_not(tmp_path, held):
    handlers = {
        12: Handler(Api(12, "Heartbeat", 0, 4, only_reads=True), held.handle),
        13: Handler(Api(13, "LeaveGroup", 0, 4), _leave),
    }
    with running_gateway(tmp_path / "root", handlers=handlers) as gateway:
        client = gateway.client()
        client.send("Heartbeat", 4, generation_id=1)
        client.send("LeaveGroup", 4)
        held.wait_for([1])
        assert gateway.call(lambda: gateway.server.memory.used_bytes) > 0
        client.socket.close()
        wait_until(lambda: not gateway.call(lambda: gateway.server.memory.used_bytes))
        assert gateway.call(lambda: len(gateway.server.connections)) == 0


def test_a_request_that_needs_its_client_does_not_begin_without_it(tmp_path, handlers, held):
    handlers[14] = Handler(Api(14, "SyncGroup", 0, 5, needs_client=True), held.handle_sync)
    with running_gateway(tmp_path / "root", handlers=handlers) as gateway:
        for number, is_gone in ((0, True), (2, False)):
            client = gateway.client()
            client.send("Heartbeat", 4, generation_id=number)
            client.send("SyncGroup", 4, generation_id=number + 1)
            held.wait_for([0, 2][: number // 2 + 1])
            wait_until(lambda: gateway.call(lambda: sum(_in_flight(gateway))) == 2)
            if is_gone:
                client.socket.close()
                wait_until(lambda: not gateway.call(lambda: len(gateway.server.connections)))
            answer(gateway, held, number)
            if is_gone:
                wait_until(lambda: not gateway.call(lambda: gateway.server.memory.used_bytes))
        held.wait_for([0, 2, 3])
        answer(gateway, held, 3)
        client.receive()
        client.receive()
        client.socket.close()


def _in_flight(gateway):
    return [each.in_flight for each in gateway.server.connections]


async def _leave(gateway, context, request):
    return message_class("LeaveGroupResponse")()


def test_a_fault_of_a_handler_is_answered_if_the_api_can(tmp_path, held):
    api = Api(12, "Heartbeat", 0, 4, error_response=lambda _, code, __: _Response(error_code=code))
    handlers = {12: Handler(api, held.handle)}
    root = tmp_path / "root"
    with running_gateway(root, handlers=handlers) as gateway, gateway.client() as client:
        assert client.ask("Heartbeat", 4, generation_id=-1).error_code == -1


def test_a_slow_request_and_an_idle_connection_are_closed(gateway, client, held):
    with gateway.client() as slow, gateway.client() as idle, gateway.client() as busy:
        slow.send_bytes(struct.pack(">i", 100) + b"a")
        idle.ask("ApiVersions", 0)
        busy.send("Heartbeat", 4, generation_id=0)
        held.wait_for([0])
        gateway.call(lambda: gateway.server.check_connections(gateway.loop.time() + 31))
        assert slow.is_closed()
        assert idle.ask("ApiVersions", 0).error_code == 0
        gateway.call(lambda: gateway.server.check_connections(gateway.loop.time() + 601))
        assert idle.is_closed()
        answer(gateway, held, 0)
        assert busy.receive()[1].throttle_time_ms == 0


def test_connections_above_the_limit_are_closed(tmp_path):
    config = {"max.connections": 1}
    with running_gateway(tmp_path / "root", **config) as gateway, gateway.client() as first:
        first.ask("ApiVersions", 0)
        with gateway.client() as second:
            assert second.is_closed()
        first.ask("ApiVersions", 0)


def test_stopping_answers_what_was_received_and_accepts_nothing_more(tmp_path, handlers, held):
    with running_gateway(tmp_path / "root", handlers=handlers) as gateway:
        client = gateway.client()
        client.send("Heartbeat", 4, generation_id=7)
        held.wait_for([7])
        stopping = threading.Thread(target=gateway.run, args=(gateway.server.stop(),))
        stopping.start()
        wait_until(lambda: not gateway.server.is_listening)
        with pytest.raises(ConnectionError):
            RawClient(gateway.host, gateway.port).ask("ApiVersions", 0)
        answer(gateway, held, 7)
        assert client.receive()[1].throttle_time_ms == 7
        assert client.is_closed()
        stopping.join(TIMEOUT_S)
        assert not stopping.is_alive()


def test_the_client_software_of_api_versions_is_in_the_context(tmp_path):
    contexts = []

    async def handle(gateway, context, request):
        contexts.append(context)
        return _Response()

    api = replace(Api(12, "Heartbeat", 0, 4))
    handlers = {**HANDLERS, 12: Handler(api, handle)}
    with (
        running_gateway(tmp_path / "root", handlers=handlers) as gateway,
        gateway.client() as client,
    ):
        client.ask("ApiVersions", 3, client_software_name="lib", client_software_version="1")
        client.ask("Heartbeat", 4)
    (found,) = contexts
    assert found.client_software == ("lib", "1")
    assert (found.client_id, found.client_host) == ("a-test", "127.0.0.1")
    assert found.principal == "User:ANONYMOUS"
