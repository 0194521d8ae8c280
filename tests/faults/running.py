"""A process that works until it is told to end, and takes signals."""

import multiprocessing
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.faults.clock_shift import preloading, shift_this_process

_JOIN_S = 60

# New processes come from one that has all imported: a killed writer's place is taken at once.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "__main__",
        "tests.faults.clean_cast",
        "tests.faults.clean_process",
        "tests.faults.group_member_process",
        "tests.faults.group_producer_process",
        "tests.faults.reader_process",
        "tests.faults.rewriter",
        "tests.faults.writer_process",
    ]
)


@dataclass
class Running:
    """A process at work, and the end of the pipe that keeps it at that.

    Should the test die, the pipe is closed and the process ends by itself.

    Attributes:
        process: the process.
        keeping: our end of the pipe.
        role: what it was started with.
        stops: how often it was stopped and not continued yet.
        orders: how many it was told.
    """

    process: BaseProcess
    keeping: Connection
    role: object
    stops: int = 0
    orders: int = 0

    @classmethod
    def start(cls, function, role, clock=None):
        """Start a process.

        Args:
            function: what it does.
            role: given to that, with the end of a pipe.
            clock: how far its wall clock is off, a `ClockShift`; None: not at all.
        """
        _start_server()
        told, keeping = _PROCESSES.Pipe(duplex=False)
        path = None if clock is None else clock.path
        process = _PROCESSES.Process(target=_run, args=(function, role, told, path), daemon=True)
        process.start()
        told.close()
        return cls(process, keeping, role)

    def signal(self, number):
        if self.process.is_alive():  # else its id may be another's by now
            os.kill(self.process.pid, number)

    def tell(self, *order):
        """Let it read this at its end of the pipe."""
        self.orders += 1
        self.keeping.send(order)

    @property
    def is_stopped(self):
        return self.stops > 0

    def stop(self):
        """SIGSTOP; as often as it is stopped it has to be continued."""
        self.stops += 1
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.stops -= 1
        if not self.stops:
            self.signal(signal.SIGCONT)

    def let_end(self):
        """Let it finish what it is doing, and end."""
        self.keeping.close()

    def end(self):
        """Let it end, and return how it did."""
        self.let_end()
        self.process.join(_JOIN_S)
        return self.process.exitcode


@cache
def _start_server():
    """Start what new processes come from, once, so that their clocks can be shifted."""
    with _environment(preloading()):
        forkserver.ensure_running()


@contextmanager
def _environment(more):
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(function, role, told, clock_path):
    if clock_path is not None:
        shift_this_process(clock_path)
    function(role, told)
