"""A process that works until its pipe is closed, and can be stopped and killed."""

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

# New processes are forked from one with all imports, so that they start at once.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "__main__",
        "tests.faults.clean_clients",
        "tests.faults.clean_process",
        "tests.faults.group_member_process",
        "tests.faults.group_producer_process",
        "tests.faults.reader_process",
        "tests.faults.replica_process",
        "tests.faults.rewriter",
        "tests.faults.stripe_change_process",
        "tests.faults.transactional_process",
        "tests.faults.transform_process",
        "tests.faults.writer_process",
    ]
)


@dataclass
class ManagedProcess:
    """A process that works until its pipe is closed.

    If the test dies, the pipe is closed and the process ends by itself.

    Attributes:
        process: the process.
        pipe: the test's end of the pipe.
        role: the argument with which it was started.
        stops: number of stops that have not ended.
        orders: number of orders that were sent to it.
    """

    process: BaseProcess
    pipe: Connection
    role: object
    stops: int = 0
    orders: int = 0

    @classmethod
    def start(cls, function, role, clock=None):
        """Start a process.

        Args:
            function: its work; called with the role and the other end of the pipe.
            role: describes the work.
            clock: a `ClockShift` for its wall clock; None: the machine's clock.
        """
        _start_server()
        its_end, pipe = _PROCESSES.Pipe(duplex=False)
        path = None if clock is None else clock.path
        process = _PROCESSES.Process(target=_run, args=(function, role, its_end, path), daemon=True)
        process.start()
        its_end.close()
        return cls(process, pipe, role)

    def signal(self, number):
        pid = self.process.pid
        if pid and self.process.is_alive():  # otherwise its id may belong to another process
            os.kill(pid, number)

    def tell(self, *order):
        """Send an order through the pipe."""
        self.orders += 1
        self.pipe.send(order)

    @property
    def is_stopped(self):
        return self.stops > 0

    def stop(self):
        """Send SIGSTOP; each stop needs one `resume`."""
        self.stops += 1
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.stops -= 1
        if not self.stops:
            self.signal(signal.SIGCONT)

    def let_end(self):
        """Let it finish its current work, and end."""
        self.pipe.close()

    def end(self):
        """Let it end, wait for it, and return its exit code."""
        self.let_end()
        self.process.join(_JOIN_S)
        return self.process.exitcode


@cache
def _start_server():
    """Start the fork server once, with the library that shifts clocks."""
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


def _run(function, role, orders, clock_path):
    if clock_path is not None:
        shift_this_process(clock_path)
    function(role, orders)
