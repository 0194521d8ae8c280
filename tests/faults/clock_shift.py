"""Wall clocks of processes that are days off and jump, by a library of our own in C.

The library is compiled when it is first needed. It has to be loaded when a process begins: so it is
in every process of the fault tests (`running`), and does nothing there until it is given a shift.
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
"""What a clock may be set to: right, a minute off, a day, a week."""

_SOURCE = Path(__file__).with_suffix(".c")


@cache
def library():
    """Return the path of the compiled library, None where there is no C compiler."""
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
    """Return what the environment of a process needs so that its clock can be shifted."""
    made = library()
    if made is None:
        return {}
    before = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{made}:{before}".rstrip(":")}


class ClockShift:
    """How far the clock of some processes is off; may be changed while they run.

    Attributes:
        path: of the file that tells it: what `running` passes to a process.
    """

    def __init__(self, path, *, days=0.0):
        self.path = str(path)
        Path(path).write_bytes(bytes(8))
        self.jump(days=days)

    def jump(self, *, days):
        """Set the clocks to so many days off."""
        with open(self.path, "r+b", buffering=0) as file:
            file.write(struct.pack("=q", int(days * DAY_US)))

    def environment(self):
        """Return what has to be in the environment of a process that is started with it."""
        return {**preloading(), "CLOCK_SHIFT_FILE": self.path}


def shift_this_process(path):
    """Let this process's clock be off by what a file says: one of `ClockShift`."""
    failed = ctypes.CDLL(None).clock_shift_by(os.fsencode(path))
    if failed:
        raise OSError(failed, os.strerror(failed), path)
