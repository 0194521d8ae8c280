"""A process that works until it is told to end, and takes signals."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

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
    def start(cls, function, role):
        told, keeping = _PROCESSES.Pipe(duplex=False)
        process = _PROCESSES.Process(target=function, args=(role, told), daemon=True)
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
