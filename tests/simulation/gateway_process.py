"""A simulated gateway's process: requests of clients, the event loop that answers them, threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from spark_log.util.clock import Clock
from tests.simulation.event_loop import SimulatedEventLoop
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.scheduler import Actor, Scheduler

REQUEST_TIMEOUT_MS = 1.5 * SESSION_TIMEOUT_MS
"""The time for which a client waits for an answer; it is longer than a session."""

_LONGEST_WAIT_MS = 100.0
_MANY_MS = 4 * SESSION_TIMEOUT_MS


@dataclass(slots=True)
class Network:
    """The conditions of requests between clients and gateways.

    Attributes:
        latency_ms: mean time of a request, and of an answer.
        lost: probability that a request, or its answer, does not arrive.
        late: probability that it arrives very late.
        stopped: probability that a gateway stands still after a step.
    """

    latency_ms: float
    lost: float
    late: float
    stopped: float


def draw_network(random: Random) -> Network:
    """Draw the conditions of requests between clients and gateways."""
    return Network(
        latency_ms=random.choice((1.0, 4.0)),
        lost=random.choice((0.0, 0.0, 0.02, 0.1)),
        late=random.choice((0.0, 0.02, 0.1, 0.3)),
        stopped=random.choice((0.0, 0.0, 0.002)),
    )


@dataclass(slots=True, eq=False)
class Request:
    """A request of a client.

    Attributes:
        serve: the gateway's handler of the request.
        sender: the client, which is woken by the answer.
        answer: the answer; None if it has not arrived.
        is_over: whether the request has been answered, or has died with a gateway.
    """

    serve: Callable[[Any], Awaitable[Any]]
    sender: Actor
    answer: Any = None
    is_over: bool = False


class ProcessWorld(Protocol):
    """The part of a world that gateways and their clients use."""

    scheduler: Scheduler
    clock: Clock
    network: Network
    preferred: int
    is_over: bool

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""


class GatewayProcess(ABC):
    """One gateway, which begins again without memory after each crash.

    Attributes:
        number: the number by which clients find it.
        loop: the event loop of the present process.
    """

    loop: SimulatedEventLoop

    def __init__(self, world: ProcessWorld, number: int) -> None:
        """Return a gateway; `run` is its life."""
        self.world = world
        self.number = number
        self._waiting: list[Request] = []
        self._served: list[Request] = []
        self._coordinator = 0

    @abstractmethod
    def open(self) -> None:
        """Make the objects of a new process; nothing is read yet."""

    def is_coordinator(self, _: str) -> bool:
        """Return whether clients are sent here, as far as this gateway knows; it may be late."""
        return self._coordinator == self.number

    def run(self) -> None:
        """Serve requests until the simulation is over; called again after each crash."""
        world = self.world
        for request in (*self._waiting, *self._served):
            request.is_over = True
        self._waiting.clear()
        self._served.clear()
        self.loop = SimulatedEventLoop(world.scheduler, world.clock)
        self._coordinator = world.preferred
        self.open()
        self.loop.run_until(self._take_requests, longest_wait_ms=_LONGEST_WAIT_MS)

    def receive(self, request: Request) -> None:
        """Take a request that has arrived."""
        self._waiting.append(request)
        if hasattr(self, "loop"):
            self.loop.wake()

    def _take_requests(self) -> bool:
        world, random = self.world, self.world.scheduler.random
        if random.random() < world.network.stopped:
            self._stand_still(_MANY_MS * random.random())
        if random.random() < 0.05:
            self._coordinator = world.preferred
        while self._waiting:
            request = self._waiting.pop(0)
            self._served.append(request)
            self.loop.create_task(self._serve(request))
        self.loop.run_ready()
        return world.is_over

    def _stand_still(self, duration_ms: float) -> None:
        scheduler = self.world.scheduler
        scheduler.note("stands still")
        until_ms = scheduler.now_ms + duration_ms
        while scheduler.now_ms < until_ms:
            scheduler.pass_time(until_ms - scheduler.now_ms)

    async def _serve(self, request: Request) -> None:
        answer = await request.serve(self)
        self._served.remove(request)
        request.is_over = True

        def arrive() -> None:
            request.answer = answer
            self.world.scheduler.wake(request.sender)

        deliver(self.world, arrive)


@dataclass(slots=True)
class Connection:
    """A client's requests to the gateways.

    Attributes:
        world: the state of the simulation.
        gateways: the gateways.
        stray: probability that a request goes to another gateway than those of other clients.
        unanswered: the requests that the client waits for no more, and which may still be served.
    """

    world: ProcessWorld
    gateways: list[Any]
    stray: float
    unanswered: list[Request] = field(default_factory=list)

    def send(self, serve: Callable[[Any], Awaitable[Any]]) -> Request:
        """Send a request, and do not wait for its answer."""
        world = self.world
        random, sender = world.scheduler.random, world.scheduler.current
        assert sender is not None
        number = world.preferred
        if self.stray and random.random() < self.stray:
            number = random.randrange(len(self.gateways))
        request = Request(serve, sender)
        gateway: GatewayProcess = self.gateways[number]
        if not deliver(world, lambda: gateway.receive(request)):
            request.is_over = True
        return request

    def ask(self, serve: Callable[[Any], Awaitable[Any]]) -> Any:
        """Send a request, and return its answer; None without one."""
        world = self.world
        request = self.send(serve)
        until_ms = world.scheduler.now_ms + REQUEST_TIMEOUT_MS
        while request.answer is None:
            left_ms = until_ms - world.scheduler.now_ms
            if left_ms <= 0 or world.is_over:
                self.unanswered = [each for each in self.unanswered if not each.is_over]
                self.unanswered.append(request)
                return None
            world.scheduler.pass_time(left_ms)
        return request.answer


def deliver(world: ProcessWorld, arrive: Callable[[], None]) -> bool:
    """Let a message arrive some time from now; return whether it does."""
    random, network = world.scheduler.random, world.network
    if random.random() < network.lost:
        return False
    delay_ms = random.expovariate(1 / network.latency_ms)
    if random.random() < network.late:
        delay_ms += _MANY_MS * random.random()
    world.scheduler.after(delay_ms, arrive)
    return True
