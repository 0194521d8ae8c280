"""The process of a gateway: its threads share two heaps, so that freed memory is used again."""

import subprocess
import sys

import pytest

_SCRIPT = """
import ctypes, sys, threading
from spark_log.gateway.event_loop import run_event_loop

async def main():
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    barrier, addresses = threading.Barrier(16), []

    def allocate():
        barrier.wait()
        addresses.append(libc.malloc(1000))
        barrier.wait()

    threads = [threading.Thread(target=allocate) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    # A heap that is not the main one begins at a multiple of 64 MiB.
    print(len({address >> 26 for address in addresses}))

run_event_loop(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="options of glibc")
def test_the_threads_of_a_gateway_share_two_heaps():
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 3  # the main heap may lie across a border
