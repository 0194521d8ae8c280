"""What a process writes down for the test to read, though it may be killed at any moment."""

import os


class Notes:
    """An append-only file that has a line as soon as it is written: SIGKILL takes nothing back."""

    def __init__(self, path):
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *fields):
        line = " ".join(map(str, fields)) + "\n"
        assert os.write(self._descriptor, line.encode()) == len(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._descriptor)


def read_notes(path):
    """Yield the fields of each line."""
    with open(path) as lines:
        for line in lines:
            yield line.split()
