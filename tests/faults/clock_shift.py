"""Shifts the wall clocks of processes by days, with a preloaded library in C.

The library is compiled at its first use. It must be loaded when a process starts: therefore every
process of the fault tests (`managed_process`) loads it, and it does nothing until it gets a shift.
"""

import atexit
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

DAY_US = 86_400_000_000
DAYS_OFF = (0, 1 / 1440, 1.05, -1.05, 2, -2, 8, -8)
"""Possible errors of a clock: none, a minute, days, more than a week."""

_SOURCE = Path(__file__).with_suffix(".c")


@cache
def library():
    """Return the path of the compiled library; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    folder = tempfile.mkdtemp(prefix="spark-log-clock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = f"{folder}/clock_shift.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", made, str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


def preloading():
    """Return the environment variables of a process whose clock can be shifted."""
    made = library()
    if made is None:
        return {}
    before = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{made}:{before}".rstrip(":")}


class ClockShift:
    """The error of the wall clocks of some processes; may be changed while they run.

    Attributes:
        path: the file with the error, which `managed_process` passes to a process.
    """

    def __init__(self, path, *, days=0.0):
        self.path = str(path)
        Path(path).write_bytes(bytes(8))
        self.jump(days=days)

    def jump(self, *, days):
        """Set the error of the clocks, in days."""
        with open(self.path, "r+b", buffering=0) as file:
            file.write(struct.pack("=q", int(days * DAY_US)))

    def environment(self):
        """Return the environment variables of a process that starts with this clock."""
        return {**preloading(), "CLOCK_SHIFT_FILE": self.path}


def shift_this_process(path):
    """Shift the clock of this process by the error in a file of a `ClockShift`."""
    failed = ctypes.CDLL(None).clock_shift_by(os.fsencode(path))
    if failed:
        raise OSError(failed, os.strerror(failed), path)
