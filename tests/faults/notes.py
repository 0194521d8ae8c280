"""Notes that a process writes for its test, and that survive its SIGKILL."""

import os


class Notes:
    """An append-only file of unbuffered lines: a written line survives SIGKILL."""

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
    """Yield the fields of each line of a file of notes."""
    with open(path) as lines:
        for line in lines:
            yield line.split()
